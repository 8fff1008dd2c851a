package manager

import (
	"errors"
	"testing"
	"time"

	"github.com/runlevel/runlevel/internal/etcdguard"
	"github.com/runlevel/runlevel/internal/program/clusteroperator"
)

// TestStanding tells of what was seen what the ClusterOperator's conditions say.
func TestStanding(t *testing.T) {
	machines := []etcdguard.ControlPlaneMachine{{Name: "a", Addresses: []string{"1"}, IsDeleting: true}, {Name: "b", Addresses: []string{"2"}}}
	members := []etcdguard.EtcdMember{
		{ID: 1, Addresses: []string{"1"}, Health: etcdguard.Healthy}, {ID: 2, Addresses: []string{"2"}, Health: etcdguard.Healthy},
	}
	steady := etcdguard.EtcdSnapshot{Voters: 2, Machines: machines[1:], Members: members}
	for name, test := range map[string]struct {
		seen    etcdguard.EtcdSnapshot
		due     etcdguard.GuardStep
		lasting bool
		want    clusteroperator.ControllerStatus
	}{
		"nothing to be done": {seen: steady, lasting: true},
		"a replacement": {seen: etcdguard.EtcdSnapshot{Voters: 2, Machines: machines, Members: members}, want: clusteroperator.ControllerStatus{
			NotUpgradeable: clusteroperator.ControllerProblem{Reason: "MemberReplacement", Message: "1 of 2 voting members of etcd are on machines that are being deleted, and a minor update would restart the others"},
		}},
		"a missing voter": {seen: etcdguard.EtcdSnapshot{Voters: 3, Machines: machines[1:], Members: members}, want: clusteroperator.ControllerStatus{
			NotUpgradeable: clusteroperator.ControllerProblem{Reason: "MemberReplacement", Message: "etcd has 2 of 3 voting members, and a minor update would restart them"},
		}},
		"no quorum, for a moment": {seen: steady, due: etcdguard.GuardStep{Reason: "NoQuorum", Message: "1 of 3 answer"}},
		"no quorum": {seen: steady, due: etcdguard.GuardStep{Reason: "NoQuorum", Message: "1 of 3 answer"}, lasting: true, want: clusteroperator.ControllerStatus{
			Degraded: clusteroperator.ControllerProblem{Reason: "NoQuorum", Message: "1 of 3 answer"},
		}},
		"etcd is not reached": {seen: etcdguard.EtcdSnapshot{Voters: 3, Problem: "no"}, due: etcdguard.GuardStep{Reason: "EtcdUnreachable", Message: "no"}, lasting: true, want: clusteroperator.ControllerStatus{
			Degraded: clusteroperator.ControllerProblem{Reason: "EtcdUnreachable", Message: "no"},
		}},
		"a wait that needs no administrator": {seen: steady, due: etcdguard.GuardStep{Reason: "LearnerStarts"}, lasting: true},
	} {
		t.Run(name, func(t *testing.T) {
			var o observation
			o.record(test.seen, test.due)
			patience := time.Hour
			if test.lasting {
				patience = 0
			}
			if got, err := o.standing(patience); err != nil || got != test.want {
				t.Errorf("got %+v, %v, want %+v", got, err, test.want)
			}
		})
	}
}

// Trouble begins with its first reason, and ends with the first look that finds none.
func TestTroubleLasts(t *testing.T) {
	var o observation
	if _, err := o.standing(0); err == nil {
		t.Error("it is told of what was not looked at")
	}
	o.recordFailure(errors.New("nodes can't be listed"))
	begun := o.since
	o.record(etcdguard.EtcdSnapshot{}, etcdguard.GuardStep{Reason: "NoQuorum"})
	if o.since != begun {
		t.Error("another reason starts over")
	}
	o.record(etcdguard.EtcdSnapshot{}, etcdguard.GuardStep{Reason: "AsExpected"})
	if got, _ := o.standing(0); got.Degraded.Reason != "" {
		t.Errorf("what is over is told of: %+v", got)
	}
	o.record(etcdguard.EtcdSnapshot{}, etcdguard.GuardStep{Reason: "NoQuorum"})
	if !o.since.After(begun) {
		t.Error("the time of calm counts as trouble")
	}
}
