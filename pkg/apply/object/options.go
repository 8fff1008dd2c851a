package object

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/fingerprint"
	"github.com/runlevel/runlevel/internal/cluster/ownership"
	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// RecreateAnnotation of a manifest allows to delete its object and create it again, if an immutable field has to
// change.
const RecreateAnnotation = payload.RecreateAnnotation

// lookCounts is the default of Options.LookCounts.
const lookCounts = 30 * time.Second

// Options configure how the objects of a release are applied.
type Options struct {
	Release  string         // the value of the release label of objects
	Version  string         // version of the payload, for the record
	Mode     graph.Mode     // Update if empty
	Standard ready.Standard // ready.Full if empty
	// DropUnknownFields leaves out fields that the cluster's schema does not have, as the cluster-version operator
	// does. Otherwise such an object is refused.
	DropUnknownFields bool
	// DropHint names the setting of DropUnknownFields for users, such as a flag. It ends the refusal of an unknown
	// field.
	DropHint string
	// LeavesDeletes leaves the objects of tombstones to the next update: a manifest that replaces one may be missing.
	LeavesDeletes bool
	// Full applies each object, also those that can't have changed since they were applied.
	Full bool
	// AdoptFrom are field managers, beside ownership.DefaultManagers, whose fields the first apply of an object takes
	// over.
	AdoptFrom []string
	// RemovesForeign reports whether fields of a manager that the release does not have are removed; nil removes none.
	RemovesForeign func(id kinds.ID, manager string) bool
	// Refusals are the known reasons of API servers to refuse objects. Previews use the reasons for objects that the
	// cluster can't check yet.
	Refusals map[StepID][]fields.Refusal
	// Manifests are the manifests of the release. Run, Preview and NewRepairer set them.
	Manifests []*payload.Manifest
	// LookCounts limits the age of the metadata from before the run; half a minute if it is 0. With older metadata, all
	// objects are applied.
	LookCounts time.Duration
	// Journal is the record of the release, which outlives the run.
	Journal *Journal
	// Lock is the lock of the release, if it is held.
	Lock *lock.Hold
	// Fingerprints collects the fingerprints of applied objects; a new cache if it is nil. An Applier and a Repairer
	// may share it.
	Fingerprints *fingerprint.Cache
}

// WithDefaults returns options with defaults for fields that are not set.
func (o Options) WithDefaults() Options {
	o.Mode = cmp.Or(o.Mode, graph.Update)
	o.Standard = cmp.Or(o.Standard, ready.Full)
	o.LookCounts = cmp.Or(o.LookCounts, lookCounts)
	o.AdoptFrom = append(ownership.DefaultManagers(), o.AdoptFrom...)
	if o.Fingerprints == nil {
		o.Fingerprints = fingerprint.Read(nil)
	}
	return o
}

// A Handler is called with the findings of an Applier.
type Handler struct {
	Readiness  Readiness
	OnWarnings func(m *payload.Manifest, warnings []string) // warnings of the server
	OnAdopted  func(m *payload.Manifest, managers []string) // managers whose fields were adopted
}

// A Readiness tracks objects whose readiness may matter.
type Readiness interface {
	// Expect is called with an object before its apply, or before the apply is found to be unnecessary.
	Expect(m *payload.Manifest, resource cluster.Resource)
	// Assume is called with an object that needs no apply.
	Assume(m *payload.Manifest, wasReady bool)
	// NoteApplied is called with the server's answer to a write.
	NoteApplied(m *payload.Manifest, live *unstructured.Unstructured)
}

// IgnoreReadiness is the Readiness of previews and repairs, which wait for nothing.
var IgnoreReadiness Readiness = ignoredReadiness{}

type ignoredReadiness struct{}

func (ignoredReadiness) Expect(*payload.Manifest, cluster.Resource)                {}
func (ignoredReadiness) Assume(*payload.Manifest, bool)                            {}
func (ignoredReadiness) NoteApplied(*payload.Manifest, *unstructured.Unstructured) {}
