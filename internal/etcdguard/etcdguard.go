// Package etcdguard decides how the members of an etcd cluster follow the machines that they run on: when the machine
// of a voting member is being deleted, which step comes next, so that the cluster never loses its quorum; and how long
// the deletion is held; and when a machine may be updated in place. It is pure: the result, a Step, depends on a
// Snapshot alone, without clock, cluster or memory.
//
// A step changes one thing: a member, a pod or the permission for an update. It is derived from the state in etcd and
// in the API server, so that a guard that was killed continues with a new snapshot.
//
// Start with Next, GuardPods, Hold and Permit; the rules are in rules.go and updates.go.
package etcdguard

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A Snapshot is the state of the machines of the control plane and of the members of etcd at one time.
type Snapshot struct {
	// Voters is the desired number of voting members. It can't be derived from the machines: while one is
	// being replaced there are more, or fewer.
	Voters   int
	Machines []Machine
	Members  []Member
	// Problem is the reason why the members are not known; empty if they are.
	Problem string
}

// A Machine is a machine of the control plane, which an etcd member may run on.
type Machine struct {
	Name       string // namespace and name
	IsDeleting bool
	IsHeld     bool // a hook of the guard holds the drain of its node
	// HeldSince is since when it is being deleted, if a hook of the guard holds that; zero for others.
	HeldSince  time.Time
	Addresses  []string // its hosts, to find the members on it
	Zone       string   // the topology zone of its node; empty if it is not known
	IsCordoned bool     // its node is unschedulable
	GuardPods  []GuardPod
	// IsNodeUnknown is true if it is not known whether the Node with the name in its nodeRef is its own: the addresses
	// of that Node, which may be another host's, are not among its own.
	IsNodeUnknown bool

	AsksForUpdate bool // an update in place is requested, and not permitted yet
	MayUpdate     bool // an update in place was permitted, and may begin at any moment
	IsUpdating    bool // whether the machine is being updated in place
}

// A GuardPod is a pod that blocks a drain of its node.
type GuardPod struct {
	Name string // namespace and name
	UID  types.UID
}

// A Member is a member of the etcd cluster.
type Member struct {
	ID        uint64
	Name      string   // empty until it has started for the first time
	Addresses []string // the hosts of its URLs
	IsLearner bool
	IsLeader  bool
	Health    MemberHealth
}

// A MemberHealth is the health of a member.
type MemberHealth string

// The values of MemberHealth.
const (
	Healthy   MemberHealth = "healthy"   // a voter has answered a read that needs the quorum; a learner has answered
	Silent    MemberHealth = "silent"    // it does not answer now, and may only be restarting
	Unhealthy MemberHealth = "unhealthy" // it has not answered for longer than the patience
)

// A Step is the next step of the guard.
type Step struct {
	Action  Action
	Reason  string // a reason in CamelCase
	Message string
	Machine string // machine of the member or pod; empty for none
	Member  Member
	Pod     GuardPod
}

// AsExpected is the reason of a step that waits for nothing.
const AsExpected = "AsExpected"

// An Action is the action of a step. After each action but Wait, the adapters take a new snapshot.
type Action string

// The actions.
const (
	Wait           Action = "wait"
	DeleteGuardPod Action = "delete guard pod"
	PromoteLearner Action = "promote learner"
	MoveLeadership Action = "move leadership" // the target is the member of the step
	RemoveMember   Action = "remove member"
	PermitUpdate   Action = "permit update" // an update in place of the step's machine
)

// Quorum returns the quorum of a number of voters.
func Quorum(voters int) int { return voters/2 + 1 }

// Next returns the next step, apart from those of GuardPods.
func Next(s Snapshot) Step {
	v := newView(s)
	for _, rule := range rules {
		if step, ok := rule(v); ok {
			return step
		}
	}
	return Step{Action: Wait, Reason: AsExpected}
}

// Counts contains the numbers of members.
type Counts struct {
	Voters, Learners int
	Healthy          int // voters that answer
	Leaving          int // voters on machines being deleted
}

// Count counts the members.
func Count(s Snapshot) Counts {
	v := newView(s)
	return Counts{
		Voters:   len(v.voters),
		Learners: len(v.learners),
		Healthy:  v.healthy,
		Leaving:  len(filterByPlace(v.voters, leaving)),
	}
}

// Hold returns why the deletion of a machine is held; empty if no member can be on it. While a member is on no known
// machine, it may be on a machine without addresses, or on one whose Node may be another host's.
func Hold(s Snapshot, machine Machine) string {
	v := newView(s)
	lost := filterByPlace(slices.Concat(v.voters, v.learners), unplaced)
	hosted := slices.DeleteFunc(slices.Concat(v.voters, v.learners), func(m placedMember) bool {
		return !machine.hosts(m.Member)
	})
	next := Next(s)
	switch {
	case s.Problem != "":
		return "the members of etcd are not known: " + s.Problem
	case len(machine.Addresses) == 0 && len(lost) > 0:
		return fmt.Sprintf("the machine has no addresses, and may be that of etcd members that are on no known "+
			"machine: %s", list(lost))
	case machine.IsNodeUnknown && len(lost) > 0:
		return fmt.Sprintf("the Node with the name in the machine's nodeRef may be its own or that of another host, "+
			"and etcd members are on no known "+
			"machine: %s; give that Node its providerID, or remove the members", list(lost))
	case len(hosted) == 0:
		return ""
	case next.Reason == AsExpected:
		return fmt.Sprintf("etcd member %s is on this machine", list(hosted))
	}
	return fmt.Sprintf("etcd member %s is on this machine: %s", list(hosted), next.Message)
}

// A view is a snapshot with the places of its members.
type view struct {
	Snapshot
	voters, learners []placedMember
	healthy          int // voters
}

// A placedMember is a member, and its machine.
type placedMember struct {
	Member
	machine Machine // without a name if it is not known
	place   place
}

type place string

const (
	staying  place = "staying"  // a machine that stays
	leaving  place = "leaving"  // a machine being deleted
	shared   place = "shared"   // machines of both kinds, by their addresses
	unplaced place = "unplaced" // no known machine
)

func newView(s Snapshot) view {
	v := view{Snapshot: s}
	for _, member := range s.Members {
		placed := placeMember(s.Machines, member)
		if member.IsLearner {
			v.learners = append(v.learners, placed)
			continue
		}
		v.voters = append(v.voters, placed)
		if member.Health == Healthy {
			v.healthy++
		}
	}
	return v
}

func placeMember(machines []Machine, member Member) placedMember {
	placed := placedMember{Member: member, place: unplaced}
	for _, machine := range machines {
		if !machine.hosts(member) {
			continue
		}
		here := staying
		if machine.IsDeleting {
			here = leaving
		}
		if placed.place != unplaced && placed.place != here {
			here = shared
		}
		placed.place, placed.machine = here, machine
	}
	return placed
}

// hosts reports whether a member is on the machine, by its addresses.
func (m Machine) hosts(member Member) bool {
	return slices.ContainsFunc(member.Addresses, func(address string) bool {
		return slices.Contains(m.Addresses, address)
	})
}

// filterByPlace returns the members in one of some places.
func filterByPlace(members []placedMember, places ...place) []placedMember {
	return slices.DeleteFunc(slices.Clone(members), func(m placedMember) bool {
		return !slices.Contains(places, m.place)
	})
}

// notHealthy returns the members that do not answer.
func notHealthy(members []placedMember) []placedMember {
	return slices.DeleteFunc(slices.Clone(members), func(m placedMember) bool { return m.Health == Healthy })
}

func (m placedMember) String() string {
	name := m.Name
	if name == "" {
		name = strings.Join(m.Addresses, ", ")
	}
	return fmt.Sprintf("%s (%x)", name, m.ID)
}

func list(members []placedMember) string {
	names := make([]string, len(members))
	for i, member := range members {
		names[i] = member.String()
	}
	return strings.Join(names, ", ")
}
