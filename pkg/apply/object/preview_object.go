package object

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/cluster/ownership"
	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/pkg/payload"
)

// object returns the change that an apply would make to an object. It decides as reconcile does.
func (p *Previewer) object(m *payload.Manifest) (Change, error) {
	resource, err := p.served.find(m.GroupVersionKind())
	switch {
	case errors.Is(err, cluster.ErrNotServed):
		return p.withoutKind(m, err)
	case errors.As(err, new(*cluster.UnknownKind)):
		return Change{Action: NotChecked, Message: p.explained(m, err)}, nil
	case err != nil:
		return Change{}, err
	}
	if resource.Namespaced && m.Object().GetNamespace() == "" {
		return Change{}, inNoNamespace
	}
	head, exists, err := p.heads.find(resource, m.ID())
	if err != nil {
		return Change{}, err
	}
	f := p.facts(&liveObject{Manifest: m, resource: resource, head: head, exists: exists}, !p.definitionOf(m).isChanged())
	switch what := decide(f); what {
	case refuse:
		return Change{}, ownedBy(f.owner)
	case skip, keepDone, keep:
		return kept(what, head), nil
	}
	return p.compareLive(m, resource)
}

// compareLive compares the live object with the server's answer to a dry run. If the object is written in between, both
// are requested again, up to five times.
func (p *Previewer) compareLive(m *payload.Manifest, resource cluster.Resource) (Change, error) {
	const tries = 5
	for try := 1; ; try++ {
		live, err := p.cluster.In(resource, m.Object().GetNamespace()).Get(p.requests, m.Object().GetName(), metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return Change{}, err
		}
		o := &liveObject{Manifest: m, resource: resource}
		if err != nil {
			live = nil
		} else {
			o.head, o.exists = objectmeta.Of(resource, live), true
		}
		change, err := p.compare(o, live)
		if err != nil || try == tries || isSameState(live, change.Look) || !Pause(p.requests, time.Duration(try)*100*time.Millisecond) {
			return change, err
		}
	}
}

// isSameState reports whether the live object and the server's answer have the same version.
func isSameState(live *unstructured.Unstructured, look *Look) bool {
	if live == nil || look == nil || look.Unchecked != "" {
		return true
	}
	return live.GetResourceVersion() == look.Would.GetResourceVersion()
}

// compare returns the change of an object. Live is nil if the object does not exist.
func (p *Previewer) compare(o *liveObject, live *unstructured.Unstructured) (Change, error) {
	if live == nil {
		return p.creation(o)
	}
	if err := refuseOwned(o.head, p.options.Release); err != nil { // another release may own an object that the label selector misses
		return Change{}, err
	}
	switch {
	case o.head.Terminating:
		return Change{Action: NotChecked, UID: o.head.UID, Message: p.deleter.terminating(o.Manifest, o.head.UID).Error()}, nil
	case o.Manifest.IsCreateOnly():
		return Change{Action: Kept, UID: o.head.UID, Message: createOnlyExists}, nil
	}
	return p.update(o, live)
}

// creation returns the change of an object that does not exist.
func (p *Previewer) creation(o *liveObject) (Change, error) {
	var would cluster.WriteResult
	var err error
	if o.Manifest.IsCreateOnly() {
		would, err = p.cluster.Create(p.requests, o.resource, p.desired(o.Manifest, nil), cluster.DryRun)
		p.handler.Warned(o.Manifest, maskedWarnings(o.Manifest, would.Warnings))
	} else {
		would, err = p.tryApply(o, nil, cluster.Force)
	}
	if err == nil {
		err = p.validateChanged(p.definitionOf(o.Manifest), o.Manifest, nil, nil)
	}
	if err != nil {
		return p.refused(o, nil, err)
	}
	return storable(Change{Action: Created, Look: &Look{Would: would.Object}}), nil
}

// update returns the change of an existing object.
func (p *Previewer) update(o *liveObject, live *unstructured.Unstructured) (Change, error) {
	would, adopted, err := p.wouldBe(o, live)
	if err == nil {
		err = p.validateChanged(p.definitionOf(o.Manifest), o.Manifest, live, would)
	}
	if err != nil {
		return p.refused(o, live, err)
	}
	change := Change{Action: Configured, UID: o.head.UID, Adopted: adopted, Lost: o.lost, Look: &Look{Live: live, Would: would}}
	isOurs := len(adopted) > 0 || o.head.Entry.Same(objectmeta.Of(o.resource, would).Entry)
	if isOurs && isSame(live, would) {
		change.Action, change.Look = Unchanged, nil // unchanged objects may be many
		return change, nil
	}
	return storable(change), nil
}

// storable makes a change not checked if the object would be too large for etcd, which a dry run does not reach.
func storable(change Change) Change {
	const limit = 3 << 19 // bytes, by default
	if body, err := json.Marshal(change.Look.Would); err == nil && len(body) > limit {
		change.Action, change.Message = NotChecked, fmt.Sprintf("it would be %d bytes, and most clusters store no more than %d", len(body), limit)
		change.Look.Unchecked = change.Message
	}
	return change
}

// wouldBe returns an existing object as an apply would leave it, and the managers whose fields would be adopted before. A
// dry run can't adopt fields, so those that the apply would then remove are removed from its answer.
func (p *Previewer) wouldBe(o *liveObject, live *unstructured.Unstructured) (would *unstructured.Unstructured, adopted []string, err error) {
	isNew := o.head.IsNeverApplied()
	if isNew {
		adopted = ownership.Adoptable(live, p.options.AdoptFrom)
		o.adopts = adopted
	}
	applied, err := p.tryApply(o, live, cluster.NoForce)
	if err != nil || !isNew {
		return applied.Object, adopted, err
	}
	left := ownership.DryRunAdopt(applied.Object, live, p.options.AdoptFrom)
	if len(left) == 0 {
		return applied.Object, adopted, nil
	}
	would, err = ownership.DryRunDefaults(p.requests, p.cluster, o.resource, applied.Object, left)
	return would, adopted, err
}

// tryApply applies an object by a dry run.
func (p *Previewer) tryApply(o *liveObject, live *unstructured.Unstructured, how cluster.ApplyMode) (cluster.WriteResult, error) {
	draft := p.desired(o.Manifest, nil)
	if live != nil {
		isScaled, err := p.scaling.isScaled(o.Manifest, live)
		if err != nil {
			return cluster.WriteResult{}, err
		}
		if isScaled {
			ownership.OmitReplicas(draft, ownership.Adopted(live, p.options.AdoptFrom))
		}
	}
	o.keepsUnknown = p.definitionOf(o.Manifest).isChanged()
	applied, err := p.sender.send(o, draft, how|cluster.DryRun)
	if err == nil && len(o.added) > 0 {
		ownership.DryRunShare(applied.Object, o.added)
	}
	return applied, err
}

// isSame reports whether two states of an object differ only in fields that the server sets.
func isSame(a, b *unstructured.Unstructured) bool {
	return reflect.DeepEqual(fields.WithoutServers(a.Object), fields.WithoutServers(b.Object))
}
