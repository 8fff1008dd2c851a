// Package mistakes contains mistakes that people make in manifests, for tests of the checks that find them before an
// API server does. Each mistake is an edit of the release in shop/. mistakes.yaml has those that an API server refuses,
// and server.txt its answers, which a test compares. outages/ has changes that it accepts and that take a service down,
// a file for each family, with the lines that a cluster then shows.
//
// Only tests import the package.
//
// Start with All and Outages.
package mistakes

import (
	"cmp"
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"testing/fstest"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

//go:embed shop mistakes.yaml outages
var files embed.FS

// A Group is the reaction of an API server to a mistake.
type Group string

// The groups of mistakes.
const (
	Create Group = "create" // it refuses to create the objects
	Within Group = "within" // it refuses to create the objects because of the state of the cluster
	Update Group = "update" // it refuses to update the objects of the release before
	Outage Group = "outage" // it accepts the mistake, and something stops working
	Fine   Group = "fine"   // it accepts the edit, which is none
)

// A Mistake is an edit of the release.
type Mistake struct {
	Name     string `json:"name"`
	Group    Group  `json:"group"`
	In       string `json:"in"`
	Before   []Edit `json:"before"` // of the release before as well
	Edits    []Edit `json:"edits"`
	Mentions string `json:"mentions"`
	Because  string `json:"because"`

	// The other fields are for outages.

	Family string   `json:"-"`
	Tried  Trial    `json:"tried"`
	Shows  []string `json:"shows"`  // parts of the lines that a cluster shows after the update, and not before
	Alone  bool     `json:"alone"`  // it affects the whole cluster
	Missed string   `json:"missed"` // why neither lint nor a rehearsal finds it; "" if one does
}

// A Trial is the way in which an outage was seen.
type Trial string

// The trials of outages.
const (
	ControlPlane Trial = "control-plane" // a test sees it on a control plane
	Node         Trial = "node"          // a test sees it on a real node
	Reasoning    Trial = "reasoning"     // neither can show it: Because has the reason
)

// An Edit changes a file, by default the mistake's. It has one of the changes.
type Edit struct {
	In      string `json:"in"`
	Replace string `json:"replace"` // a text that the file has once
	With    string `json:"with"`
	Append  string `json:"append"` // a document, added to the file
	Drop    string `json:"drop"`   // the document of an object, such as "Secret registry", which goes
	Mark    string `json:"mark"`   // the document of an object, which gets the delete annotation
}

// All returns all mistakes but those of Outages.
func All() ([]Mistake, error) { return read("mistakes.yaml") }

// Outages returns the mistakes of outages/.
func Outages() ([]Mistake, error) {
	names, err := fs.Glob(files, "outages/*.yaml")
	if err != nil {
		return nil, err
	}
	var all []Mistake
	for _, name := range names {
		found, err := read(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for i := range found {
			found[i].Family = strings.TrimSuffix(path.Base(name), ".yaml")
		}
		all = append(all, found...)
	}
	return all, nil
}

// read returns the mistakes of a file.
func read(name string) (all []Mistake, err error) {
	text, err := files.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return all, yaml.UnmarshalStrict(text, &all)
}

// Shop returns the release without mistakes.
func Shop() (fstest.MapFS, error) {
	shop := fstest.MapFS{}
	names, err := fs.Glob(files, "shop/*.yaml")
	for _, name := range names {
		text, readErr := files.ReadFile(name)
		if readErr != nil {
			return nil, readErr
		}
		shop[path.Base(name)] = &fstest.MapFile{Data: text}
	}
	return shop, err
}

// Previous returns the release before the mistake.
func (m Mistake) Previous() (fstest.MapFS, error) {
	release, err := Shop()
	if err == nil {
		_, err = m.apply(m.Before, release)
	}
	return release, err
}

// Release returns the release with the mistake, and the files that differ.
func (m Mistake) Release() (release fstest.MapFS, changed []string, err error) {
	if release, err = m.Previous(); err == nil {
		changed, err = m.apply(m.Edits, release)
	}
	return release, changed, err
}

// apply edits a release, and returns the edited files.
func (m Mistake) apply(edits []Edit, release fstest.MapFS) (changed []string, err error) {
	for _, edit := range edits {
		edit.In = cmp.Or(edit.In, m.In)
		name, err := edit.apply(release)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.Name, err)
		}
		changed = append(changed, name)
	}
	return changed, nil
}

// apply edits the file of a release, and returns its name.
func (e Edit) apply(release fstest.MapFS) (string, error) {
	for name, file := range release {
		if strings.Contains(name, e.In) {
			text, err := e.edited(string(file.Data))
			release[name] = &fstest.MapFile{Data: []byte(text)}
			return name, err
		}
	}
	return "", fmt.Errorf("no file is called %q", e.In)
}

const separator = "\n---\n"

// edited returns an edited text.
func (e Edit) edited(text string) (string, error) {
	switch {
	case e.Append != "":
		return strings.TrimSuffix(text, "\n") + separator + e.Append, nil
	case e.Replace != "":
		if found := strings.Count(text, e.Replace); found != 1 {
			return "", fmt.Errorf("%s has the text %q %d times instead of once", e.In, e.Replace, found)
		}
		return strings.Replace(text, e.Replace, e.With, 1), nil
	}
	documents := strings.Split(strings.TrimSuffix(text, "\n"), separator)
	kind, name, _ := strings.Cut(e.Drop+e.Mark, " ")
	for i, document := range documents {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			return "", err
		}
		if object.GetKind() != kind || object.GetName() != name {
			continue
		}
		if e.Drop != "" {
			return strings.Join(slices.Delete(documents, i, i+1), separator) + "\n", nil
		}
		object.SetAnnotations(map[string]string{"release.openshift.io/delete": "true"})
		marked, err := yaml.Marshal(object.Object)
		documents[i] = strings.TrimSuffix(string(marked), "\n")
		return strings.Join(documents, separator) + "\n", err
	}
	return "", fmt.Errorf("%s has no %s %s", e.In, kind, name)
}

// Outcome compares the findings about the mistake with the text that a user needs: "found", "misleading" or "missed";
// of an edit without a mistake, "quiet" or "false".
func (m Mistake) Outcome(found []string) string {
	switch {
	case m.Group == Fine && len(found) > 0:
		return "false"
	case m.Group == Fine:
		return "quiet"
	case len(found) == 0:
		return "missed"
	case slices.ContainsFunc(found, func(text string) bool { return strings.Contains(text, m.Mentions) }):
		return "found"
	default:
		return "misleading"
	}
}

// A Table lists mistakes with their outcomes, and counts them.
type Table struct {
	lines  strings.Builder
	counts map[Group]map[string]int
}

// Add adds a mistake.
func (t *Table) Add(m Mistake, outcome string) {
	if t.counts == nil {
		t.counts = map[Group]map[string]int{}
	}
	if t.counts[m.Group] == nil {
		t.counts[m.Group] = map[string]int{}
	}
	t.counts[m.Group][outcome]++
	fmt.Fprintf(&t.lines, "%-6s %-10s %s\n", m.Group, outcome, m.Name)
}

// Percent returns the share of the mistakes of a group that have an outcome.
func (t *Table) Percent(outcome string, group Group) int {
	all := 0
	for _, count := range t.counts[group] {
		all += count
	}
	return t.counts[group][outcome] * 100 / max(1, all)
}

// String returns the table, with a line of counts for each group at its end.
func (t *Table) String() string {
	text := t.lines.String()
	for _, group := range slices.Sorted(maps.Keys(t.counts)) {
		text += string(group) + ":"
		for _, outcome := range slices.Sorted(maps.Keys(t.counts[group])) {
			text += fmt.Sprintf(" %s %d", outcome, t.counts[group][outcome])
		}
		text += "\n"
	}
	return text
}
