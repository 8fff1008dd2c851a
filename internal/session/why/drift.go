package why

import (
	"context"
	"strings"
	"time"

	"github.com/runlevel/runlevel/internal/cluster/fingerprint"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/cluster/ownership"
	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/record"
)

// A Drift describes the differences between an object and its applied state, by its metadata.
type Drift struct {
	Writers     []ownership.Writer // managers that changed fields of the release, the newest first; empty if unknown
	IsReplaced  bool               // it was deleted and created again, and the release has not applied it since
	IsUnlabeled bool               // the label of the release was removed
}

// drift compares the object with its fingerprint in the record: the state in which the last apply left our entry in
// managedFields.
func (g *gatherer) drift(ctx context.Context) {
	f := g.facts
	if f.Record == nil {
		return
	}
	applied := fingerprint.Read(f.Record.Fingerprints)
	f.IsNamed, f.IsKnown = applied.Has(g.facts.Object), applied.WasApplied(g.facts.Object)
	switch {
	case f.Live == nil || f.Seen.State == tombstone.Terminating || !f.IsKnown:
		return
	case g.head.IsNeverApplied() && !applied.IsSameObject(g.head):
		f.Drift = &Drift{IsReplaced: true}
		return
	case g.head.Release != "" && g.head.Release != f.Record.Release || !g.head.Entry.Since.Before(g.recordedUntil()):
		return // it was applied since, and the record does not know yet
	}
	wasOurs := func(fields []byte) bool { return applied.HadFields(g.facts.Object, fields) }
	writers, isChanged := ownership.Changed(f.Live, func() bool { return g.isScaled(ctx) }, wasOurs)
	if isUnlabeled := g.head.Release == ""; isUnlabeled || isChanged {
		f.Drift = &Drift{Writers: writers, IsUnlabeled: isUnlabeled}
	}
}

// recordedUntil returns the time until which the record has all applies. A running apply does not write each change.
func (g *gatherer) recordedUntil() time.Time {
	newest, run := g.facts.Record.Newest(), g.facts.Run
	switch {
	case run != nil:
		return run.Now
	case newest != nil && newest.State == record.Partial:
		return newest.Started.Time
	default:
		return g.cluster.Now()
	}
}

// isScaled reports whether an autoscaler scales the object. Runlevel leaves replicas to it.
func (g *gatherer) isScaled(ctx context.Context) bool {
	scaled, err := ownership.FindScaleTargets(ctx, g.cluster, []string{g.facts.Object.Namespace})
	if err != nil {
		g.unknown("list horizontalpodautoscalers", err)
	}
	return scaled.Has(g.facts.Object)
}

// explainDrift adds who has changed an object since it was applied.
func explainDrift(f *ObjectFacts, a *Answer) {
	if f.Drift == nil || a.State != Changed && a.State != NotReady {
		return
	}
	a.Changed = f.Drift.Writers
	var by []string
	for _, writer := range f.Drift.Writers {
		text := writer.Manager
		if !writer.Since.IsZero() {
			text += ", " + f.age(writer.Since) + " ago"
		}
		by = append(by, text)
	}
	switch {
	case f.Drift.IsReplaced:
		a.addMessage(nil, "it was deleted and created again since release %s applied it: created by %s", f.title(),
			f.Seen.MadeBy)
	case len(by) > 1: // some may have written other fields only
		a.addMessage(nil, "changed since by some of these: %s: see runlevel diff %s", strings.Join(by, "; "),
			f.Record.Release)
	case len(by) > 0:
		a.addMessage(nil, "changed since by %s: see runlevel diff %s", strings.Join(by, "; "), f.Record.Release)
	case !f.Drift.IsUnlabeled:
		a.addMessage(nil, "fields were removed since, by a manager that left no name: see runlevel diff %s",
			f.Record.Release)
	}
	if len(by) > 0 && !f.Drift.IsReplaced && f.Held == nil && f.NotKept == nil {
		a.addMessage(nil, "to repair it, %s", applyAgain(f.Record))
	}
	if f.Drift.IsUnlabeled {
		a.addMessage(nil, "its label %s=%s was removed: an apply sets it again", objectmeta.ReleaseLabel,
			f.Record.Release)
	}
}

// explainMissing adds that an object was deleted since it was applied.
func explainMissing(f *ObjectFacts, a *Answer) {
	if _, _, isLeft := f.step(); a.State != Absent || !f.IsKnown || isLeft {
		return
	}
	a.addMessage(nil, "release %s has it, and it was deleted since it was applied: %s", f.title(),
		f.missingRemedy("it"))
}
