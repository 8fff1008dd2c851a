package rolloutplan_test

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/runlevel/runlevel/internal/machines/capi/machinedeployment/rolloutplan"
)

// invariants are what a rollout keeps: no machine is made beyond what the deployment allows, and none that is available
// taken out of service below it. What was so before a change of the deployment may be worse than allowed; it must not
// become worse still.
type invariants struct {
	world    *world
	machines int // at the last check
	fewest   int // that have to be available
}

// begin takes note of a change of the deployment.
func (i *invariants) begin() {
	var available int
	i.machines, available = i.world.total()
	i.fewest = min(i.world.spec.Replicas-i.world.spec.MaxUnavailable, available)
}

// check returns what is not as it should be. Machines that were lost by accidents are none of the rollout's.
func (i *invariants) check() string {
	if i.machines == 0 { // the first check
		i.fewest = i.world.spec.Replicas - i.world.spec.MaxUnavailable
	}
	before := i.machines
	machines, available := i.world.total()
	i.machines = machines
	if most := i.world.spec.Replicas + i.world.spec.MaxSurge; machines > most && machines > before && before > 0 {
		return fmt.Sprintf("%d machines, and at most %d are allowed", machines, most)
	}
	if available+i.world.lost < i.fewest {
		return fmt.Sprintf("%d machines available, and %d have to be", available+i.world.lost, i.fewest)
	}
	return ""
}

// TestSeeds rolls out with turns in any order, left out and repeated, where machines take their time, break, heal, and
// are deleted by a person.
func TestSeeds(t *testing.T) {
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

// runSeed takes turns by chance. After a while there are no more accidents, and the rollout has to end.
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
		w.find()
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

// find counts machines that have healed as available again, once no set deletes or moves machines any more by a plan
// that was made before.
func (w *world) find() {
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

// turnOfMachines has some machines become available, or go.
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

// accident breaks a machine, or has a person delete it.
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

// TestTheResultsOfUpdatesInPlace has which machines are there at the end: those that need not be recreated.
func TestTheResultsOfUpdatesInPlace(t *testing.T) {
	for want, spec := range map[string]rolloutplan.RolloutSpec{
		"m1 m2 m4":          specOf(3, 1, 0), // m4 is made, and m3, which is moved last, is surplus
		"m1 m2 m3":          specOf(3, 0, 1),
		"m1 m2 m3 m4 m5 m7": specOf(6, 10, 0),
		"m1 m2 m3 m4 m5 m6": specOf(6, 3, 1),
	} {
		w := newWorld(spec)
		w.isInPlace = true
		w.rollOut(t, want, nil)
		if got := w.machines(); got != want {
			t.Errorf("%+v: %s, not %s:\n%s", spec, got, want, strings.Join(w.log, "\n"))
		}
	}
}
