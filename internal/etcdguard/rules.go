package etcdguard

import (
	"cmp"
	"fmt"
	"slices"
)

// A rule returns the step that is due, or false if none is by it.
type rule func(view) (GuardStep, bool)

// rules are looked through from the top. A member that is of no use to the quorum goes before one that is.
var rules = []rule{
	deleteGuardPod, awaitMembers, removeLearner, awaitQuorum, removeUnhealthy, removeHealthy, promote, awaitReplacement,
}

// deleteGuardPod deletes pods that would keep a drain from a node whose machine may go. Their disruption budget is there
// for nodes that have a member. On a node that takes pods they would be made again.
func deleteGuardPod(v view) (GuardStep, bool) {
	for _, machine := range v.Machines {
		if machine.IsDeleting && !machine.IsHeld && machine.IsCordoned && len(machine.GuardPods) > 0 {
			return GuardStep{
				Action: DeleteGuardPod, Machine: machine.Name, Pod: machine.GuardPods[0], Reason: "GuardPodDeleted",
				Message: fmt.Sprintf("guard pod %s would hold the drain of a node that is to go", machine.GuardPods[0]),
			}, true
		}
	}
	return GuardStep{}, false
}

// awaitMembers waits until the members are known.
func awaitMembers(v view) (GuardStep, bool) {
	return GuardStep{Action: Wait, Reason: "EtcdUnreachable", Message: v.Problem}, v.Problem != ""
}

// removeLearner removes learners of machines that are being deleted. They do not vote.
func removeLearner(v view) (GuardStep, bool) {
	for _, learner := range in(v.learners, leaving) {
		return GuardStep{
			Action: RemoveMember, Machine: learner.machine.Name, Member: learner.EtcdMember, Reason: "LearnerRemoved",
			Message: fmt.Sprintf("learner %s is removed: its machine is being deleted", learner),
		}, true
	}
	return GuardStep{}, false
}

// awaitQuorum changes nothing while so few voters answer that no change would be agreed on, or one would be too many.
func awaitQuorum(v view) (GuardStep, bool) {
	quorum := Quorum(len(v.voters))
	return GuardStep{Action: Wait, Reason: "NoQuorum", Message: fmt.Sprintf(
		"%d of %d voting members answer, and %d have to: members are not changed; these do not answer: %s",
		v.healthy, len(v.voters), quorum, list(notHealthy(v.voters)))}, v.healthy < quorum
}

// removeUnhealthy removes a voter that does not answer, before its replacement is there: it votes for nothing, and the
// others need one vote less without it.
func removeUnhealthy(v view) (GuardStep, bool) {
	if len(v.voters) < v.Voters {
		return GuardStep{}, false
	}
	for _, voter := range in(v.voters, leaving) {
		if voter.Health != Unhealthy {
			continue
		}
		return GuardStep{
			Action: RemoveMember, Machine: voter.machine.Name, Member: voter.EtcdMember, Reason: "UnhealthyMemberRemoved",
			Message: fmt.Sprintf("member %s is removed: it does not answer, and its machine is being deleted; %d of the other %d voting members answer",
				voter, v.healthy, len(v.voters)-1),
		}, true
	}
	return GuardStep{}, false
}

// removeHealthy removes a voter whose replacement votes. The leader hands over first: without one, etcd accepts no writes
// until it has elected another.
func removeHealthy(v view) (GuardStep, bool) {
	candidates := in(v.voters, leaving)
	if len(candidates) == 0 || len(v.voters) <= v.Voters || v.healthy < len(v.voters) {
		return GuardStep{}, false
	}
	voter := slices.MinFunc(candidates, v.goesFirst)
	if heirs := in(v.voters, staying); voter.IsLeader && len(heirs) > 0 {
		return GuardStep{
			Action: MoveLeadership, Machine: voter.machine.Name, Member: heirs[0].EtcdMember, Reason: "LeadershipMoved",
			Message: fmt.Sprintf("member %s leads, and is to be removed: %s leads from now on", voter, heirs[0]),
		}, true
	}
	return GuardStep{
		Action: RemoveMember, Machine: voter.machine.Name, Member: voter.EtcdMember, Reason: "MemberRemoved",
		Message: fmt.Sprintf("member %s is removed: its machine is being deleted, and %d other voting members answer", voter, v.healthy-1),
	}, true
}

// goesFirst compares two voters of which one is to go: the one in the zone with more of them, then the one that does not
// lead, then the one with the smaller ID.
func (v view) goesFirst(a, b placedMember) int {
	crowd := func(m placedMember) int {
		count := 0
		for _, other := range v.voters {
			if other.machine.Zone == m.machine.Zone {
				count++
			}
		}
		return count
	}
	rank := func(m placedMember) int {
		if m.IsLeader {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(crowd(b), crowd(a)), cmp.Compare(rank(a), rank(b)), cmp.Compare(a.ID, b.ID))
}

// promote has a learner vote that replaces a voter, or is missing. There is never more than one voter too many: with each
// one, more have to agree.
func promote(v view) (GuardStep, bool) {
	if len(v.voters) > v.Voters || !v.lacksVoter() {
		return GuardStep{}, false
	}
	for _, learner := range in(v.learners, staying) {
		if learner.Name == "" || learner.Health != Healthy {
			continue
		}
		return GuardStep{
			Action: PromoteLearner, Machine: learner.machine.Name, Member: learner.EtcdMember, Reason: "LearnerPromoted",
			Message: fmt.Sprintf("learner %s becomes a voting member, beside %d others", learner, len(v.voters)),
		}, true
	}
	return GuardStep{}, false
}

// lacksVoter returns whether there are fewer voters than wanted once those that leave are gone.
func (v view) lacksVoter() bool { return len(v.voters)-len(in(v.voters, leaving)) < v.Voters }

// awaitReplacement says what members of machines that are being deleted wait for, and voters that are missing.
func awaitReplacement(v view) (GuardStep, bool) {
	silent, learners, members := notHealthy(v.voters), in(v.learners, staying), slices.Concat(v.voters, v.learners)
	isSilent := func(m placedMember) bool { return m.Health == Silent }
	step := GuardStep{Action: Wait}
	switch {
	case !v.lacksVoter() && len(silent) == 0 && len(in(members, leaving, shared)) == 0:
		return step, false
	case len(in(silent, leaving)) == len(silent) && slices.ContainsFunc(silent, isSilent):
		step.Reason = "MemberSilent"
		step.Message = fmt.Sprintf("members of machines that are being deleted do not answer, and may only be restarting: %s", list(silent))
	case len(in(silent, leaving)) < len(silent):
		step.Reason = "UnhealthyMembers"
		step.Message = fmt.Sprintf("no member that answers is removed while others do not: %s; have them answer, delete their machines, or remove them (etcdctl member remove)", list(silent))
	case len(in(members, shared)) > 0:
		step.Reason = "SharedAddress"
		step.Message = fmt.Sprintf("these members are, by their addresses, on a machine that is being deleted and on one that is not: %s",
			list(in(members, shared)))
	case v.lacksVoter() && len(learners) > 0:
		step.Reason = "LearnerStarts"
		step.Message = fmt.Sprintf("waiting for learners to start: %s", list(learners))
	default:
		step.Reason = "ReplacementMissing"
		step.Message = fmt.Sprintf("%d voting members are wanted on machines that stay, and %d are there: waiting for another machine of the control plane, and a learner on it",
			v.Voters, len(v.voters)-len(in(v.voters, leaving)))
	}
	return step, true
}
