package deploymenthook

import (
	"maps"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// The fields of each mapping, in the order in which they are listed.
var (
	stageFields = []string{"pre", "mid", "post"}
	hookFields  = []string{"failurePolicy", "execNewPod", "timeoutSeconds", "backoffLimit", "serviceAccountName", "resources", "keep"}
	podFields   = []string{"containerName", "command", "args", "env", "volumes"}
	envFields   = []string{"name", "value", "valueFrom"}
	resourceMap = []string{"limits", "requests"}
)

// elsewhere has advice for fields that other APIs have, or that are in the wrong place.
var elsewhere = map[string]string{
	"tagImages":      "is DeploymentConfig's, and tags no image here: tag it where it is built, or run a command that does so with execNewPod",
	"rollingParams":  "is DeploymentConfig's: write pre and post at the top of the annotation, whatever the strategy is",
	"recreateParams": "is DeploymentConfig's: write pre, mid and post at the top of the annotation, and spec.strategy.type: Recreate",
	"customParams":   "is DeploymentConfig's: a Deployment has no custom strategy; write pre, mid and post at the top of the annotation",
	"strategy":       "is no field of hooks: the strategy is in spec.strategy of the Deployment; write pre, mid and post at the top of the annotation",
	"image":          "is no field of hooks: the image is that of the container that containerName names",
}

// mapping returns the fields of a value that has to be a mapping. Fields that are null are left out, and unknown fields
// are reported.
func (p *parser) mapping(path []string, value any, known []string) (map[string]any, bool) {
	fields, isMapping := value.(map[string]any)
	if !isMapping {
		p.invalid(path, "is %s, and must be a mapping of %s", describe(value), strings.Join(known, ", "))
		return nil, false
	}
	present := make(map[string]any, len(fields))
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(known, name) {
			p.unknown(path, name, known)
		} else if fields[name] != nil {
			present[name] = fields[name]
		}
	}
	return present, true
}

// unknown reports an unknown field of a mapping, and what to write instead.
func (p *parser) unknown(path []string, name string, known []string) {
	at := slices.Concat(path, []string{name})
	meant := nearest(name, known)
	if name == "tagImages" {
		meant = "execNewPod"
	}
	p.meant[nameOf(slices.Concat(path, []string{meant}))] = true
	if sentence, isElsewhere := elsewhere[name]; isElsewhere {
		p.invalid(at, "%s", sentence)
		return
	}
	if meant != "" {
		p.invalid(at, "is an unknown field: did you mean %s?", meant)
		return
	}
	for _, owner := range []struct {
		name   string
		fields []string
	}{{"the top of the annotation", stageFields}, {"the hook, beside execNewPod", hookFields}, {"execNewPod", podFields}} {
		if slices.Contains(owner.fields, name) {
			p.invalid(at, "stands in the wrong place: it is a field of %s", owner.name)
			return
		}
	}
	p.invalid(at, "is an unknown field: there are %s", strings.Join(known, ", "))
}

// isMissing reports whether a mapping lacks a field, misspelt ones included.
func (p *parser) isMissing(path []string, fields map[string]any) bool {
	return fields[path[len(path)-1]] == nil && !p.meant[nameOf(path)]
}

// nearest returns the word that is most similar to a name, or begins with it; "" if there is none.
func nearest(name string, words []string) string {
	best, closest := "", 3
	name = strings.ToLower(printable.Truncate(name, maxQuoted))
	for _, word := range words {
		d := printable.EditDistance(name, strings.ToLower(word))
		if len(name) > 3 && strings.HasPrefix(strings.ToLower(word), name) {
			d = min(d, 2)
		}
		if d < closest {
			best, closest = word, d
		}
	}
	return best
}

// textOf returns a value that has to be a string.
func (p *parser) textOf(path []string, value any) (string, bool) {
	text, isText := value.(string)
	if !isText {
		p.invalid(path, "is %s, and must be a text: write it in quotes", describe(value))
	}
	return text, isText
}

// list returns the items of a value that has to be a list; example is how to write one.
func (p *parser) list(path []string, value any, example string) []any {
	items, isList := value.([]any)
	if !isList {
		p.invalid(path, "is %s, and must be a list: write %s", describe(value), example)
	}
	return items
}

// word checks a value that has to be one of the known words.
func (p *parser) word(path []string, value any, words ...string) {
	text, isText := p.textOf(path, value)
	if !isText || slices.Contains(words, text) {
		return
	}
	if meant := nearest(text, words); meant != "" {
		p.invalid(path, "is %q: write %s", printable.Truncate(text, maxQuoted), meant)
		return
	}
	p.invalid(path, "is %q, and must be one of %s", printable.Truncate(text, maxQuoted), strings.Join(words, ", "))
}
