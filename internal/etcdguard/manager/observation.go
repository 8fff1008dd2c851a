package manager

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/runlevel/runlevel/internal/etcdguard"
	"github.com/runlevel/runlevel/internal/program/clusteroperator"
)

// The reasons of the ClusterOperator's conditions, beside the reasons of steps that wait.
const (
	ReasonLookFailed    = "LookFailed"
	ReasonReplacement   = "MemberReplacement"
	ReasonGuardPodStays = "GuardPodStays"
)

// degradedReasons are the reasons of steps that make the guard Degraded if they last.
var degradedReasons = map[string]bool{
	"EtcdUnreachable":  true,
	"NoQuorum":         true,
	"UnhealthyMembers": true,
	"SharedAddress":    true,
}

// An observation is the last snapshot of the guard, for the ClusterOperator and for monitoring.
type observation struct {
	mu          sync.Mutex
	snapshot    etcdguard.Snapshot
	hasSnapshot bool
	observedAt  time.Time // the last time at which the members and machines were known; zero if they never were
	problem     clusteroperator.Problem
	since       time.Time // the start of the problem, which has lasted without a pause
}

// record records a snapshot, the next step, and the error of deleting guard pods; nil if all were deleted.
func (o *observation) record(snapshot etcdguard.Snapshot, due etcdguard.Step, podErr error) {
	var problem clusteroperator.Problem
	switch {
	case degradedReasons[due.Reason]:
		problem = clusteroperator.Problem{Reason: due.Reason, Message: due.Message}
	case podErr != nil:
		problem = clusteroperator.Problem{
			Reason:  ReasonGuardPodStays,
			Message: strings.ReplaceAll(podErr.Error(), "\n", "; "),
		}
	}
	o.set(snapshot, problem)
}

// recordFailure records that machines or nodes could not be read.
func (o *observation) recordFailure(err error) {
	o.set(etcdguard.Snapshot{Problem: err.Error()},
		clusteroperator.Problem{Reason: ReasonLookFailed, Message: err.Error()})
}

func (o *observation) set(snapshot etcdguard.Snapshot, problem clusteroperator.Problem) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if problem.Reason == "" || o.problem.Reason == "" {
		o.since = time.Now()
	}
	if snapshot.Problem == "" {
		o.observedAt = time.Now()
	}
	o.snapshot, o.hasSnapshot, o.problem = snapshot, true, problem
}

// lastObserved returns the last time at which the members and machines were known; zero if they never were.
func (o *observation) lastObserved() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.observedAt
}

// last returns the last snapshot, or false if there is none yet.
func (o *observation) last() (etcdguard.Snapshot, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.snapshot, o.hasSnapshot
}

// operatorStatus returns the status of the guard. A problem is reported when it has lasted for longer than a member may
// be silent: otherwise each restart of a member would be reported.
func (o *observation) operatorStatus(patience time.Duration) (clusteroperator.Status, error) {
	snapshot, hasSnapshot := o.last()
	if !hasSnapshot {
		return clusteroperator.Status{}, errors.New("the guard has not looked at etcd yet")
	}
	status := clusteroperator.Status{NotUpgradeable: replacement(snapshot)}
	o.mu.Lock()
	defer o.mu.Unlock()
	if time.Since(o.since) >= patience {
		status.Degraded = o.problem
	}
	return status, nil
}

// replacement returns why a minor update is not allowed: it would restart members while one is being replaced.
func replacement(seen etcdguard.Snapshot) clusteroperator.Problem {
	counts := etcdguard.Count(seen)
	switch {
	case seen.Problem != "":
	case counts.Leaving > 0:
		return clusteroperator.Problem{Reason: ReasonReplacement, Message: fmt.Sprintf(
			"%d of %d voting members of etcd are on machines that are being deleted, and a minor update would "+
				"restart the others", counts.Leaving, counts.Voters)}
	case counts.Voters < seen.Voters:
		return clusteroperator.Problem{Reason: ReasonReplacement, Message: fmt.Sprintf(
			"etcd has %d of %d voting members, and a minor update would restart them", counts.Voters, seen.Voters)}
	}
	return clusteroperator.Problem{}
}
