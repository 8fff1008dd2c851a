package etcdguard

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

const (
	seeds        = 400
	troubleSteps = 60  // steps that delete machines and make members unreachable
	calmSteps    = 200 // steps in which all work has to end
)

// A world is machines with a set that replaces them, members that come with them, and an administrator.
type world struct {
	*testing.T
	Snapshot
	random  *rand.Rand
	next    int // the number of the next machine
	surge   int // how many machines there are beside those of the voters
	updates int // number of permitted updates
}

// TestRandomWorlds deletes and updates machines, silences members and removes hooks at random, and performs each step
// that the guard decides. A step must leave a quorum of healthy voters and change one thing, and must not release a
// machine that has a member. When the accidents end, all deletions must end, and all updates must be permitted.
func TestRandomWorlds(t *testing.T) {
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { liveThrough(t, seed) })
	}
}

func liveThrough(t *testing.T, seed uint64) {
	w := newWorld(t, seed)
	for range troubleSteps {
		w.trouble()
		w.step()
	}
	for i := range w.Members {
		w.Members[i].Health = Healthy
	}
	w.comeToRest()
}

// TestRandomUpdates lets machines be deleted and updated at random, while no member fails of itself: etcd never loses
// its quorum.
func TestRandomUpdates(t *testing.T) {
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t, seed)
			for range 2 * troubleSteps {
				if machine := &w.Machines[w.random.IntN(len(w.Machines))]; w.random.IntN(8) == 0 {
					machine.IsDeleting = true
				} else {
					w.ask(machine)
				}
				w.step()
				if v := newView(w.Snapshot); v.healthy < Quorum(len(v.voters)) {
					t.Fatalf("%d of %d voters answer: %+v", v.healthy, len(v.voters), w.Snapshot)
				}
			}
			w.comeToRest()
			if w.updates == 0 {
				t.Error("no update was permitted")
			}
		})
	}
}

// newWorld creates a world with three members, or five, and in every other one with a machine more, as a rollout makes
// one first.
func newWorld(t *testing.T, seed uint64) *world {
	w := &world{T: t, Snapshot: scene(t), random: rand.New(rand.NewPCG(seed, 1)), next: 3}
	w.surge = w.random.IntN(2)
	if w.random.IntN(2) == 0 {
		w.Voters, w.next = 5, 5
		for i := 3; i < 5; i++ {
			w.Machines, w.Members = append(w.Machines, newMachine(i)), append(w.Members, newMember(i))
		}
	}
	return w
}

// step has each controller do something, the guard last.
func (w *world) step() {
	w.advance()
	w.update()
	w.release()
	for _, step := range GuardPods(w.Snapshot) {
		w.perform(step)
	}
	w.perform(Next(w.Snapshot))
}

// comeToRest lets all deletions and updates complete.
func (w *world) comeToRest() {
	for range calmSteps {
		w.step()
	}
	isBusy := slices.ContainsFunc(w.Machines, func(m Machine) bool {
		return m.IsDeleting || m.AsksForUpdate
	})
	if step := Next(w.Snapshot); isBusy || step.Reason != AsExpected ||
		len(newView(w.Snapshot).voters) != w.Voters {
		w.Errorf("got step %s with %+v, want %s with %d voters", text(step), w.Snapshot, AsExpected, w.Voters)
	}
}

// trouble does what users and failures may do.
func (w *world) trouble() {
	machine := &w.Machines[w.random.IntN(len(w.Machines))]
	switch w.random.IntN(7) {
	case 0:
		machine.IsDeleting = true
	case 1: // an administrator does not wait; the last machines of a quorum are none of those
		if machine.IsDeleting && w.isSpare(*machine) {
			machine.IsHeld = false
		}
	case 2:
		w.fall()
	case 3:
		for i := range w.Members {
			w.Members[i].Health = Healthy
		}
	case 4:
		for i := range w.Members {
			if w.Members[i].Health == Silent {
				w.Members[i].Health = Unhealthy
			}
		}
	case 5:
		leader := w.random.IntN(len(w.Members))
		for i := range w.Members {
			w.Members[i].IsLeader = i == leader && !w.Members[i].IsLearner && w.Members[i].Health == Healthy
		}
	case 6:
		w.ask(machine)
	}
}

// ask makes a control plane ask for an update in place.
func (w *world) ask(machine *Machine) {
	machine.AsksForUpdate = machine.AsksForUpdate || !machine.IsDeleting && !machine.MayUpdate && !machine.IsUpdating
}

// update has permitted updates begin and end. Members do not answer meanwhile.
func (w *world) update() {
	for i := range w.Machines {
		machine := &w.Machines[i]
		if !machine.MayUpdate && !machine.IsUpdating || w.random.IntN(2) == 0 {
			continue
		}
		machine.MayUpdate, machine.IsUpdating = false, machine.MayUpdate
		for index := range w.Members {
			switch member := &w.Members[index]; {
			case !machine.hosts(*member):
			case machine.IsUpdating:
				member.Health, member.IsLeader = Silent, false
			default:
				member.Health = Healthy
			}
		}
	}
}

// permit permits an update, and checks that no other member may be missing meanwhile.
func (w *world) permit(machine *Machine) {
	for _, other := range w.Machines {
		if other.Name != machine.Name && (other.IsUpdating || other.MayUpdate) {
			w.Fatalf("%s may be updated together with %s", machine.Name, other.Name)
		}
	}
	for _, member := range w.Members {
		if !member.IsLearner && member.Health != Healthy {
			w.Fatalf("%s may be updated while %s does not answer", machine.Name, member.Name)
		}
	}
	if !w.isSpare(*machine) {
		w.Fatalf("%s may be updated, but the quorum needs its member", machine.Name)
	}
	machine.AsksForUpdate, machine.MayUpdate = false, true
	w.updates++
}

// fall silences a member: seldom one that the quorum needs.
func (w *world) fall() {
	v := newView(w.Snapshot)
	member := &w.Members[w.random.IntN(len(w.Members))]
	isSpare := member.IsLearner || member.Health != Healthy || v.healthy > Quorum(len(v.voters))
	if isSpare || w.random.IntN(4) == 0 {
		member.Health, member.IsLeader = Silent, false
	}
}

// isSpare returns whether there is a quorum without the members of a machine.
func (w *world) isSpare(machine Machine) bool {
	v := newView(w.Snapshot)
	healthy := v.healthy
	for _, voter := range v.voters {
		if machine.hosts(voter.Member) && voter.Health == Healthy {
			healthy--
		}
	}
	return healthy >= Quorum(len(v.voters))
}

// advance lets the set create machines, starts members, and removes deleted machines that no hook holds.
func (w *world) advance() {
	for i := 0; i < len(w.Machines); i++ {
		machine := w.Machines[i]
		switch {
		case !machine.IsDeleting || machine.IsHeld:
		case !machine.IsCordoned:
			w.Machines[i].IsCordoned = true
		case len(machine.GuardPods) == 0 && !slices.ContainsFunc(w.Members, machine.hosts):
			w.Machines = slices.Delete(w.Machines, i, i+1)
			i--
		}
	}
	replicas := 0
	for _, machine := range w.Machines {
		if !machine.IsDeleting {
			replicas++
		}
	}
	if replicas < w.Voters+w.surge && w.random.IntN(2) == 0 {
		machine := newMachine(w.next)
		machine.Zone = fmt.Sprint(w.random.IntN(3))
		machine.GuardPods = []GuardPod{{Name: "ns/guard-" + machine.Name}}
		w.Machines = append(w.Machines, machine)
		w.next++
	}
	learns := slices.ContainsFunc(w.Members, func(m Member) bool { return m.IsLearner })
	for _, machine := range w.Machines {
		if learns || machine.IsDeleting || slices.ContainsFunc(w.Members, machine.hosts) || w.random.IntN(2) == 0 {
			continue
		}
		var number int
		if _, err := fmt.Sscanf(machine.Name, "ns/m%d", &number); err != nil {
			w.Fatal(err)
		}
		learner := newMember(number)
		learner.IsLearner = true
		w.Members = append(w.Members, learner)
		learns = true
	}
}

// release removes the hooks of machines that nothing holds.
func (w *world) release() {
	for i, machine := range w.Machines {
		if !machine.IsDeleting || !machine.IsHeld || Hold(w.Snapshot, machine) != "" {
			continue
		}
		if slices.ContainsFunc(w.Members, machine.hosts) {
			w.Fatalf("%s may go, and has a member", machine.Name)
		}
		w.Machines[i].IsHeld = false
	}
}

// perform executes a step, and checks that it is allowed.
func (w *world) perform(step Step) {
	before := newView(w.Snapshot)
	machine := slices.IndexFunc(w.Machines, func(m Machine) bool { return m.Name == step.Machine })
	member := slices.IndexFunc(w.Members, func(m Member) bool { return m.ID == step.Member.ID })
	switch step.Action {
	case Wait:
		return
	case DeleteGuardPod:
		w.Machines[machine].GuardPods = nil
	case PromoteLearner:
		w.Members[member].IsLearner = false
	case MoveLeadership:
		for i := range w.Members {
			w.Members[i].IsLeader = i == member
		}
	case RemoveMember:
		removed := w.Members[member]
		if !w.Machines[machine].IsDeleting || !w.Machines[machine].hosts(removed) {
			w.Fatalf("%s: its machine is not being deleted", text(step))
		}
		if removed.IsLeader {
			w.Errorf("%s: it leads", text(step))
		}
		w.Members = slices.Delete(w.Members, member, member+1)
	case PermitUpdate:
		w.permit(&w.Machines[machine])
	}
	w.checkVoters(step, before, newView(w.Snapshot))
}

// checkVoters checks the voters after a step.
func (w *world) checkVoters(step Step, before, after view) {
	least := w.Voters
	if step.Member.Health != Healthy {
		least--
	}
	switch {
	case len(after.voters) == len(before.voters):
	case before.healthy < Quorum(len(before.voters)):
		w.Fatalf("%s without a quorum", text(step))
	case step.Member.Health == Silent:
		w.Fatalf("%s, which may only be restarting", text(step))
	case after.healthy < Quorum(len(after.voters)),
		len(after.voters) < least && step.Action == RemoveMember, len(after.voters) > w.Voters+1:
		w.Fatalf("%s leaves %d of %d voters healthy", text(step), after.healthy, len(after.voters))
	}
}
