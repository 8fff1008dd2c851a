// Package object brings single objects of a cluster to the state in the manifests of a release: it applies and deletes
// them, previews that, and repairs them. There is one code path for every kind.
//
// It knows nothing of an order, waits for nothing and tries nothing again: what a failure means for another try
// is in failures.go. What a run does with an object, or with anything else, is a WalkStep, in step.go.
//
// An Applier is where to start: Apply, in apply.go, looks at what is known of an object and decides what to do;
// live_object.go and delete.go do it, with scaled.go, leftovers.go and immutable.go for what servers do not take as it
// is. definitions.go and the fingerprints of the record show what needs no apply. A Previewer, in
// preview.go, returns what an Applier would do, and a Repairer, in repair.go, keeps an object as it is.
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
	// RecreateAnnotation allows to delete an object and make it again, where it has to
	// change and can't.
	RecreateAnnotation = "runlevel.dev/recreate"
)

// LookCounts is how long what was seen of the cluster before the first apply counts. Objects that a long update comes
// to later are applied, whatever was seen.
const LookCounts = 30 * time.Second

// Options are how to apply.
type Options struct {
	Release  string     // the value of the label that objects get
	Version  string     // of the payload, for the record
	Mode     graph.Mode // deletes only in an update
	Standard ready.Standard
	// DropUnknownFields leaves out what the cluster's schema does not have.
	DropUnknownFields bool
	// Full applies each object, also those that can't have changed since they were applied.
	Full bool
	// AdoptFrom are managers whose fields become ours when an object is applied for the first time.
	AdoptFrom []string
	// Manifests are those of the release.
	Manifests []*payload.Manifest
	// LookCounts is how long what was seen before counts.
	LookCounts time.Duration
	Journal    *Journal
	Lock       *lock.Hold // of a Repairer
	// Fingerprints are where those of applied objects go.
	Fingerprints *fingerprint.Cache
}

// A Handler is called with what an Applier finds.
type Handler struct {
	Readiness Readiness
	Warned    func(m *payload.Manifest, warnings []string) // by the server
	Adopted   func(m *payload.Manifest, managers []string) // whose fields were taken over
}

// A Readiness tracks objects whose readiness may matter.
type Readiness interface {
	// Expect is called with an object that is about to be applied, or found not to need it.
	Expect(m *payload.Manifest, resource cluster.Resource)
	// Assume is called with one that needs no apply.
	Assume(m *payload.Manifest, wasReady bool)
	// Applied is called with one as the server has returned it.
	Applied(m *payload.Manifest, live *unstructured.Unstructured)
}

// ignored is the Readiness of objects that are not waited for.
type ignored struct{}

func (ignored) Expect(*payload.Manifest, cluster.Resource)            {}
func (ignored) Assume(*payload.Manifest, bool)                        {}
func (ignored) Applied(*payload.Manifest, *unstructured.Unstructured) {}

// An Applier applies objects of one release. It may be used by many at once, but not for the same object.
type Applier struct {
	*knowledge
	writer  writer
	deleter deleter
}

// knowledge is what is known of objects: from before, and since.
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
	written      sync.Map // by group whose definition was written: when, or when it became ready
	outdated     sync.Map // objects of which nothing counts that was seen before: see ForgetBefore
	isRepairing  bool     // the Applier is a Repairer's, which lives long
}

// New returns an Applier. The context is that of all requests, and before what the cluster had until then.
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

// Begin notes which objects the release has, for those who ask the record, and looks which of them are scaled.
func (a *Applier) Begin() {
	for _, m := range a.options.Manifests {
		switch {
		case m.IsTombstone():
		case m.IsCreateOnly(): // how an apply has left it does not matter any more
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

// IsPrerequisite reports whether other objects can't be without those of a kind.
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

// NoteReady notes in which version an object was ready.
func (k *knowledge) NoteReady(m *payload.Manifest, resource cluster.Resource, live *unstructured.Unstructured) {
	if text, isKnown := k.text(m, resource); isKnown {
		k.fingerprints.AddReady(objectmeta.Of(resource, live), text, k.standard())
	}
}

// Before returns the metadata that an object had before the run; nil if it was not there, or was not looked for.
func (k *knowledge) Before(m *payload.Manifest) metav1.Object {
	head, exists := k.before.Find(m.ID())
	if !exists {
		return nil
	}
	return head.Object()
}

// KeepFingerprint keeps the fingerprint of an object that was not applied. It has what the object was applied as
// before, and not how it is now, so it does not matter how long ago the object was seen.
func (k *knowledge) KeepFingerprint(m *payload.Manifest) {
	head, exists := k.before.Find(m.ID())
	if !exists {
		return
	}
	if text, isKnown := k.text(m, head.Resource); isKnown {
		k.fingerprints.CarryOver(k.known, head, text, func() bool { return true })
	}
}

// servedGroup returns the API group that a definition or an APIService brings.
func servedGroup(object *unstructured.Unstructured) string {
	group, _, _ := unstructured.NestedString(object.Object, "spec", "group")
	return group
}

// logUnwritten logs that an event of Kubernetes can't be written, which is no failure.
func (k *knowledge) logUnwritten(id kinds.ID, err error) {
	if err != nil {
		klog.FromContext(k.requests).V(1).Info("an event could not be written", "object", id.String(), "err", err)
	}
}

// RememberJob notes in the record that a Job has run to its end.
func (k *knowledge) RememberJob(job *payload.Manifest, uid types.UID) error {
	return k.options.Journal.Note(k.requests, func(known *record.Record) {
		known.RememberJob(record.Job{ID: job.ID(), UID: uid, Sum: sumOf(job)})
	})
}
