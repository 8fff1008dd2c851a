package operator

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/runlevel/runlevel/internal/operator/clusterversion"
	"github.com/runlevel/runlevel/internal/record/files"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// An acceptance is one attempt to accept a release.
type acceptance struct {
	applier *applier
	target  *target
	isQuiet bool // a retry, which shows no phases
	now     clusterversion.Acceptance
	signed  verification
	packed  *files.Packed // the files of the release, to be kept
}

// prepare retrieves, loads and judges the release. Current is the release that is kept in place until then, or nil.
func (t *acceptance) prepare(ctx context.Context, current *running) (*payload.Payload, error) {
	t.enter(ctx, clusterversion.Retrieving)
	if t.target.Image == "" {
		return nil, &reason.Error{Reason: reasonUnread, Message: t.target.unreadMessage()}
	}
	if err := t.verify(ctx, current); err != nil {
		return nil, err
	}
	opened, err := t.applier.releases.open(ctx, t.target)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	defer t.applier.health.enter("loading and judging a release")()
	t.enter(ctx, clusterversion.Loading)
	var before *payload.Payload
	if current != nil {
		before = current.payload
	}
	loaded, err := t.applier.releases.load(ctx, opened, t.target, before)
	if err != nil {
		return nil, err
	}
	t.enter(ctx, clusterversion.Verifying)
	if want := t.target.Version; want != "" && loaded.Version != want {
		return nil, &reason.Error{
			Reason: "VerifyPayloadVersionFailed",
			Message: fmt.Sprintf("release image version %s does not match the expected upstream version %s",
				loaded.Version, want),
		}
	}
	if t.packed, err = pack(opened, loaded); err != nil {
		return nil, err
	}
	t.enter(ctx, clusterversion.Judging)
	return loaded, t.judge(ctx, loaded)
}

// enter publishes the phase that the release has reached.
func (t *acceptance) enter(ctx context.Context, phase clusterversion.AcceptancePhase) {
	t.now = t.target.at(phase)
	if !t.isQuiet {
		t.publish(ctx)
	}
}

// publish makes the acceptance that of the status, and announces it, unless the status is about another release by now.
// Of the release that was begun last, which is accepted before the requested one, it publishes only why that one can't
// be kept in place.
func (t *acceptance) publish(ctx context.Context) {
	isCurrent := false
	t.applier.update(func() {
		wanted := t.applier.wanted
		isCurrent = t.target == wanted || wanted != nil && t.target == wanted.Before && t.now.Err != nil
		if isCurrent {
			t.applier.acceptance = t.now
		}
	})
	if isCurrent && t.applier.holds() {
		t.applier.events.announce(ctx, t.now)
	}
}

// acceptedRisks returns the checks that were overridden by force, of updates that are not recommended, and of
// overrides.
func (t *acceptance) acceptedRisks() []string {
	risks := slices.DeleteFunc(slices.Clone(t.now.Findings), func(f precondition.CheckFinding) bool {
		isAccepted := f.Check == clusterversion.RiskNotRecommended || f.Check == clusterversion.RiskOverrides
		return !isAccepted || f.Severity == precondition.Blocks
	})
	if t.target.Force {
		risks = slices.Concat(precondition.Blocking(t.now.Findings), risks)
	}
	return precondition.CheckNames(risks)
}

// reasonUnread is the reason of a release that is not kept in place because the operator can't read the last applied
// one.
const reasonUnread = "ReleaseNotReadable"

// unreadMessage returns why the operator can't keep the last applied release in place.
func (t *target) unreadMessage() string {
	if isByDigest(t.unread.Source) {
		return fmt.Sprintf("the record says that %s was applied last, from %s, but the ClusterVersion does not: to "+
			"apply it, request this image in spec.desiredUpdate",
			printable.Line(cmp.Or(t.unread.Version, "a release without a version")), printable.Line(t.unread.Source))
	}
	return fmt.Sprintf("%s was applied from %s, which the operator can't read: request an image with the same files "+
		"in spec.desiredUpdate",
		printable.Line(cmp.Or(t.unread.Version, "a release without a version")),
		printable.Line(cmp.Or(t.unread.Source, "a source without a name")))
}

// judge asks the gate of the release, and for the risks of a minor update. Force overrides what blocks. Nothing blocks
// the release that was begun last: it is kept in place, except for objects that can't be.
func (t *acceptance) judge(ctx context.Context, p *payload.Payload) error {
	a := t.applier
	a.mu.Lock()
	s, risks := a.session, a.risks
	a.mu.Unlock()
	outcome := s.Inspect(ctx, p, a.sessionOptions(t.target))
	if outcome.Err != nil {
		return outcome.Err
	}
	t.now.Findings, t.now.WasJudged = slices.Concat(outcome.Findings, riskFindings(risks, outcome, t.target.Previous),
		a.updates.warnings(p.Version)), true
	if t.target.unread != nil && !outcome.IsSame {
		t.now.Findings = append(t.now.Findings, precondition.CheckFinding{
			Check: reasonUnread, Severity: precondition.Blocks, Message: t.target.unreadMessage(),
			Since:      &t.target.unread.Started.Time,
			Resolution: "a request of an image with the same files",
		})
	}
	for i := range t.now.Findings {
		if found := &t.now.Findings[i]; a.options.StrictTombstones && found.Check == precondition.StaleTombstone {
			found.Severity = precondition.Blocks
		}
	}
	if t.target.Force {
		return nil
	}
	for i := range t.now.Findings {
		if outcome.IsSame {
			t.now.Findings[i].Severity = precondition.Warns
		}
	}
	outcome.Findings, outcome.Err = t.now.Findings, precondition.Refuse(t.now.Findings)
	if outcome.Err != nil {
		s.NotifyBlocked(ctx, a.sender, outcome, t.isQuiet)
	}
	return outcome.Err
}
