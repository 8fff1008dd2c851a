package object

import (
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A Workload is a Deployment with lifecycle hooks. Its methods are the actions on it beside its apply.
type Workload struct {
	applier  *Applier
	manifest *payload.Manifest
}

// Workload returns the Deployment of a manifest.
func (a *Applier) Workload(m *payload.Manifest) Workload { return Workload{a, m} }

// look returns the Deployment. Nothing is known yet of its live object.
func (w Workload) look() (o *liveObject, err error) {
	o = &liveObject{Manifest: w.manifest}
	o.resource, err = w.applier.served.place(w.manifest)
	return o, err
}

// CreatePaused creates a paused Deployment: none of its pods starts before it is applied. An existing Deployment
// stays unchanged.
func (w Workload) CreatePaused() error {
	o, err := w.look()
	if err != nil {
		return err
	}
	draft, err := w.applier.draft(o)
	if err != nil {
		return err
	}
	if err := unstructured.SetNestedField(draft.Object, true, "spec", "paused"); err != nil {
		return err
	}
	_, err = w.applier.send(o, draft, cluster.CreateOnly|cluster.Force)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// Unpause applies a create-only Deployment that CreatePaused has created. No other apply changes it.
func (w Workload) Unpause() (Change, error) {
	o, err := w.look()
	if err != nil {
		return Change{}, err
	}
	applied, err := w.applier.sendDraft(o, cluster.Force)
	if err != nil {
		return Change{}, err
	}
	return Change{Action: Created, UID: applied.Object.GetUID()}, nil
}

// ChangesTemplate reports whether an apply changes the pod template of the Deployment.
func (w Workload) ChangesTemplate() (bool, error) {
	o, err := w.look()
	if err != nil {
		return false, err
	}
	if err := w.applier.readLive(o); err != nil || !o.exists {
		return err == nil, err
	}
	would, err := w.applier.sendDraft(o, cluster.Force|cluster.DryRun)
	if err != nil {
		return false, err
	}
	return !equality.Semantic.DeepEqual(templateOf(o.live), templateOf(would.Object)), nil
}

// templateOf returns the pod template of a workload.
func templateOf(workload *unstructured.Unstructured) any {
	template, _, _ := unstructured.NestedFieldNoCopy(workload.Object, "spec", "template")
	return template
}

// CheckOwner returns an error if another release owns the Deployment.
func (w Workload) CheckOwner() error {
	o, err := w.look()
	if err == nil {
		o.head, _, err = w.applier.metadata.get(o.resource, o.ID())
	}
	if err != nil {
		return err
	}
	return refuseOwned(o.head, w.applier.options.Release)
}

// Warn passes on a warning about the Deployment.
func (w Workload) Warn(text string) { w.applier.handler.OnWarnings(w.manifest, []string{text}) }

// Observe notes the server's answer to a write other than an apply.
func (w Workload) Observe(live *unstructured.Unstructured) {
	w.applier.handler.Readiness.NoteApplied(w.manifest, live)
}
