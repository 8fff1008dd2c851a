package live_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/cli/live"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/session/progress"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

var update = flag.Bool("update", false, "write the screens of testdata again")

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// A film is a model with the events that change it.
type film struct {
	*progress.Model
	items []apply.Wait
	now   time.Time
	state apply.RunState
}

func start(plan progress.Intent) *film {
	plan.Began = began
	f := &film{Model: progress.New(plan), now: began}
	for _, step := range plan.Planned.Steps() {
		f.items = append(f.items, step.Wait)
	}
	f.state = *planned(f.items)
	return f
}

// planned returns the state of an apply that has not begun.
func planned(items []apply.Wait) *apply.RunState {
	var all apply.RunNodeState
	for _, item := range items {
		all.Steps = append(all.Steps, apply.RunStepState{Wait: item, Phase: apply.Blocked, Action: object.NotDone})
	}
	return &apply.RunState{Nodes: []apply.RunNodeState{all}}
}

func (f *film) screen(width, height int) string {
	f.State(&f.state)
	return live.Screen(f.Progress(), width, height)
}

// after advances the clock, second by second. The only events are the waits.
func (f *film) after(d time.Duration, waits ...apply.Event) *film {
	for _, wait := range waits {
		f.add(wait)
	}
	f.State(&f.state)
	for end := f.now.Add(d); f.now.Before(end); {
		f.now = f.now.Add(time.Second)
		f.At(f.now)
	}
	return f
}

// add adds an event, and changes the state by it.
func (f *film) add(event apply.Event) {
	event.Time = f.now
	f.Event(event)
	f.state.Now = f.now
	switch event.Type {
	case apply.Began, apply.Ended:
		i := slices.IndexFunc(f.state.Components, func(c apply.ComponentState) bool { return c.Name == event.Node })
		if i < 0 {
			i = len(f.state.Components)
			f.state.Components = append(f.state.Components, apply.ComponentState{Name: event.Node, Began: f.now})
		}
		c := &f.state.Components[i]
		c.IsRunning, c.IsDone = event.Type == apply.Began, event.Type == apply.Ended && event.Action == ""
	default:
		f.change(event, f.step(event))
	}
}

// step returns the step of an event.
func (f *film) step(event apply.Event) *apply.RunStepState {
	steps := f.state.Nodes[0].Steps
	isOf := func(hook string) func(apply.RunStepState) bool {
		return func(s apply.RunStepState) bool {
			return s.ID == *event.Object && s.File == event.File && s.Hook == hook
		}
	}
	i := slices.IndexFunc(steps, isOf(event.Hook))
	if i < 0 {
		i = slices.IndexFunc(steps, isOf(""))
		hook := apply.RunStepState{Wait: steps[i].Wait, Action: object.NotDone}
		hook.Hook = event.Hook
		steps = slices.Insert(steps, i, hook)
		f.state.Nodes[0].Steps = steps
	}
	return &steps[i]
}

func (f *film) change(event apply.Event, step *apply.RunStepState) {
	switch event.Type {
	case apply.Applied:
		step.Phase, step.Action, step.Result = apply.Done, event.Action, event.Message
	case apply.BeReady:
		step.Phase = apply.Done
	case apply.Failing:
		step.Phase, step.For, step.Reason, step.Since = apply.HasFailed, event.Message, event.Reason, f.now
	case apply.Waiting, apply.Retrying:
		step.Phase, step.IsRetry = apply.InWait, event.IsRetry || event.Type == apply.Retrying
		if step.IsRetry {
			step.Phase = apply.InRetry
		}
		step.For, step.Why, step.Since = event.Message, event.Why, f.now
		if event.Since != nil {
			step.Since = *event.Since
		}
	}
}

// about returns an event about an item.
func about(item apply.Wait, event apply.Event) apply.Event {
	event.Object, event.File, event.Node = &item.ID, item.File, item.Node
	return event
}

func waiting(item apply.Wait, since time.Duration, message string, why ...string) apply.Event {
	then := began.Add(since)
	return about(item, apply.Event{Type: apply.Waiting, Message: message, Since: &then, Why: why})
}

// retrying returns a wait for an object that failed and is retried.
func retrying(wait apply.Event) apply.Event {
	wait.IsRetry = true
	return wait
}

func applied(item apply.Wait, action object.Action) apply.Event {
	return about(item, apply.Event{Type: apply.Applied, Action: action})
}

// play applies items one node after the other, each in a duration. After all items, the last node is still running.
func (f *film) play(items []apply.Wait, each time.Duration) *film {
	for i, item := range items {
		if i == 0 || items[i-1].Node != item.Node {
			f.add(apply.Event{Type: apply.Began, Node: item.Node})
		}
		f.add(applied(item, object.Configured))
		if i+1 < len(items) && items[i+1].Node != item.Node {
			f.after(each)
			f.add(apply.Event{Type: apply.Ended, Node: item.Node, Seconds: each.Seconds()})
		}
	}
	return f
}

func item(level, component, kind, name string) apply.Wait {
	return apply.Wait{
		Node: "level " + level + ", " + component,
		File: "0000_" + level + "_" + component + "_" + name + ".yaml",
		ID:   kinds.ID{Kind: kind, Namespace: "shop", Name: name},
	}
}

// many returns a release of 600 manifests in 40 levels of three components.
func many() []apply.Wait {
	var items []apply.Wait
	for i := range 600 {
		items = append(items, item(fmt.Sprintf("%02d", 10+2*(i/15)),
			[]string{"database", "frontend", "monitoring"}[i/5%3], "ConfigMap", fmt.Sprintf("settings-%03d", i)))
	}
	return items
}

// few returns a release of ten manifests.
func few() []apply.Wait {
	return []apply.Wait{
		item("10", "base", "Namespace", "shop"), item("10", "base", "ServiceAccount", "web"),
		item("20", "db", "StatefulSet", "db"), item("20", "cache", "Deployment", "cache"),
		item("20", "old", "ConfigMap", "old"),
		item("25", "web", "Deployment", "web"), item("25", "api", "Deployment", "api"),
		item("25", "bad", "ConfigMap", "Not_a_name"),
		item("30", "proxy", "Deployment", "proxy"), item("90", "checks", "Job", "check"),
	}
}

// stuck returns an update of a few manifests with all kinds of problems.
func stuck() *film {
	items := few()
	f := start(progress.Intent{
		Title: "update of release shop 1.1.0, after 1.0.0", Planned: planned(items), InOrder: true,
		Before: 4 * time.Minute,
		Nodes: map[string]time.Duration{
			"level 25, web":   70 * time.Second,
			"level 25, api":   30 * time.Second,
			"level 30, proxy": 65 * time.Second,
		},
	})
	f.play(items[:4], 2*time.Second)
	f.add(about(items[4], apply.Event{
		Type:    apply.Applied,
		Action:  object.Pending,
		Message: "terminating for 0s, held by finalizer example.com/hold",
	}))
	f.add(apply.Event{Type: apply.Ended, Node: "level 20, cache"})
	for _, item := range items[5:8] {
		f.add(apply.Event{Type: apply.Began, Node: item.Node})
	}
	f.add(applied(items[5], object.Configured))
	f.add(about(items[6], apply.Event{
		Type:    apply.Retrying,
		Message: "attempt 1 failed, the next is in 500ms: no endpoints available for service \"hook\"",
	}))
	f.add(about(items[7], apply.Event{
		Type:    apply.Failing,
		Action:  object.Failed,
		Message: `ConfigMap "Not_a_name" is invalid: metadata.name: Invalid value`,
	}))
	f.add(apply.Event{Type: apply.Ended, Node: "level 25, bad", Action: object.Failed})
	return f.after(20*time.Second,
		waiting(items[5], 5*time.Second, "0 of 1 replicas are available",
			"Pod shop/web-1: container main crashes: exit code 1, 3 restarts", "  | no such host: db", "  | giving up"),
		retrying(waiting(items[6], 5*time.Second, `no endpoints available for service "hook"`)))
}

// midway returns an update of many manifests, half done and without problems.
func midway() *film {
	items := many()
	return start(progress.Intent{
		Title:   "update of release shop 2.0.0, after 1.9.0",
		Planned: planned(items),
		InOrder: true,
	}).play(items[:307], 3*time.Second)
}

// crowded returns an install of many manifests in which all levels run, and many objects wait.
func crowded() *film {
	items := many()
	f := start(progress.Intent{Title: "install of release shop 2.0.0", Planned: planned(items)})
	var waits []apply.Event
	for i, item := range items {
		if i%5 == 0 {
			f.add(apply.Event{Type: apply.Began, Node: item.Node})
		}
		if i%4 != 3 {
			f.add(applied(item, object.Created))
		}
		if i%9 == 0 && i%100 != 50 {
			wait := waiting(item, time.Duration(i)*time.Millisecond, "0 of 3 replicas are available",
				"Pod shop/web-1: it has no node")
			if i%4 == 3 {
				wait = retrying(wait)
			}
			waits = append(waits, wait)
		}
		if i%100 == 50 {
			f.add(about(item, apply.Event{
				Type:    apply.Failing,
				Reason:  "WorkloadFailed",
				Message: "BackoffLimitExceeded",
			}))
		}
	}
	return f.after(45*time.Second, waits...)
}

func TestScreenHasTheExpectedText(t *testing.T) {
	for name, scene := range map[string]func() *film{
		"begins": func() *film {
			return start(progress.Intent{Title: "install of release shop 1.0.0", Planned: planned(few())})
		},
		"stuck":   stuck,
		"midway":  midway,
		"crowded": crowded,
	} {
		for _, size := range []struct{ width, height int }{{80, 24}, {40, 10}, {200, 50}} {
			file := fmt.Sprintf("%s-%dx%d.txt", name, size.width, size.height)
			t.Run(file, func(t *testing.T) {
				compare(t, file, ansi.Strip(scene().screen(size.width, size.height))+"\n")
			})
		}
	}
}

// compare compares a screen with the one in a file.
func compare(t *testing.T, file, got string) {
	t.Helper()
	path := filepath.Join("testdata", file)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got), -update writes it again:\n%s", path, diff)
	}
}

// In every size and with hostile text, lines fit on the screen and do not control the terminal.
func TestScreenFitsEverySize(t *testing.T) {
	nasty := few()
	for i := range nasty {
		nasty[i].ID.Name = "漢字の名前-\U0001F469\u200d\U0001F4BB"
	}
	f := start(progress.Intent{Title: "update of \x1b[2Jrelease\r\n漢字", Planned: planned(nasty), InOrder: true})
	f.play(nasty[:6], time.Second)
	f.add(about(nasty[5], apply.Event{Type: apply.Failing, Message: "漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字"}))
	f.Delete(kinds.ID{Kind: "ConfigMap", Name: "old"}, "held by \x1b[31m漢字")
	f.after(2*time.Second, waiting(nasty[4], 0, "two\nlines\x1b[1A", "Pod a\x1b[2J: b", "  | \ttab\a"))
	for _, scene := range []*film{f, crowded(), stuck()} {
		for width := 1; width < 130; width += 3 {
			for height := 1; height < 40; height++ {
				screen := ansi.Strip(scene.screen(width, height))
				lines := strings.Split(screen, "\n")
				if len(lines) > height {
					t.Fatalf("%dx%d has %d lines:\n%s", width, height, len(lines), screen)
				}
				for _, line := range lines {
					if ansi.StringWidth(line) > width || strings.ContainsAny(line, "\x1b\r\t\a") {
						t.Fatalf("%dx%d has the line %q", width, height, line)
					}
				}
			}
		}
	}
}

// Running, failed and stuck objects are visible even in the smallest window.
func TestSmallWindowShowsProblems(t *testing.T) {
	screen := ansi.Strip(stuck().screen(40, 10))
	for _, wanted := range []string{"update of", "1 failed", "2 waiting", "level 25", "running (2)", "25, api",
		"failed (1)", "pending (1)", "shop/old"} {
		if !strings.Contains(screen, wanted) {
			t.Errorf("%q is not on\n%s", wanted, screen)
		}
	}
}

// If there is room, the complete cause of a blocked apply is visible even in a narrow window. The oldest
// wait has its complete cause even among many waits.
func TestCausesAreWrapped(t *testing.T) {
	const message = `1 of 3 replicas are updated: pods "database-67f4c8d9b-" is forbidden: exceeded quota: compute-resources, requested: requests.cpu=500m, used: requests.cpu=4, limited: requests.cpu=4`
	const why = `Pod shop/database-67f4c8d9b-x2x9k: container database can't pull image registry.example.com/shop/database:1.1.0: back-off pulling image "registry.example.com/shop/database:1.1.0": not found`
	const held = `terminating for 25s, held by finalizer example.com/hold (some content in the namespace has finalizers remaining: example.com/left in 3 resource instances)`
	const failed = `Deployment.apps "web" is invalid: spec.selector: Invalid value: {"matchLabels":{"app":"web"}}: field is immutable`
	items := many()
	for name, c := range map[string]struct {
		nodes int // running nodes
		shown []string
	}{
		"one wait":   {1, []string{message, why, failed, held}},
		"many waits": {40, []string{message, why}},
	} {
		for _, width := range []int{60, 100} {
			t.Run(fmt.Sprintf("%s at %d columns", name, width), func(t *testing.T) {
				f := start(progress.Intent{
					Title:   "update of release shop 1.1.0, after 1.0.0",
					Planned: planned(items),
					InOrder: true,
				})
				waits := []apply.Event{waiting(items[0], 0, message, why)}
				for i, item := range items[:5*c.nodes] {
					f.add(apply.Event{Type: apply.Began, Node: item.Node})
					if i >= 5 {
						waits = append(waits, waiting(item, time.Second, "0 of 3 replicas are available",
							"Pod shop/web-1: it has no node"))
					}
				}
				f.add(about(items[1], apply.Event{Type: apply.Failing, Message: failed}))
				f.Delete(items[2].ID, held)
				screen := ansi.Strip(f.after(2*time.Second, waits...).screen(width, 48))
				for _, text := range c.shown {
					if !strings.Contains(unspaced(screen), unspaced(text)) {
						t.Errorf("the screen does not show the end of %s:\n%s", text, screen)
					}
				}
			})
		}
	}
}

// unspaced returns a text without the spaces and line breaks that wrapping adds.
func unspaced(text string) string { return strings.Join(strings.Fields(text), "") }

// A wait is shown until it is over.
func TestEndedWaitsDisappear(t *testing.T) {
	items := few()
	f := start(progress.Intent{Title: "update", Planned: planned(items), InOrder: true})
	f.add(apply.Event{Type: apply.Began, Node: items[2].Node})
	f.add(applied(items[2], object.Created))
	f.after(2*time.Second, waiting(items[2], 0, "0 of 3 replicas are available"))
	sees := func(wanted bool) {
		t.Helper()
		if got := strings.Contains(f.screen(80, 24), "0 of 3 replicas"); got != wanted {
			t.Errorf("the wait is visible: %t, want %t\n%s", got, wanted, f.screen(80, 24))
		}
	}
	sees(true)
	f.after(20 * time.Second)
	sees(true)
	f.add(about(items[2], apply.Event{Type: apply.BeReady, Message: "after 20s"}))
	sees(false)
}

func TestDeletesAreFollowed(t *testing.T) {
	f := stuck()
	f.Delete(few()[4].ID, "terminating for 25s, held by finalizer example.com/other")
	if screen := ansi.Strip(f.screen(120, 40)); !strings.Contains(screen,
		"pending (1)\n  ConfigMap shop/old: terminating for 25s, held by finalizer example.com/other\n") {
		t.Errorf("the screen does not name the new holder:\n%s", screen)
	}
	f.Delete(few()[4].ID, "")
	if screen := ansi.Strip(f.screen(120, 40)); strings.Contains(screen, "pending (") ||
		!strings.Contains(screen, "deleted     ConfigMap shop/old") {
		t.Errorf("the screen does not show the deleted object:\n%s", screen)
	}
}

// The screen shows a waiting hook as a hook, not as a retry after a failure, and its object as not applied yet.
func TestScreenNamesHooks(t *testing.T) {
	items := []apply.Wait{item("10", "web", "Deployment", "web")}
	f := start(progress.Intent{Title: "update of release shop", Planned: planned(items), InOrder: true})
	f.add(apply.Event{Type: apply.Began, Node: items[0].Node})
	wait := waiting(items[0], 0, "pod web-pre runs")
	wait.Hook = "pre"
	screen := live.StripStyles(f.after(5*time.Second, wait).screen(100, 20))
	for _, want := range []string{" 0/1, 1 waiting",
		"waiting for 5s: pre hook of Deployment shop/web: pod web-pre runs"} {
		if !strings.Contains(screen, want) {
			t.Errorf("the screen does not show %q:\n%s", want, screen)
		}
	}
}
