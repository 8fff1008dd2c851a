package rolloutplan_test

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/runlevel/runlevel/internal/machines/capi/machinedeployment/rolloutplan"
)

// invariants are the limits that a rollout keeps: it creates no more machines than the deployment allows, and keeps the
// required number available. After a change of the deployment, the numbers may exceed the new limits, but the rollout
// must not move them further away.
type invariants struct {
	world    *world
	machines int // machines at the last check
	fewest   int // fewest machines that must be available
}

// begin sets the limits after a change of the deployment.
func (i *invariants) begin() {
	var available int
	i.machines, available = i.world.total()
	i.fewest = min(i.world.spec.Replicas-i.world.spec.MaxUnavailable, available)
}

// check returns the limit that the rollout exceeds; "" if it exceeds none. Machines that were lost by accidents count
// as available.
func (i *invariants) check() string {
	if i.machines == 0 { // the first check
		i.fewest = i.world.spec.Replicas - i.world.spec.MaxUnavailable
	}
	before := i.machines
	machines, available := i.world.total()
	i.machines = machines
	if most := i.world.spec.Replicas + i.world.spec.MaxSurge; machines > most && machines > before && before > 0 {
		return fmt.Sprintf("got %d machines, want at most %d", machines, most)
	}
	if available+i.world.lost < i.fewest {
		return fmt.Sprintf("got %d machines available, want %d", available+i.world.lost, i.fewest)
	}
	return ""
}

// TestRolloutWithRandomTurns runs controllers in random order, while machines start slowly, break, recover, and are
// deleted by a person.
func TestRolloutWithRandomTurns(t *testing.T) {
	for seed := range 100 {
		for _, replicas := range []int{3, 6, 12} {
			for limits := range 16 {
				for _, isInPlace := range []bool{false, true} {
					w := newWorld(specOf(replicas, limits/4, limits%4))
					w.isInPlace, w.isSlow = isInPlace, true
					name := fmt.Sprintf("seed %d, %+v, in place %t", seed, w.spec, isInPlace)
					w.runSeed(t, name, rand.New(rand.NewSource(int64(seed))))
				}
			}
		}
	}
}

// runSeed runs random controllers. After a while, accidents stop, and the rollout must end.
func (w *world) runSeed(t *testing.T, name string, chance *rand.Rand) {
	t.Helper()
	const accidents, turns = 60, 5000
	limits, changeAt := &invariants{world: w}, 20+chance.Intn(60)
	for turn := range turns {
		if turn == changeAt && chance.Intn(2) == 0 {
			w.template = 3
			w.logf("the template changes")
		}
		if turn < accidents && chance.Intn(8) == 0 {
			w.accident(chance)
		} else {
			w.randomTurn(chance)
		}
		w.countRecovered()
		if problem := limits.check(); problem != "" {
			t.Fatalf("%s: %s after\n%s", name, problem, strings.Join(w.log, "\n"))
		}
		if turn > max(accidents, changeAt) && w.isSettled() {
			return
		}
	}
	t.Fatalf("%s does not end:\n%s", name, strings.Join(w.log, "\n"))
}

func (w *world) randomTurn(chance *rand.Rand) {
	turns := []func(){w.turnOfDeployment, func() { w.turnOfMachines(chance) }}
	for _, set := range w.sets {
		turns = append(turns, func() { w.turnOfSet(set) })
	}
	turns[chance.Intn(len(turns))]()
}

// countRecovered counts recovered machines as available again, once no set deletes or moves machines by an earlier
// plan.
func (w *world) countRecovered() {
	for _, set := range w.sets {
		if len(set.machines) > set.replicas {
			return
		}
	}
	for _, set := range w.sets {
		for _, m := range set.machines {
			if m.isLost && m.isAvailable() {
				m.isLost = false
				w.lost--
			}
		}
	}
}

// turnOfMachines sets some machines available, and removes some deleted ones.
func (w *world) turnOfMachines(chance *rand.Rand) {
	for _, set := range w.sets {
		set.machines = slices.DeleteFunc(set.machines, func(m *worldMachine) bool {
			if chance.Intn(2) == 0 {
				return false
			}
			m.isStarting = false
			m.isBroken = m.isBroken && chance.Intn(2) == 0
			return m.isDeleting
		})
	}
}

// accident breaks or deletes a machine.
func (w *world) accident(chance *rand.Rand) {
	set := w.sets[chance.Intn(len(w.sets))]
	if len(set.machines) == 0 {
		return
	}
	m := set.machines[chance.Intn(len(set.machines))]
	if !m.isStarting && !m.isDeleting && !m.isLost {
		m.isLost = true
		w.lost++
	}
	if chance.Intn(3) > 0 {
		w.logf("%s breaks", m)
		m.isBroken = true
		return
	}
	w.logf("%s is deleted by a person", m)
	m.isDeleting = true
}

// TestRolloutInPlaceKeepsMachines compares the machines at the end of rollouts in place.
func TestRolloutInPlaceKeepsMachines(t *testing.T) {
	for want, spec := range map[string]rolloutplan.RolloutSpec{
		"m1 m2 m4":          specOf(3, 1, 0), // m4 is created, and m3, the last one to move, is surplus
		"m1 m2 m3":          specOf(3, 0, 1),
		"m1 m2 m3 m4 m5 m7": specOf(6, 10, 0),
		"m1 m2 m3 m4 m5 m6": specOf(6, 3, 1),
	} {
		w := newWorld(spec)
		w.isInPlace = true
		w.rollOut(t, want, nil)
		if got := w.machines(); got != want {
			t.Errorf("%+v: got %s, want %s:\n%s", spec, got, want, strings.Join(w.log, "\n"))
		}
	}
}
