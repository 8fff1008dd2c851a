package apply_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
)

// recording calls writes before each write of a record.
func recording(t *testing.T, writes func()) *cluster.Cluster {
	return connectThrough(t, func(request *http.Request) error {
		if request.Method != http.MethodGet && strings.Contains(request.URL.Path, "/configmaps") &&
			!strings.Contains(request.URL.Path, "-config") {
			writes()
		}
		return nil
	})
}

const blockedFiles = `
-- 0000_10_db_10.yaml --
{apiVersion: v1, kind: Secret, metadata: {name: db, namespace: NS, annotations: {runlevel.dev/ready: has(self.data)}}}
-- 0000_20_web_10.yaml --
{apiVersion: v1, kind: Secret, metadata: {name: web, namespace: NS}}
-- 0000_20_api_10.yaml --
{apiVersion: v1, kind: Secret, metadata: {name: api, namespace: NS}}
-- 0000_30_shop_10.yaml --
{apiVersion: v1, kind: Secret, metadata: {name: shop, namespace: NS}}
`

// The record has the state of a run while it runs, and after it has ended without completing.
func TestRecordHasTheStateOfTheRun(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := recording(t, cancel)
	did := runOn(t, ctx, c, load(t, namespace, namespace, blockedFiles),
		apply.Options{Options: object.Options{Version: "2", Mode: graph.Update}})
	secret := func(name string) kinds.ID { return kinds.ID{Kind: "Secret", Namespace: namespace, Name: name} }
	step := func(name, file string) []record.RunStep {
		return []record.RunStep{{ID: secret(name), File: file, State: string(apply.Blocked)}}
	}
	levels := []record.RunLevel{{Name: "10", Total: 1, Left: 1}, {Name: "20", Total: 2, Left: 2},
		{Name: "30", Total: 1, Left: 1}}
	want := &record.Run{Version: "2", Mode: "update", Total: 4, Levels: levels, Nodes: []record.RunNode{
		{Name: "level 10, db", State: "running", Steps: []record.RunStep{
			{
				ID:    secret("db"),
				File:  "0000_10_db_10.yaml",
				State: string(apply.InWait),
				For:   "has(self.data) is not true yet",
			},
		}},
		{Name: "level 20, api", State: "blocked", After: []int{0}, Steps: step("api", "0000_20_api_10.yaml")},
		{Name: "level 20, web", State: "blocked", After: []int{0}, Steps: step("web", "0000_20_web_10.yaml")},
		{Name: "level 30, shop", State: "blocked", After: []int{1, 2}, Steps: step("shop", "0000_30_shop_10.yaml")},
	}}
	clocks := cmp.Options{cmpopts.IgnoreFields(record.Run{}, "ReportedAt"),
		cmpopts.IgnoreFields(record.RunStep{}, "Since")}
	if diff := cmp.Diff(want, did.record.Run, clocks); diff != "" {
		t.Errorf("while it ran (-want +got):\n%s", diff)
	}
	want.Ended, want.Error = true, "interrupted: 3 objects not applied, 1 object not ready"
	want.Nodes[0].State = "failed"
	if diff := cmp.Diff(want, did.Left, clocks); diff != "" {
		t.Errorf("at its end (-want +got):\n%s", diff)
	}
	if did.record.Run.Nodes[0].Steps[0].Since == nil || did.record.Run.ReportedAt.IsZero() {
		t.Errorf("got no times in the record: %v", did.record.Run)
	}
	if len(did.record.Waits) != 1 {
		t.Errorf("got recorded waits %v, want 1", did.record.Waits)
	}
}

// A run that ends quickly does not write its state to the record.
func TestShortRunDoesNotWriteItsState(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	var writes atomic.Int32
	c := recording(t, func() { writes.Add(1) })
	did := runOn(t, t.Context(), c,
		load(t, namespace, namespace,
			strings.ReplaceAll(blockedFiles, ", annotations: {runlevel.dev/ready: has(self.data)}", "")),
		apply.Options{Options: updateMode})
	if did.Err != nil || did.Left != nil {
		t.Errorf("%v, left %v", did.Err, did.Left)
	}
	if got := writes.Load(); got > 1 { // the one of this test
		t.Errorf("the record was written %d times", got)
	}
}

// The record has the reason of a retry, and the time since when the step is retried.
func TestRecordHasRetries(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	began := time.Now().Add(-time.Minute)
	c := recording(t, cancel)
	did := runOn(t, ctx, c, load(t, namespace, namespace, `
-- 0000_10_db_10.yaml --
{apiVersion: v1, kind: ResourceQuota, metadata: {name: none, namespace: NS, annotations: {runlevel.dev/ready: has(self.status.used)}}, spec: {hard: {count/services: 0}}}
-- 0000_20_web_10.yaml --
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: NS}, spec: {ports: [{port: 80}]}}
`), apply.Options{})
	node, step, found := apply.StateOf(did.record.Run).Find(kinds.NewID(kinds.Service, namespace, "web"))
	if !found || node != 0 || step.Phase != apply.InRetry || !strings.Contains(step.For, "exceeded quota: none") ||
		step.Reason == "" ||
		step.Since.Before(metav1.NewTime(began).Time) {
		t.Errorf("got step %v in node %d, found: %t", step, node, found)
	}
}

// The record of a large run has a limited number of steps and nodes, and the number of those that are left out.
func TestRecordOfALargeRunIsCut(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	files := "-- 0000_10_db_10.yaml --\n{apiVersion: v1, kind: Secret, metadata: {name: db, namespace: NS}, data: " +
		"{key: [no, text]}}\n"
	for component := range 12 {
		for i := range 50 {
			files += fmt.Sprintf("-- 0000_20_c%02d_%02d.yaml --\n{apiVersion: v1, kind: ConfigMap, metadata: {name: "+
				"c%02d-%02d, namespace: NS}}\n", component, i, component, i)
		}
	}
	files += "-- 0000_30_last_10.yaml --\n{apiVersion: v1, kind: ConfigMap, metadata: {name: last, namespace: NS}}\n"
	left := run(t, t.Context(), load(t, namespace, namespace, files), apply.Options{Options: updateMode}).Left
	recorded := 0
	for _, node := range left.Nodes {
		recorded += len(node.Steps)
	}
	last := left.Nodes[len(left.Nodes)-1]
	all, undone := apply.StateOf(left).Count()
	if recorded != 500 || left.More != 102 || all != 602 || undone != 602 || left.Total != 602 ||
		left.Levels[1] != (record.RunLevel{Name: "20", Total: 600, Left: 600}) || len(left.Nodes) != 14 ||
		len(last.After) != 10 || last.More != 2 {
		t.Errorf("got %d of 602 steps and %d more, in %d nodes; the last is after %d and %d more",
			recorded, left.More, len(left.Nodes), len(last.After), last.More)
	}
}

// StateOf reads a recorded run as a state. Completed steps are only counted.
func TestStateIsReadBackFromTheRecord(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	wait := func(name, hook, node string) apply.Wait {
		file := map[string]string{"level 10, db": "0000_10_db_10.yaml", "level 20, web": "0000_20_web_10.yaml"}[node]
		return apply.Wait{
			ID:   kinds.ID{Kind: "Secret", Namespace: "shop", Name: name},
			Hook: hook,
			File: file,
			Node: node,
		}
	}
	slow, refused := wait("slow", "", "level 10, db"), wait("refused", "", "level 10, db")
	slow.For, slow.Reason, slow.Since = "no data", "NotReady", since
	refused.For, refused.Reason = "no", "Invalid"
	done := apply.RunStepState{Wait: wait("done", "", "level 10, db"), Phase: apply.Done, Action: object.Created}
	running := apply.RunStepState{
		Wait:   wait("web", "pre", "level 20, web"),
		Phase:  apply.InProgress,
		Action: object.NotDone,
	}
	blocked := apply.RunStepState{
		Wait:   wait("web", "", "level 20, web"),
		Phase:  apply.Blocked,
		Action: object.NotDone,
		Awaits: &slow.ID,
	}
	state := &apply.RunState{
		Version: "2", Mode: graph.Update, Now: since,
		Nodes: []apply.RunNodeState{
			{Name: "level 10, db", State: graph.Running, Steps: []apply.RunStepState{
				{Wait: slow, Phase: apply.InWait, Action: object.Created}, done,
				{Wait: refused, Phase: apply.HasFailed, Action: object.Failed},
			}},
			{
				Name:  "level 20, web",
				State: graph.Blocked,
				After: []int{0},
				Steps: []apply.RunStepState{running, blocked},
			},
		},
	}
	text, err := json.Marshal(state.Record())
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"version":"2","mode":"update","told":"2026-01-02T03:04:05Z","nodes":[` +
		`{"name":"level 10, db","state":"running","steps":[` +
		`{"kind":"Secret","namespace":"shop","name":"slow","file":"0000_10_db_10.yaml","state":"waiting","for":"no data","reason":"NotReady","since":"2026-01-02T03:04:05Z"},` +
		`{"kind":"Secret","namespace":"shop","name":"refused","file":"0000_10_db_10.yaml","state":"failed","for":"no","reason":"Invalid"}]},` +
		`{"name":"level 20, web","state":"blocked","after":[0],"steps":[` +
		`{"kind":"Secret","namespace":"shop","name":"web","hook":"pre","file":"0000_20_web_10.yaml","state":"blocked"},` +
		`{"kind":"Secret","namespace":"shop","name":"web","file":"0000_20_web_10.yaml","state":"blocked","awaits":{"kind":"Secret","namespace":"shop","name":"slow"}}]}],` +
		`"total":4,"levels":[{"name":"10","total":3,"left":2},{"name":"20","total":1,"left":1}]}`
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Error(diff)
	}
	run := &record.Run{}
	if err := json.Unmarshal(text, run); err != nil {
		t.Fatal(err)
	}
	got := apply.StateOf(run)
	running.Phase = apply.Blocked // a record does not distinguish the two phases
	wanted := []apply.RunNodeState{
		{
			Name:  "level 10, db",
			State: graph.Running,
			Steps: []apply.RunStepState{{Wait: slow, Phase: apply.InWait},
				{Wait: refused, Phase: apply.HasFailed, Action: object.Failed}},
		},
		{Name: "level 20, web", State: graph.Blocked, After: []int{0}, Steps: []apply.RunStepState{running, blocked}},
	}
	if diff := cmp.Diff(wanted, got.Nodes); diff != "" {
		t.Error(diff)
	}
	if total, unfinished := got.Count(); total != 4 || unfinished != 3 {
		t.Errorf("got %d of %d manifests unfinished, want 3 of 4", unfinished, total)
	}
	if again, _ := json.Marshal(got.Record()); string(again) != want {
		t.Errorf("recorded again: %s", again)
	}
}
