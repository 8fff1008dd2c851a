package operator

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/operator/clusterversion"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/files"
	"github.com/runlevel/runlevel/internal/release/signature"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// A targetRelease is the release of a target, with its files and the result of its acceptance.
type targetRelease struct {
	target     *target
	acceptance clusterversion.Acceptance
	signed     verification
	payload    *payload.Payload
	unread     unreadParts
	packed     *files.Packed // the files of the release, which are kept on the cluster
}

// matches reports whether the release is the one of a target. A target with force does not match a release without.
func (r *targetRelease) matches(t *target) bool {
	isVersion := t.Version == "" || t.Version == r.payload.Version
	isForced := r.target.Force || !t.Force
	return isVersion && isForced && t.hasSameObjects(r.target)
}

// A candidate takes a target through the states of stateMachine until the release is accepted or refused. Only the
// goroutine that accepts targets uses a candidate. After the acceptance, a currentRelease has its release, which does
// not change any more. The candidate of a preflight is never accepted, and writes nothing to the cluster.
type candidate struct {
	targetRelease
	machine     *stateMachine
	isRetry     bool                    // the candidate publishes no states until it is accepted
	isPreflight bool                    // the gate includes dry runs, whose findings do not refuse the release
	effects     *clusterversion.Effects // effects of a preflight's update; nil until the dry runs have ended
}

// prepare retrieves and loads the release, and runs the gate. Current is the current release, or nil.
func (c *candidate) prepare(ctx context.Context, current *currentRelease) (err error) {
	c.enter(ctx, clusterversion.Retrieving)
	if c.target.Image == "" {
		return &reason.Error{Reason: reasonUnread, Message: c.target.unreadMessage()}
	}
	if err := c.verify(ctx, current); err != nil {
		return err
	}
	var before *payload.Payload
	if current != nil {
		before = current.release.payload
		c.machine.releases.keep(current.release.target.Image) // preflights of many images do not evict it
	}
	opened, err := c.machine.releases.open(ctx, c.target)
	if err != nil {
		return err
	}
	defer opened.Close()
	defer c.machine.health.enter("loading and judging a release")()
	c.enter(ctx, clusterversion.Loading)
	if c.payload, c.unread, err = c.machine.releases.load(ctx, opened, c.target, before); err != nil {
		return err
	}
	c.enter(ctx, clusterversion.Verifying)
	if want := c.target.Version; want != "" && c.payload.Version != want {
		message := fmt.Sprintf("release image version %s does not match the expected upstream version %s",
			c.payload.Version, want)
		return &reason.Error{Reason: "VerifyPayloadVersionFailed", Message: message}
	}
	if c.packed, err = pack(opened, c.payload); err != nil {
		return err
	}
	c.enter(ctx, clusterversion.Judging)
	return c.judge(ctx)
}

// enter sets the phase of the acceptance, and publishes it.
func (c *candidate) enter(ctx context.Context, phase clusterversion.AcceptancePhase) {
	c.acceptance = c.target.at(phase)
	if !c.isRetry {
		c.publish(ctx)
	}
}

// publish sets the acceptance of the output and announces it, unless the target is outdated. An operator that has just
// started accepts the release that was begun last before the requested one: of that release, publish shows only why it
// can't be kept in place. A preflight has no events.
func (c *candidate) publish(ctx context.Context) {
	isShown := false
	if c.isPreflight {
		c.publishPreflight()
		return
	}
	c.machine.update(func() {
		requested := c.machine.input.target
		isShown = c.target == requested || requested != nil && c.target == requested.Before && c.acceptance.Err != nil
		if isShown {
			c.machine.acceptance = c.acceptance
		}
	})
	if isShown && c.machine.holds() {
		c.machine.events.announce(ctx, c.acceptance)
	}
}

// verify looks for the signatures that the current release requires of the image of the next one. No release requires
// signatures of the first one. Force continues without a signature.
func (c *candidate) verify(ctx context.Context, current *currentRelease) error {
	switch {
	case current == nil && c.target.Before == nil:
		c.signed = c.target.signed
		return nil
	case current == nil: // only force tries this one although the release before can't be read
		unread := fmt.Errorf("release %s can't be read, which may demand signatures", c.target.Before.Image)
		c.signed.risk = c.forcedRisk(unread)
		return nil
	case current.release.target.Image == c.target.Image: // only other objects of the target differ
		c.signed = current.release.signed
		return nil
	}
	policy, err := signature.PolicyOf(current.release.payload)
	if err == nil && current.release.unread.isPolicy { // another policy that can be read may demand less
		err = fmt.Errorf("release %s may demand signatures by a manifest that this operator can't read: %w",
			current.release.payload.Version, current.release.unread.err())
	}
	if policy == nil && err == nil {
		c.signed.unverified = fmt.Sprintf("release %s has no ConfigMap with the annotation %s",
			current.release.payload.Version, signature.ConfigAnnotation)
		return nil
	}
	if err == nil {
		err = c.findSignatures(ctx, policy)
	}
	switch {
	case err == nil:
		c.signed.isVerified = true
	case c.target.Force && ctx.Err() == nil:
		c.signed.risk = c.forcedRisk(err)
	default:
		return err
	}
	return nil
}

// findSignatures looks for the signatures of the image, and stores the valid ones in the namespace of the record.
func (c *candidate) findSignatures(ctx context.Context, policy *signature.Policy) error {
	_, digest, _ := strings.Cut(c.target.Image, "@")
	core, namespace := c.machine.cluster.Client.CoreV1(), c.machine.options.Namespace
	images, err := c.machine.releases.signedImages(ctx, c.target.Image)
	if err != nil {
		return err
	}
	found, err := policy.Verify(ctx, digest, signature.Stores{
		ConfigMaps: core, Namespaces: []string{namespace, signature.ManagedNamespace}, Images: images,
	})
	if err != nil {
		return err
	}
	if c.isPreflight || len(found) == 0 { // signatures beside the image stay there
		return nil
	}
	// the next attempt looks for them again
	if err := signature.Persist(ctx, core, namespace, digest, found); err != nil {
		ctrl.LoggerFrom(ctx).Info("signatures not stored", "image", c.target.Image, "reason", err.Error())
	}
	return nil
}

// forcedRisk returns the risk of an image that was not verified, and is applied all the same.
func (c *candidate) forcedRisk(err error) string {
	return fmt.Sprintf("Target release version=%q image=%q cannot be verified, but continuing anyway because the "+
		"update was forced: %v", c.target.Version, c.target.Image, err)
}

// judge runs the gate, with the risks of a minor update. Force overrides the findings that block. Nothing blocks the
// release that was begun last: it is kept in place, except for objects that the API server refuses. A preflight also
// runs the dry runs, and continues with findings.
func (c *candidate) judge(ctx context.Context) error {
	m := c.machine
	m.mu.Lock()
	s, risks, observed := m.session, m.risks, m.input.observed
	m.risksAtGate = risks
	m.mu.Unlock()
	observed.Retrieved = m.updates.last()
	outcome, err := c.inspect(ctx, s)
	if err != nil {
		return err
	}
	c.acceptance.WasJudged = true
	c.acceptance.Findings = slices.Concat(outcome.Findings, riskFindings(risks, outcome, c.target.Previous),
		clusterversion.UpdateWarnings(observed, c.payload.Version))
	if c.target.unread != nil && !outcome.IsSame {
		c.acceptance.Findings = append(c.acceptance.Findings, precondition.Finding{
			Check: reasonUnread, Severity: precondition.Blocks, Message: c.target.unreadMessage(),
			Since: &c.target.unread.Started.Time, Resolution: "requesting an image with the same files",
		})
	}
	for i := range c.acceptance.Findings {
		switch found := &c.acceptance.Findings[i]; {
		case found.Severity == precondition.Fails: // only dry runs find it
		case outcome.IsSame && !c.target.Force:
			found.Severity = precondition.Warns
		case m.options.StrictTombstones && found.Check == precondition.StaleTombstone:
			found.Severity = precondition.Blocks
		}
	}
	if c.target.Force || c.isPreflight {
		return nil
	}
	outcome.Findings, outcome.Err = c.acceptance.Findings, precondition.Refuse(c.acceptance.Findings)
	if outcome.Err != nil {
		s.NotifyBlocked(ctx, m.sender, outcome, c.isRetry)
	}
	return outcome.Err
}

// acceptedRisks returns the checks that were overridden by force, of updates that are not recommended, of risks that
// the administrator accepts, with the field manager that has set these, and of overrides.
func (r *targetRelease) acceptedRisks() []string {
	risks := slices.DeleteFunc(slices.Clone(r.acceptance.Findings), func(f precondition.Finding) bool {
		isAccepted := f.Check == clusterversion.RiskNotRecommended || f.Check == clusterversion.RiskAccepted ||
			f.Check == clusterversion.RiskOverrides
		return !isAccepted || f.Severity == precondition.Blocks
	})
	if r.target.Force {
		risks = slices.Concat(precondition.Blocking(r.acceptance.Findings), risks)
	}
	names := precondition.CheckNames(risks)
	for i, name := range names {
		if strings.HasPrefix(name, clusterversion.RiskAccepted) && r.target.acceptedBy != "" {
			names[i] += " (set by " + r.target.acceptedBy + ")"
		}
	}
	return names
}

// reasonUnread is the reason why an operator keeps no release in place: it can't read the one that was applied last.
const reasonUnread = "ReleaseNotReadable"

// unreadMessage returns why the operator can't keep the last applied release in place.
func (t *target) unreadMessage() string {
	version := printable.Line(cmp.Or(t.unread.Version, "a release without a version"))
	source := printable.Line(cmp.Or(t.unread.Source, "a source without a name"))
	if isByDigest(t.unread.Source) {
		return fmt.Sprintf("by the record, %s was applied last, from %s, but the ClusterVersion does not confirm it: "+
			"to apply it, request this image in spec.desiredUpdate", version, source)
	}
	return fmt.Sprintf("%s was applied from %s, which the operator can't read: request an image with the same files "+
		"in spec.desiredUpdate", version, source)
}

// riskFindings returns the risks that hold back an update: those of a minor or a major one. An update that was begun
// continues, and may be corrected by a patch. If the record is lost, previous is the version that was applied before. A
// patch does not update objects that overrides leave unmanaged, which is a warning.
func riskFindings(
	risks []precondition.Finding, found *session.Outcome, previous string,
) []precondition.Finding {
	from := cmp.Or(found.Previous, previous)
	begun := cmp.Or(found.Begun, from)
	if !precondition.IsMinor(from, found.Version) || begun != from && !precondition.IsMinor(begun, found.Version) {
		return overrideFindings(risks, found, from)
	}
	findings := slices.DeleteFunc(slices.Clone(risks), func(risk precondition.Finding) bool {
		// the gate checks them
		return risk.Check == clusterversion.RiskDeletes || risk.Check == clusterversion.RiskAdminAck
	})
	isUpdating := slices.ContainsFunc(findings, func(f precondition.Finding) bool {
		return f.Check == clusterversion.RiskUpdating
	})
	// a new leader has not observed the update yet
	if begun != from && begun != found.Version && !isUpdating && !found.WasLeftOut {
		findings = append(findings, precondition.Finding{
			Check: clusterversion.RiskUpdating, Severity: precondition.Blocks,
			Message: "The update to " + begun + " is not complete.", Resolution: "waiting for its end",
		})
	}
	return findings
}

// overrideFindings warns of overrides in a patch.
func overrideFindings(
	risks []precondition.Finding, found *session.Outcome, previous string,
) []precondition.Finding {
	index := slices.IndexFunc(risks, func(r precondition.Finding) bool {
		return r.Check == clusterversion.RiskOverrides
	})
	if index < 0 || previous == "" || previous == found.Version {
		return nil
	}
	return []precondition.Finding{{
		Check: clusterversion.RiskOverrides, Severity: precondition.Warns,
		Resolution: "removing the overrides",
		Message:    "The patch does not update the objects that overrides leave unmanaged. " + risks[index].Message,
	}}
}

// A verification is the result of the signature check of a release's image.
type verification struct {
	isVerified  bool
	unverified  string   // why the image was not verified, if the current release requires no signatures
	risk        string   // the risk that force has overridden
	risksBefore []string // risks that were accepted before a restart
}

// recorded returns the verification of the image of the release that was begun last. After a kill of the operator, the
// record may have a verification that the ClusterVersion lacks.
func recorded(v *configv1.ClusterVersion, last *record.Record, image string) (found verification) {
	if newest := last.Newest(); newest != nil && newest.Source == image {
		found = verification{isVerified: newest.Verified, risksBefore: newest.Forced}
	}
	if history := v.Status.History; len(history) > 0 && history[0].Image == image && history[0].AcceptedRisks != "" {
		found.risksBefore = []string{history[0].AcceptedRisks} // the history has more details
	}
	return found
}

// acceptedRisks returns the accepted risks: those before a restart, the one of the signature, and others by name.
func (v verification) acceptedRisks(others []string) string {
	before := strings.Join(v.risksBefore, ", ")
	words := strings.FieldsFunc(before, func(r rune) bool { return strings.ContainsRune(" ,\n", r) })
	others = slices.DeleteFunc(slices.Clone(others), func(risk string) bool {
		name, _, _ := strings.Cut(risk, " ")
		return slices.Contains(words, name)
	})
	lines := []string{before, v.risk, strings.Join(others, ", ")}
	return strings.Join(slices.DeleteFunc(lines, func(line string) bool { return line == "" }), "\n")
}

// An announcer writes events about the ClusterVersion. It skips recent duplicates.
type announcer struct {
	cluster *cluster.Cluster
	recent  *cache.Expiring           // the events that were written recently
	uid     atomic.Pointer[types.UID] // UID of the ClusterVersion; nil before it was read
}

func newAnnouncer(c *cluster.Cluster) *announcer {
	return &announcer{cluster: c, recent: cache.NewExpiring()}
}

// setClusterVersion sets the subject of the events.
func (a *announcer) setClusterVersion(version *configv1.ClusterVersion) { a.uid.Store(&version.UID) }

// repeatAfter is the time until the announcer writes the same event again.
const repeatAfter = 10 * time.Minute

// announce writes the events of an acceptance.
func (a *announcer) announce(ctx context.Context, acceptance clusterversion.Acceptance) {
	for _, event := range clusterversion.Announce(acceptance) {
		a.write(ctx, event)
	}
}

// write writes an event, unless it has written the same one recently.
func (a *announcer) write(ctx context.Context, e clusterversion.Event) {
	event := cluster.ObjectEvent{
		ID:  kinds.NewID(kinds.ClusterVersion, "", clusterVersionMeta.Name),
		UID: ptr.Deref(a.uid.Load(), ""), Reason: e.Reason, IsWarning: e.IsWarning, Message: e.Message,
	}
	if _, isRepeated := a.recent.Get(event); isRepeated {
		return
	}
	a.recent.Set(event, nil, repeatAfter)
	if err := cluster.RecordEvent(ctx, a.cluster, event); err != nil {
		ctrl.LoggerFrom(ctx).Info("event not written", "reason", err.Error())
	}
}
