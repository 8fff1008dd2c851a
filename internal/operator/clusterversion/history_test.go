package clusterversion_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/runlevel/runlevel/internal/operator/clusterversion"
	"github.com/runlevel/runlevel/pkg/graph"
)

// entries writes a history, newest first: version, state, and from when to when.
func entries(s configv1.ClusterVersionStatus) string {
	var lines []string
	for _, h := range s.History {
		ended := "-"
		if h.CompletionTime != nil {
			ended = clock(*h.CompletionTime)
		}
		lines = append(lines, fmt.Sprint(h.Version, " ", h.State, " ", clock(h.StartedTime), " ", ended))
	}
	return strings.Join(lines, "\n")
}

func TestRetargetAndBack(t *testing.T) {
	next := follow(
		completed(0, "1.0.0"),
		observedAt(1*time.Minute, "1.0.1", graph.Update),
		observedAt(2*time.Minute, "1.0.1", graph.Update),
		observedAt(3*time.Minute, "1.0.2", graph.Update),
		observedAt(4*time.Minute, "1.0.0", graph.Update),
		completed(5*time.Minute, "1.0.0"),
		observedAt(6*time.Minute, "1.0.0", graph.Reconcile),
	)
	want := strings.Join([]string{
		"1.0.0 Completed 12:04:00 12:05:00",
		"1.0.2 Partial 12:03:00 12:04:00",
		"1.0.1 Partial 12:01:00 12:03:00",
		"1.0.0 Completed 12:00:00 12:00:00",
	}, "\n")
	if diff := cmp.Diff(want, entries(next)); diff != "" {
		t.Errorf("the history (-want +got):\n%s", diff)
	}
	if got := condition(t, next, configv1.OperatorAvailable); got.Message != "Done applying 1.0.0" {
		t.Error(got.Message)
	}
}

// An operator that was killed before the record had the update keeps the release before in place, and tries again.
func TestUnrecordedUpdate(t *testing.T) {
	next := follow(
		completed(0, "1.0.0"),
		observedAt(1*time.Minute, "1.0.1", ""),
		observedAt(2*time.Minute, "1.0.0", ""),
		observedAt(3*time.Minute, "1.0.0", graph.Reconcile),
		observedAt(4*time.Minute, "1.0.1", ""),
		observedAt(5*time.Minute, "1.0.1", graph.Update),
	)
	want := "1.0.1 Partial 12:05:00 -\n1.0.0 Completed 12:00:00 12:00:00"
	if diff := cmp.Diff(want, entries(next)); diff != "" {
		t.Errorf("the history (-want +got):\n%s", diff)
	}
}

func TestAnotherImageOfTheSameVersion(t *testing.T) {
	rebuilt := observedAt(time.Minute, "1.0.0", graph.Update)
	rebuilt.Applied.Release.Image = "example.test/rebuilt"
	next := follow(completed(0, "1.0.0"), rebuilt)
	if len(next.History) != 2 || next.History[0].Image != "example.test/rebuilt" ||
		next.History[0].State != configv1.PartialUpdate {
		t.Errorf("the history is %+v", next.History)
	}
}

func TestVersionFoundLater(t *testing.T) {
	unnamed := observedAt(0, "1.0.0", graph.Update)
	unnamed.Applied.Release.Version = ""
	if got := entries(follow(unnamed, completed(time.Minute, "1.0.0"))); got != "1.0.0 Completed 12:00:00 12:01:00" {
		t.Error(got)
	}
}

func TestHistoryAfterRestarts(t *testing.T) {
	updating := observedAt(time.Minute, "1.0.1", graph.Update)
	updating.Applied.Verified, updating.Applied.Forced = true, "GiantHop"
	previous := onDisk(t, follow(completed(0, "1.0.0"), updating))
	blank := clusterversion.Observation{
		Now:        noon.Add(2 * time.Minute),
		Acceptance: clusterversion.Acceptance{Release: release("1.0.1"), Phase: clusterversion.Retrieving},
	}
	begins := observedAt(3*time.Minute, "1.0.1", "")

	after := clusterversion.Next(onDisk(t, clusterversion.Next(previous, blank)), begins)
	if got := entries(after); got != "1.0.1 Partial 12:01:00 -\n1.0.0 Completed 12:00:00 12:00:00" {
		t.Error(got)
	}
	if newest := after.History[0]; !newest.Verified || newest.AcceptedRisks != "GiantHop" {
		t.Errorf("after the restart, the newest entry is %+v, want the facts from before", newest)
	}
	if got := condition(t, after, configv1.OperatorProgressing); got.Status != configv1.ConditionTrue ||
		clock(got.LastTransitionTime) != "12:01:00" {
		t.Errorf("Progressing=%s since %s", got.Status, got.LastTransitionTime)
	}
	again := observedAt(5*time.Minute, "1.0.1", "")
	kept := clusterversion.Next(onDisk(t, clusterversion.Next(after, completed(4*time.Minute, "1.0.1"))), again)
	if got := condition(t, kept, configv1.OperatorProgressing); got.Message != "Cluster version is 1.0.1" {
		t.Errorf("after a restart of an operator that keeps a release in place: %s", got.Message)
	}
}

// onDisk returns a status as the API server returns it.
func onDisk(t *testing.T, s configv1.ClusterVersionStatus) (kept configv1.ClusterVersionStatus) {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &kept); err != nil {
		t.Fatal(err)
	}
	return kept
}

// grow returns the status after a release is applied on top of a history, oldest first, of versions; one that begins
// with ~ is partial.
func grow(history ...string) configv1.ClusterVersionStatus {
	var s configv1.ClusterVersionStatus
	for i, text := range history {
		version, isPartial := strings.CutPrefix(text, "~")
		state, moment := configv1.CompletedUpdate, metav1.NewTime(noon.Add(time.Duration(i)*time.Minute))
		if isPartial {
			state = configv1.PartialUpdate
		}
		updateHistory := configv1.UpdateHistory{
			State:          state,
			Version:        version,
			Image:          fmt.Sprint(i),
			StartedTime:    moment,
			CompletionTime: &moment,
		}
		s.History = append([]configv1.UpdateHistory{updateHistory}, s.History...)
	}
	return clusterversion.Next(s, completed(time.Hour, "9.9.9"))
}

func TestTheLeastInterestingEntryIsRemoved(t *testing.T) {
	// The newest five, the first, and enough others: each case puts some entries at the beginning.
	for name, test := range map[string]struct {
		begins  []string // after the first entry, oldest first
		removed string   // one entry, or "" for another one
	}{
		"partial on the way to a patch":     {[]string{"1.0.1", "~1.0.2", "1.0.3"}, "~1.0.2"},
		"partial on the way to a minor":     {[]string{"1.0.1", "1.0.2", "~1.1.0", "1.1.1"}, "1.0.1"},
		"in the middle of a minor":          {[]string{"1.0.1", "1.0.2"}, "1.0.1"},
		"partial between the same version":  {[]string{"~1.0.1", "1.0.0", "1.0.2"}, "~1.0.1"},
		"partial on the way to a new major": {[]string{"1.0.1", "1.0.2", "~2.0.0", "2.0.1"}, "1.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			all := append([]string{"1.0.0"}, test.begins...)
			for i := len(all); i < 100; i++ {
				all = append(all, fmt.Sprintf("%d.0.0", i+10)) // the first and last of its minor
			}
			next := grow(all...)
			if len(next.History) != 100 {
				t.Fatalf("the history has %d entries", len(next.History))
			}
			left := map[string]bool{}
			for _, h := range next.History {
				left[h.Image] = true
			}
			for i, text := range all {
				if !left[fmt.Sprint(i)] && text != test.removed {
					t.Errorf("%s is removed", text)
				}
			}
		})
	}
}

func TestTheFirstAndTheLatestCompletedEntryStay(t *testing.T) {
	all := []string{"~0.9.0", "1.0.0"}
	for len(all) < 150 {
		all = append(all, "~1.0.1")
	}
	next := grow(all...)
	if len(next.History) != 100 || next.History[99].Version != "0.9.0" || next.History[98].Version != "1.0.0" ||
		next.History[0].Version != "9.9.9" {
		t.Errorf("%d entries remain: %s", len(next.History), entries(next))
	}
}
