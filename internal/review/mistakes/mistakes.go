// Package mistakes contains mistakes that people make in manifests, for tests of the checks that find them before an
// API server does. Each mistake is an edit of the release in shop/. mistakes.yaml has the table, and server.txt the
// answers of a real API server, which a test compares.
//
// Only tests import the package.
//
// Start with All.
package mistakes

import (
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"testing/fstest"

	"sigs.k8s.io/yaml"
)

//go:embed shop mistakes.yaml
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
	Edits    []Edit `json:"edits"`
	Mentions string `json:"mentions"`
	Because  string `json:"because"`
}

// An Edit replaces a text of a file, by default of the mistake's.
type Edit struct {
	In      string `json:"in"`
	Replace string `json:"replace"`
	With    string `json:"with"`
}

// All returns all mistakes.
func All() ([]Mistake, error) {
	text, err := files.ReadFile("mistakes.yaml")
	if err != nil {
		return nil, err
	}
	var all []Mistake
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

// Release returns the release with the mistake, and the files that differ.
func (m Mistake) Release() (release fstest.MapFS, changed []string, err error) {
	release, err = Shop()
	for _, edit := range m.Edits {
		if err != nil {
			return nil, nil, err
		}
		if edit.In == "" {
			edit.In = m.In
		}
		var name string
		if name, err = edit.apply(release); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", m.Name, err)
		}
		changed = append(changed, name)
	}
	return release, changed, err
}

// apply edits the file of a release, and returns its name.
func (e Edit) apply(release fstest.MapFS) (string, error) {
	for name := range maps.Keys(release) {
		if !strings.Contains(name, e.In) {
			continue
		}
		text := string(release[name].Data)
		if found := strings.Count(text, e.Replace); found != 1 {
			return "", fmt.Errorf("%s has the text %q %d times instead of once", name, e.Replace, found)
		}
		release[name] = &fstest.MapFile{Data: []byte(strings.Replace(text, e.Replace, e.With, 1))}
		return name, nil
	}
	return "", fmt.Errorf("no file is called %q", e.In)
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
