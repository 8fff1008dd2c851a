package apply_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A latch blocks the hooks of a test until it is opened.
type latch struct {
	mu      sync.Mutex
	isOpen  bool
	waiting []func()
	ended   atomic.Int32 // ended waits
}

func (l *latch) open() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isOpen = true
	for _, wake := range l.waiting {
		wake()
	}
}

// hook returns a hook that waits until the latch is open.
func (l *latch) hook(stage string) apply.Hook {
	return apply.Hook{Stage: stage, Try: func(context.Context) (string, func(func()) func()) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.isOpen {
			return "", nil
		}
		return "the gate is closed", func(wake func()) func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.isOpen { // it was opened after the try
				wake()
			}
			l.waiting = append(l.waiting, wake)
			return func() { l.ended.Add(1) }
		}
	}}
}

// ofSecrets returns a function that returns the hooks for manifests of Secrets.
func ofSecrets(hooks ...apply.Hook) func(*payload.Manifest) []apply.Hook {
	return func(m *payload.Manifest) []apply.Hook {
		if m.ID().Kind != "Secret" {
			return nil
		}
		return hooks
	}
}

// tale returns one line for each event about an object. Repeated lines are left out.
func (a applied) tale() []string {
	var lines []string
	for _, event := range a.events {
		if event.Object == nil {
			continue
		}
		what := string(event.Type)
		if event.Type == apply.Applied {
			what = string(event.Action)
		}
		line := what + " " + event.Name()
		if event.Type == apply.Waiting {
			line += ": " + event.Message
		}
		if len(lines) == 0 || lines[len(lines)-1] != line {
			lines = append(lines, line)
		}
	}
	return lines
}

const hooked = `
-- 0000_10_web_10.yaml --
{apiVersion: v1, kind: Secret, metadata: {name: web, namespace: NS}}
-- 0000_10_web_20.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: after, namespace: NS}}
`

// A waiting step is reported repeatedly, blocks the later steps of its node, and is tried again when it is resumed.
func TestWaitingStepBlocksLaterSteps(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	var pre, post latch
	var reports atomic.Int32
	options := apply.Options{Options: updateMode, ReportWaits: quickly, OnEvent: func(event apply.Event) {
		if event.Type != apply.Waiting {
			return
		}
		if event.Since == nil || event.Node != "level 10, web" || event.File != "0000_10_web_10.yaml" {
			t.Errorf("got no place or no time in the event: %+v", event)
		}
		switch n := reports.Add(1); {
		case n == 3: // the wait was reported repeatedly
			pre.open()
		case n > 3 && event.Hook == "post":
			post.open()
		}
	}}.WithHooks(ofSecrets(pre.hook("pre"), post.hook("post")))
	did := run(t, t.Context(), load(t, namespace, namespace, hooked), options)
	want := []string{
		"waiting pre hook of Secret NS/web: the gate is closed", "ran pre hook of Secret NS/web",
		"created Secret NS/web",
		"waiting post hook of Secret NS/web: the gate is closed", "ran post hook of Secret NS/web",
		"created ConfigMap NS/after",
	}
	got := strings.Split(strings.ReplaceAll(strings.Join(did.tale(), "\n"), namespace, "NS"), "\n")
	if diff := cmp.Diff(want, got); diff != "" || did.Err != nil || len(did.Waits) > 0 {
		t.Error(did.Err, did.Waits, diff)
	}
	if pre.ended.Load() != 1 || post.ended.Load() != 1 {
		t.Errorf("got waits ended %d and %d times, want 1 and 1", pre.ended.Load(), post.ended.Load())
	}
	if len(did.Changes) != 4 || did.Changes[0].Hook != "pre" || did.Changes[1].UID == "" ||
		did.Changes[2].Action != object.Ran || did.Changes[3].ID.Name != "after" {
		t.Errorf("got report %s", did.actions())
	}
}

// Waiting steps occupy no worker: fifty of these steps can wait although there is one worker.
func TestWaitingStepsOccupyNoWorker(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	const count = 50
	var files strings.Builder
	for i := range count {
		fmt.Fprintf(&files, "-- 0000_10_web%d_10.yaml --\n{apiVersion: v1, kind: Secret, metadata: {name: web-%d, "+
			"namespace: NS}}\n", i, i)
	}
	fmt.Fprintln(&files, "-- 0000_10_zzz_10.yaml --\n{apiVersion: v1, kind: ConfigMap, metadata: {name: last, "+
		"namespace: NS}}")
	var all latch
	waiting := map[string]bool{}
	options := apply.Options{Options: updateMode, Workers: 1, ReportWaits: quickly, OnEvent: func(event apply.Event) {
		if event.Type == apply.Waiting {
			waiting[event.Name()] = true
		}
		if event.Type == apply.Applied && event.Object.Name == "last" {
			all.open()
		}
	}}.WithHooks(ofSecrets(all.hook("pre")))
	did := run(t, t.Context(), load(t, namespace, namespace, files.String()), options)
	if did.Err != nil || len(waiting) != count {
		t.Errorf("got %d waiting steps: %v", len(waiting), did.Err)
	}
}

// A waiting step ends with its run: it is not done, and the report and the record have the reason of its wait.
func TestAWaitingStepEndsWithTheRun(t *testing.T) {
	for name, end := range map[string]struct {
		timeout time.Duration
		message string
	}{
		"Ctrl-C":       {patience, "interrupted: 2 objects not applied, 2 hooks not done"},
		"the deadline": {5 * time.Second, "the time is up after 5s: 2 objects not applied, 2 hooks not done"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := test.Namespace(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var closed latch
			c := recording(t, func() {
				if end.timeout == patience {
					cancel()
				}
			})
			options := apply.Options{
				Options: object.Options{Mode: graph.Update},
				Timeout: end.timeout,
			}.WithHooks(ofSecrets(closed.hook("pre"), closed.hook("post")))
			did := runOn(t, ctx, c, load(t, namespace, namespace, hooked), options)
			if did.Err == nil || did.Err.Error() != end.message {
				t.Errorf("got error %v, want %s", did.Err, end.message)
			}
			if len(did.Waits) != 1 || did.Waits[0].Name() != "pre hook of Secret "+namespace+"/web" ||
				did.Waits[0].For != "the gate is closed" || did.Waits[0].Since.IsZero() {
				t.Errorf("got waits %+v, want one wait of the pre hook for the gate", did.Waits)
			}
			var messages []string
			for _, change := range did.Changes {
				messages = append(messages, strings.ReplaceAll(change.Message, namespace, "NS"))
			}
			const after = "after pre hook of Secret NS/web, which waits"
			if diff := cmp.Diff([]string{"waiting: the gate is closed", after, after, after}, messages); diff != "" {
				t.Error(diff)
			}
			if closed.ended.Load() != 1 {
				t.Errorf("got a wait that ended %d times, want once", closed.ended.Load())
			}
			secret := kinds.ID{Kind: "Secret", Namespace: namespace, Name: "web"}
			clocks := cmp.Options{cmpopts.IgnoreFields(record.RunStep{}, "Since")}
			left := []record.RunStep{
				{
					ID:    secret,
					Hook:  "pre",
					File:  "0000_10_web_10.yaml",
					State: string(apply.InWait),
					For:   "the gate is closed",
				},
				{ID: secret, File: "0000_10_web_10.yaml", State: string(apply.Blocked)},
				{ID: secret, Hook: "post", File: "0000_10_web_10.yaml", State: string(apply.Blocked)},
				{
					ID:    kinds.ID{Kind: "ConfigMap", Namespace: namespace, Name: "after"},
					File:  "0000_10_web_20.yaml",
					State: string(apply.Blocked),
				},
			}
			for what, run := range map[string]*record.Run{"while it ran": did.record.Run, "at its end": did.Left} {
				if diff := cmp.Diff(left, run.Nodes[0].Steps, clocks); diff != "" {
					t.Errorf("%s (-want +got):\n%s", what, diff)
				}
				if all, undone := apply.StateOf(run).Count(); all != 2 || undone != 2 ||
					run.Nodes[0].Steps[0].Since == nil {
					t.Errorf("%s: got run %+v, want 2 steps that are not done, and a wait with its begin", what, run)
				}
			}
			if len(did.record.Waits) != 1 || did.record.Waits[0].Hook != "pre" {
				t.Errorf("got recorded waits %v", did.record.Waits)
			}
		})
	}
}

// A step may require that its own object is ready, also in a run that waits for no other object.
func TestAStepNeedsItsOwnObject(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	release := load(t, namespace, namespace, `
-- 0000_10_web_10.yaml --
{apiVersion: v1, kind: Secret, metadata: {name: web, namespace: NS, annotations: {runlevel.dev/ready: has(self.data)}}}
`)
	secrets := test.Client(t).CoreV1().Secrets(namespace)
	ran := apply.Hook{Stage: "post", IsLate: true, Try: func(ctx context.Context) (string, func(func()) func()) {
		if web, err := secrets.Get(ctx, "web", metav1.GetOptions{}); err != nil || len(web.Data) == 0 {
			t.Errorf("the step ran before its object was ready: %v", err)
		}
		return "", nil
	}}
	var once sync.Once
	options := apply.Options{Options: installMode, NoWait: true, ReportWaits: quickly}
	options.OnEvent = func(event apply.Event) {
		if event.Type == apply.Waiting && event.Hook == "" {
			once.Do(func() {
				_, err := secrets.Patch(context.Background(), "web", types.MergePatchType,
					[]byte(`{"stringData":{"is":"there"}}`), metav1.PatchOptions{})
				must(t, err)
			})
		}
	}
	options = options.WithHooks(ofSecrets(ran))
	did := run(t, t.Context(), release, options)
	if last := did.Changes[len(did.Changes)-1]; did.Err != nil || last.Action != object.Ran {
		t.Errorf("%v: %s", did.Err, did.actions())
	}
}

// If a run continues after its deadline, it tries the waiting step again.
func TestAWaitingStepIsTriedAgainAfterTheDeadline(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	var pre latch
	var late error
	keeper := apply.KeeperFuncs{OnNotReady: func(report *apply.Report) {
		late = report.Err
		pre.open()
	}}
	options := apply.Options{
		Options: updateMode,
		Timeout: time.Second,
		Keeper:  keeper,
	}.WithHooks(ofSecrets(pre.hook("pre")))
	did := run(t, t.Context(), load(t, namespace, namespace, hooked), options)
	if did.Err != nil || !errors.Is(late, apply.ErrTimeout) || did.Changes[0].Action != object.Ran {
		t.Errorf("%v, at the deadline %v: %s", did.Err, late, did.actions())
	}
}

// A post hook requires a complete rollout of its Deployment.
func TestAPostHookNeedsTheWholeRollout(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	const hooks = "annotations: {runlevel.dev/lifecycle-hooks: 'post: {execNewPod: {containerName: main, command: " +
		"[run]}}'}}"
	files := "-- 0000_10_web_web.yaml --" +
		strings.Replace(workload("Deployment", "web", "hang", ""), "namespace: NS}", "namespace: NS, "+hooks, 1)
	options := apply.Options{Options: object.Options{Mode: graph.Update, Standard: ready.Upstream}, NoWait: true}
	did := runUntil(t, namespace, load(t, namespace, namespace, files), options, "Deployment NS/web",
		"waiting: 0 of 1 replicas are available\n…")
	if len(did.Changes) != 2 || did.Changes[1].Hook != "post" || did.Changes[1].Action != object.NotDone {
		t.Error(did.actions())
	}
}
