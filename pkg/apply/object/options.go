package object

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/fingerprint"
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

// LookCounts is how long the metadata from before the run count. Later in a long update, all objects are applied.
const LookCounts = 30 * time.Second

// Options are how to apply.
type Options struct {
	Release  string     // the value of the release label of objects
	Version  string     // of the payload, for the record
	Mode     graph.Mode // deletes only in an update
	Standard ready.Standard
	// DropUnknownFields leaves out fields that the cluster's schema does not have.
	DropUnknownFields bool
	// DropHint ends the suggestion to drop unknown fields.
	DropHint string
	// Full applies each object, also those that can't have changed since they were applied.
	Full bool
	// AdoptFrom are field managers whose fields the first apply of an object takes over.
	AdoptFrom []string
	// RemovesForeign reports whether fields of a manager that the release does not have are removed; nil removes none.
	RemovesForeign func(id kinds.ID, manager string) bool
	// Refusals are why an API server would refuse objects, for a Previewer that can't ask the cluster.
	Refusals map[StepID][]fields.FieldRefusal
	// Manifests are the manifests of the release.
	Manifests []*payload.Manifest
	// LookCounts is how long the metadata from before the run count.
	LookCounts time.Duration
	Journal    *Journal
	Lock       *lock.Hold // of a Repairer
	// Fingerprints collects the fingerprints of applied objects.
	Fingerprints *fingerprint.Cache
}

// A Handler is called with what an Applier finds.
type Handler struct {
	Readiness Readiness
	Warned    func(m *payload.Manifest, warnings []string) // warnings of the server
	Adopted   func(m *payload.Manifest, managers []string) // managers whose fields were adopted
}

// A Readiness tracks objects whose readiness may matter.
type Readiness interface {
	// Expect is called with an object before its apply, or before the apply is found to be unnecessary.
	Expect(m *payload.Manifest, resource cluster.Resource)
	// Assume is called with an object that needs no apply.
	Assume(m *payload.Manifest, wasReady bool)
	// Applied is called with the server's answer to a write.
	Applied(m *payload.Manifest, live *unstructured.Unstructured)
}

// Untracked is the Readiness of previews and repairs, which wait for nothing.
var Untracked Readiness = untracked{}

type untracked struct{}

func (untracked) Expect(*payload.Manifest, cluster.Resource)            {}
func (untracked) Assume(*payload.Manifest, bool)                        {}
func (untracked) Applied(*payload.Manifest, *unstructured.Unstructured) {}
