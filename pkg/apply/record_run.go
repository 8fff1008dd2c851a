package apply

import (
	"cmp"
	"context"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
)

// How often a changed state of the run is written to the record, for commands such as why. A run that is over in seconds
// writes none.
const (
	noteFirst = 3 * time.Second
	noteEvery = 10 * time.Second
)

// Limits of the state in the record: enough for every object of a large release, and a tenth of what a record may hold.
const (
	mostSteps  = 500
	mostWaits  = 100
	mostBefore = 10 // nodes that a node waits for
	mostText   = 1000
	mostLevels = 500
)

// noteStanding writes the state of the run to the record from time to time, until stop is called.
func (r *run) noteStanding(ctx context.Context) (stop func()) {
	return inBackground(ctx, func(ctx context.Context) {
		timer := time.NewTimer(noteFirst)
		defer timer.Stop()
		var noted *record.Run
		for {
			select {
			case <-timer.C:
			case <-ctx.Done():
				return
			}
			waits, _ := r.waits.all()
			if standing := r.standing(waits); !standing.Same(noted) && r.noteRun(standing, waits) == nil {
				noted = standing
			}
			timer.Reset(noteEvery)
		}
	})
}

func (r *run) noteRun(standing *record.Run, waits []Wait) error {
	return r.options.Journal.Note(r.requests, func(known *record.Record) {
		known.Run, known.Waits = standing, nil
		known.Fingerprints = r.options.Fingerprints.MergeInto(known.Fingerprints)
		for _, wait := range waits[:min(mostWaits, len(waits))] {
			known.Waits = append(known.Waits, record.ObjectWait{ID: wait.ID, Hook: wait.Hook, For: wait.For, Since: metav1.NewTime(wait.Since)})
		}
	})
}

// standing returns the state of the run and its waits, for the record.
func (r *run) standing(waits []Wait) *record.Run {
	standing := &record.Run{
		Version: r.options.Version, Mode: string(r.options.Mode), ReportedAt: metav1.NewTime(r.cluster.Now().UTC().Truncate(time.Second)),
		Error: r.deadlineError, Total: len(r.order.tasks),
	}
	left, places := r.left(waits), map[int]int{}
	standing.Levels = r.levels(left)
	room := mostSteps
	for node := range r.order.graph.Nodes {
		steps := left[node]
		if len(steps) == 0 { // the node is done or empty
			continue
		}
		places[node] = len(standing.Nodes)
		kept := min(room, len(steps))
		room -= kept
		standing.More += len(record.ByManifest(steps)) - len(record.ByManifest(steps[:kept]))
		standing.Nodes = append(standing.Nodes, record.RunNode{Name: r.nameOf(node), State: string(r.nodes.state(node)), Steps: steps[:kept]})
	}
	for node, place := range places {
		at := &standing.Nodes[place]
		before := r.blockers(node, left)
		for _, blocker := range before[:min(mostBefore, len(before))] {
			at.After = append(at.After, places[blocker])
		}
		at.More = len(before) - len(at.After)
	}
	return standing
}

// levels returns the progress of each level; nil if the record has no room for them.
func (r *run) levels(left map[int][]record.RunStep) []record.RunLevel {
	levels := map[string]record.RunLevel{}
	add := func(file string, total, left int) {
		name := graph.ParseName(path.Base(file)).Level
		known := levels[name]
		levels[name] = record.RunLevel{Name: name, Total: known.Total + total, Left: known.Left + left}
	}
	for _, task := range r.order.tasks {
		add(task.Path, 1, 0)
	}
	for _, steps := range left {
		for _, of := range record.ByManifest(steps) {
			add(of[0].File, 0, 1)
		}
	}
	if len(levels) > mostLevels {
		return nil
	}
	return slices.SortedFunc(maps.Values(levels), func(a, b record.RunLevel) int { return graph.CompareLevels(a.Name, b.Name) })
}

// blockers returns the unfinished nodes that a node waits for. Nodes that run or have failed come first, since they explain
// most.
func (r *run) blockers(node int, left map[int][]record.RunStep) []int {
	blockers := slices.DeleteFunc(r.nodes.blockers(node), func(blocker int) bool { return len(left[blocker]) == 0 })
	isBlocked := func(node int) int {
		if r.nodes.state(node) == graph.Blocked {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(blockers, func(a, b int) int { return cmp.Compare(isBlocked(a), isBlocked(b)) })
	return blockers
}

// left returns the steps that are not done, by node.
func (r *run) left(waits []Wait) map[int][]record.RunStep {
	awaited, left := byStep(waits), map[int][]record.RunStep{}
	r.results.mu.Lock()
	defer r.results.mu.Unlock()
	for node, steps := range r.order.nodes {
		for _, i := range steps {
			if step, isLeft := r.leftOf(i, awaited); isLeft {
				left[node] = append(left[node], step)
			}
		}
	}
	return left
}

// byStep returns waits by their steps.
func byStep(waits []Wait) map[object.StepID]Wait {
	awaited := map[object.StepID]Wait{}
	for _, wait := range waits {
		awaited[wait.step] = wait
	}
	return awaited
}

// leftOf returns a step for the record, unless it is done.
func (r *run) leftOf(i int, awaited map[object.StepID]Wait) (record.RunStep, bool) {
	id, change := r.order.steps[i].ID(), r.results.changes[i]
	step := record.RunStep{ID: id.ID, Hook: id.Hook, File: id.Path, State: record.Blocked, Deletes: r.order.tasks[r.order.taskOf[i]].IsTombstone()}
	failure := cmp.Or(r.results.unready[id], change.Err)
	wait, isAwaited := awaited[id]
	switch {
	case failure != nil:
		step.State, step.For, step.Reason = record.Failed, short(printable.Line(failure.Err.Error())), failure.Reason
	case isAwaited:
		step.State, step.For, step.Reason, step.Since = record.Waiting, short(wait.For), wait.Reason, new(metav1.NewTime(wait.Since))
		if wait.IsRetry {
			step.State = record.Retrying
		}
	case change.Action != object.NotDone, r.results.refused[i]:
		return step, false
	default:
		step.Awaits = r.awaitedBy(i, awaited)
	}
	return step, true
}

// awaitedBy returns the first object that a step needs and that is not ready; nil if there is none.
func (r *run) awaitedBy(i int, awaited map[object.StepID]Wait) *kinds.ID {
	for _, need := range r.order.needsOf(i) {
		step := object.StepOf(r.order.tasks[need].Manifest)
		if _, isAwaited := awaited[step]; isAwaited {
			return &step.ID
		}
	}
	return nil
}

// nameOf names a node by its first step.
func (r *run) nameOf(node int) string {
	first := r.order.steps[r.order.nodes[node][0]].ID()
	return cmp.Or(first.Node, first.ID.String())
}

// short truncates a text to what the record keeps.
func short(text string) string { return printable.Truncate(text, mostText) }

// firstLine returns the first line of an error, truncated.
func firstLine(err error) string {
	first, _, _ := strings.Cut(err.Error(), "\n")
	first = strings.TrimSuffix(first, ":") // the errors followed the colon
	return short(printable.Line(strings.ReplaceAll(first, context.Canceled.Error(), "interrupted")))
}
