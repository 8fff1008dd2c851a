package controlplane

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
)

// newMachines returns machines by their names and marks, such as "a outdated down".
func newMachines(lines ...string) []Machine {
	var machines []Machine
	for i, line := range lines {
		words := strings.Fields(line)
		m := Machine{Name: words[0], Created: time.Unix(int64(i), 0), HasNode: true}
		for _, mark := range words[1:] {
			switch mark {
			case "outdated":
				m.Outdated = []string{"Version"}
			case "expired":
				m.Outdated, m.IsReplaced = []string{"expired"}, true
			case "down":
				m.IsBroken, m.Problem = true, "it is down"
			case "soon":
				m.Problem = "it is not available yet"
			case "starting":
				m.HasNode, m.IsBroken, m.Problem = false, true, "it has no Node yet"
			case "deleting":
				m.IsDeleting, m.Problem = true, "it is drained"
			case "held":
				m.IsDeleting, m.IsHeld, m.Problem = true, true, "a hook holds it"
			case "marked":
				m.IsUpdating, m.Problem = true, "it begins"
			case "updating":
				m.IsUpdating, m.IsTriggered, m.Problem = true, true, "it is updated"
			case "chosen":
				m.IsChosen = true
			default:
				m.FailureDomain = mark
			}
		}
		machines = append(machines, m)
	}
	return machines
}

func TestNextStep(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		surge    int
		machines []string
		want     string
	}{
		{"the first machine", 1, nil, "create"},
		{"the second waits for the first", 1, []string{"a starting"}, "wait: Machine a: it has no Node yet"},
		{"the second", 1, []string{"a"}, "create"},
		{"a broken first machine", 1, []string{"a down"}, "wait: Machine a: it is down"},
		{"all is well", 1, []string{"a", "b", "c"}, ""},
		{"a new machine first", 1, []string{"a outdated", "b outdated", "c outdated"}, "create"},
		{"then the oldest", 1, []string{"a outdated", "b outdated", "c outdated", "d"}, "update a"},
		{"without surge, the oldest", 0, []string{"a outdated", "b outdated", "c outdated"}, "update a"},
		{"not before the new one has joined", 1, []string{"a outdated", "b outdated", "c outdated", "d starting"},
			"wait: Machine d: it has no Node yet"},
		{"not while another is down", 0, []string{"a outdated", "b outdated", "c down"}, "wait: Machine c: it is down"},
		{"a broken machine is replaced", 0, []string{"a outdated", "b outdated down", "c"}, "delete b"},
		{"a broken machine is replaced before a surge", 1, []string{"a outdated", "b outdated down", "c"}, "delete b"},
		{"one that will be available is not replaced", 0, []string{"a outdated", "b outdated", "c outdated soon"},
			"wait: Machine c: it is not available yet"},
		{"nor is the only outdated one", 0, []string{"a outdated soon", "b", "c"},
			"wait: Machine a: it is not available yet"},
		{"nor before a surge", 1, []string{"a outdated soon", "b", "c"}, "wait: Machine a: it is not available yet"},
		{"two that are down are left", 0, []string{"a outdated down", "b outdated down", "c outdated"},
			"wait: Machine b: it is down"},
		{"one that never joined goes first", 1,
			[]string{"a outdated", "b outdated", "c outdated", "d outdated starting"}, "delete d"},
		{"the last one is too many", 1, []string{"a", "b", "c outdated", "d"}, "delete c"},
		{"an expired one is replaced", 0, []string{"a expired", "b", "c"}, "delete a"},
		{"a chosen one is replaced first", 0, []string{"a outdated", "b outdated chosen", "c"}, "delete b"},
		{"the largest failure domain first", 0, []string{"a outdated x", "b outdated y", "c outdated y"}, "update b"},
		{"one update at a time", 0, []string{"a updating", "b outdated", "c outdated"},
			"wait: Machine a is updated in place: it is updated"},
		{"an update that has begun continues", 0, []string{"a marked", "b outdated", "c outdated"}, "continue a"},
		{"but not before the machine is touched while another is down", 0, []string{"a marked", "b outdated down", "c"},
			"wait: Machine b: it is down"},
		{"nor while another goes", 1, []string{"a marked", "b deleting", "c", "d"},
			"wait: Machine b is being deleted: it is drained"},
		{"a machine deleted meanwhile is replaced", 0, []string{"a updating", "b held", "c"}, "create"},
		{"also before the machine is touched", 0, []string{"a marked", "b held", "c"}, "create"},
		{"once the machine is deleted", 0, []string{"a updating", "c"}, "create"},
		{"a deletion ends first", 1, []string{"a deleting", "b outdated", "c outdated", "d"},
			"wait: Machine a is being deleted: it is drained"},
		{"a deletion that makes room ends first", 1, []string{"a deleting", "b", "c"},
			"wait: Machine a is being deleted: it is drained"},
		{"a hook holds a deletion until there is a replacement", 1, []string{"a held", "b", "c"}, "create"},
		{"one replacement at a time", 1, []string{"a held", "b held", "c", "d starting"},
			"wait: Machine d: it has no Node yet"},
		{"no more than one too many", 1, []string{"a held", "b held", "c", "d"},
			"wait: Machine a is being deleted: a hook holds it"},
		{"fewer machines are wanted", 1, []string{"a", "b", "c", "d", "e"}, "delete a"},
		{"fewer machines, and one is down", 1, []string{"a", "b", "c", "d down"}, "delete d"},
		{"fewer machines, and one has not joined", 1, []string{"a", "b", "c", "d starting"}, "delete d"},
		{"fewer machines, and two are down", 1, []string{"a", "b", "c", "d down", "e down"},
			"wait: Machine e: it is down"},
		{"fewer machines, and others", 1,
			[]string{"a outdated", "b outdated", "c outdated", "d outdated", "e outdated"}, "update a"},
	} {
		step := nextStep(3, c.surge, newMachines(c.machines...))
		got := strings.TrimSpace(fmt.Sprint(step.Action, " ", step.Machine))
		if len(step.Waits) > 0 {
			got = "wait: " + step.Waits[0]
		}
		if diff := gocmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestChoiceOfFailureDomain(t *testing.T) {
	t.Parallel()
	machines := newMachines("a x", "b y", "c z deleting")
	if got := failureDomainFor([]string{"x", "y", "z"}, machines); got != "z" {
		t.Errorf("got %q, want z", got)
	}
	// The machines that are up to date are spread.
	machines = newMachines("a x", "b y outdated", "c z outdated")
	if got := failureDomainFor([]string{"x", "y", "z"}, machines); got != "y" {
		t.Errorf("got %q, want y", got)
	}
	if got := failureDomainFor(nil, machines); got != "" {
		t.Errorf("got %q, want none", got)
	}
}

// A simulatedPlane is a control plane in which machines start, end and fail at random.
type simulatedPlane struct {
	random        *rand.Rand
	wanted, surge int
	canUpdate     bool
	isGuarded     bool // a hook holds deletions until as many machines as wanted stay
	machines      []Machine
	made          int
}

// do does a step, and returns an error if it is one that must not be done now.
func (s *simulatedPlane) do(step Step) error {
	i := slices.IndexFunc(s.machines, func(m Machine) bool { return m.Name == step.Machine })
	if step.Action != CreateMachine && step.Action != "" {
		if others := s.unavailable(step.Machine); others > 0 && s.machines[i].HasNode {
			return fmt.Errorf("%s %s while %d others are not available", step.Action, step.Machine, others)
		}
	}
	switch step.Action {
	case CreateMachine:
		s.made++
		s.machines = append(s.machines, Machine{
			Name:     fmt.Sprint("m", s.made),
			Created:  time.Unix(int64(s.made), 0),
			IsBroken: true,
			Problem:  "starting",
		})
		if len(s.machines) > s.wanted+1 {
			return fmt.Errorf("%d machines", len(s.machines))
		}
	case DeleteMachine:
		s.delete(i)
	case UpdateMachine, ContinueMachine:
		switch m := &s.machines[i]; {
		case !s.canUpdate:
			s.delete(i)
		case s.random.IntN(3) == 0: // and the next write fails
			m.IsUpdating, m.Problem = true, "marked"
		default:
			m.IsUpdating, m.IsTriggered, m.Problem, m.Outdated = true, true, "updating", nil
		}
	}
	return nil
}

func (s *simulatedPlane) delete(index int) {
	m := &s.machines[index]
	m.IsDeleting, m.IsHeld, m.Problem = true, s.isGuarded && m.HasNode, "deleting"
}

// unavailable counts the machines that have joined and are not available, except for one.
func (s *simulatedPlane) unavailable(except string) int {
	count := 0
	for _, m := range s.machines {
		if m.Name != except && m.HasNode && m.Problem != "" {
			count++
		}
	}
	return count
}

// pass lets time pass: a machine starts, is updated, or is removed if nothing holds its deletion.
func (s *simulatedPlane) pass() {
	s.random.Shuffle(len(s.machines), func(i, j int) { s.machines[i], s.machines[j] = s.machines[j], s.machines[i] })
	// The member of a machine whose update is only marked votes.
	available := len(filter(s.machines, func(m Machine) bool {
		return m.Problem == "" || !m.IsDeleting && m.IsUpdating && !m.IsTriggered
	}))
	for i := range s.machines {
		switch m := &s.machines[i]; {
		case m.IsDeleting && m.IsHeld && available >= s.wanted:
			m.IsHeld = false
			return
		case m.IsDeleting && !m.IsHeld:
			s.machines = slices.Delete(s.machines, i, i+1)
			return
		case !m.IsDeleting && m.Problem != "" && m.IsTriggered == m.IsUpdating:
			*m = Machine{Name: m.Name, Created: m.Created, Outdated: m.Outdated, HasNode: true}
			return
		}
	}
}

// TestRandomControlPlanes simulates rollouts, with machines that fail, are deleted by a user, or change meanwhile: no
// step is done while another machine is not available, and each ends with machines that are all up to date.
func TestRandomControlPlanes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 0))
		s := &simulatedPlane{
			random:    random,
			wanted:    1 + 2*random.IntN(3),
			canUpdate: random.IntN(2) == 0,
			isGuarded: random.IntN(2) == 0,
		}
		s.surge = cmp.Or(s.surge, random.IntN(2))
		if s.wanted == 1 {
			s.surge = 1
		}
		var log []string
		for turn := range 300 {
			step := nextStep(s.wanted, s.surge, s.machines)
			log = append(log, fmt.Sprint(turn, " ", step, " ", len(s.machines)))
			if err := s.do(step); err != nil {
				t.Fatalf("seed %d: %v\n%s", seed, err, strings.Join(log, "\n"))
			}
			if turn < 200 {
				s.disturb()
			}
			s.pass()
		}
		if step := nextStep(s.wanted, s.surge, s.machines); step.Action != "" || len(step.Waits) > 0 ||
			len(s.machines) != s.wanted {
			t.Fatalf("seed %d: it ends with %+v\n%s", seed, s.machines, strings.Join(log, "\n"))
		}
	}
}

// disturb sometimes changes the template, or lets a machine fail, or deletes one: also while an update is marked, but
// its machine is not changed yet.
func (s *simulatedPlane) disturb() {
	if len(s.machines) == 0 {
		return
	}
	isWhole := !slices.ContainsFunc(s.machines, func(m Machine) bool {
		return m.HasNode && m.Problem != "" && m.IsTriggered == m.IsUpdating
	})
	index := s.random.IntN(len(s.machines))
	switch s.random.IntN(30) {
	case 0:
		for i := range s.machines {
			s.machines[i].Outdated = []string{"Version"}
		}
	case 1:
		if m := &s.machines[index]; m.Problem == "" && isWhole {
			m.IsBroken, m.Problem = s.random.IntN(2) == 0, "down"
		}
	case 2:
		if isWhole && s.wanted > 1 {
			s.delete(index)
		}
	}
}
