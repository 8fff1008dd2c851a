package deletion_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/runlevel/runlevel/internal/machines/deletion"
)

// TestRandomDeletions deletes machines while hooks come and go, pods are refused and allowed, infrastructure answers at
// random and the adapter forgets what it did not record. What must never happen is checked at each step. Then all
// that holds the machine is taken away, and the deletion has to end.
func TestRandomDeletions(t *testing.T) {
	for seed := range uint64(3000) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := randomDeletion{T: t, world: newWorld(""), random: rand.New(rand.NewPCG(seed, 26))}
			r.begin()
			for range 60 {
				r.disturb()
				r.check()
				if r.released {
					return
				}
			}
			r.heal()
			for range 200 {
				r.check()
				if r.released {
					return
				}
			}
			t.Fatalf("it does not end: %+v", r.snapshot())
		})
	}
}

type randomDeletion struct {
	*testing.T
	*world
	random *rand.Rand
	names  int
}

// chance is true once in n times.
func (r *randomDeletion) chance(n int) bool { return r.random.IntN(n) == 0 }

func (r *randomDeletion) hook() deletion.DeletionHook {
	r.names++
	return deletion.DeletionHook{Name: fmt.Sprintf("Hook%d", r.names), Owner: "owner"}
}

// begin makes a machine.
func (r *randomDeletion) begin() {
	if !r.chance(6) {
		r.node = deletion.MachineNode{Name: "n1", IsControlPlane: r.chance(3), IsGone: r.chance(10), IsCordoned: r.chance(6)}
	}
	r.isExcluded = r.chance(8)
	r.infrastructure.exists = !r.chance(8)
	r.infrastructure.goesAfter = time.Duration(r.random.IntN(60)) * time.Second
	for i := range r.random.IntN(4) {
		r.pods = append(r.pods, &worldPod{
			name: fmt.Sprintf("p%d", i), isRefused: r.chance(3), endsAfter: time.Duration(r.random.IntN(40)-1) * time.Second,
		})
	}
	for range r.random.IntN(3) {
		r.preDrain = append(r.preDrain, r.hook())
	}
	for range r.random.IntN(3) {
		r.preTerminate = append(r.preTerminate, r.hook())
	}
}

// disturb changes something.
func (r *randomDeletion) disturb() {
	switch r.random.IntN(16) {
	case 0:
		r.preDrain = append(r.preDrain, r.hook())
	case 1:
		r.preTerminate = append(r.preTerminate, r.hook())
	case 2, 3, 4:
		r.preDrain = dropLast(r.preDrain)
	case 5, 6, 7:
		r.preTerminate = dropLast(r.preTerminate)
	case 8:
		r.infrastructure.problem, r.infrastructure.retryAfter = "busy", time.Duration(r.random.IntN(9))*time.Second
	case 9:
		r.infrastructure.problem = ""
	case 10:
		r.drain = deletion.Drain{IsDone: r.drain.IsDone} // the adapter restarts
	case 11:
		r.node.OthersCordoned = slices.Repeat([]string{"cp1"}, r.random.IntN(2))
	case 12:
		for _, pod := range r.pods {
			pod.isRefused = r.chance(2)
		}
	case 13:
		r.node.IsCordoned = r.chance(2)
	case 14:
		r.isExcluded = r.chance(4)
	case 15:
		r.infrastructure.exists = r.infrastructure.exists && !r.chance(4)
	}
	r.advance(time.Duration(r.random.IntN(20)) * time.Second)
}

// heal takes away all that holds the machine.
func (r *randomDeletion) heal() {
	r.preDrain, r.preTerminate, r.node.OthersCordoned, r.infrastructure.problem = nil, nil, nil, ""
	for _, pod := range r.pods {
		pod.isRefused = false
		pod.endsAfter = max(pod.endsAfter, 0)
	}
}

func dropLast[T any](list []T) []T { return list[:max(0, len(list)-1)] }

// check does a step, and checks what must be true of each.
func (r *randomDeletion) check() {
	r.Helper()
	before := r.snapshot()
	step := r.next()
	complain := func(words string) { r.Errorf("%s: %+v of %+v", words, step, before) }
	isSkipped := before.IsExcluded || before.Node.Name == ""
	switch step.Action {
	case deletion.DeleteInfrastructure:
		if len(before.PreTerminate) > 0 {
			complain("infrastructure is deleted in spite of a hook")
		}
		if !before.Drain.IsDone {
			complain("infrastructure is deleted before the drain is over")
		}
	case deletion.Cordon, deletion.Evict:
		if len(before.PreDrain) > 0 || isSkipped {
			complain("the node is touched in spite of a hook, or though it is excluded")
		}
		if before.Node.IsControlPlane && !before.Node.IsCordoned && len(before.Node.OthersCordoned) > 0 {
			complain("two nodes of the control plane are drained")
		}
	case deletion.RecordDrained:
		if !before.Node.IsGone && (len(before.Drain.Left) > 0 || before.Drain.Problem != "") {
			complain("recorded as drained with pods left")
		}
	case deletion.SkipDrain:
		if !isSkipped {
			complain("a drain is skipped that is due")
		}
	case deletion.DeleteNode, deletion.Release:
		if before.Infrastructure.Exists || !before.Drain.IsDone {
			complain("the end comes before the infrastructure is gone")
		}
		if step.Action == deletion.Release && before.Node.Name != "" && !before.Node.IsGone {
			complain("a node is left behind")
		}
	case deletion.Wait:
		if step.Reason == "" || step.Message == "" {
			complain("a wait without a reason")
		}
		r.advance(max(step.After, time.Second))
	default:
		complain("no action")
	}
	isDraining := slices.Contains([]deletion.DeletionAction{
		deletion.Cordon, deletion.Evict, deletion.RecordDrained, deletion.SkipDrain,
	}, step.Action)
	if before.Drain.IsDone && (isDraining || step.Stage == deletion.BeforeDrain || step.Stage == deletion.Draining) {
		complain("a drain is repeated")
	}
}
