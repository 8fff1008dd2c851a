package etcdguard

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// scene returns a snapshot of three voters on three machines, with changes: words such as "m0 deleting", "m3 added",
// "e3 learns", "e0 unhealthy".
func scene(t *testing.T, changes ...string) Snapshot {
	t.Helper()
	s := Snapshot{Voters: 3}
	for i := range 3 {
		s.Machines = append(s.Machines, newMachine(i))
		s.Members = append(s.Members, newMember(i))
	}
	s.Members[2].IsLeader = true
	for _, change := range changes {
		var kind string
		var i int
		if _, err := fmt.Sscanf(strings.Fields(change)[0], "%1s%d", &kind, &i); err != nil {
			t.Fatal(err)
		}
		apply(t, &s, kind, i, strings.Join(strings.Fields(change)[1:], " "))
	}
	return s
}

func newMachine(i int) Machine {
	return Machine{
		Name:      fmt.Sprintf("ns/m%d", i),
		IsHeld:    true,
		Addresses: []string{fmt.Sprintf("10.0.0.%d", i)},
	}
}

func newMember(i int) Member {
	return Member{
		ID:        uint64(i + 1),
		Name:      fmt.Sprintf("e%d", i),
		Addresses: []string{fmt.Sprintf("10.0.0.%d", i)},
		Health:    Healthy,
	}
}

func apply(t *testing.T, s *Snapshot, kind string, i int, change string) {
	t.Helper()
	switch change {
	case "added":
		s.Machines = append(s.Machines, newMachine(i))
		return
	case "learns", "votes":
		member := newMember(i)
		member.IsLearner = change == "learns"
		s.Members = append(s.Members, member)
		return
	}
	machine := slices.IndexFunc(s.Machines, func(m Machine) bool {
		return kind == "m" && m.Name == newMachine(i).Name
	})
	member := slices.IndexFunc(s.Members, func(m Member) bool { return kind == "e" && m.ID == newMember(i).ID })
	if machine < 0 && member < 0 {
		t.Fatalf("there is no %s%d", kind, i)
	}
	switch change {
	case "deleting":
		s.Machines[machine].IsDeleting = true
	case "free":
		s.Machines[machine].IsHeld = false
	case "cordoned":
		s.Machines[machine].IsCordoned = true
	case "guarded":
		s.Machines[machine].GuardPods = []GuardPod{{Name: "ns/guard"}}
	case "nowhere":
		s.Machines[machine].Addresses = nil
	case "on an unknown node":
		s.Machines[machine].Addresses, s.Machines[machine].IsNodeUnknown = []string{"203.0.113.9"}, true
	case "as m0":
		s.Machines[machine].Addresses = newMachine(0).Addresses
	case "asks":
		s.Machines[machine].AsksForUpdate = true
	case "may update":
		s.Machines[machine].MayUpdate = true
	case "updating":
		s.Machines[machine].IsUpdating = true
	case "in zone a":
		s.Machines[machine].Zone = "a"
	case "removed":
		s.Members = slices.Delete(s.Members, member, member+1)
	case "unstarted":
		s.Members[member].Name, s.Members[member].Health = "", Silent
	case "silent", "unhealthy":
		s.Members[member].Health = MemberHealth(change)
	default:
		t.Fatalf("no change is called %q", change)
	}
}

func TestNext(t *testing.T) {
	for _, c := range []struct {
		name    string
		changes []string
		want    string // the step as text
	}{
		{"nothing to do", nil, "wait AsExpected"},
		{"the replacement is missing", []string{"m0 deleting"}, "wait ReplacementMissing"},
		{"its member is missing", []string{"m0 deleting", "m3 added"}, "wait ReplacementMissing"},
		{"its member has not started", []string{"m0 deleting", "m3 added", "e3 learns", "e3 unstarted"},
			"wait LearnerStarts"},
		{"the replacement learns", []string{"m0 deleting", "m3 added", "e3 learns"}, "promote learner e3"},
		{"the replacement votes", []string{"m0 deleting", "m3 added", "e3 votes"}, "remove member e0"},
		{"the leader hands over", []string{"m2 deleting", "m3 added", "e3 votes"}, "move leadership e0"},
		{"all are deleted, and the first learns",
			[]string{"m0 deleting", "m1 deleting", "m2 deleting", "m3 added", "e3 learns"}, "promote learner e3"},
		{"never two voters too many",
			[]string{"m0 deleting", "m1 deleting", "m3 added", "m4 added", "e3 votes", "e4 learns"},
			"remove member e0"},
		{"one that does not lead goes first", []string{"m2 deleting", "m1 deleting", "m3 added", "e3 votes"},
			"remove member e1"},
		{"one of the crowded zone goes first",
			[]string{"m0 deleting", "m1 deleting", "m3 added", "e3 votes", "m1 in zone a", "m3 in zone a",
				"m2 in zone a"}, "remove member e1"},
		{"a learner that replaces none stays one", []string{"m3 added", "e3 learns"}, "wait AsExpected"},
		{"a voter on no machine does not answer", []string{"m0 nowhere", "e0 unhealthy", "m3 added", "e3 learns"},
			"wait UnhealthyMembers"},
		{"a voter is missing", []string{"e0 removed", "m3 added", "e3 learns"}, "promote learner e3"},
		{"a learner of a machine being deleted is removed at once", []string{"m3 added", "m3 deleting", "e3 learns"},
			"remove member e3"},
		{"even if another voter does not answer", []string{"m3 added", "m3 deleting", "e3 learns", "e0 silent"},
			"remove member e3"},
		{"an unhealthy voter of such a machine goes before its replacement is there",
			[]string{"m0 deleting", "e0 unhealthy"}, "remove member e0"},
		{"and before a healthy one", []string{"m0 deleting", "m1 deleting", "e1 unhealthy", "m3 added", "e3 votes"},
			"remove member e1"},
		{"one that has just fallen silent does not", []string{"m0 deleting", "e0 silent"}, "wait MemberSilent"},
		{"a healthy one stays while another does not answer",
			[]string{"m0 deleting", "e1 unhealthy", "m3 added", "e3 votes"}, "wait UnhealthyMembers"},
		{"no second one without a replacement", []string{"m0 deleting", "m1 deleting", "e0 removed", "m0 free"},
			"wait ReplacementMissing"},
		{"no quorum", []string{"m0 deleting", "e0 unhealthy", "e1 unhealthy"}, "wait NoQuorum"},
		{"two machines with one address", []string{"m0 deleting", "m3 added", "m3 as m0", "e3 votes"},
			"wait SharedAddress"},
		{"a guard pod that stays holds no member",
			[]string{"m0 deleting", "m0 free", "m0 cordoned", "m0 guarded", "e0 unhealthy"}, "remove member e0"},
		{"an update is requested", []string{"m0 asks"}, "permit update m0"},
		{"two updates are requested", []string{"m1 asks", "m0 asks"}, "permit update m0"},
		{"two machines that are marked wait", []string{"m1 updating", "m1 asks", "m2 updating", "m2 asks"},
			"permit update m1"},
		{"one update at a time", []string{"m0 asks", "m1 may update"}, "wait AsExpected"},
		{"an update is requested while a learner replaces none", []string{"m0 asks", "m3 added", "e3 learns"},
			"permit update m0"},
		{"a replacement comes first", []string{"m0 asks", "m1 deleting", "m3 added", "e3 learns"},
			"promote learner e3"},
		{"an administrator's removal of a hook does not change which member goes",
			[]string{"m0 deleting", "m0 free", "m3 added", "e3 votes"}, "remove member e0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := text(Next(scene(t, c.changes...))); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// Without etcd, nothing is done to members.
func TestNextWithoutEtcd(t *testing.T) {
	s := scene(t, "m0 deleting", "e0 removed")
	s.Members, s.Problem = nil, "connection refused"
	if got := text(Next(s)); got != "wait EtcdUnreachable" {
		t.Error(got)
	}
}

func TestGuardPods(t *testing.T) {
	for _, c := range []struct {
		name    string
		changes []string
		want    string
	}{
		{"on a node whose machine is being deleted", []string{"m0 deleting", "m0 free", "m0 cordoned", "m0 guarded"},
			"delete guard pod m0"},
		{"on two machines", []string{"m0 deleting", "m0 free", "m0 cordoned", "m0 guarded", "m2 deleting", "m2 free",
			"m2 cordoned", "m2 guarded"},
			"delete guard pod m0, delete guard pod m2"},
		{"on a node that takes pods it would come again", []string{"m0 deleting", "m0 free", "m0 guarded"}, ""},
		{"on a node that has a member", []string{"m0 deleting", "m0 cordoned", "m0 guarded"}, ""},
		{"on a node that stays", []string{"m0 free", "m0 cordoned", "m0 guarded"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := scene(t, c.changes...)
			s.Members, s.Problem = nil, "connection refused" // etcd is not needed
			var steps []string
			for _, step := range GuardPods(s) {
				steps = append(steps, text(step))
			}
			if got := strings.Join(steps, ", "); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

func text(step Step) string {
	short := func(name string) string { return strings.TrimPrefix(name, "ns/") }
	words := []string{string(step.Action)}
	switch step.Action {
	case Wait:
		words = append(words, step.Reason)
	case PromoteLearner, MoveLeadership, RemoveMember:
		words = append(words, step.Member.Name)
	default:
		words = append(words, short(step.Machine))
	}
	return strings.Join(words, " ")
}

func TestHold(t *testing.T) {
	for _, c := range []struct {
		name    string
		changes []string
		machine int
		want    string // the beginning
	}{
		{"a member is on it", []string{"m0 deleting"}, 0,
			"etcd member e0 (1) is on this machine: 3 voting members are required"},
		{"a learner is on it", []string{"m3 added", "m3 deleting", "e3 learns"}, 3,
			"etcd member e3 (4) is on this machine: learner e3 (4) is removed"},
		{"one that has not started is on it", []string{"m3 added", "e3 learns", "e3 unstarted"}, 3,
			"etcd member 10.0.0.3 (4) is on this machine"},
		{"its member was removed", []string{"m0 deleting", "m3 added", "e3 votes", "e0 removed"}, 0, ""},
		{"it was never started", []string{"m3 added", "m3 deleting", "m3 nowhere"}, 3, ""},
		{"its addresses are lost", []string{"m0 deleting", "m0 nowhere"}, 0,
			"the machine has no addresses, and may be that of etcd members that are on no known machine: e0 (1)"},
		{"its node may be another host's", []string{"m0 deleting", "m0 on an unknown node"}, 0,
			"the Node with the name in the machine's nodeRef may be its own or"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := scene(t, c.changes...)
			if got := Hold(s, s.Machines[c.machine]); !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
	s := Snapshot{Voters: 3, Problem: "connection refused"}
	if got := Hold(s, newMachine(0)); got != "the members of etcd are not known: connection refused" {
		t.Errorf("%q", got)
	}
}

func TestPermit(t *testing.T) {
	for _, c := range []struct {
		name    string
		changes []string // m0 asks
		want    string
	}{
		{"all is well", nil, ""},
		{"one voter more than wanted", []string{"m3 added", "e3 votes"}, ""},
		{"its own update continues", []string{"m0 updating", "m0 may update"}, ""},
		{"a machine without a member is being deleted", []string{"m3 added", "m3 deleting"}, ""},
		{"another voter is silent", []string{"e1 silent"}, "these voting members of etcd do not answer: e1 (2)"},
		{"its own voter is unhealthy", []string{"e0 unhealthy"}, "these voting members of etcd do not answer: e0 (1)"},
		{"a voter on no machine is silent", []string{"m3 added", "e3 votes", "m3 nowhere", "e3 silent"},
			"these voting members of etcd do not answer: e3 (4)"},
		{"a voter is missing", []string{"e1 removed"}, "etcd has 2 of 3 voting members"},
		{"a learner that replaces no voter", []string{"m3 added", "e3 learns"}, ""},
		{"such a learner does not answer", []string{"m3 added", "e3 learns", "e3 unhealthy"}, ""},
		{"a learner that replaces a voter", []string{"m1 deleting", "m3 added", "e3 learns"},
			"these members of etcd are on machines that are being deleted: e1 (2)"},
		{"another machine is being deleted", []string{"m1 deleting"},
			"these members of etcd are on machines that are being deleted: e1 (2)"},
		{"its own machine is being deleted", []string{"m0 deleting"},
			"these members of etcd are on machines that are being deleted: e0 (1)"},
		{"its replacement votes", []string{"m1 deleting", "m3 added", "e3 votes"},
			"these members of etcd are on machines that are being deleted: e1 (2)"},
		{"another machine is being updated", []string{"m2 updating"}, "machine ns/m2 is being updated"},
		{"another machine is marked, and waits as well", []string{"m2 updating", "m2 asks"}, ""},
		{"another machine is marked, and may be updated", []string{"m2 updating", "m2 may update"},
			"machine ns/m2 is being updated"},
		{"another machine is about to be updated", []string{"m1 may update"}, "machine ns/m1 may be updated first"},
		{"its addresses are lost", []string{"m0 nowhere"}, ""},
		{"all addresses are lost", []string{"m0 nowhere", "m1 nowhere"},
			"without member e0 (1), e1 (2), 1 of 3 voting members of etcd would answer, and 2 have to; add members, " +
				"or replace the machine instead"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := scene(t, append([]string{"m0 asks"}, c.changes...)...)
			if got := Permit(s, s.Machines[0]); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
			if step := Next(s); (step.Action == PermitUpdate) != (c.want == "") {
				t.Errorf("the next step is %+v", step)
			}
		})
	}
}

// Etcd with fewer than three voters needs all of its voters.
func TestPermitOfFewMembers(t *testing.T) {
	for wanted, changes := range map[int][]string{1: {"e1 removed", "e2 removed"}, 2: {"e2 removed"}} {
		s := scene(t, append(changes, "m0 asks")...)
		s.Voters = wanted
		want := fmt.Sprintf("without member e0 (1), %d of %d voting members of etcd would answer", wanted-1, wanted)
		if got := Permit(s, s.Machines[0]); !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	s := Snapshot{Voters: 3, Problem: "connection refused"}
	if got := Permit(s, newMachine(0)); got != "the members of etcd are not known: connection refused" {
		t.Errorf("%q", got)
	}
}
