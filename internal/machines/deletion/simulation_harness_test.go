package deletion_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/runlevel/runlevel/internal/machines/deletion"
)

// A world is a machine that is deleted, with all that a Snapshot is taken of, and an adapter that does the steps.
type world struct {
	dialect        deletion.Dialect
	now            time.Duration
	preDrain       []deletion.DeletionHook
	preTerminate   []deletion.DeletionHook
	isExcluded     bool
	node           deletion.MachineNode
	pods           []*worldPod
	drain          deletion.Drain
	infrastructure worldInfrastructure
	released       bool
	did            []deletion.DeletionAction
	capi           clusterAPIWorld
}

// A worldPod is a pod on the node.
type worldPod struct {
	name      string
	isRefused bool
	endsAfter time.Duration // from the eviction on; less than zero means never
	evicted   bool
	gone      time.Duration
}

// worldInfrastructure is what the machine runs on.
type worldInfrastructure struct {
	exists     bool
	isDeleting bool
	goesAfter  time.Duration // from its deletion on; less than zero means never
	gone       time.Duration
	finalizers []string
	problem    string
	retryAfter time.Duration
}

func newWorld(node string) *world {
	return &world{
		dialect: deletion.OpenShift, node: deletion.MachineNode{Name: node},
		infrastructure: worldInfrastructure{exists: true},
	}
}

// advance has time pass.
func (w *world) advance(by time.Duration) {
	w.now += by
	w.pods = slices.DeleteFunc(w.pods, func(p *worldPod) bool { return p.evicted && p.endsAfter >= 0 && p.gone <= w.now })
	i := &w.infrastructure
	if i.exists && i.isDeleting && i.goesAfter >= 0 && i.gone <= w.now {
		i.exists = false
	}
}

func (w *world) snapshot() deletion.Snapshot {
	i := w.infrastructure
	return deletion.Snapshot{
		PreDrain: w.preDrain, PreTerminate: w.preTerminate, IsExcluded: w.isExcluded, Node: w.node, Drain: w.drain,
		ClusterAPI: w.clusterAPIFacts(),
		Infrastructure: deletion.Infrastructure{
			Exists: i.exists, IsDeleting: i.isDeleting, Name: "KwokMachine demo/a", Finalizers: i.finalizers,
			Problem: i.problem, RetryAfter: i.retryAfter,
		},
	}
}

// next does one step, and returns it.
func (w *world) next() deletion.DeletionStep {
	step := w.dialect.Next(w.snapshot())
	w.did = append(w.did, step.Action)
	switch step.Action {
	case deletion.Cordon:
		w.node.IsCordoned = true
	case deletion.Evict:
		w.evict()
	case deletion.SkipDrain, deletion.RecordDrained:
		w.drain.IsDone = true
	case deletion.DeleteInfrastructure:
		w.infrastructure.isDeleting = true
		w.infrastructure.gone = w.now + w.infrastructure.goesAfter
	case deletion.DeleteNode:
		w.node.IsGone = true
	case deletion.Release:
		w.released = true
	case deletion.Wait:
		w.drain.HasLooked = false // the next pass looks again
	}
	if w.capi.isUsed {
		w.nextOfClusterAPI(step)
	}
	w.advance(0)
	return step
}

// evict evicts the pods, as a drain does.
func (w *world) evict() {
	var left []string
	isStuck := false
	for _, pod := range w.pods {
		switch {
		case pod.isRefused && !pod.evicted:
			isStuck = true
			left = append(left, fmt.Sprintf("pod %s: a budget allows no disruption", pod.name))
			continue
		case !pod.evicted:
			pod.evicted, pod.gone = true, w.now+pod.endsAfter
		}
		if pod.endsAfter != 0 {
			left = append(left, fmt.Sprintf("pod %s ends", pod.name))
		}
	}
	w.drain = w.drain.Evicted(left, isStuck, "")
}

// pass does steps until one waits or lets go, and returns them.
func (w *world) pass() []deletion.DeletionStep {
	var steps []deletion.DeletionStep
	for {
		step := w.next()
		steps = append(steps, step)
		if step.Action == deletion.Wait || step.Action == deletion.Release {
			return steps
		}
	}
}

// describeStep writes a step as a line of a transcript.
func describeStep(now time.Duration, step deletion.DeletionStep) string {
	line := fmt.Sprintf("%6s  %-15s %-21s %s", now, step.Stage, step.Action, step.Reason)
	if step.Message != "" {
		line += ": " + step.Message
	}
	if step.After > 0 {
		line += fmt.Sprintf(" [again after %s]", step.After)
	}
	return strings.TrimRight(line, " ")
}
