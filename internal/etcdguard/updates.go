package etcdguard

import (
	"fmt"
	"slices"
)

// permitUpdate permits an update in place. It is the last rule: no member has to be changed, and none is missing.
func permitUpdate(v view) (Step, bool) {
	for _, machine := range v.Machines {
		if machine.AsksForUpdate && v.whyNoUpdate(machine) == "" {
			return Step{
				Action: PermitUpdate, Machine: machine.Name, Reason: "UpdateAllowed",
				Message: fmt.Sprintf("machine %s may be updated in place: all %d voting members of etcd answer, and "+
					"no other machine is being updated",
					machine.Name, len(v.voters)),
			}, true
		}
	}
	return Step{}, false
}

// Permit returns why an update in place of a machine is not permitted; empty if it is. During the update, the member of
// the machine may stop answering; no other voter may be missing then. A learner does not count for the quorum, and is
// not promoted until a voter must be replaced: if a rollout creates a machine first, its member stays a learner until
// another machine is deleted.
func Permit(s Snapshot, machine Machine) string {
	return newView(s).whyNoUpdate(machine)
}

func (v view) whyNoUpdate(machine Machine) string {
	members := slices.Concat(v.voters, v.learners)
	silent, deleted, lost := notHealthy(v.voters), filterByPlace(members, leaving, shared), v.lostWith(machine)
	left, quorum := len(v.voters)-len(lost), Quorum(len(v.voters))
	switch busy := v.otherUpdate(machine); {
	case v.Problem != "":
		return "the members of etcd are not known: " + v.Problem
	case len(silent) > 0:
		return fmt.Sprintf("these voting members of etcd do not answer: %s", list(silent))
	case len(v.voters) < v.Voters:
		return fmt.Sprintf("etcd has %d of %d voting members", len(v.voters), v.Voters)
	case len(deleted) > 0:
		return fmt.Sprintf("these members of etcd are on machines that are being deleted: %s", list(deleted))
	case busy != "":
		return busy
	case len(lost) > 0 && left < quorum:
		return fmt.Sprintf("without member %s, %d of %d voting members of etcd would answer, and %d have to; add "+
			"members, or replace the machine instead",
			list(lost), left, len(v.voters), quorum)
	}
	return ""
}

// otherUpdate returns which other machine is being updated, or may be at any moment. A marked machine that waits for
// the permission of its first call, is not: two of these would wait for each other.
func (v view) otherUpdate(machine Machine) string {
	for _, other := range v.Machines {
		switch {
		case other.Name == machine.Name:
		case other.IsUpdating && !other.AsksForUpdate:
			return fmt.Sprintf("machine %s is being updated", other.Name)
		case other.MayUpdate:
			return fmt.Sprintf("machine %s may be updated first", other.Name)
		}
	}
	return ""
}

// lostWith returns the voters that may stop answering with a machine. If none has an address of the machine, each voter
// without a known machine may be on it.
func (v view) lostWith(machine Machine) []placedMember {
	hosted := slices.DeleteFunc(slices.Clone(v.voters), func(m placedMember) bool {
		return !machine.hosts(m.Member)
	})
	if len(hosted) == 0 {
		return filterByPlace(v.voters, unplaced)
	}
	return hosted
}
