package object

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/fields"
	"github.com/runlevel/runlevel/pkg/inventory"
	"github.com/runlevel/runlevel/pkg/ownership"
	"github.com/runlevel/runlevel/pkg/payload"
)

// object says what would come of an object. It goes the way of put.
func (p *Previewer) object(m *payload.Manifest) (Change, error) {
	resource, err := p.find(m.GroupVersionKind())
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
	head, isThere, err := p.head(resource, m.ID())
	if err != nil {
		return Change{}, err
	}
	f, err := p.gather(&target{Manifest: m, resource: resource, head: head, isThere: isThere}, !p.definitionOf(m).isChanged())
	if err != nil {
		return Change{}, err
	}
	switch what := decide(f); what {
	case refuse:
		return Change{}, ownedBy(f.owner)
	case skip, keepDone, keep:
		return kept(what, head), nil
	}
	return p.attempt(m, resource)
}

// attempt compares an object as it is with what the server would make of it. If somebody
// writes in between, it begins again, for a while.
func (p *Previewer) attempt(m *payload.Manifest, resource cluster.Resource) (Change, error) {
	const tries = 3
	for try := 1; ; try++ {
		live, err := p.cluster.In(resource, m.Object().GetNamespace()).Get(p.requests, m.Object().GetName(), metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return Change{}, err
		}
		o := &target{Manifest: m, resource: resource}
		if err != nil {
			live = nil
		} else {
			o.head, o.isThere = inventory.HeadOf(resource, live), true
		}
		change, err := p.compare(o, live)
		if err != nil || try == tries || isSameState(live, change.Look) {
			return change, err
		}
	}
}

// isSameState says whether what was read is what the server has answered about.
func isSameState(live *unstructured.Unstructured, look *Look) bool {
	if live == nil || look == nil || look.Unchecked != "" {
		return true
	}
	return live.GetResourceVersion() == look.Would.GetResourceVersion()
}

// compare says what would come of an object that is there, or is not if live is nil.
func (p *Previewer) compare(o *target, live *unstructured.Unstructured) (Change, error) {
	if live == nil {
		return p.made(o)
	}
	if err := p.refuseOwned(o.head); err != nil { // which may have no label that can be listed
		return Change{}, err
	}
	switch {
	case o.head.Terminating:
		return Change{Action: NotChecked, UID: o.head.UID, Message: p.leaving(o.Manifest, o.head.UID).Error()}, nil
	case isCreateOnly(o.Manifest):
		return Change{Action: Kept, UID: o.head.UID, Message: wasThere}, nil
	}
	return p.changed(o, live)
}

// made says what would come of an object that is not there.
func (p *Previewer) made(o *target) (Change, error) {
	var would cluster.Applied
	var err error
	if isCreateOnly(o.Manifest) {
		would, err = p.cluster.TryCreate(p.requests, o.resource, p.said(o.Manifest, nil))
		p.handler.Warned(o.Manifest, maskedWarnings(o.Manifest, would.Warnings))
	} else {
		would, err = p.tryApply(o, nil, cluster.Forced)
	}
	if err == nil {
		err = p.alsoBy(p.definitionOf(o.Manifest), o.Manifest, nil, nil)
	}
	if err != nil {
		return p.refused(o, nil, err)
	}
	return storable(Change{Action: Created, Look: &Look{Would: would.Object}}), nil
}

// changed says what would come of an object that is there.
func (p *Previewer) changed(o *target, live *unstructured.Unstructured) (Change, error) {
	would, adopted, err := p.wouldBe(o, live)
	if err == nil {
		err = p.alsoBy(p.definitionOf(o.Manifest), o.Manifest, live, would)
	}
	if err != nil {
		return p.refused(o, live, err)
	}
	change := Change{Action: Configured, UID: o.head.UID, Adopted: adopted, Lost: o.lost, Look: &Look{Live: live, Would: would}}
	isOurs := len(adopted) > 0 || o.head.Entry.Same(inventory.HeadOf(o.resource, would).Entry)
	if isOurs && isSame(live, would) {
		change.Action, change.Look = Unchanged, nil // there may be a great many
		return change, nil
	}
	return storable(change), nil
}

// storable doubts a change that makes an object too large for etcd, which no dry run comes
// to.
func storable(change Change) Change {
	const limit = 3 << 19 // bytes, unless it is told otherwise
	if body, err := json.Marshal(change.Look.Would); err == nil && len(body) > limit {
		change.Action, change.Message = NotChecked, fmt.Sprintf("it would be %d bytes, and most clusters store no more than %d", len(body), limit)
		change.Look.Unchecked = change.Message
	}
	return change
}

// wouldBe is what the server would make of an object that is there, and the managers whose
// fields would be taken over before. A dry run can't take over anything: of what it answers,
// the fields are taken out that would go then.
func (p *Previewer) wouldBe(o *target, live *unstructured.Unstructured) (would *unstructured.Unstructured, adopted []string, err error) {
	isNew := o.head.IsNew()
	if isNew {
		adopted = ownership.Adoptable(live, p.options.AdoptFrom)
		o.adopts = adopted
	}
	applied, err := p.tryApply(o, live, cluster.Plainly)
	if err != nil || !isNew {
		return applied.Object, adopted, err
	}
	left := ownership.Leave(applied.Object, live, p.options.AdoptFrom)
	if len(left) == 0 {
		return applied.Object, adopted, nil
	}
	would, err = ownership.Settle(p.requests, p.cluster, o.resource, applied.Object, left)
	return would, adopted, err
}

// tryApply asks the server what an apply would make of an object.
func (p *Previewer) tryApply(o *target, live *unstructured.Unstructured, how cluster.How) (cluster.Applied, error) {
	draft := p.said(o.Manifest, nil)
	if live != nil {
		isScaled, err := p.isScaled(o.Manifest, live)
		if err != nil {
			return cluster.Applied{}, err
		}
		if isScaled {
			ownership.LeaveReplicas(draft, ownership.Adopted(live, p.options.AdoptFrom))
		}
	}
	applied, err := p.dry(o, draft, how|cluster.Dry)
	if err == nil && len(o.added) > 0 {
		ownership.Shared(applied.Object, o.added)
	}
	return applied, err
}

// dry is a dry run. A field that is new in its definition is not left out because the cluster
// does not know it yet.
func (p *Previewer) dry(o *target, draft *unstructured.Unstructured, how cluster.How) (cluster.Applied, error) {
	if !p.definitionOf(o.Manifest).isChanged() {
		return p.applyDraft(o, draft, how)
	}
	applied, err := p.write(o, draft, how)
	p.handler.Warned(o.Manifest, maskedWarnings(o.Manifest, applied.Warnings))
	return applied, err
}

// isSame says whether two states of an object differ in nothing but what is the server's.
func isSame(a, b *unstructured.Unstructured) bool {
	return reflect.DeepEqual(fields.WithoutServers(a.Object), fields.WithoutServers(b.Object))
}
