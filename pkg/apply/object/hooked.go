package object

import (
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/pkg/payload"
)

// drafted returns a workload that is applied apart from its step, and the draft of its apply.
func (a *Applier) drafted(m *payload.Manifest) (*liveObject, *unstructured.Unstructured, error) {
	resource, err := a.place(m)
	if err != nil {
		return nil, nil, err
	}
	o := &liveObject{Manifest: m, resource: resource}
	draft, err := a.draft(o)
	return o, draft, err
}

// CreatePaused creates a paused Deployment: none of its pods starts before it is applied. An existing Deployment
// stays as it is.
func (a *Applier) CreatePaused(m *payload.Manifest) error {
	o, draft, err := a.drafted(m)
	if err != nil {
		return err
	}
	if err := unstructured.SetNestedField(draft.Object, true, "spec", "paused"); err != nil {
		return err
	}
	_, err = a.writer.apply(o, draft, cluster.CreateOnly|cluster.Force)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// Unpause applies a create-only Deployment that CreatePaused has created. No other apply changes it.
func (a *Applier) Unpause(m *payload.Manifest) (Change, error) {
	o, draft, err := a.drafted(m)
	if err != nil {
		return Change{}, err
	}
	applied, err := a.writer.apply(o, draft, cluster.Force)
	if err != nil {
		return Change{}, err
	}
	return Change{Action: Created, UID: applied.Object.GetUID()}, nil
}

// ChangesTemplate reports whether an apply changes the pod template of an existing workload.
func (a *Applier) ChangesTemplate(m *payload.Manifest) (bool, error) {
	o, draft, err := a.drafted(m)
	if err != nil {
		return false, err
	}
	live, err := a.cluster.In(o.resource, m.ID().Namespace).Get(a.requests, m.ID().Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	o.head, o.exists = objectmeta.Of(o.resource, live), true
	would, err := a.writer.apply(o, draft, cluster.Force|cluster.DryRun)
	if err != nil {
		return false, err
	}
	return !equality.Semantic.DeepEqual(templateOf(live), templateOf(would.Object)), nil
}

// templateOf returns the pod template of a workload.
func templateOf(workload *unstructured.Unstructured) any {
	template, _, _ := unstructured.NestedFieldNoCopy(workload.Object, "spec", "template")
	return template
}

// CheckOwner returns an error if another release owns the object.
func (a *Applier) CheckOwner(m *payload.Manifest) error {
	resource, err := a.place(m)
	if err != nil {
		return err
	}
	head, exists, err := a.headNow(resource, m.ID())
	if err != nil || !exists {
		return err
	}
	return a.refuseOwned(head)
}

// Warn passes on a warning about the object of a manifest.
func (a *Applier) Warn(m *payload.Manifest, text string) { a.handler.Warned(m, []string{text}) }

// Observe notes the server's answer to a write of an object other than an apply.
func (a *Applier) Observe(m *payload.Manifest, live *unstructured.Unstructured) {
	a.handler.Readiness.Applied(m, live)
}
