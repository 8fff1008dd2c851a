package record_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
)

// at is a time, by its minute.
func at(minute int) metav1.Time {
	return metav1.NewTime(time.Date(2026, 1, 2, 3, minute, 0, 0, time.UTC))
}

func TestUpdateContinues(t *testing.T) {
	r := &record.Record{Release: "web"}
	if r.Newest() != nil || r.Applied() != nil {
		t.Errorf("before all, newest is %v, applied %v", r.Newest(), r.Applied())
	}
	r.Complete(at(0)) // nothing to complete
	r.Begin(record.HistoryEntry{Version: "1", Hash: "a", Mode: "Install", Started: at(1)})
	r.Complete(at(2))
	r.Complete(at(3)) // a second call, which does not change the time
	r.Begin(record.HistoryEntry{
		Version: "2",
		Hash:    "b",
		Mode:    "Update",
		Started: at(4),
		Forced:  []string{"disk", "age"},
	})
	r.Begin(record.HistoryEntry{
		Version: "2",
		Hash:    "b",
		Source:  "elsewhere",
		Mode:    "Update",
		Started: at(5),
		Forced:  []string{"moon", "disk"},
	})

	completed := at(2)
	want := record.History{
		{
			Revision: 2,
			State:    record.Partial,
			Version:  "2",
			Hash:     "b",
			Source:   "elsewhere",
			Mode:     "Update",
			Started:  at(4),
			Forced:   []string{"disk", "age", "moon"},
		},
		{
			Revision:  1,
			State:     record.Completed,
			Version:   "1",
			Hash:      "a",
			Mode:      "Install",
			Started:   at(1),
			Completed: &completed,
		},
	}
	if diff := cmp.Diff(want, r.History); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
	if newest, applied := r.Newest(), r.Applied(); newest.Version != "2" || applied.Version != "1" {
		t.Errorf("newest is %v, applied %v", newest, applied)
	}
	r.Begin(record.HistoryEntry{Version: "3", Hash: "c"}) // another update, before the last is complete
	r.Complete(at(6))
	r.Begin(record.HistoryEntry{Version: "3", Hash: "c"}) // the same once more, after it is complete
	r.Begin(record.HistoryEntry{Version: "4"})
	r.Begin(record.HistoryEntry{Version: "5"}) // an entry whose hashes are not known
	r.Begin(record.HistoryEntry{Version: "6", Hash: "d"})
	r.Begin(record.HistoryEntry{Version: "7", Hash: "d"}) // the same files, as another version
	if got, want := versions(r), []string{"7", "6", "5", "4", "3", "3", "2", "1"}; !slices.Equal(got, want) {
		t.Errorf("versions are %v, want %v", got, want)
	}
}

// TestLeftOutManifestsAreRememberedUntilTheRunEnds begins an incomplete update again, as a restarted operator does.
func TestLeftOutManifestsAreRememberedUntilTheRunEnds(t *testing.T) {
	for reason, want := range map[string]bool{record.ReasonLeftOut: true, "OutOfTime": false} {
		r := &record.Record{Release: "web"}
		update := record.HistoryEntry{Version: "2", Hash: "b", Mode: "update", Started: at(1)}
		r.Begin(update)
		r.Stop(record.End{Reason: reason, Time: at(2)})
		r.Begin(update)
		if got := r.Newest().HasLeftOut(); got != want {
			t.Errorf("after %s and a restart, manifests are left out: %t, want %t", reason, got, want)
		}
	}
}

func versions(r *record.Record) []string {
	var all []string
	for _, e := range r.History {
		all = append(all, e.Version)
	}
	return all
}

func TestHistoryKeepsTheFirstAndTheAppliedEntry(t *testing.T) {
	tests := map[string]struct {
		completed int // the version that was completed
		want      []string
	}{
		"the newest":       {completed: 119, want: []string{"119", "118", "117", "116", "22", "21", "0"}},
		"an old one":       {completed: 7, want: []string{"119", "118", "117", "116", "22", "7", "0"}},
		"the first":        {completed: 0, want: []string{"119", "118", "117", "116", "22", "21", "0"}},
		"just at the edge": {completed: 21, want: []string{"119", "118", "117", "116", "22", "21", "0"}},
		"none":             {completed: -1, want: []string{"119", "118", "117", "116", "22", "21", "0"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := &record.Record{Release: "web"}
			for version := range 120 {
				r.Begin(record.HistoryEntry{Version: fmt.Sprint(version), Hash: fmt.Sprint(version)})
				if version == test.completed {
					r.Complete(at(0))
				}
			}
			got := versions(r)
			if len(got) != 100 {
				t.Fatalf("there are %d entries, want 100", len(got))
			}
			if got = slices.Concat(got[:4], got[97:]); !slices.Equal(got, test.want) {
				t.Errorf("the first and last are %v, want %v", got, test.want)
			}
		})
	}
}

func TestDeleteIsPendingUntilTheObjectIsDeleted(t *testing.T) {
	r := &record.Record{Release: "web"}
	job := kinds.ID{Group: "batch", Kind: "Job", Namespace: "shop", Name: "old"}
	impostor := kinds.ID{Group: "batch.example", Kind: "Job", Namespace: "shop", Name: "old"}
	expect := func(when string, want ...record.Tombstone) {
		t.Helper()
		if diff := cmp.Diff(want, r.Tombstones, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	r.RequestDelete(record.Tombstone{ID: job, Version: "1", RequestedAt: at(1)})
	r.RequestDelete(record.Tombstone{ID: job, UID: "first", Version: "2", RequestedAt: at(2)})
	r.RequestDelete(record.Tombstone{ID: job, UID: "first", Version: "3", RequestedAt: at(3)})
	r.RequestDelete(record.Tombstone{ID: job, Version: "3", RequestedAt: at(3)})
	expect("asked again", record.Tombstone{ID: job, UID: "first", Version: "1", RequestedAt: at(1)})

	r.RequestDelete(record.Tombstone{ID: impostor, UID: "other", RequestedAt: at(4)})
	r.RequestDelete(record.Tombstone{ID: job, UID: "second", Version: "4", RequestedAt: at(4)})
	r.ForgetDelete(job, "first")
	expect("came back", record.Tombstone{ID: job, UID: "second", Version: "4", RequestedAt: at(4)},
		record.Tombstone{ID: impostor, UID: "other", RequestedAt: at(4)})

	r.ForgetDelete(job, "second")
	expect("one was deleted", record.Tombstone{ID: impostor, UID: "other", RequestedAt: at(4)})
	r.ForgetDelete(impostor, "other")
	expect("all were deleted")
}

func TestJobsAndKindsAreRememberedOnce(t *testing.T) {
	r := &record.Record{Release: "web"}
	r.AddKinds(record.AppliedKind{Kind: "Service"}, record.AppliedKind{Group: "apps", Kind: "Deployment"},
		record.AppliedKind{Kind: "ConfigMap"})
	r.AddKinds(record.AppliedKind{Group: "apps", Kind: "DaemonSet"}, record.AppliedKind{Kind: "Service"})
	want := []record.AppliedKind{{Kind: "ConfigMap"}, {Kind: "Service"}, {Group: "apps", Kind: "DaemonSet"},
		{Group: "apps", Kind: "Deployment"}}
	if diff := cmp.Diff(want, r.Kinds); diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}

	migrate := kinds.ID{Group: "batch", Kind: "Job", Namespace: "shop", Name: "migrate"}
	r.RememberJob(record.Job{ID: migrate, UID: "a", Sum: "1"})
	r.RememberJob(record.Job{ID: migrate, UID: "b", Sum: "2"})
	if got, found := r.FindJob(migrate); !found || got.Sum != "2" || len(r.Jobs) != 1 {
		t.Errorf("of all Jobs %v, found %v, %t", r.Jobs, got, found)
	}
	r.ForgetJob(migrate)
	if got, found := r.FindJob(migrate); found {
		t.Errorf("forgotten, and found %v", got)
	}
}

func TestObjectsArePrintable(t *testing.T) {
	tests := map[kinds.ID]string{
		{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}: "Deployment shop/web",
		{Kind: "Namespace", Name: "shop"}:                                   "Namespace shop",
		{Kind: "Namespace", Name: "a\x1b[31m\nb"}:                           `Namespace a\x1b[31m\nb`,
	}
	for object, want := range tests {
		if got := object.String(); got != want {
			t.Errorf("%#v is %q, want %q", object, got, want)
		}
	}
}

func TestDurationsAreThoseOfTheLastRunOfAMode(t *testing.T) {
	r := &record.Record{Release: "web"}
	r.Remember("update", 90*time.Second, map[string]time.Duration{"level 10, web": 80 * time.Second})
	before := r.Durations
	r.Remember("install", 5*time.Second, nil)
	r.Remember("update", 2345*time.Millisecond, map[string]time.Duration{
		"level 10, web": 2149 * time.Millisecond, "level 20, quick": 99 * time.Millisecond,
		"level 30, slower": 100 * time.Millisecond,
	})
	want := map[string]record.Durations{
		"install": {All: 5, Nodes: map[string]float64{}},
		"update":  {All: 2.3, Nodes: map[string]float64{"level 10, web": 2.1, "level 30, slower": 0.1}},
	}
	if diff := cmp.Diff(want, r.Durations); diff != "" {
		t.Error(diff)
	}
	if len(before) != 1 || before["update"].All != 90 {
		t.Errorf("the copy of a reader has changed: %v", before)
	}
}
