package lint

import (
	"path"

	"github.com/runlevel/runlevel/pkg/graph"
)

// A Place is a file, and one of its lines.
type Place struct {
	File string `json:"file"`
	Line int    `json:"line,omitempty"` // 0 when the whole file is meant
	In   Origin `json:"in,omitempty"`
}

// nearPlace returns the place in the payload for the manifest of an object that only the previous payload has: into the
// file of the same name, else into one of the same level and component, or of the component; else into the file before
// it. Code hosts show a finding only in a file of the change, which those of the previous payload are not.
func (s *subject) nearPlace(m *manifest) *Place {
	name := path.Base(m.Path)
	before := graph.ParseName(name)
	likeness := func(file string) int {
		now := graph.ParseName(path.Base(file))
		switch {
		case s.change != nil && !s.change.isOwn(file, InPayload):
			return 0
		case path.Base(file) == name:
			return 4
		case now.IsKnown() && now == before:
			return 3
		case now.IsKnown() && now.Component == before.Component:
			return 2
		default:
			return 1
		}
	}
	var nearest *Place
	most := -1
	for _, file := range s.Files {
		if found := likeness(file.Path); found > most || found == most && file.Path < m.Path {
			nearest, most = &Place{File: file.Path}, found
		}
	}
	return nearest
}

// locateNear sets Near of the findings in the previous payload that have none.
func (s *subject) locateNear(findings []Finding) {
	for i := range findings {
		if f := &findings[i]; f.In == InPrevious && f.Near == nil {
			f.Near = s.nearPlace(f.manifest)
		}
	}
}
