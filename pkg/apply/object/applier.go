// Package object brings single objects of a cluster to the state in the manifests of a release: it applies and deletes
// them, previews that, and repairs them. There is one code path for every kind.
//
// It knows no order, does not wait and does not retry: failures.go has which failures another try may fix. A run
// does its work on an object, or on a hook, as a WalkStep, in step.go.
//
// Applier.Apply, in apply.go, is where to start: it looks at an object, decides what to do (decide.go), and creates,
// updates, recreates or leaves it; send.go sends the requests, and delete.go deletes the objects of tombstones. What an
// Applier knows is in types of their own: metadata from before the run (heads.go), kinds that the cluster serves
// (served.go), objects that need no apply (untouched.go, definitions.go), and autoscalers (scaled.go). A Previewer, in
// preview.go, returns what an Applier would do, and a Repairer, in repair.go, applies objects again.
package object

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/inventory"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
)

// An Applier applies objects of one release. Goroutines may share it, but not for the same object.
type Applier struct {
	requests    context.Context
	cluster     *cluster.Cluster
	options     Options
	handler     Handler
	heads       *heads
	served      *served
	definitions *definitions
	scaling     *scaling
	untouched   *untouched
	sender      *sender
	deleter     *deleter
	isRepairing bool // it is a Repairer's, which lives long
}

// New returns an Applier. All requests have the context. Before has the objects of the cluster before the run.
func New(ctx context.Context, c *cluster.Cluster, before *inventory.Inventory, options Options, handler Handler) *Applier {
	a := &Applier{requests: ctx, cluster: c, options: options, handler: handler.withDefaults()}
	a.heads = &heads{requests: ctx, cluster: c, before: before}
	a.served = &served{requests: ctx, cluster: c}
	a.definitions = &definitions{requests: ctx, cluster: c, before: before, known: map[string]definition{}}
	a.scaling = &scaling{requests: ctx, cluster: c, before: before, options: options, warned: a.handler.Warned}
	a.untouched = &untouched{
		options: options, before: before, served: a.served, definitions: a.definitions, scaling: a.scaling,
		recorded: options.Journal.fingerprints(), current: options.Fingerprints,
	}
	a.sender = &sender{
		requests: ctx, cluster: c, options: options, warned: a.handler.Warned,
		heads: a.heads, served: a.served, scaling: a.scaling,
	}
	a.deleter = &deleter{requests: ctx, cluster: c, journal: options.Journal, release: options.Release, version: options.Version, mode: options.Mode}
	return a
}

// Begin notes the objects of the release in the fingerprints, and finds out which of them are scaled.
func (a *Applier) Begin() {
	a.untouched.begin()
	a.scaling.find()
}

// IsPrerequisite reports whether other objects can't exist without objects of a kind.
func IsPrerequisite(kind schema.GroupKind) bool {
	return kind == kinds.CustomResourceDefinition || kind == kinds.Namespace
}

// Exists reports whether the cluster has the object of a manifest.
func (a *Applier) Exists(m *payload.Manifest) (bool, error) {
	if _, found := a.heads.before.Find(m.ID()); found {
		return true, nil
	}
	resource, err := a.cluster.Find(a.requests, m.GroupVersionKind())
	if errors.Is(err, cluster.ErrNotServed) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	_, exists, err := a.heads.get(resource, m.ID())
	return exists, err
}

// Extended notes that a definition or an APIService is ready.
func (a *Applier) Extended(live *unstructured.Unstructured) { a.served.extended(live) }

// NoteReady notes the version in which an object was ready.
func (a *Applier) NoteReady(m *payload.Manifest, resource cluster.Resource, live *unstructured.Unstructured) {
	if inputs, isKnown := a.untouched.inputs(m, resource); isKnown {
		a.untouched.current.AddReady(objectmeta.Of(resource, live), inputs, a.untouched.standard())
	}
}

// KeepFingerprint keeps the fingerprint of an object that was not applied. It is about the last apply, and not about the
// present state, so the age of the object's metadata does not matter.
func (a *Applier) KeepFingerprint(m *payload.Manifest) {
	head, exists := a.heads.before.Find(m.ID())
	if !exists {
		return
	}
	if inputs, isKnown := a.untouched.inputs(m, head.Resource); isKnown {
		a.untouched.current.CarryOver(a.untouched.recorded, head, inputs, func() bool { return true })
	}
}

// Before returns the metadata of an object from before the run; nil if it did not exist, or was not listed.
func (a *Applier) Before(m *payload.Manifest) metav1.Object {
	head, exists := a.heads.before.Find(m.ID())
	if !exists {
		return nil
	}
	return head.Object()
}

// ForgetBefore drops the metadata of an object from before the run, since the object has been written.
func (a *Applier) ForgetBefore(m *payload.Manifest) { a.heads.forget(m.ID()) }
