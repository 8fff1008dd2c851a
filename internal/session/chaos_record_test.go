package session_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// history returns the history in the record of a release, newest first.
func history(t *testing.T, c *cluster.Cluster, release string) string {
	t.Helper()
	known, _, err := record.NewStore(c.Client, records, release).Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, entry := range known.History {
		lines = append(lines, string(entry.State)+" "+entry.Mode+" "+entry.Version)
	}
	return strings.Join(lines, ", ")
}

// The record determines the mode, but the live objects determine the actions.
func TestTheRecordIsLost(t *testing.T) {
	const name = "record-lost"
	prepare(t, name)
	c := connectAs(t, name)
	if err := c.Client.CoreV1().ConfigMaps(records).Delete(t.Context(), "runlevel-release-"+name,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	outcome := mustRun(t, c, load(t, name, "1.1.0", fleetTwo))
	if got := counts(outcome); outcome.Mode != graph.Update || got[object.Deleted] != 2 || got[object.Pending] != 1 {
		t.Errorf("the %s without a record: %v", outcome.Mode, got)
	}
	if got := history(t, c, name); got != "Completed update 1.1.0, Completed install 1.0.0" {
		t.Errorf("the record has: %s", got)
	}
}

func TestAReconcileCompletesNoOtherUpdate(t *testing.T) {
	const name = "not-completed"
	c := connectAs(t, name)
	first := load(t, name, "1.0.0", configMaps(1))
	mustRun(t, c, first)
	broken := load(t, name, "1.0.1",
		configMaps(1)+"-- 0000_30_broken_10_broken.yaml --\n{apiVersion: v1, kind: ConfigMap, metadata: {name: "+
			"broken, namespace: NS}, data: {\"no key\": x}}\n")
	if outcome := session.Run(t.Context(), c, broken, options()); outcome.Err == nil {
		t.Fatal("a key that the server refuses is applied")
	}
	o := options()
	o.Apply.Mode, o.Force = graph.Reconcile, true
	if outcome := session.Run(t.Context(), c, first, o); outcome.Err != nil {
		t.Fatal(outcome.Err)
	}
	if got := history(t, c, name); got != "Partial update 1.0.1, Completed install 1.0.0" {
		t.Errorf("the record has: %s", got)
	}
}

// If an apply sleeps for longer than its lock lasts, another update may have begun when it ends:
// it must not mark this update as completed.
func TestALateApplyDoesNotCompleteAnotherUpdate(t *testing.T) {
	r := newRelease(t)
	r.through(func(request *http.Request) error {
		if request.Method != http.MethodPut ||
			!strings.HasSuffix(request.URL.Path, "/configmaps/runlevel-release-"+r.name) {
			return nil
		}
		store := record.NewStore(test.Client(t), r.namespace, r.name)
		known, _, err := store.Load(t.Context())
		if err != nil || known.Newest().Version == "2.0.0" {
			return err
		}
		known.Begin(record.HistoryEntry{Version: "2.0.0", Hash: "others"})
		return store.Save(t.Context(), known)
	}).roll(t.Context(), "1.0.0", settings)
	if newest := r.record().Newest(); newest.Version != "2.0.0" || newest.State != record.Partial {
		t.Errorf("the record has %s %s", newest.Version, newest.State)
	}
}

// deleteRecord deletes the record of a release.
func deleteRecord(t *testing.T, c *cluster.Cluster, release string) {
	t.Helper()
	if err := c.Client.CoreV1().ConfigMaps(records).Delete(t.Context(), "runlevel-release-"+release,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// If the record is lost and the update is killed, the next run continues it as an update, not as an install: its
// tombstones delete. The same holds if the lock is also lost, and with it the copy of the record.
func TestAnUpdateWithoutARecordContinuesAsAnUpdate(t *testing.T) {
	for name, lose := range map[string]func(*testing.T, *cluster.Cluster, string){
		"the record": deleteRecord,
		"the record and its copy": func(t *testing.T, c *cluster.Cluster, release string) {
			deleteRecord(t, c, release)
			if err := c.Client.CoordinationV1().Leases(records).Delete(t.Context(), "runlevel-release-"+release,
				metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			release := "lost-killed-" + fmt.Sprint(len(name))
			prepare(t, release)
			c := connectAs(t, release)
			lose(t, c, release)
			if _, killed := kill(t, release, moment{10, afterIt, mortalLock}); !killed {
				t.Fatal("it was not killed")
			}
			outcome := mustRun(t, c, load(t, release, "1.1.0", fleetTwo))
			if got := counts(outcome); outcome.Mode != graph.Update || got[object.Deleted]+got[object.Absent] != 2 ||
				got[object.Pending] != 1 {
				t.Errorf("the %s: %v", outcome.Mode, got)
			}
		})
	}
}

// A terminating object blocks the next minor version even if all records of its delete are lost, or if an
// administrator has deleted it.
func TestATerminatingObjectBlocksWithoutARecord(t *testing.T) {
	const name = "lost-terminating"
	prepare(t, name)
	c := connectAs(t, name)
	mustRun(t, c, load(t, name, "1.1.0", fleetTwo)) // deletes ConfigMap held
	deleteRecord(t, c, name)
	outcome := session.Run(t.Context(), c, load(t, name, "1.2.0", fleet), options())
	if outcome.Err == nil || !strings.Contains(outcome.Err.Error(), "PendingDelete: ConfigMap "+name+"/held") {
		t.Errorf("the next minor version: %v", outcome.Err)
	}
	if err := c.Client.CoordinationV1().Leases(records).Delete(t.Context(), "runlevel-release-"+name,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	look := session.Inspect(t.Context(), c, load(t, name, "1.2.0", fleet), options())
	if !slices.ContainsFunc(look.Findings, func(f precondition.Finding) bool {
		return f.Check == precondition.PendingDelete
	}) {
		t.Errorf("without a record and its copy, the gate finds %v", look.Findings)
	}
}

// If the record is deleted during an apply, the apply restores it.
func TestTheRecordIsDeletedMeanwhile(t *testing.T) {
	r := newRelease(t)
	r.roll(t.Context(), "1.0.0", settings)
	lost := false
	outcome := r.through(func(request *http.Request) error {
		if request.Method == http.MethodPatch && strings.Contains(request.URL.Path, "/configmaps/") && !lost {
			lost = true
			return test.Client(t).CoreV1().ConfigMaps(r.namespace).Delete(t.Context(), "runlevel-release-"+r.name,
				metav1.DeleteOptions{})
		}
		return nil
	}).roll(t.Context(), "1.0.1", settings+prices)
	if outcome.Err != nil || !lost {
		t.Fatalf("the record was deleted: %t, error %v", lost, outcome.Err)
	}
	var history []string
	for _, entry := range r.record().History {
		history = append(history, string(entry.State)+" "+entry.Version)
	}
	if got := strings.Join(history, ", "); got != "Completed 1.0.1, Completed 1.0.0" {
		t.Errorf("the record has: %s", got)
	}
	if !slices.ContainsFunc(outcome.Notes, func(note string) bool {
		return strings.Contains(note, "was deleted meanwhile")
	}) {
		t.Errorf("no note reports the deleted record: %q", outcome.Notes)
	}
}
