package clusterversion_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/operator/clusterversion"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/precondition"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// release is a release of a version, whose image is named after it.
func release(version string) configv1.Release {
	return configv1.Release{Version: version, Image: "example.test/release:" + version}
}

// observedAt returns the observation of a release some time after noon.
func observedAt(after time.Duration, version string, mode graph.Mode,
	problems ...clusterversion.ReleaseProblem) clusterversion.Observation {
	return clusterversion.Observation{
		Now:        noon.Add(after),
		Acceptance: clusterversion.Acceptance{Release: release(version), Phase: clusterversion.Accepted},
		Applied: &clusterversion.AppliedRelease{
			Release:  release(version),
			Mode:     mode,
			Done:     3,
			Total:    10,
			Problems: problems,
		},
	}
}

// completed returns the observation of a complete release.
func completed(after time.Duration, version string) clusterversion.Observation {
	observed := observedAt(after, version, graph.Update)
	observed.Applied.IsComplete = true
	return observed
}

func follow(moments ...clusterversion.Observation) (last configv1.ClusterVersionStatus) {
	for _, observed := range moments {
		last = clusterversion.Next(last, observed)
	}
	return last
}

func condition(t *testing.T, s configv1.ClusterVersionStatus,
	kind configv1.ClusterStatusConditionType) configv1.ClusterOperatorStatusCondition {
	t.Helper()
	for _, c := range s.Conditions {
		if c.Type == kind {
			return c
		}
	}
	t.Fatalf("condition %s is missing", kind)
	return configv1.ClusterOperatorStatusCondition{}
}

func operatorProblem(name, message string, effect reason.Effect) clusterversion.ReleaseProblem {
	id := kinds.NewID(kinds.ClusterOperator, "", name)
	wait := apply.Wait{ID: id, Reason: message, Effect: effect, Since: noon, For: "it waits"}
	return clusterversion.ReleaseProblem{Wait: wait, IsWait: true}
}

func TestWaitsBecomeSlowAndFail(t *testing.T) {
	updating := func(name string) clusterversion.ReleaseProblem {
		return operatorProblem(name, "ClusterOperatorUpdating", reason.None)
	}
	degraded := operatorProblem("alpha", "ClusterOperatorDegraded", reason.FailAfterInterval)
	web := clusterversion.ReleaseProblem{
		Wait: apply.Wait{
			ID:    kinds.ID{Kind: "Deployment", Namespace: "a", Name: "web"},
			For:   "none is ready",
			Since: noon,
		},
		IsWait: true,
	}
	refused := clusterversion.ReleaseProblem{
		Wait: apply.Wait{
			ID:      kinds.NewID(kinds.ConfigMap, "a", "b"),
			Reason:  "UpdatePayloadClusterError",
			IsRetry: true,
			Since:   noon,
			For:     `Internal error occurred: failed calling webhook "a.example.com"`,
		},
		IsWait: true,
	}
	ageless := degraded
	ageless.Since = time.Time{}
	for _, test := range []struct {
		name     string
		problem  clusterversion.ReleaseProblem
		after    time.Duration
		mode     graph.Mode
		failing  string
		progress string
	}{
		{"updating", updating("alpha"), 30 * time.Minute, graph.Update, "False ", "waiting on alpha"},
		{"updating slowly", updating("alpha"), 30*time.Minute + time.Second, graph.Update,
			"Unknown SlowClusterOperator", "waiting on alpha over 30 minutes"},
		{"machine-config", updating("machine-config"), 90 * time.Minute, graph.Update, "False ",
			"waiting on machine-config"},
		{"machine-config, slowly", updating("machine-config"), 91 * time.Minute, graph.Update,
			"Unknown SlowClusterOperator", "waiting on machine-config over 90 minutes"},
		{"updating, after the update", updating("alpha"), time.Second, graph.Reconcile, "True ClusterOperatorUpdating",
			"the cluster operator alpha is updating versions"},
		{"degraded", degraded, 40 * time.Minute, graph.Update, "False ", "waiting up to 40 minutes on alpha"},
		{"degraded for long", degraded, 40*time.Minute + time.Second, graph.Update, "True ClusterOperatorDegraded",
			"wait has exceeded 40 minutes for these operators: alpha"},
		{"degraded since an unknown time", ageless, 50 * time.Minute, graph.Update, "False ",
			"waiting up to 40 minutes on alpha"},
		{"degraded, after the update", degraded, time.Second, graph.Reconcile, "True ClusterOperatorDegraded",
			"the cluster operator alpha is degraded"},
		{"degraded in an install", operatorProblem("alpha", "ClusterOperatorDegraded", reason.Report), time.Second,
			graph.Install, "True ClusterOperatorDegraded", "the cluster operator alpha is degraded"},
		{"not available", operatorProblem("alpha", "ClusterOperatorNotAvailable", reason.Fail), time.Second,
			graph.Update, "True ClusterOperatorNotAvailable", "the cluster operator alpha is not available"},
		{"an object", web, 30 * time.Minute, graph.Update, "False ",
			"waiting on Deployment a/web (none is ready; since 2026-11-22T12:00:00Z)"},
		{"an object, slowly", web, 31 * time.Minute, graph.Update, "Unknown SlowObject",
			"waiting on Deployment a/web over 30 minutes"},
		{"a refusal", refused, 30 * time.Second, graph.Update, "False ",
			"waiting on ConfigMap a/b (the control plane is reporting an internal error; since 2026-11-22T12:00:00Z)"},
		{"a refusal that stays", refused, 31 * time.Second, graph.Update, "True UpdatePayloadClusterError",
			"Unable to apply 1.0.0: ConfigMap a/b: the control plane is reporting an internal error"},
		{"an object, after the update", web, time.Minute, graph.Reconcile, "False ", "Cluster version is 1.0.0"},
		{"an object, slowly, after the update", web, 31 * time.Minute, graph.Reconcile, "Unknown SlowObject",
			"Cluster version is 1.0.0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			next := follow(observedAt(0, "1.0.0", test.mode, test.problem),
				observedAt(test.after, "1.0.0", test.mode, test.problem))
			failing, progress := condition(t, next, clusterversion.Failing),
				condition(t, next, configv1.OperatorProgressing)
			if got := fmt.Sprint(failing.Status, " ", failing.Reason); got != test.failing {
				t.Errorf("Failing=%s, want %s", got, test.failing)
			}
			if !strings.Contains(progress.Message, test.progress) {
				t.Errorf("Progressing: %q, want %q in it", progress.Message, test.progress)
			}
			if isOver := test.mode == graph.Reconcile; isOver == (progress.Status == configv1.ConditionTrue) {
				t.Errorf("Progressing=%s", progress.Status)
			}
		})
	}
}

// TestDegradedOperatorBesideAnUnavailableOne: the message names the degraded operator too, before its timeout.
func TestDegradedOperatorBesideAnUnavailableOne(t *testing.T) {
	next := follow(observedAt(0, "1.0.0", graph.Update,
		operatorProblem("beta", "ClusterOperatorNotAvailable", reason.Fail),
		operatorProblem("alpha", "ClusterOperatorDegraded", reason.FailAfterInterval)))
	failing, progress := condition(t, next, clusterversion.Failing), condition(t, next, configv1.OperatorProgressing)
	if failing.Reason != "MultipleErrors" || !strings.Contains(failing.Message, "alpha is degraded") ||
		!strings.Contains(failing.Message, "beta is not available") {
		t.Errorf("%s: %s", failing.Reason, failing.Message)
	}
	if want := "Unable to apply 1.0.0: the cluster operator alpha is degraded, and 1 more error"; progress.Message != want {
		t.Errorf("Progressing: %q, want %q", progress.Message, want)
	}
}

// TestUnrecordedUpdateHasNotStarted: if an update is accepted but can't be recorded, neither desired nor history has
// it.
func TestUnrecordedUpdateHasNotStarted(t *testing.T) {
	before := follow(completed(0, "1.0.0"))
	accepted := observedAt(time.Minute, "1.0.1", "",
		clusterversion.ReleaseProblem{Wait: apply.Wait{
			For:    "configmaps is forbidden",
			Reason: "UpdatePayloadResourceForbidden",
		}})
	next := clusterversion.Next(before, accepted)
	if next.Desired.Version != "1.0.0" || len(next.History) != 1 || next.History[0].Version != "1.0.0" ||
		next.VersionHash != before.VersionHash {
		t.Errorf("desired is %s, and the history %+v", next.Desired.Version, next.History)
	}
	if got, want := condition(t, next, configv1.OperatorProgressing).Message, "Unable to apply 1.0.1: the server is "+
		"rejecting updates"; got != want {
		t.Errorf("Progressing: %q, want %q", got, want)
	}
	accepted.Applied.Mode = graph.Update
	if begun := clusterversion.Next(next, accepted); begun.Desired.Version != "1.0.1" || len(begun.History) != 2 {
		t.Errorf("once it has begun, desired is %s, and the history %+v", begun.Desired.Version, begun.History)
	}
}

// TestOtherManifestsOfTheReleaseAreProgress before the record has their apply; the same ones are not, after a restart.
func TestOtherManifestsOfTheReleaseAreProgress(t *testing.T) {
	observed := completed(0, "1.0.0")
	observed.Applied.Hash = "a"
	next := follow(observed)
	for _, c := range []struct {
		hash string
		want configv1.ConditionStatus
	}{{"a", configv1.ConditionFalse}, {"b", configv1.ConditionTrue}, {"b", configv1.ConditionTrue}} {
		observed = observedAt(time.Minute, "1.0.0", "")
		observed.Applied.Hash, observed.Applied.Done = c.hash, 0
		next = clusterversion.Next(next, observed)
		if got := condition(t, next, configv1.OperatorProgressing); got.Status != c.want {
			t.Errorf("hash %s: Progressing=%s: %s", c.hash, got.Status, got.Message)
		}
	}
}

func TestSeveralOperatorsShareAReason(t *testing.T) {
	next := follow(observedAt(0, "1.0.0", graph.Update,
		operatorProblem("beta", "ClusterOperatorUpdating", reason.None),
		operatorProblem("alpha", "ClusterOperatorUpdating", reason.None)))
	got := condition(t, next, configv1.OperatorProgressing)
	if got.Reason != "ClusterOperatorsUpdating" ||
		!strings.HasSuffix(got.Message, "(30% complete), waiting on alpha, beta") {
		t.Errorf("%s: %s", got.Reason, got.Message)
	}
}

func TestManyErrorsAreCounted(t *testing.T) {
	var problems []clusterversion.ReleaseProblem
	for i := range 15 {
		problems = append(problems,
			clusterversion.ReleaseProblem{Wait: apply.Wait{For: fmt.Sprintf("failure %02d\x1b[31m", i)}},
			clusterversion.ReleaseProblem{Wait: apply.Wait{For: "failure 00\x1b[31m"}})
	}
	got := condition(t, follow(observedAt(0, "1.0.0", graph.Update, problems...)), clusterversion.Failing)
	if got.Reason != "MultipleErrors" || strings.Count(got.Message, "\n* Failure") != 10 ||
		!strings.HasSuffix(got.Message, "\n* and 5 more") {
		t.Errorf("%s: %s", got.Reason, got.Message)
	}
	if strings.Contains(got.Message, "\x1b") {
		t.Error("message has an escape sequence")
	}
}

func TestErrorsAreSorted(t *testing.T) {
	job := &kinds.ID{Kind: "Job", Name: "a"}
	got := condition(t,
		follow(observedAt(0, "1.0.0", graph.Update, clusterversion.ReleaseProblem{Wait: apply.Wait{For: "no answer"}},
			clusterversion.ReleaseProblem{Wait: apply.Wait{ID: *job, For: "it failed"}})), clusterversion.Failing)
	if !strings.HasSuffix(got.Message, "\n* Job a: it failed\n* No answer") {
		t.Error(got.Message)
	}
}

func TestTheGravestOfTheSameProblemCounts(t *testing.T) {
	slow, failed := operatorProblem("alpha", "ClusterOperatorDegraded", reason.None),
		operatorProblem("alpha", "ClusterOperatorDegraded", reason.Fail)
	for _, problems := range [][]clusterversion.ReleaseProblem{{slow, failed}, {failed, slow}} {
		if got := condition(t, follow(observedAt(0, "1.0.0", graph.Update, problems...)),
			clusterversion.Failing); got.Status != configv1.ConditionTrue {
			t.Errorf("Failing=%s", got.Status)
		}
	}
}

func TestTheGateCouldNotBeAsked(t *testing.T) {
	observed := completed(0, "1.0.0")
	observed.Acceptance = clusterversion.Acceptance{
		Phase:    clusterversion.Judging,
		Err:      errors.New("no answer"),
		Findings: []precondition.Finding{{Check: "GiantHop", Severity: precondition.Blocks}},
	}
	if got := condition(t, follow(observed), clusterversion.ReleaseAccepted); !strings.HasSuffix(got.Message,
		": no answer") {
		t.Error(got.Message)
	}
}

func TestTheOrderOfAnObservationDoesNotMatter(t *testing.T) {
	observed := observedAt(time.Hour, "1.0.0", graph.Update)
	for i, effect := range []reason.Effect{"", reason.None, reason.Report, reason.Fail, reason.FailAfterInterval} {
		for _, name := range []string{"a", "b", "c"} {
			observed.Applied.Problems = append(observed.Applied.Problems,
				operatorProblem(name, "ClusterOperatorDegraded", effect),
				clusterversion.ReleaseProblem{
					Wait: apply.Wait{
						ID:     kinds.ID{Kind: "Job", Name: name},
						For:    fmt.Sprint("failure ", i),
						Effect: effect,
					},
					IsWait: i%2 == 0,
				})
			observed.Applied.Deletes = append(observed.Applied.Deletes,
				precondition.Delete{Tombstone: record.Tombstone{ID: kinds.ID{Kind: "Job", Name: fmt.Sprint(name, i)}}})
			observed.Operators = append(observed.Operators, operatorThatIsNotUpgradeable(fmt.Sprint(name, i)))
			observed.Overrides = append(observed.Overrides,
				configv1.ComponentOverride{Kind: "Job", Name: fmt.Sprint(name, i), Unmanaged: true})
		}
	}
	want := follow(observed)
	for range 20 {
		problems, deletes := observed.Applied.Problems, observed.Applied.Deletes
		rand.Shuffle(len(problems), func(i, j int) { problems[i], problems[j] = problems[j], problems[i] })
		rand.Shuffle(len(deletes), func(i, j int) { deletes[i], deletes[j] = deletes[j], deletes[i] })
		rand.Shuffle(len(observed.Operators), func(i, j int) {
			observed.Operators[i], observed.Operators[j] = observed.Operators[j], observed.Operators[i]
			observed.Overrides[i], observed.Overrides[j] = observed.Overrides[j], observed.Overrides[i]
		})
		if got := follow(observed); !equality.Semantic.DeepEqual(want, got) {
			t.Fatalf("another order makes another status (-want +got):\n%s",
				cmp.Diff(writeStatus(want), writeStatus(got)))
		}
	}
}

func operatorThatIsNotUpgradeable(name string) configv1.ClusterOperator {
	return configv1.ClusterOperator{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: configv1.ClusterOperatorStatus{Conditions: []configv1.ClusterOperatorStatusCondition{
			{Type: configv1.OperatorUpgradeable, Status: configv1.ConditionFalse, Message: "not yet"},
		}},
	}
}

func TestOneOperatorHoldsBackMinorUpdates(t *testing.T) {
	observed := completed(0, "1.0.0")
	observed.Operators = []configv1.ClusterOperator{operatorThatIsNotUpgradeable("alpha"),
		{ObjectMeta: metav1.ObjectMeta{Name: "beta"}}}
	got := condition(t, follow(observed), configv1.OperatorUpgradeable)
	if got.Reason != "ClusterOperatorUpgradeable" || !strings.Contains(got.Message, "alpha") ||
		!strings.HasSuffix(got.Message, ": not yet") {
		t.Errorf("%s: %s", got.Reason, got.Message)
	}
	if risks := clusterversion.Risks(observed); len(risks) != 1 ||
		risks[0].Name() != "ClusterOperatorUpgradeable-alpha" {
		t.Errorf("the risks are %v", risks)
	}
}

func TestCompletedDeletesBlockNothing(t *testing.T) {
	observed := completed(0, "1.0.0")
	for _, state := range []tombstone.DeleteState{tombstone.Absent, tombstone.Reappeared} {
		observed.Applied.Deletes = append(observed.Applied.Deletes,
			precondition.Delete{Seen: tombstone.Observation{State: state}})
	}
	if risks := clusterversion.Risks(observed); len(risks) != 0 {
		t.Errorf("the risks are %v", risks)
	}
}

func TestRefusedReleaseStaysRefusedDuringARetry(t *testing.T) {
	refused := completed(time.Minute, "1.0.0")
	refused.Acceptance = clusterversion.Acceptance{
		Release: release("1.0.1"),
		Phase:   clusterversion.Retrieving,
		Err:     errors.New("no route\nto host"),
	}
	again := completed(2*time.Minute, "1.0.0")
	again.Acceptance = clusterversion.Acceptance{Release: release("1.0.1"), Phase: clusterversion.Loading}
	other := again
	other.Acceptance.Release = release("1.0.2")

	last := follow(completed(0, "1.0.0"), refused, again)
	if got := condition(t, last, clusterversion.ReleaseAccepted); got.Status != configv1.ConditionFalse ||
		!strings.HasSuffix(got.Message, "failure=no route; to host") {
		t.Errorf("during the retry: got ReleaseAccepted=%s: %s", got.Status, got.Message)
	}
	if got := condition(t, clusterversion.Next(last, other),
		clusterversion.ReleaseAccepted); got.Status != configv1.ConditionUnknown || got.Reason != "LoadPayload" {
		t.Errorf("of another release, ReleaseAccepted=%s, %s", got.Status, got.Reason)
	}
}

func TestTransitionTimeIsThatOfTheStatus(t *testing.T) {
	first := follow(observedAt(0, "1.0.0", graph.Update))
	second := clusterversion.Next(first,
		observedAt(time.Minute, "1.0.0", graph.Update,
			operatorProblem("alpha", "ClusterOperatorUpdating", reason.None)))
	before, after := condition(t, first, configv1.OperatorProgressing),
		condition(t, second, configv1.OperatorProgressing)
	if before.Message == after.Message || !before.LastTransitionTime.Equal(&after.LastTransitionTime) {
		t.Errorf("%v became %v", before, after)
	}
	done := condition(t, clusterversion.Next(second, completed(2*time.Minute, "1.0.0")), configv1.OperatorProgressing)
	if want := metav1.NewTime(noon.Add(2 * time.Minute)); !done.LastTransitionTime.Equal(&want) {
		t.Errorf("got status %v since %s", done.Status, done.LastTransitionTime)
	}
}

func TestConditionsOfOthersStay(t *testing.T) {
	previous := configv1.ClusterVersionStatus{
		Conditions: []configv1.ClusterOperatorStatusCondition{
			{Type: configv1.RetrievedUpdates, Status: configv1.ConditionFalse, Reason: "NoChannel"},
			{Type: "UpgradeableDeletesInProgress", Status: configv1.ConditionFalse}, {Type: "ImplicitlyEnabled"},
			{Type: clusterversion.Invalid},
		},
		ConditionalUpdates: []configv1.ConditionalUpdate{{Release: release("1.1.0")}},
	}
	next := clusterversion.Next(previous, completed(0, "1.0.0"))
	var types []string
	for _, c := range next.Conditions {
		types = append(types, string(c.Type))
	}
	want := "RetrievedUpdates ReleaseAccepted ImplicitlyEnabledCapabilities Available Failing Progressing"
	if got := strings.Join(types, " "); got != want ||
		condition(t, next, configv1.RetrievedUpdates) != previous.Conditions[0] {
		t.Errorf("the conditions are %s", got)
	}
	if diff := cmp.Diff(previous.ConditionalUpdates, next.ConditionalUpdates); diff != "" {
		t.Error(diff)
	}
}

func TestImplicitCapabilities(t *testing.T) {
	observed := completed(0, "1.0.0")
	observed.Applied.Implicit = []configv1.ClusterVersionCapability{"Storage", "Console"}
	got := condition(t, follow(observed), clusterversion.ImplicitlyEnabledCapabilities)
	if got.Status != configv1.ConditionTrue || got.Reason != "CapabilitiesImplicitlyEnabled" ||
		!strings.HasSuffix(got.Message, ": Console, Storage") {
		t.Errorf("%+v", got)
	}
}

func TestInvalidWhileItUpdates(t *testing.T) {
	observed := observedAt(0, "1.0.0", graph.Update)
	observed.Invalid = []string{"one", "two"}
	next := follow(observed)
	if got := condition(t, next,
		clusterversion.Invalid); got.Message != "The cluster version is invalid:\n* one\n* two" {
		t.Error(got.Message)
	}
	got := condition(t, next, configv1.OperatorProgressing)
	if got.Status != configv1.ConditionTrue || got.Reason != "InvalidClusterVersion" ||
		!strings.HasPrefix(got.Message, "Working towards 1.0.0: 3 of 10 done") {
		t.Errorf("%+v", got)
	}
}

func TestEventsAreNotTooLong(t *testing.T) {
	events := clusterversion.Announce(clusterversion.Acceptance{
		Phase: clusterversion.Judging,
		Err:   errors.New(strings.Repeat("ü", 2000) + "\nand more"),
	})
	if len(events) != 1 || len(events[0].Message) > 1024 || strings.Contains(events[0].Message, "\n") ||
		!strings.HasSuffix(events[0].Message, "ü…") {
		t.Errorf("%+v", events)
	}
}

// TestAMissingOperatorIsARisk: a deleted ClusterOperator can't hold back minor updates, so its absence does.
func TestAMissingOperatorIsARisk(t *testing.T) {
	observed := clusterversion.Observation{Applied: &clusterversion.AppliedRelease{
		IsComplete:       true,
		MissingOperators: []string{"alpha"},
	}}
	if risks := clusterversion.Risks(observed); len(risks) != 1 || risks[0].Check != clusterversion.RiskMissing ||
		!strings.Contains(risks[0].Message, "alpha") {
		t.Errorf("%+v", risks)
	}
}

// TestReleaseNotKeptInPlace: if the release can't be read after a restart, Failing is true until it can be read.
func TestReleaseNotKeptInPlace(t *testing.T) {
	unread := clusterversion.Observation{
		Now: noon.Add(time.Minute),
		Acceptance: clusterversion.Acceptance{
			Release: release("1.0.0"),
			Phase:   clusterversion.Retrieving,
			Err:     errors.New("the registry is away"),
		},
	}
	last := follow(completed(0, "1.0.0"), unread)
	if c := condition(t, last, clusterversion.Failing); c.Status != configv1.ConditionTrue ||
		c.Message != "1.0.0 is not kept in place: the registry is away" {
		t.Errorf("%+v", c)
	}
	if c := condition(t, last, configv1.OperatorAvailable); c.Status != configv1.ConditionTrue {
		t.Errorf("%+v", c)
	}
	if c := condition(t, clusterversion.Next(last, completed(2*time.Minute, "1.0.0")),
		clusterversion.Failing); c.Status != configv1.ConditionFalse {
		t.Errorf("%+v", c)
	}
}
