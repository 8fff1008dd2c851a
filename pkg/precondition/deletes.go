package precondition

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/printable"
	"github.com/runlevel/runlevel/pkg/tombstone"
)

// judgeDeletes is PendingDelete. What is left of one minor version is to be gone before
// the next begins; patches may be what mends it, so they go on.
func judgeDeletes(f *Facts) []Finding {
	h := f.hop()
	var found []Finding
	for _, asked := range f.Deletes {
		switch {
		case asked.Seen.State == tombstone.Reappeared:
			found = append(found, f.judgeReappeared(asked)...)
		case asked.Seen.State == tombstone.Present && f.has(asked.ID): // its delete never came, and will not
		case asked.Seen.State == tombstone.Terminating && f.has(asked.ID): // TerminatingObject tells of it, or of what it is in
		case !asked.WasSent() && f.deletes(asked.ID) && !h.isBig(): // this update is the one to ask for it
		case asked.Seen.IsPending():
			found = append(found, f.judgePending(asked, h))
		}
	}
	return found
}

// has says whether the payload has an object, to stay.
func (f *Facts) has(id kinds.ID) bool {
	return slices.ContainsFunc(f.Payload.Manifests, func(m *payload.Manifest) bool { return m.ID() == id && !m.IsTombstone() })
}

// deletes says whether the payload has the tombstone of an object.
func (f *Facts) deletes(id kinds.ID) bool {
	return slices.ContainsFunc(f.Payload.Manifests, func(m *payload.Manifest) bool { return m.ID() == id && m.IsTombstone() })
}

// judgePending is about an object that is not gone.
func (f *Facts) judgePending(asked Delete, h hop) Finding {
	who, since := "is to be deleted", asked.Asked.Time
	if asked.Version != "" {
		who = printable.Line(asked.Version) + " deletes"
	}
	if asked.Seen.State == tombstone.Terminating {
		since = asked.Seen.Since
	}
	stands := "is " + asked.Describe(f.Now)
	if asked.Seen.State == tombstone.Unknown {
		stands = "may still be there, which is " + asked.Seen.Describe(f.Now)
	}
	what := fmt.Sprintf("%s, which %s, %s", asked.ID, who, stands)
	finding := warns(liftsDelete(asked), "%s: %s goes on", what, h)
	if h.isBig() {
		finding = blocks(liftsDelete(asked), "%s: %s does not begin before it is gone", what, h)
	}
	return finding.since(since).about(asked.ID)
}

// liftsDelete is who can end a pending delete.
func liftsDelete(asked Delete) string {
	switch seen := asked.Seen; {
	case seen.State == tombstone.Unknown:
		return "an answer of the cluster: it can't be asked now"
	case !asked.WasSent():
		return "applying " + printable.Line(cmp.Or(asked.Version, "the version that deletes it")) + " to its end, or by whoever deletes it by hand"
	case seen.State == tombstone.Present:
		return "applying the same version again, which asks for it again, or by whoever deletes it by hand"
	case seen.Contents == tombstone.Unclear && len(seen.Finalizers) == 0:
		return "itself, unless something in it is held: that is not known yet"
	case seen.Contents == tombstone.Ending && len(seen.Remains) > 0 && len(seen.Finalizers) == 0:
		return "itself, once what is left in it has ended"
	case len(seen.Remains) > 0 && len(seen.Finalizers) > 0:
		return holders(seen.Finalizers) + ", and by whoever removes what is left in it"
	case len(seen.Remains) > 0:
		return "whoever removes what is left in it"
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
func (f *Facts) judgeReappeared(asked Delete) []Finding {
	if f.has(asked.ID) {
		return nil
	}
	what := "nothing deletes it any more"
	if f.deletes(asked.ID) {
		what = "this update deletes it again"
	}
	return []Finding{warns("whoever made it", "%s was deleted, and is there again, made by %s: %s",
		asked.ID, asked.Seen.MadeBy, what).since(asked.Asked.Time).about(asked.ID)}
}

// judgeTombstones is StaleTombstone. A delete that is not done is still worth its
// tombstone, and so is that of an object which came back.
func judgeTombstones(f *Facts) []Finding {
	applied := f.Record.Applied()
	if applied == nil {
		return nil
	}
	h := f.hopFrom(applied)
	if !h.isBig() || !h.isKnown() {
		return nil
	}
	var found []Finding
	for _, m := range f.Payload.Manifests {
		if m.IsTombstone() && slices.Contains(applied.Tombstones, m.ID()) && !f.isOpen(m.ID()) {
			found = append(found, warns("dropping it from the release", "%s: the tombstone of %s was in %s already, and does nothing any more",
				printable.Line(m.File()), m.ID(), h.from).at(m))
		}
	}
	return found
}

// isOpen says whether a delete may have something to do.
func (f *Facts) isOpen(id kinds.ID) bool {
	return slices.Contains(f.There, id) || slices.ContainsFunc(f.Deletes, func(asked Delete) bool { return asked.ID == id && asked.Seen.State != tombstone.Absent })
}
