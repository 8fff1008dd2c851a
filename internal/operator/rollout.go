package operator

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/operator/clusterversion"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/files"
	"github.com/runlevel/runlevel/internal/release/signature"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/session/progress"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// A rollout takes a target through the states of stateMachine: until it is accepted or refused, and then as the current
// release, which is applied and kept in place.
type rollout struct {
	machine    *stateMachine
	target     *target
	isRetry    bool // which publishes no states until it is accepted
	acceptance clusterversion.Acceptance
	signed     verification
	payload    *payload.Payload
	packed     *files.Packed           // the files of the release, which are kept on the cluster
	stop       context.CancelCauseFunc // ends the rollout of the current release

	// The following fields are guarded by the mutex of the machine.
	state      currentState
	mode       graph.Mode
	intent     progress.Intent
	steps      *apply.RunState      // of the last apply; nil before it has begun
	progress   progress.Progress    // of the steps
	done       int                  // the highest count of applied manifests in it
	before     []apply.RunStepState // that have failed in previous applies
	isRecorded bool                 // the record has an apply of the release
	backoff    wait.Backoff         // of applies that fail
	err        error                // why the last apply ended
}

// A currentState is a state of the current release: see stateMachine.
type currentState string

const (
	pending  currentState = "pending"
	applying currentState = "applying"
	keeping  currentState = "keeping"
)

// matches reports whether the release is the one of a target. A target with force does not match a release without.
func (r *rollout) matches(t *target) bool {
	isVersion := t.Version == "" || t.Version == r.payload.Version
	isForced := r.target.Force || !t.Force
	return isVersion && isForced && t.hasSameObjects(r.target)
}

// prepare retrieves and loads the release, and runs the gate. Current is the release before, or nil.
func (r *rollout) prepare(ctx context.Context, current *rollout) (err error) {
	r.enter(ctx, clusterversion.Retrieving)
	if r.target.Image == "" {
		return &reason.Error{Reason: reasonUnread, Message: r.target.unreadMessage()}
	}
	if err := r.verify(ctx, current); err != nil {
		return err
	}
	opened, err := r.machine.releases.open(ctx, r.target)
	if err != nil {
		return err
	}
	defer opened.Close()
	defer r.machine.health.enter("loading and judging a release")()
	r.enter(ctx, clusterversion.Loading)
	var before *payload.Payload
	if current != nil {
		before = current.payload
	}
	if r.payload, err = r.machine.releases.load(ctx, opened, r.target, before); err != nil {
		return err
	}
	r.enter(ctx, clusterversion.Verifying)
	if want := r.target.Version; want != "" && r.payload.Version != want {
		message := fmt.Sprintf("release image version %s does not match the expected upstream version %s",
			r.payload.Version, want)
		return &reason.Error{Reason: "VerifyPayloadVersionFailed", Message: message}
	}
	if r.packed, err = pack(opened, r.payload); err != nil {
		return err
	}
	r.enter(ctx, clusterversion.Judging)
	return r.judge(ctx)
}

// enter sets the state, and publishes it.
func (r *rollout) enter(ctx context.Context, phase clusterversion.AcceptancePhase) {
	r.acceptance = r.target.at(phase)
	if !r.isRetry {
		r.publish(ctx)
	}
}

// publish sets the state to that of the output and announces it, unless the output is about an outdated target. About
// the release that was started last, which is accepted before the requested one, it publishes only the reason why the
// release can't be kept in place.
func (r *rollout) publish(ctx context.Context) {
	isShown := false
	r.machine.update(func() {
		requested := r.machine.input.target
		isShown = r.target == requested || requested != nil && r.target == requested.Before && r.acceptance.Err != nil
		if isShown {
			r.machine.acceptance = r.acceptance
		}
	})
	if isShown && r.machine.holds() {
		r.machine.events.announce(ctx, r.acceptance)
	}
}

// verify looks for the signatures that the current release requires of the image of the next one. No release requires
// signatures of the first one. Force continues without a signature.
func (r *rollout) verify(ctx context.Context, current *rollout) error {
	switch {
	case current == nil && r.target.Before == nil:
		r.signed = r.target.signed
		return nil
	case current == nil: // the release before can't be read, or this one would not be tried without force
		unread := fmt.Errorf("release %s can't be read, which may demand signatures", r.target.Before.Image)
		r.signed.risk = r.forcedRisk(unread)
		return nil
	case current.target.Image == r.target.Image: // with other objects
		r.signed = current.signed
		return nil
	}
	policy, err := signature.PolicyOf(current.payload)
	if policy == nil && err == nil {
		r.signed.unverified = fmt.Sprintf("release %s has no ConfigMap with the annotation %s",
			current.payload.Version, signature.ConfigAnnotation)
		return nil
	}
	if err == nil {
		err = r.findSignatures(ctx, policy)
	}
	switch {
	case err == nil:
		r.signed.isVerified = true
	case r.target.Force && ctx.Err() == nil:
		r.signed.risk = r.forcedRisk(err)
	default:
		return err
	}
	return nil
}

// findSignatures looks for the signatures of the image, and stores the valid ones in the namespace of the record.
func (r *rollout) findSignatures(ctx context.Context, policy *signature.Policy) error {
	_, digest, _ := strings.Cut(r.target.Image, "@")
	core, namespace := r.machine.cluster.Client.CoreV1(), r.machine.options.Namespace
	found, err := policy.Verify(ctx, digest, signature.Stores{
		ConfigMaps: core, Namespaces: []string{namespace, signature.ManagedNamespace},
	})
	if err != nil {
		return err
	}
	// the next attempt looks for them again
	if err := signature.Persist(ctx, core, namespace, digest, found); err != nil {
		ctrl.LoggerFrom(ctx).Info("signatures not stored", "image", r.target.Image, "reason", err.Error())
	}
	return nil
}

// forcedRisk returns the risk of an image that was not verified, and is applied all the same.
func (r *rollout) forcedRisk(err error) string {
	return fmt.Sprintf("Target release version=%q image=%q cannot be verified, but continuing anyway because the "+
		"update was forced: %v", r.target.Version, r.target.Image, err)
}

// judge runs the gate, with the risks of a minor update. Force overrides the findings that block. Nothing blocks the
// release that was begun last: it is kept in place, except for objects that the API server refuses.
func (r *rollout) judge(ctx context.Context) error {
	m := r.machine
	m.mu.Lock()
	s, risks := m.session, m.risks
	m.judged = risks
	m.mu.Unlock()
	outcome := s.Inspect(ctx, r.payload, r.inspectOptions())
	if outcome.Err != nil {
		return outcome.Err
	}
	r.acceptance.WasJudged = true
	r.acceptance.Findings = slices.Concat(outcome.Findings, riskFindings(risks, outcome, r.target.Previous),
		m.updates.warnings(r.payload.Version))
	if r.target.unread != nil && !outcome.IsSame {
		r.acceptance.Findings = append(r.acceptance.Findings, precondition.Finding{
			Check: reasonUnread, Severity: precondition.Blocks, Message: r.target.unreadMessage(),
			Since: &r.target.unread.Started.Time, Resolution: "requesting an image with the same files",
		})
	}
	for i := range r.acceptance.Findings {
		switch found := &r.acceptance.Findings[i]; {
		case outcome.IsSame && !r.target.Force:
			found.Severity = precondition.Warns
		case m.options.StrictTombstones && found.Check == precondition.StaleTombstone:
			found.Severity = precondition.Blocks
		}
	}
	if r.target.Force {
		return nil
	}
	outcome.Findings, outcome.Err = r.acceptance.Findings, precondition.Refuse(r.acceptance.Findings)
	if outcome.Err != nil {
		s.NotifyBlocked(ctx, m.sender, outcome, r.isRetry)
	}
	return outcome.Err
}

// acceptedRisks returns the checks that were overridden by force, of updates that are not recommended, and of
// overrides.
func (r *rollout) acceptedRisks() []string {
	risks := slices.DeleteFunc(slices.Clone(r.acceptance.Findings), func(f precondition.Finding) bool {
		isAccepted := f.Check == clusterversion.RiskNotRecommended || f.Check == clusterversion.RiskOverrides
		return !isAccepted || f.Severity == precondition.Blocks
	})
	if r.target.Force {
		risks = slices.Concat(precondition.Blocking(r.acceptance.Findings), risks)
	}
	return precondition.CheckNames(risks)
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
	if begun != from && begun != found.Version && !isUpdating { // a new leader has not observed the update yet
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
	risksBefore []string // that were accepted before a restart
}

// recorded returns the verification of the image of the release that was begun last. If the operator was killed, only
// the record may have it.
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
	others = slices.DeleteFunc(slices.Clone(others), func(name string) bool { return slices.Contains(words, name) })
	lines := []string{before, v.risk, strings.Join(others, ", ")}
	return strings.Join(slices.DeleteFunc(lines, func(line string) bool { return line == "" }), "\n")
}

// An announcer writes events about the ClusterVersion. It skips recent duplicates.
type announcer struct {
	cluster *cluster.Cluster
	recent  *cache.Expiring // the events that were written recently

	mu  sync.Mutex
	uid types.UID
}

func newAnnouncer(c *cluster.Cluster) *announcer {
	return &announcer{cluster: c, recent: cache.NewExpiring()}
}

// setClusterVersion sets the subject of the events.
func (a *announcer) setClusterVersion(version *configv1.ClusterVersion) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.uid = version.UID
}

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
	a.mu.Lock()
	event := cluster.ObjectEvent{
		ID:  kinds.NewID(kinds.ClusterVersion, "", clusterVersionMeta.Name),
		UID: a.uid, Reason: e.Reason, IsWarning: e.IsWarning, Message: e.Message,
	}
	a.mu.Unlock()
	if _, isRepeated := a.recent.Get(event); isRepeated {
		return
	}
	a.recent.Set(event, nil, repeatAfter)
	if err := cluster.RecordEvent(ctx, a.cluster, event); err != nil {
		ctrl.LoggerFrom(ctx).Info("event not written", "reason", err.Error())
	}
}
