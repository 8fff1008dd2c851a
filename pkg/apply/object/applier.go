// Package object applies, deletes, previews and repairs single objects of a cluster, as the manifests of a release
// define them. There is one code path for every kind.
//
// It knows no order, does not wait and does not retry: failures.go has which failures another try may fix. A run
// does its work on an object, or on a hook, as a WalkStep, in step.go.
//
// Applier.Apply, in apply.go, reads an object, decides what to do (decide.go), and creates, updates, recreates or
// leaves it; send.go sends the requests, and delete.go deletes the objects of tombstones. The data of an Applier is in
// separate types: metadata from before the run (metadata.go), kinds that the cluster serves (served_kinds.go), objects
// that need no apply (change_detector.go, definitions.go), and autoscalers (scaled.go). A Previewer, in preview.go,
// returns what an Applier would do, and a Repairer, in repair.go, applies objects again. Start with Applier.Apply.
package object

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/inventory"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/cluster/ownership"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
)

// An applierScope contains the fields that the parts of an Applier share.
type applierScope struct {
	requestCtx context.Context // context of all requests
	cluster    *cluster.Cluster
	before     *inventory.Inventory // the objects of the cluster before the run
	options    Options
	handler    Handler
}

// read returns an object of the cluster; nil if it does not exist.
func (s *applierScope) read(resource cluster.Resource, id kinds.ID) (*unstructured.Unstructured, error) {
	live, err := s.cluster.In(resource, id.Namespace).Get(s.requestCtx, id.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return live, err
}

// recordEvent writes an event of Kubernetes. If the event can't be written, the step still succeeds.
func (s *applierScope) recordEvent(event cluster.ObjectEvent) {
	if err := cluster.RecordEvent(s.requestCtx, s.cluster, event); err != nil {
		log := klog.FromContext(s.requestCtx).V(1)
		log.Info("an event could not be written", "object", event.ID.String(), "err", err)
	}
}

// desired returns the object of a manifest as the release has it.
func (s *applierScope) desired(m *payload.Manifest) *unstructured.Unstructured {
	return ownership.Draft(m.Object(), objectmeta.ReleaseLabel, s.options.Release)
}

// An Applier applies objects of one release. Goroutines may share it, but not for the same object.
type Applier struct {
	*applierScope
	metadata    *metadataReader
	served      *servedKinds
	definitions *definitions
	scaling     *scaling
	changes     *changeDetector
	deleter     *deleter
	previewer   *Previewer                             // nil, unless the Applier writes nothing
	coming      map[schema.GroupKind]*comingDefinition // keyed by the kinds that they define; only set for previews
	isRepairing bool                                   // set for a Repairer, which lives long
	findsOthers bool                                   // objects with fields of other managers are always applied
}

// New returns an Applier. All requests have the context. Before has the objects of the cluster before the run.
func New(ctx context.Context, c *cluster.Cluster, before *inventory.Inventory, options Options,
	handler Handler) *Applier {
	s := &applierScope{requestCtx: ctx, cluster: c, before: before, options: options, handler: handler}
	a := &Applier{
		applierScope: s,
		metadata:     &metadataReader{applierScope: s},
		served:       &servedKinds{applierScope: s},
		definitions:  &definitions{applierScope: s, known: map[string]definition{}},
		scaling:      &scaling{applierScope: s},
		deleter:      &deleter{s},
		findsOthers:  options.RemovesForeign != nil,
	}
	a.changes = &changeDetector{
		applierScope: s, served: a.served, definitions: a.definitions, scaling: a.scaling,
		recorded: options.Journal.fingerprints(),
	}
	return a
}

// Begin notes the objects of the release in the fingerprints, and finds out which objects are scaled.
func (a *Applier) Begin() {
	a.changes.begin()
	a.scaling.find()
}

// Exists reports whether the cluster has the object of a manifest.
func (a *Applier) Exists(m *payload.Manifest) (bool, error) {
	if _, found := a.before.Find(m.ID()); found {
		return true, nil
	}
	resource, err := a.cluster.Find(a.requestCtx, m.GroupVersionKind())
	if errors.Is(err, cluster.ErrNotServed) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	_, exists, err := a.metadata.get(resource, m.ID())
	return exists, err
}

// NoteExtended notes that a definition or an APIService is ready.
func (a *Applier) NoteExtended(live *unstructured.Unstructured) { a.served.noteExtended(live) }

// NoteReady notes the version in which an object was ready.
func (a *Applier) NoteReady(m *payload.Manifest, resource cluster.Resource, live *unstructured.Unstructured) {
	if inputs, isKnown := a.changes.inputs(m, resource); isKnown {
		a.options.Fingerprints.AddReady(objectmeta.Of(resource, live), inputs, a.changes.standard())
	}
}

// KeepFingerprint keeps the fingerprint of an object that was not applied. A fingerprint is about the last apply, and
// not about the present state, so the age of the object's metadata does not matter.
func (a *Applier) KeepFingerprint(m *payload.Manifest) {
	head, exists := a.before.Find(m.ID())
	if !exists {
		return
	}
	if inputs, isKnown := a.changes.inputs(m, head.Resource); isKnown {
		a.options.Fingerprints.CarryOver(a.changes.recorded, head, inputs, func() bool { return true })
	}
}

// Before returns the metadata of an object from before the run; nil if it did not exist, or was not listed.
func (a *Applier) Before(m *payload.Manifest) metav1.Object {
	head, exists := a.before.Find(m.ID())
	if !exists {
		return nil
	}
	return head.Object()
}

// ForgetBefore drops the metadata of an object from before the run, since the object has been written.
func (a *Applier) ForgetBefore(m *payload.Manifest) { a.metadata.forget(m.ID()) }
