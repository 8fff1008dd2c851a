package apply

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/printable"
	"github.com/runlevel/runlevel/pkg/record"
)

// How often the record is told how the run stands, for those who look from elsewhere: not of
// a run that is over before anybody asks, and then only of what has changed.
const (
	noteFirst = 3 * time.Second
	noteEvery = 10 * time.Second
)

// How much it is told: enough to say of any object of a large release what it waits for, and
// a tenth of what a record may hold.
const (
	mostSteps  = 500
	mostWaits  = 100
	mostBefore = 10 // nodes that one waits for
	mostText   = 1000
)

// noteStanding notes in the record how the run stands, until the function that it returns is
// called.
func (r *run) noteStanding(ctx context.Context) (stop func()) {
	return now(ctx, func(ctx context.Context) {
		timer := time.NewTimer(noteFirst)
		defer timer.Stop()
		var noted *record.Run
		for {
			select {
			case <-timer.C:
			case <-ctx.Done():
				return
			}
			waits, _ := r.waits()
			if standing := r.standing(waits); !standing.Same(noted) && r.noteRun(standing, waits) == nil {
				noted = standing
			}
			timer.Reset(noteEvery)
		}
	})
}

// noteRun lets others know, who look at the record.
func (r *run) noteRun(standing *record.Run, waits []Wait) error {
	return r.options.Journal.Note(r.requests, func(known *record.Record) {
		known.Run, known.Waits = standing, nil
		known.Fingerprints = r.options.Fingerprints.Over(known.Fingerprints)
		for _, wait := range waits[:min(mostWaits, len(waits))] {
			known.Waits = append(known.Waits, record.Wait{ID: wait.ID, For: wait.For, Since: metav1.NewTime(wait.Since)})
		}
	})
}

// standing is how the run stands, with what is waited for.
func (r *run) standing(waits []Wait) *record.Run {
	r.walking.Lock()
	defer r.walking.Unlock()
	standing := &record.Run{
		Version: r.options.Version, Mode: string(r.options.Mode), Told: metav1.NewTime(r.cluster.Now().UTC().Truncate(time.Second)),
		Error: r.lateFor,
	}
	if r.walked == nil {
		return standing
	}
	left, places := r.left(waits), map[int]int{}
	room := mostSteps
	for node := range r.order.graph.Nodes {
		steps := left[node]
		if len(steps) == 0 { // all of it is done, or there is nothing in it
			continue
		}
		places[node] = len(standing.Nodes)
		kept := min(room, len(steps))
		room -= kept
		standing.More += len(steps) - kept
		standing.Nodes = append(standing.Nodes, record.Node{Name: r.nameOf(node), State: string(r.walked.State(node)), Steps: steps[:kept]})
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

// blockers are the nodes with something left to do that a node waits for: first those that
// tell most, which run or have failed.
func (r *run) blockers(node int, left map[int][]record.Step) []int {
	blockers := slices.DeleteFunc(r.walked.WhyBlocked(node), func(blocker int) bool { return len(left[blocker]) == 0 })
	isBlocked := func(node int) int {
		if r.walked.State(node) == graph.Blocked {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(blockers, func(a, b int) int { return cmp.Compare(isBlocked(a), isBlocked(b)) })
	return blockers
}

// left are the steps that are not done, by node.
func (r *run) left(waits []Wait) map[int][]record.Step {
	awaited, left := byID(waits), map[int][]record.Step{}
	r.mu.Lock()
	defer r.mu.Unlock()
	for node := range r.order.graph.Nodes {
		for _, i := range r.order.graph.Nodes[node].Tasks {
			if step, isLeft := r.leftOf(i, awaited); isLeft {
				left[node] = append(left[node], step)
			}
		}
	}
	return left
}

// byID are waits by what is waited for.
func byID(waits []Wait) map[kinds.ID]Wait {
	awaited := map[kinds.ID]Wait{}
	for _, wait := range waits {
		awaited[wait.ID] = wait
	}
	return awaited
}

// leftOf is what a step has left to do, if anything.
func (r *run) leftOf(i int, awaited map[kinds.ID]Wait) (record.Step, bool) {
	m := r.order.steps[i].Manifest
	step := record.Step{ID: m.ID(), File: m.Path, State: record.Blocked, Deletes: m.IsTombstone()}
	failure := cmp.Or(r.unready[m], r.changes[i].Err)
	wait, isAwaited := awaited[step.ID]
	switch {
	case failure != nil:
		step.State, step.For, step.Reason = record.Failed, short(printable.Line(failure.Err.Error())), failure.Reason
	case isAwaited:
		step.State, step.For, step.Reason, step.Since = record.Waiting, short(wait.For), wait.Reason, new(metav1.NewTime(wait.Since))
		if wait.IsRetry {
			step.State = record.Retrying
		}
	case r.changes[i].Action != object.NotDone:
		return step, false
	default:
		step.Awaits = r.awaitedBy(i, awaited)
	}
	return step, true
}

// awaitedBy is what a step can't begin without, if that is not ready.
func (r *run) awaitedBy(i int, awaited map[kinds.ID]Wait) *kinds.ID {
	for _, need := range r.order.needs[i] {
		id := r.order.steps[need].ID()
		if _, isAwaited := awaited[id]; isAwaited {
			return &id
		}
	}
	return nil
}

// short is a text, as much of it as is kept.
func short(text string) string {
	if len(text) <= mostText {
		return text
	}
	return strings.ToValidUTF8(text[:mostText], "") + "…"
}

// firstLine is what an error says first.
func firstLine(err error) string {
	first, _, _ := strings.Cut(err.Error(), "\n")
	first = strings.TrimSuffix(first, ":") // behind which the errors stood
	return short(printable.Line(strings.ReplaceAll(first, context.Canceled.Error(), "interrupted")))
}
