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

// judgeDeletes is PendingDelete: one finding for the deletes that the same holds up. What is left of
// one minor version is to be gone before the next begins; a patch may fix it, so patches go on.
func judgeDeletes(f *Facts) []CheckFinding {
	h := f.hop()
	var pending, back []Delete
	for _, asked := range f.Deletes {
		switch {
		case asked.Seen.State == tombstone.Reappeared:
			back = append(back, asked)
		case asked.Seen.State == tombstone.Present && f.has(asked.ID): // its delete never came, and will not
		case asked.Seen.State == tombstone.Terminating && f.has(asked.ID): // TerminatingObject tells of it, or of what it is in
		case !asked.WasSent() && f.deletes(asked.ID) && !h.isMinorOrMajor(): // this update is the one to ask for it
		case asked.Seen.IsPending():
			pending = append(pending, asked)
		}
	}
	var found []CheckFinding
	for _, alike := range grouped(pending, Delete.cause) {
		found = append(found, f.judgePending(alike, h))
	}
	for _, asked := range back {
		found = append(found, f.judgeReappeared(asked)...)
	}
	return found
}

// cause is what deletes have in common that the same holds up.
func (d Delete) cause() string {
	return fmt.Sprint(d.Version, d.WasSent(), d.Seen.State, d.Seen.Finalizers, d.Seen.Remains, d.Seen.Contents, d.ID.Without(d.Seen.Why))
}

// has says whether the payload has an object, to stay.
func (f *Facts) has(id kinds.ID) bool {
	return slices.ContainsFunc(f.Payload.Manifests, func(m *payload.Manifest) bool { return m.ID() == id && !m.IsTombstone() })
}

// deletes says whether the payload has the tombstone of an object.
func (f *Facts) deletes(id kinds.ID) bool {
	return slices.ContainsFunc(f.Payload.Manifests, func(m *payload.Manifest) bool { return m.ID() == id && m.IsTombstone() })
}

// judgePending is about objects that are not gone, for one cause. The one that was asked for first
// stands for all.
func (f *Facts) judgePending(alike []Delete, h hop) CheckFinding {
	slices.SortStableFunc(alike, func(a, b Delete) int { return a.since().Compare(b.since()) })
	asked, count := alike[0], len(alike)
	who := either(count, "is", "are") + " to be deleted"
	if asked.Version != "" {
		who = printable.Line(asked.Version) + " deletes"
	}
	stands := either(count, "is ", "are ") + asked.DescribeSince()
	if asked.Seen.State == tombstone.Unknown {
		stands = "may still be there, which is " + asked.Seen.DescribeSince()
	}
	var objects []kinds.ID
	for _, item := range alike {
		objects = append(objects, item.ID)
	}
	what := fmt.Sprintf("%s, which %s, %s", name(objects), who, stands)
	finding := warns(liftsDelete(asked), "%s: %s goes on", what, h)
	if h.isMinorOrMajor() {
		finding = blocks(liftsDelete(asked), "%s: %s does not begin before %s gone", what, h, either(count, "it is", "they are"))
	}
	return finding.since(asked.since()).about(objects...)
}

// since is when an object began to be on its way out, or was to be.
func (d Delete) since() time.Time {
	if d.Seen.State == tombstone.Terminating {
		return d.Seen.Since
	}
	return d.RequestedAt.Time
}

// liftsDelete is who can end a pending delete.
func liftsDelete(asked Delete) string {
	switch seen := asked.Seen; {
	case seen.State == tombstone.Unknown:
		return "an answer of the cluster: it can't be asked now"
	case !asked.WasSent():
		return "applying " + printable.Line(cmp.Or(asked.Version, "the version that deletes it")) + " to its end, or by deleting it by hand"
	case seen.State == tombstone.Present:
		return "applying the same version again, which asks for it again, or by deleting it by hand"
	case seen.Contents == tombstone.Unclear && len(seen.Finalizers) == 0:
		return "itself, unless something in it is held: that is not known yet"
	case seen.Contents == tombstone.Ending && len(seen.Remains) > 0 && len(seen.Finalizers) == 0:
		return "itself, once what is left in it has ended"
	case len(seen.Remains) > 0 && len(seen.Finalizers) > 0:
		return holders(seen.Finalizers) + ", and by removing what is left in it"
	case len(seen.Remains) > 0:
		return "removing what is left in it"
	case len(seen.Finalizers) > 0:
		return holders(seen.Finalizers)
	default:
		return "itself: nothing holds it"
	}
}

// holders are those who have promised to take their finalizers off.
func holders(finalizers []string) string {
	if len(finalizers) == 1 {
		return "the holder of finalizer " + finalizers[0]
	}
	return "the holders of finalizers " + strings.Join(finalizers, ", ")
}

// judgeReappeared is about an object that is there again, under another UID. If it is the
// payload that wants it back, there is nothing to say.
func (f *Facts) judgeReappeared(asked Delete) []CheckFinding {
	if f.has(asked.ID) {
		return nil
	}
	what := "nothing deletes it any more"
	if f.deletes(asked.ID) {
		what = "this update deletes it again"
	}
	return []CheckFinding{warns("the client that made it", "%s was deleted, and is there again, made by %s: %s",
		asked.ID, asked.Seen.MadeBy, what).since(asked.RequestedAt.Time).about(asked.ID)}
}

// judgeUses is DeletedInUse: one finding for each tombstone.
func judgeUses(f *Facts) []CheckFinding {
	if f.Payload == nil || !slices.ContainsFunc(f.Payload.Manifests, (*payload.Manifest).IsTombstone) {
		return nil
	}
	uses := references.Uses(f.Payload.Manifests)
	var found []CheckFinding
	for _, m := range f.Payload.Manifests {
		if by := uses[m.ID()]; m.IsTombstone() && len(by) > 0 && !f.has(m.ID()) {
			found = append(found, blocks("dropping the tombstone, or the reference", "%s: the release deletes %s, and %s",
				m.Path, m.ID(), references.Describe(by[0].By.ID(), by[0].By.Path, by[0].Field(), len(by)-1)).at(m))
		}
	}
	return found
}

// judgeTombstones is StaleTombstone. A delete that is not done is still worth its
// tombstone, and so is that of an object which came back.
func judgeTombstones(f *Facts) []CheckFinding {
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
	it, were, do := either(len(stale), "it", "them"), either(len(stale), "tombstone of %s was", "tombstones of %s were"), either(len(stale), "does", "do")
	return []CheckFinding{warns("dropping "+it+" from the release", "%s: the "+were+" in %s already, and "+do+" nothing any more",
		files(stale), name(ids(stale)), h.from).at(stale...)}
}

// isOpen says whether a delete may have something to do.
func (f *Facts) isOpen(id kinds.ID) bool {
	return slices.Contains(f.TombstoneObjects, id) || slices.ContainsFunc(f.Deletes, func(asked Delete) bool { return asked.ID == id && asked.Seen.State != tombstone.Absent })
}
