// Package referrers reports the references between the objects of a release, the objects that controllers create, and
// the referenced objects that have no creator.
//
// The package draws references. Package graph draws the order in which objects are applied.
//
// Start with Of; a Report can be printed as text, DOT or Mermaid, and is a value for JSON.
package referrers

import (
	"cmp"
	"slices"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/references"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A Presence is the origin of a referenced object.
type Presence string

// The presences of an object.
const (
	InRelease Presence = "inRelease"
	Made      Presence = "made"    // a controller creates the object for one of the release
	BuiltIn   Presence = "builtIn" // every cluster has the object
	Deleted   Presence = "deleted" // the release deletes the object
	Missing   Presence = "missing" // others must create the object
)

// A Referral is a field of a manifest that names another object.
type Referral struct {
	By         kinds.ID  `json:"by"`
	File       string    `json:"file"`
	Line       int       `json:"line"`
	Field      string    `json:"field"`
	To         kinds.ID  `json:"to"`
	Presence   Presence  `json:"presence"`
	CreatedFor *kinds.ID `json:"createdFor,omitempty"` // the object for which a controller creates To
	// NotNeeded is true if By works without To: a binding, for example, works without one of its accounts.
	NotNeeded bool `json:"notNeeded,omitempty"`
}

// A Making is an object that a controller creates for an object of the release.
type Making struct {
	Object     kinds.ID `json:"object"`
	CreatedFor kinds.ID `json:"createdFor"`
}

// A Report contains the references in a release.
type Report struct {
	Name       string     `json:"name,omitempty"`
	Version    string     `json:"version,omitempty"`
	References []Referral `json:"references"` // references in the order of the manifests
	Makes      []Making   `json:"makes,omitempty"`
}

// Of returns the report of a release.
func Of(release *payload.Payload) Report {
	report := Report{Name: release.Name, Version: release.Version, References: []Referral{}}
	inRelease, deleted := map[kinds.ID]bool{}, map[kinds.ID]bool{}
	for _, m := range release.Manifests {
		if m.IsTombstone() {
			deleted[m.ID()] = true
		} else {
			inRelease[m.ID()] = true
		}
	}
	graph := references.NewGraph(release.Manifests, nil)
	for i, m := range release.Manifests {
		for _, reference := range graph.References[i] {
			r := Referral{
				By: m.ID(), File: m.Path, Line: m.Line, Field: reference.Field(), To: reference.To, Presence: Missing,
				NotNeeded: reference.Consequence == references.Harmless,
			}
			switch maker, isMade := graph.Creators[r.To]; {
			case inRelease[r.To]:
				r.Presence = InRelease
			case isMade:
				id := maker.ID()
				r.Presence, r.CreatedFor = Made, &id
			case references.IsBuiltIn(r.To):
				r.Presence = BuiltIn
			case deleted[r.To]:
				r.Presence = Deleted
			}
			report.References = append(report.References, r)
		}
	}
	for made, maker := range graph.Creators {
		report.Makes = append(report.Makes, Making{made, maker.ID()})
	}
	slices.SortFunc(report.Makes, func(a, b Making) int {
		return cmp.Or(kinds.Compare(a.CreatedFor, b.CreatedFor), kinds.Compare(a.Object, b.Object))
	})
	return report
}
