package members

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/runlevel/runlevel/internal/etcdguard"
)

// Change carries out a step: it promotes a learner, removes a member, or moves the leadership.
func (m *Membership) Change(ctx context.Context, step etcdguard.GuardStep) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	endpoints := m.endpoints(step)
	if len(endpoints) == 0 {
		return errors.New("no member answers that could be asked for it")
	}
	return m.client.with(ctx, endpoints, func(e *clientv3.Client) error {
		switch step.Action {
		case etcdguard.PromoteLearner:
			_, err := e.MemberPromote(ctx, step.Member.ID)
			return err
		case etcdguard.RemoveMember:
			_, err := e.MemberRemove(ctx, step.Member.ID)
			return err
		case etcdguard.MoveLeadership:
			_, err := e.MoveLeader(ctx, step.Member.ID)
			return err
		}
		return fmt.Errorf("no way to %s", step.Action)
	})
}

// endpoints returns where a step is requested: at the leader to move the leadership, and otherwise at other healthy voters.
func (m *Membership) endpoints(step etcdguard.GuardStep) []string {
	var urls []string
	for _, member := range m.Members {
		isVoter := !member.IsLearner && member.Health == etcdguard.Healthy && member.ID != step.Member.ID
		if isVoter && (step.Action != etcdguard.MoveLeadership || member.IsLeader) {
			urls = append(urls, m.urls[member.ID]...)
		}
	}
	return slices.Compact(urls)
}

// IsTooEarly reports whether etcd refuses a change that it will accept later: a learner is behind the leader, or members
// have only just restarted.
func IsTooEarly(err error) bool {
	return errors.Is(err, rpctypes.ErrMemberLearnerNotReady) || errors.Is(err, rpctypes.ErrUnhealthy) ||
		errors.Is(err, rpctypes.ErrMemberNotEnoughStarted)
}

func isDenied(err error) bool { return errors.Is(err, rpctypes.ErrPermissionDenied) }
