package controlplane

import (
	"fmt"
	"strings"
	"testing"
	"time"

	machinev1 "github.com/openshift/api/machine/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/runlevel/runlevel/internal/machines/replicas"
)

// parseMachines reads machines such as "0:old,new- 1:old/": for each index, older machines first. A machine whose name
// begins with "old" is outdated; "-" marks an unready machine, "/" one being deleted, "!" a failed one.
func parseMachines(text string) []Machine {
	var machines []Machine
	created := time.Unix(0, 0)
	for slot := range strings.FieldsSeq(text) {
		value, names, _ := strings.Cut(slot, ":")
		index := 0
		_, _ = fmt.Sscan(value, &index)
		for name := range strings.SplitSeq(names, ",") {
			created = created.Add(time.Hour)
			plain := strings.TrimRight(name, "-/!")
			m := Machine{
				Name: plain + "-" + value, Index: index, Created: created, Owner: replicas.Ours, Detail: "Phase",
				IsOutdated: strings.HasPrefix(plain, "old"), IsReady: !strings.ContainsAny(name, "-!"),
				IsDeleting: strings.Contains(name, "/"),
			}
			if strings.Contains(name, "!") {
				m.Error = "no capacity"
			}
			machines = append(machines, m)
		}
	}
	return machines
}

func describePlan(p Plan) string {
	var parts []string
	for _, name := range p.Delete {
		parts = append(parts, "delete "+name)
	}
	for _, index := range p.Create {
		parts = append(parts, fmt.Sprintf("create %d", index))
	}
	return strings.Join(parts, ", ")
}

func TestRollingUpdate(t *testing.T) {
	for _, test := range []struct{ machines, want, wait string }{
		{"0:new 1:new 2:new", "", ""},
		{"0:old 1:old 2:old", "create 0", ""},
		{"0:old,new- 1:old 2:old", "", "machine new-0 is not ready (Phase)"},
		{"0:old,new 1:old 2:old", "delete old-0", ""},
		{"0:old/,new 1:old 2:old", "", "machine old-0 is being deleted (Phase)"},
		{"0:new 1:old 2:old", "create 1", ""},
		{"0:new 1:new", "create 2", ""},
		{"1:old 2:new", "create 0", ""}, // a missing machine comes before an outdated one
		{"0:old 1:new", "create 2", ""},
		{"2:new 3:new 4:new", "", ""},
		{"2:old 3:new", "create 0", ""},
		// A machine is down.
		{"0:old 1:old- 2:old", "delete old-1, create 1", ""},
		{"0:old 1:new- 2:old", "", "machine new-1 is not ready"},
		{"0:old 1:new 2:new-", "", "machine new-2 is not ready"},
		{"0:old,new 1:new- 2:old", "", "machine old-0 is not deleted while fewer than 3 others are ready"},
		{"0:old 1:old- 2:old-", "create 1", "machine old-1 is not deleted while fewer than 2 others are ready"},
		{"0:old 1:old-,new 2:old-", "delete old-1, delete old-2", ""},
		{"0:old-,new 1:old- 2:old-", "", "machine old-0 is not deleted while fewer than 2"},
		// Machines are deleted by hand, one and two at a time.
		{"0:new/ 1:new 2:new", "create 0", "machine new-0 is being deleted"},
		{"0:new/ 1:new/ 2:new", "create 0", "machine new-1 is being deleted"},
		{"0:new/,next- 1:new/ 2:new", "", "machine next-0 is not ready"},
		{"0:new/,next 1:new/ 2:new", "", "machine new-0 is being deleted"},
		{"0:next 1:new/ 2:new", "create 1", ""},
		{"0:old/ 1:old 2:new", "create 0", ""},
		// The template is changed while a machine starts, and changed back.
		{"0:old,oldish- 1:old 2:old", "delete oldish-0", ""},
		{"0:new,old- 1:old 2:old", "delete old-0", ""},
		{"0:old,oldish 1:old 2:old", "delete old-0", ""},
		// Two machines of an index are wanted.
		{"0:new,next 1:new 2:new", "delete new-0", ""},
		{"0:new,next 1:new/ 2:new-", "", "machine new-0 is not deleted while fewer than 3"},
	} {
		plan := planReplacement(machinev1.RollingUpdate, 3, slotsOf(3, parseMachines(test.machines)))
		if got := describePlan(plan); got != test.want || !strings.Contains(strings.Join(plan.Waits, "; "), test.wait) {
			t.Errorf("%s: %q, want %q; waits: %q, want %q", test.machines, got, test.want, plan.Waits, test.wait)
		}
	}
}

func TestOnDelete(t *testing.T) {
	for _, test := range []struct{ machines, want, wait string }{
		{"0:old 1:old 2:old", "", "machine old-1 needs an update: delete it to have it replaced"},
		{"0:old/ 1:old 2:old", "create 0", "machine old-0 is being deleted"},
		{"0:new/ 1:old/ 2:old", "create 0, create 1", ""},
		{"0:old/,new- 1:old 2:old", "", "machine new-0 is not ready"},
		{"0:old/,new/ 1:old 2:old", "", "machine new-0 is being deleted"},
		{"0:new 1:old", "create 2", ""},
	} {
		plan := planReplacement(machinev1.OnDelete, 3, slotsOf(3, parseMachines(test.machines)))
		if got := describePlan(plan); got != test.want || !strings.Contains(strings.Join(plan.Waits, "; "), test.wait) {
			t.Errorf("%s: %q, want %q; waits: %q, want %q", test.machines, got, test.want, plan.Waits, test.wait)
		}
	}
}

// TestEachRollingUpdateEnds simulates updates in which machines go down, come back and are deleted by a user. The
// controller never deletes a machine that leaves fewer than a quorum of others, and in the end all are up to date.
func TestEachRollingUpdateEnds(t *testing.T) {
	for seed := range 500 {
		rand.Seed(int64(seed))
		wanted := 3 + 2*(seed%2)
		var machines []Machine
		for index := range wanted {
			machines = append(machines,
				Machine{Name: fmt.Sprint("old-", index), Index: index, IsOutdated: true, IsReady: true})
		}
		for step := range 400 {
			if step < 40 {
				disturb(machines)
			}
			machines = play(t, seed, wanted, machines)
		}
		for _, m := range machines {
			if !m.IsUpToDate() || len(machines) != wanted {
				t.Fatalf("seed %d: it does not end: %+v", seed, machines)
			}
		}
	}
}

// disturb lets a random machine fail, be deleted, or become outdated.
func disturb(machines []Machine) {
	if len(machines) == 0 || rand.Intn(3) > 0 {
		return
	}
	m := &machines[rand.Intn(len(machines))]
	switch rand.Intn(4) {
	case 0:
		m.IsReady = false
	case 1:
		m.IsDeleting = true
	case 2:
		m.IsOutdated = true
	}
}

// play executes a plan, and has one machine start, or go.
func play(t *testing.T, seed, wanted int, machines []Machine) []Machine {
	t.Helper()
	slots := slotsOf(wanted, machines)
	plan := planRollingUpdate(wanted, slots)
	going := map[string]bool{}
	for _, name := range plan.Delete {
		if ready := readyBesides(slots, name, going); ready < wanted/2+1 {
			t.Fatalf("seed %d: %s is deleted while %d others are ready: %+v", seed, name, ready, machines)
		}
		going[name] = true
	}
	if len(plan.Create) > 0 && len(machines) > wanted {
		t.Fatalf("seed %d: machines for %v are created beside %+v", seed, plan.Create, machines)
	}
	if len(machines) > 0 {
		switch m := &machines[rand.Intn(len(machines))]; {
		case m.IsDeleting:
			going[m.Name+"/"] = true
		default:
			m.IsReady = true
		}
	}
	var left []Machine
	for _, m := range machines {
		m.IsDeleting = m.IsDeleting || going[m.Name]
		if !going[m.Name+"/"] {
			left = append(left, m)
		}
	}
	for _, index := range plan.Create {
		left = append(left, Machine{Name: rand.String(8), Index: index, Created: time.Now()})
	}
	return left
}
