package etcdguard

import (
	"cmp"
	"fmt"
	"slices"
)

// A rule returns the next step, or false if the rule does not apply.
type rule func(view) (Step, bool)

// rules are evaluated in order. Members that do not answer are removed before members that do.
var rules = []rule{
	awaitMembers, removeLearner, awaitQuorum, removeUnhealthy, removeHealthy, promote, awaitReplacement, permitUpdate,
}

// GuardPods returns the steps that delete pods which would block the drain of a node whose machine may be deleted.
// Their disruption budget is for nodes that have a member. On a schedulable node they would be created again. These
// steps are apart from Next, and need no etcd: a pod that can't be deleted holds no member.
func GuardPods(s Snapshot) []Step {
	var steps []Step
	for _, machine := range s.Machines {
		if !machine.IsDeleting || machine.IsHeld || !machine.IsCordoned {
			continue
		}
		for _, pod := range machine.GuardPods {
			steps = append(steps, Step{
				Action: DeleteGuardPod, Machine: machine.Name, Pod: pod, Reason: "GuardPodDeleted",
				Message: fmt.Sprintf("guard pod %s would block the drain of a node whose machine is being deleted",
					pod.Name),
			})
		}
	}
	return steps
}

// awaitMembers waits until the members are known.
func awaitMembers(v view) (Step, bool) {
	return Step{Action: Wait, Reason: "EtcdUnreachable", Message: v.Problem}, v.Problem != ""
}

// removeLearner removes learners of machines being deleted. They do not vote.
func removeLearner(v view) (Step, bool) {
	for _, learner := range filterByPlace(v.learners, leaving) {
		return Step{
			Action: RemoveMember, Machine: learner.machine.Name, Member: learner.Member, Reason: "LearnerRemoved",
			Message: fmt.Sprintf("learner %s is removed: its machine is being deleted", learner),
		}, true
	}
	return Step{}, false
}

// awaitQuorum waits while fewer voters than the quorum answer: etcd can't agree on a change, or would lose its quorum
// by one.
func awaitQuorum(v view) (Step, bool) {
	quorum := Quorum(len(v.voters))
	return Step{Action: Wait, Reason: "NoQuorum", Message: fmt.Sprintf(
		"%d of %d voting members answer, and %d have to: members are not changed; these do not answer: %s",
		v.healthy, len(v.voters), quorum, list(notHealthy(v.voters)))}, v.healthy < quorum
}

// removeUnhealthy removes a voter that does not answer, before its replacement exists: it does not vote, and the
// quorum may be smaller without it.
func removeUnhealthy(v view) (Step, bool) {
	if len(v.voters) < v.Voters {
		return Step{}, false
	}
	for _, voter := range filterByPlace(v.voters, leaving) {
		if voter.Health != Unhealthy {
			continue
		}
		return Step{
			Action: RemoveMember, Machine: voter.machine.Name, Member: voter.Member,
			Reason: "UnhealthyMemberRemoved",
			Message: fmt.Sprintf("member %s is removed: it does not answer, and its machine is being deleted; %d of "+
				"the other %d voting members answer",
				voter, v.healthy, len(v.voters)-1),
		}, true
	}
	return Step{}, false
}

// removeHealthy removes a voter whose replacement votes. A leader moves the leadership first: without a leader, etcd
// accepts no writes until it has elected another.
func removeHealthy(v view) (Step, bool) {
	candidates := filterByPlace(v.voters, leaving)
	if len(candidates) == 0 || len(v.voters) <= v.Voters || v.healthy < len(v.voters) {
		return Step{}, false
	}
	voter := slices.MinFunc(candidates, v.goesFirst)
	if successors := filterByPlace(v.voters, staying); voter.IsLeader && len(successors) > 0 {
		return Step{
			Action: MoveLeadership, Machine: voter.machine.Name, Member: successors[0].Member,
			Reason:  "LeadershipMoved",
			Message: fmt.Sprintf("member %s leads and will be removed: %s becomes the leader", voter, successors[0]),
		}, true
	}
	return Step{
		Action: RemoveMember, Machine: voter.machine.Name, Member: voter.Member, Reason: "MemberRemoved",
		Message: fmt.Sprintf("member %s is removed: its machine is being deleted, and %d other voting members answer",
			voter, v.healthy-1),
	}, true
}

// goesFirst orders the voters to remove: first by the number of voters in their zone, largest first, then
// followers before the leader, then by ID.
func (v view) goesFirst(a, b placedMember) int {
	zoneSize := func(m placedMember) int {
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
	return cmp.Or(cmp.Compare(zoneSize(b), zoneSize(a)), cmp.Compare(rank(a), rank(b)), cmp.Compare(a.ID, b.ID))
}

// promote promotes a learner that replaces a voter, or fills up their number. There is never more than one voter too
// many: each one may raise the quorum.
func promote(v view) (Step, bool) {
	if len(v.voters) > v.Voters || !v.lacksVoter() {
		return Step{}, false
	}
	for _, learner := range filterByPlace(v.learners, staying) {
		if learner.Name == "" || learner.Health != Healthy {
			continue
		}
		return Step{
			Action: PromoteLearner, Machine: learner.machine.Name, Member: learner.Member,
			Reason:  "LearnerPromoted",
			Message: fmt.Sprintf("learner %s becomes a voting member, beside %d others", learner, len(v.voters)),
		}, true
	}
	return Step{}, false
}

// lacksVoter reports whether there are fewer voters than wanted without those on machines being deleted.
func (v view) lacksVoter() bool {
	return len(v.voters)-len(filterByPlace(v.voters, leaving)) < v.Voters
}

// awaitReplacement waits while members are on machines being deleted, or voters are missing, and returns why.
func awaitReplacement(v view) (Step, bool) {
	silent, learners, members := notHealthy(v.voters), filterByPlace(v.learners, staying),
		slices.Concat(v.voters, v.learners)
	isSilent := func(m placedMember) bool { return m.Health == Silent }
	step := Step{Action: Wait}
	switch {
	case !v.lacksVoter() && len(silent) == 0 && len(filterByPlace(members, leaving, shared)) == 0:
		return step, false
	case len(filterByPlace(silent, leaving)) == len(silent) && slices.ContainsFunc(silent, isSilent):
		step.Reason = "MemberSilent"
		step.Message = fmt.Sprintf(
			"members of machines that are being deleted do not answer, and may be restarting: %s", list(silent),
		)
	case len(filterByPlace(silent, leaving)) < len(silent):
		step.Reason = "UnhealthyMembers"
		step.Message = fmt.Sprintf("members do not answer: %s; no other member is removed until they answer, their "+
			"machines are deleted, or they are removed (etcdctl member remove)", list(silent))
	case len(filterByPlace(members, shared)) > 0:
		step.Reason = "SharedAddress"
		step.Message = fmt.Sprintf("the addresses of these members match both a machine that is being deleted and a "+
			"machine that stays: %s",
			list(filterByPlace(members, shared)))
	case v.lacksVoter() && len(learners) > 0:
		step.Reason = "LearnerStarts"
		step.Message = fmt.Sprintf("waiting for learners to start: %s", list(learners))
	default:
		step.Reason = "ReplacementMissing"
		step.Message = fmt.Sprintf("%d voting members are required on machines that stay, and %d exist: waiting "+
			"for another machine of the control plane, and a learner on it",
			v.Voters, len(v.voters)-len(filterByPlace(v.voters, leaving)))
	}
	return step, true
}
