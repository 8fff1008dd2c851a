package precondition

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/references"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// judgeDeletes implements PendingDelete: one finding for all deletes with the same cause. The findings
// block updates to another minor version. A patch is not blocked, since it may fix the cause.
func judgeDeletes(f *Facts) []Finding {
	h := f.hop()
	var pending, back []Delete
	for _, requested := range f.Deletes {
		switch {
		case requested.Seen.State == tombstone.Reappeared:
			back = append(back, requested)
		// the delete was never sent, and will not be sent
		case requested.Seen.State == tombstone.Present && f.has(requested.ID):
		// TerminatingObject reports the object, or its Namespace
		case requested.Seen.State == tombstone.Terminating && f.has(requested.ID):
		case !requested.WasSent() && f.deletes(requested.ID) && !h.isMinorOrMajor(): // this update will request it
		case requested.Seen.IsPending():
			pending = append(pending, requested)
		}
	}
	var findings []Finding
	for _, alike := range grouped(pending, Delete.cause) {
		findings = append(findings, f.judgePending(alike, h))
	}
	for _, requested := range back {
		findings = append(findings, f.judgeReappeared(requested)...)
	}
	return findings
}

// cause returns a key that deletes with the same cause have in common.
func (d Delete) cause() string {
	return fmt.Sprint(d.Version, d.WasSent(), d.Seen.State, d.Seen.Finalizers, d.Seen.Remains, d.Seen.Contents,
		d.ID.Without(d.Seen.Why))
}

// has reports whether the payload has an object, and not as a tombstone.
func (f *Facts) has(id kinds.ID) bool {
	return slices.ContainsFunc(f.Payload.Manifests, func(m *payload.Manifest) bool {
		return m.ID() == id && !m.IsTombstone()
	})
}

// deletes reports whether the payload has the tombstone of an object.
func (f *Facts) deletes(id kinds.ID) bool {
	return slices.ContainsFunc(f.Payload.Manifests, func(m *payload.Manifest) bool {
		return m.ID() == id && m.IsTombstone()
	})
}

// judgePending returns the finding about objects that still exist for the same reason. The finding describes the delete
// that was requested first.
func (f *Facts) judgePending(alike []Delete, h hop) Finding {
	slices.SortStableFunc(alike, func(a, b Delete) int { return a.since().Compare(b.since()) })
	oldest, count := alike[0], len(alike)
	relation := either(count, "is", "are") + " to be deleted"
	if oldest.Version != "" {
		relation = printable.Line(oldest.Version) + " deletes"
	}
	state := either(count, "is ", "are ") + oldest.DescribeSince()
	if oldest.Seen.State == tombstone.Unknown {
		state = "may still be there, which is " + oldest.Seen.DescribeSince()
	}
	var objects []kinds.ID
	for _, item := range alike {
		objects = append(objects, item.ID)
	}
	subject := fmt.Sprintf("%s, which %s, %s", name(objects), relation, state)
	finding := warns(deleteResolution(oldest), "%s: %s continues", subject, h)
	if h.isMinorOrMajor() {
		finding = blocks(deleteResolution(oldest), "%s: %s does not begin before %s deleted", subject, h,
			either(count, "it is", "they are"))
	}
	return finding.withSince(oldest.since()).withObjects(objects...)
}

// since returns when an object began to terminate, or else when its delete was requested.
func (d Delete) since() time.Time {
	if d.Seen.State == tombstone.Terminating {
		return d.Seen.Since
	}
	return d.RequestedAt.Time
}

// deleteResolution returns the action that finishes a pending delete.
func deleteResolution(requested Delete) string {
	switch seen := requested.Seen; {
	case seen.State == tombstone.Unknown:
		return "retrying when the cluster answers"
	case !requested.WasSent():
		return "applying " + printable.Line(cmp.Or(requested.Version, "the version that deletes it")) +
			" to its end, or deleting it by hand"
	case seen.State == tombstone.Present:
		return "applying the same version again, or deleting it by hand"
	case seen.Contents == tombstone.Unclear && len(seen.Finalizers) == 0:
		return "waiting, unless something in it is held, which is not known yet"
	case seen.Contents == tombstone.Ending && len(seen.Remains) > 0 && len(seen.Finalizers) == 0:
		return "waiting until the rest of its content is deleted"
	case len(seen.Remains) > 0 && len(seen.Finalizers) > 0:
		return holders(seen.Finalizers) + ", and removing what is left in it"
	case len(seen.Remains) > 0:
		return "removing what is left in it"
	case len(seen.Finalizers) > 0:
		return holders(seen.Finalizers)
	default:
		return "waiting: nothing holds it"
	}
}

// holders returns the words for the controllers of finalizers.
func holders(finalizers []string) string {
	if len(finalizers) == 1 {
		return "waiting for the holder of finalizer " + finalizers[0]
	}
	return "waiting for the holders of finalizers " + strings.Join(finalizers, ", ")
}

// judgeReappeared returns the finding about an object that was recreated; none if the payload has the object.
func (f *Facts) judgeReappeared(requested Delete) []Finding {
	if f.has(requested.ID) {
		return nil
	}
	outlook := "nothing deletes it any more"
	if f.deletes(requested.ID) {
		outlook = "this update deletes it again"
	}
	return []Finding{warns("stopping the client that created it",
		"%s was deleted, and was created again by %s: %s",
		requested.ID, requested.Seen.MadeBy, outlook).withSince(requested.RequestedAt.Time).withObjects(requested.ID)}
}

// judgeUses implements DeletedInUse: one finding for each tombstone.
func judgeUses(f *Facts) []Finding {
	if f.Payload == nil || !slices.ContainsFunc(f.Payload.Manifests, (*payload.Manifest).IsTombstone) {
		return nil
	}
	uses := references.NewGraph(f.Payload.Manifests, nil).Uses
	var findings []Finding
	for _, m := range f.Payload.Manifests {
		if by := uses[m.ID()]; m.IsTombstone() && len(by) > 0 && !f.has(m.ID()) {
			findings = append(findings, blocks("dropping the tombstone, or the reference",
				"%s: the release deletes %s, and %s",
				m.Path, m.ID(), references.Describe(by[0].By.ID(), by[0].By.Path, by[0].Field(), len(by)-1)).withFile(
				m,
			))
		}
	}
	return findings
}

// judgeTombstones implements StaleTombstone. A tombstone is not stale while its delete is
// pending, or if its object was recreated.
func judgeTombstones(f *Facts) []Finding {
	applied := f.Record.Applied()
	if applied == nil {
		return nil
	}
	h := f.hopFrom(applied)
	if !h.isMinorOrMajor() || !h.isKnown() {
		return nil
	}
	var stale []*payload.Manifest
	for _, m := range f.Payload.Manifests {
		if m.IsTombstone() && slices.Contains(applied.Tombstones, m.ID()) && !f.isOpen(m.ID()) {
			stale = append(stale, m)
		}
	}
	if len(stale) == 0 {
		return nil
	}
	it, were, do := either(len(stale), "it", "them"),
		either(len(stale), "tombstone of %s was", "tombstones of %s were"), either(len(stale), "does", "do")
	return []Finding{warns("dropping "+it+" from the release",
		"%s: the "+were+" in %s already, and "+do+" nothing any more",
		files(stale), name(ids(stale)), h.from).withFile(stale...)}
}

// isOpen reports whether a delete may not be finished.
func (f *Facts) isOpen(id kinds.ID) bool {
	return slices.Contains(f.TombstoneObjects, id) ||
		slices.ContainsFunc(f.Deletes, func(requested Delete) bool {
			return requested.ID == id && requested.Seen.State != tombstone.Absent
		})
}
