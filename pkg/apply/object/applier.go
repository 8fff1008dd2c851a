// Package object brings single objects of a cluster to the state in the manifests of a release: it applies and deletes
// them, previews that, and repairs them. There is one code path for every kind.
//
// It knows no order, does not wait and does not retry: failures.go has which failures another try may fix. A run
// does its work on an object, or on a hook, as a WalkStep, in step.go.
//
// An Applier is where to start: Apply, in apply.go, gathers the facts about an object and decides what to do;
// live_object.go and delete.go do it, with scaled.go, leftovers.go and immutable.go for objects that servers
// refuse as they are. definitions.go and the fingerprints of the record show which objects need no apply. A
// Previewer, in preview.go, returns what an Applier would do, and a Repairer, in repair.go, applies objects again.
package object

import (
	"context"
	"errors"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/fingerprint"
	"github.com/runlevel/runlevel/internal/cluster/inventory"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// Annotations of manifests for how they are applied.
const (
	// RecreateAnnotation allows to delete an object and create it again, if an immutable field
	// has to change.
	RecreateAnnotation = "runlevel.dev/recreate"
)

// LookCounts is how long the metadata from before the run counts. Later in a long update, all objects are applied.
const LookCounts = 30 * time.Second

// Options are how to apply.
type Options struct {
	Release  string     // the value of the release label of objects
	Version  string     // of the payload, for the record
	Mode     graph.Mode // deletes only in an update
	Standard ready.Standard
	// DropUnknownFields leaves out fields that the cluster's schema does not have.
	DropUnknownFields bool
	// Full applies each object, also those that can't have changed since they were applied.
	Full bool
	// AdoptFrom are field managers whose fields the first apply of an object takes over.
	AdoptFrom []string
	// Manifests are the manifests of the release.
	Manifests []*payload.Manifest
	// LookCounts is how long the metadata from before the run counts.
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

// ignored is the Readiness of a run that does not wait.
type ignored struct{}

func (ignored) Expect(*payload.Manifest, cluster.Resource)            {}
func (ignored) Assume(*payload.Manifest, bool)                        {}
func (ignored) Applied(*payload.Manifest, *unstructured.Unstructured) {}

// An Applier applies objects of one release. Goroutines may share it, but not for the same object.
type Applier struct {
	*knowledge
	writer  writer
	deleter deleter
}

// knowledge is the known state of the cluster and the release's objects, from before the run and since.
type knowledge struct {
	requests     context.Context
	cluster      *cluster.Cluster
	options      Options
	handler      Handler
	before       *inventory.Inventory
	definitions  *definitions
	scaling      *scaling
	known        *fingerprint.Cache // from before
	fingerprints *fingerprint.Cache
	written      sync.Map // the time when a definition or APIService was written or became ready, by group
	outdated     sync.Map // objects whose metadata from before the run no longer counts: see ForgetBefore
	isRepairing  bool     // the Applier is a Repairer's, which lives long
}

// New returns an Applier. All requests have the context. Before has the objects of the cluster before the run.
func New(ctx context.Context, c *cluster.Cluster, before *inventory.Inventory, options Options, handler Handler) *Applier {
	if handler.Readiness == nil {
		handler.Readiness = ignored{}
	}
	if handler.Warned == nil {
		handler.Warned = func(*payload.Manifest, []string) {}
	}
	if handler.Adopted == nil {
		handler.Adopted = func(*payload.Manifest, []string) {}
	}
	k := &knowledge{
		requests: ctx, cluster: c, options: options, handler: handler, before: before,
		known: options.Journal.fingerprints(), fingerprints: options.Fingerprints,
	}
	k.definitions, k.scaling = &definitions{knowledge: k, known: map[string]definition{}}, &scaling{knowledge: k}
	return &Applier{knowledge: k, writer: writer{k}, deleter: deleter{k}}
}

// Begin notes the objects of the release in the fingerprints, and finds out which of them are scaled.
func (a *Applier) Begin() {
	for _, m := range a.options.Manifests {
		switch {
		case m.IsTombstone():
		case m.IsCreateOnly(): // its later state does not matter
			a.fingerprints.AddExpected(a.fingerprints, m.ID())
		default:
			a.fingerprints.AddExpected(a.known, m.ID())
		}
	}
	a.scaling.find()
}

// IsThere reports whether the cluster has the object of a manifest.
func (k *knowledge) IsThere(m *payload.Manifest) (bool, error) {
	if _, found := k.before.Find(m.ID()); found {
		return true, nil
	}
	resource, err := k.cluster.Find(k.requests, m.GroupVersionKind())
	if errors.Is(err, cluster.ErrNotServed) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	_, exists, err := k.headNow(resource, m.ID())
	return exists, err
}

// IsPrerequisite reports whether other objects can't exist without objects of a kind.
func IsPrerequisite(kind schema.GroupKind) bool {
	return kind == kinds.CustomResourceDefinition || kind == kinds.Namespace
}

// Extended notes that a definition or an APIService is ready.
func (k *knowledge) Extended(live *unstructured.Unstructured) {
	if live.GroupVersionKind().GroupKind() == kinds.CustomResourceDefinition {
		k.cluster.Learn(live)
	} else {
		k.cluster.Refresh()
	}
	group := servedGroup(live)
	if _, isOurs := k.written.Load(group); isOurs {
		k.written.Store(group, time.Now())
	}
}

// NoteReady notes the version in which an object was ready.
func (k *knowledge) NoteReady(m *payload.Manifest, resource cluster.Resource, live *unstructured.Unstructured) {
	if text, isKnown := k.text(m, resource); isKnown {
		k.fingerprints.AddReady(objectmeta.Of(resource, live), text, k.standard())
	}
}

// Before returns the metadata of an object from before the run; nil if it did not exist, or was not listed.
func (k *knowledge) Before(m *payload.Manifest) metav1.Object {
	head, exists := k.before.Find(m.ID())
	if !exists {
		return nil
	}
	return head.Object()
}

// KeepFingerprint keeps the fingerprint of an object that was not applied. It is about the last apply, and not about the
// present state, so the age of the object's metadata does not matter.
func (k *knowledge) KeepFingerprint(m *payload.Manifest) {
	head, exists := k.before.Find(m.ID())
	if !exists {
		return
	}
	if text, isKnown := k.text(m, head.Resource); isKnown {
		k.fingerprints.CarryOver(k.known, head, text, func() bool { return true })
	}
}

// servedGroup returns the API group that a definition or an APIService adds.
func servedGroup(object *unstructured.Unstructured) string {
	group, _, _ := unstructured.NestedString(object.Object, "spec", "group")
	return group
}

// logUnwritten logs that a Kubernetes event can't be written, which fails no step.
func (k *knowledge) logUnwritten(id kinds.ID, err error) {
	if err != nil {
		klog.FromContext(k.requests).V(1).Info("an event could not be written", "object", id.String(), "err", err)
	}
}

// RememberJob notes in the record that a Job has finished.
func (k *knowledge) RememberJob(job *payload.Manifest, uid types.UID) error {
	return k.options.Journal.Note(k.requests, func(known *record.Record) {
		known.RememberJob(record.Job{ID: job.ID(), UID: uid, Sum: sumOf(job)})
	})
}
