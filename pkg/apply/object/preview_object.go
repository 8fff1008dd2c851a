package object

import (
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/cluster/ownership"
	"github.com/runlevel/runlevel/internal/objects/fields"
)

// compareLive compares the live object with the server's answer to a dry run. If the object is written in between, both
// are requested again, up to five times.
func (p *Previewer) compareLive(o *liveObject) (Change, error) {
	const tries = 5
	for try := 1; ; try++ {
		o = &liveObject{Manifest: o.Manifest, resource: o.resource}
		if err := p.readLive(o); err != nil {
			return Change{}, err
		}
		change, err := p.compare(o)
		if err != nil || try == tries || isSameState(o.live, change.Look) ||
			!Pause(p.requestCtx, time.Duration(try)*100*time.Millisecond) {
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

// compare returns the change of an object whose present state was read.
func (p *Previewer) compare(o *liveObject) (Change, error) {
	// another release may own an object that the label selector misses
	if err := refuseOwned(o.head, p.options.Release); err != nil {
		return Change{}, err
	}
	switch {
	case o.head.Terminating:
		why := p.deleter.terminatingFailure(o.Manifest, o.head.UID).Error()
		return p.unlessRefused(o.Manifest, Change{Action: NotChecked, UID: o.head.UID, Message: why})
	case o.exists && o.Manifest.IsCreateOnly():
		return unwrittenChange(keep, o.head), nil
	}
	would, err := p.wouldBe(o)
	// the server has another version of the definition
	if definition := p.definitionOf(o.Manifest); err == nil && definition.isChanged() {
		err = p.validate(definition, o, would)
	}
	if err != nil {
		return p.refusedChange(o, err)
	}
	change := Change{
		Action:  Configured,
		UID:     o.head.UID,
		Adopted: o.adopts,
		Lost:    o.lost,
		Foreign: ownership.Foreign(would),
		Look:    &Look{Live: o.live, Would: would},
	}
	isOurs := len(o.adopts) > 0 || o.head.Entry.Same(objectmeta.Of(o.resource, would).Entry)
	switch {
	case !o.exists:
		change.Action = Created
	case isOurs && isSame(o.live, would):
		change.Action, change.Look = Unchanged, nil // unchanged objects may be many
		return change, nil
	}
	return storable(change), nil
}

// storable makes a change not checked if the object would be too large for etcd, which a dry run does not reach.
func storable(change Change) Change {
	const limit = 3 << 19 // bytes, by default
	if body, err := json.Marshal(change.Look.Would); err == nil && len(body) > limit {
		change.Action, change.Message = NotChecked,
			fmt.Sprintf("it would be %d bytes, and most clusters store no more than %d", len(body), limit)
		change.Look.Unchecked = change.Message
	}
	return change
}

// wouldBe returns an object as an apply would leave it, by a dry run. A dry run can't adopt fields, so wouldBe removes
// the fields that the apply would remove after the adoption.
func (p *Previewer) wouldBe(o *liveObject) (*unstructured.Unstructured, error) {
	if o.Manifest.IsCreateOnly() {
		return p.create(o, cluster.DryRun)
	}
	how, isNew := cluster.Force|cluster.DryRun, o.exists && o.head.IsNeverApplied()
	if o.exists {
		how = cluster.DryRun
	}
	if isNew {
		o.adopts = ownership.Adoptable(o.live, p.options.AdoptFrom)
	}
	o.keepsUnknown = p.definitionOf(o.Manifest).isChanged()
	applied, err := p.sendDraft(o, how)
	if err != nil {
		return nil, err
	}
	if len(o.added) > 0 {
		ownership.DryRunShare(applied.Object, o.added)
	}
	var left []string
	switch {
	case isNew:
		left = ownership.DryRunAdopt(applied.Object, o.live, p.options.AdoptFrom)
	case p.options.RemovesForeign != nil:
		var lost []ownership.Conflict
		left, lost = ownership.DryRunTakeForeign(applied.Object, o.removesForeign(p.options))
		o.lost = append(o.lost, maskConflicts(o.Manifest, lost)...)
	}
	if len(left) == 0 {
		return applied.Object, nil
	}
	return ownership.DryRunDefaults(p.requestCtx, p.cluster, o.resource, applied.Object, left)
}

// isSame reports whether two states of an object differ only in fields that the server sets.
func isSame(a, b *unstructured.Unstructured) bool {
	return reflect.DeepEqual(fields.WithoutServers(a.Object), fields.WithoutServers(b.Object))
}
