package lint

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"

	yaml "go.yaml.in/yaml/v3"

	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/yamltext"
)

// baselineVersion is the version of the format of baselines.
const baselineVersion = 1

// A Baseline contains the findings that are accepted until they are fixed. All other findings are new, and count.
type Baseline struct {
	file    string
	entries []*baselineEntry
}

// baselineText is a baseline in YAML.
type baselineText struct {
	Version  int              `yaml:"version"`
	Findings []*baselineEntry `yaml:"findings"`
}

// A baselineEntry accepts findings of one rule about one object. The message is for people: it may have other
// words by now.
type baselineEntry struct {
	baselineKey `yaml:",inline"`
	Count       int    `yaml:"count,omitempty"` // 1, if it is left out
	Message     string `yaml:"message,omitempty"`

	line int
}

// A baselineKey is equal for findings that are the same to a baseline. It has no
// lines, so that an edit elsewhere in a file changes nothing.
type baselineKey struct {
	File   string `yaml:"file"`
	In     Origin `yaml:"in,omitempty"`
	Rule   string `yaml:"rule"`
	Object string `yaml:"object,omitempty"`
}

// baselineKeyOf returns the key of a finding. The configuration counts as one file, regardless of its folder.
func baselineKeyOf(f Finding) baselineKey {
	file := f.File
	if f.In == InConfig {
		file = path.Base(file)
	}
	return baselineKey{File: file, In: f.In, Rule: f.Rule, Object: f.Object}
}

func (b baselineKey) compare(q baselineKey) int {
	return cmp.Or(cmp.Compare(b.In, q.In), cmp.Compare(b.File, q.File), cmp.Compare(b.Rule, q.Rule),
		cmp.Compare(b.Object, q.Object))
}

// baselineComment explains a baseline to its reviewers.
const baselineComment = `# Findings that "runlevel lint" accepts until they are fixed. New findings count.
# "runlevel lint SOURCE --baseline FILE --write-baseline" rewrites this file, and an
# entry of a fixed finding can be dropped by hand. Rule, file, object and count decide;
# the message is for readers.
`

// WriteBaseline writes the baseline that accepts some findings, and no others. The same
// findings always result in the same text.
func WriteBaseline(out io.Writer, findings []Finding) error {
	text := baselineText{Version: baselineVersion, Findings: []*baselineEntry{}}
	entries := map[baselineKey]*baselineEntry{}
	for _, f := range findings {
		key := baselineKeyOf(f)
		switch entry := entries[key]; {
		case f.In == InBaseline: // a finding about the baseline, which is replaced
		case entry == nil:
			entries[key] = &baselineEntry{baselineKey: key, Count: 1, Message: f.Message}
			text.Findings = append(text.Findings, entries[key])
		default:
			entry.Count++
			entry.Message = min(entry.Message, f.Message) // independent of their order
		}
	}
	for _, entry := range text.Findings {
		if entry.Count == 1 {
			entry.Count = 0 // an omitted count is 1
		}
	}
	slices.SortFunc(text.Findings, func(a, b *baselineEntry) int { return a.compare(b.baselineKey) })
	var content bytes.Buffer
	content.WriteString(baselineComment)
	encoder := yaml.NewEncoder(&content)
	encoder.CompactSeqIndent()
	encoder.SetIndent(2)
	var node yaml.Node
	if err := node.Encode(text); err != nil {
		return err
	}
	quoteHarmful(&node)
	if err := errors.Join(encoder.Encode(&node), encoder.Close()); err != nil {
		return err
	}
	_, err := out.Write(printable.JSON(content.Bytes())) // escapes of JSON are valid in quotes of YAML
	return err
}

// quoteHarmful puts values with control characters in quotes, in which they can be escaped.
func quoteHarmful(node *yaml.Node) {
	if node.Kind == yaml.ScalarNode && !printable.IsHarmless([]byte(node.Value)) {
		node.Style = yaml.DoubleQuotedStyle
	}
	for _, child := range node.Content {
		quoteHarmful(child)
	}
}

// ParseBaseline reads a baseline. The file is its name in errors and findings.
func ParseBaseline(file string, content []byte) (*Baseline, error) {
	var text baselineText
	if err := text.parse(content); err != nil {
		return nil, fmt.Errorf("%s: %s", file, explain(err))
	}
	return &Baseline{file: file, entries: text.Findings}, nil
}

// parse checks the version first: the format of any other version is unknown.
func (t *baselineText) parse(content []byte) error {
	root, err := parseFile(content)
	if err != nil {
		return err
	}
	if root != nil && root.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: this must be a mapping", root.Line)
	}
	places := yamltext.NewPlaces(root)
	if places.Node("version") == nil {
		return fmt.Errorf(`this is not a baseline: it has no "version: %d"`, baselineVersion)
	}
	if version := places.Scalar("version"); version != fmt.Sprint(baselineVersion) {
		return fmt.Errorf("it is of version %s, and this runlevel reads and writes %d: use the runlevel that wrote "+
			"it, or write it again", cmp.Or(version, "?"), baselineVersion)
	}
	if err := root.Decode(t); err != nil {
		return err
	}
	if slices.Contains(t.Findings, nil) {
		return errors.New("findings has an empty entry: write a file and a rule, or drop it")
	}
	return nil
}

// UnmarshalYAML refuses unknown keys.
func (t *baselineText) UnmarshalYAML(node *yaml.Node) error {
	type rawBaseline baselineText // without this method
	return decodeMapping(node, (*rawBaseline)(t), "version", "findings")
}

// UnmarshalYAML records the line, for the finding about an entry that no longer accepts anything.
func (b *baselineEntry) UnmarshalYAML(node *yaml.Node) error {
	type rawEntry baselineEntry // without this method
	b.line, b.Count = node.Line, 1
	if err := decodeMapping(node, (*rawEntry)(b), "file", "in", "rule", "object", "count", "message"); err != nil {
		return err
	}
	switch {
	case b.File == "" || b.Rule == "":
		return fmt.Errorf("line %d: this entry accepts nothing: write its file and its rule", b.line)
	case !slices.Contains([]Origin{InPayload, InPrevious, InRelease, InConfig}, b.In):
		return fmt.Errorf("line %d: in is %q, and must be %s, %s or %s, or left out", b.line, b.In, InPrevious,
			InRelease, InConfig)
	case b.Count < 1:
		return fmt.Errorf("line %d: count is %d, and must be 1 or more: drop the entry if there are none", b.line,
			b.Count)
	}
	return nil
}

// acceptFindings suppresses the findings that are in the baseline, and reports the entries that are no longer found.
func (r *Result) acceptFindings(baseline *Baseline, config Config) {
	if baseline == nil {
		return
	}
	remaining := map[*baselineEntry]int{}
	entries := map[baselineKey][]*baselineEntry{}
	for _, entry := range baseline.entries {
		remaining[entry] = entry.Count
		entries[entry.baselineKey] = append(entries[entry.baselineKey], entry)
	}
	found := r.Findings
	r.Findings = []Finding{}
	for _, f := range found {
		same := entries[baselineKeyOf(f)]
		n := slices.IndexFunc(same, func(entry *baselineEntry) bool { return remaining[entry] > 0 })
		if n < 0 {
			r.Findings = append(r.Findings, f)
			continue
		}
		remaining[same[n]]--
		f.Suppressed = &Suppression{
			Reason: "known in the baseline",
			File:   baseline.file,
			Line:   same[n].line,
			In:     InBaseline,
		}
		r.Suppressed = append(r.Suppressed, f)
	}
	rule, _ := FindRule("stale-baseline")
	if severity := config.severity(rule); severity != Off {
		for _, entry := range baseline.entries {
			if message := entry.staleMessage(remaining[entry], r.Ran); message != "" {
				r.Findings = append(r.Findings, Finding{
					Rule: rule.ID, Severity: severity, File: baseline.file, In: InBaseline, Line: entry.line,
					Object: entry.Object, Message: printable.Line(message),
				})
			}
		}
	}
	slices.SortStableFunc(r.Findings, byPlace)
	slices.SortStableFunc(r.Suppressed, byPlace)
}

// staleMessage returns the message about an entry that accepts more findings than there are, given how many it has
// left; "" if it does not, or its rule did not run.
func (b *baselineEntry) staleMessage(remaining int, ran []string) string {
	place := b.File
	if b.In != InPayload {
		place += fmt.Sprintf(" (%s)", b.In)
	}
	_, exists := FindRule(b.Rule)
	switch {
	case !exists:
		return fmt.Sprintf("this entry accepts nothing: unknown rule %q%s", b.Rule, DidYouMean(b.Rule))
	case remaining == 0 || !slices.Contains(ran, b.Rule):
		return ""
	case remaining < b.Count:
		return fmt.Sprintf("%s finds %d of these in %s, and no longer %d: lower the count", b.Rule, b.Count-remaining,
			place, b.Count)
	default:
		return fmt.Sprintf("%s no longer finds this in %s: drop the entry", b.Rule, place)
	}
}
