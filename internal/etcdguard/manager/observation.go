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

// troubling are the reasons of steps that make the guard Degraded if they last.
var troubling = map[string]bool{
	"EtcdUnreachable":  true,
	"NoQuorum":         true,
	"UnhealthyMembers": true,
	"SharedAddress":    true,
}

// An observation is the last snapshot of the guard, for the ClusterOperator and for monitoring.
type observation struct {
	mu      sync.Mutex
	seen    etcdguard.Snapshot
	isMade  bool
	looked  time.Time // when the members and machines were last known; zero if they never were
	trouble clusteroperator.Problem
	since   time.Time // since when there is trouble without a pause
}

// record records a snapshot, the next step, and why guard pods stay that were to be deleted, if any do.
func (o *observation) record(seen etcdguard.Snapshot, due etcdguard.Step, stays error) {
	var trouble clusteroperator.Problem
	switch {
	case troubling[due.Reason]:
		trouble = clusteroperator.Problem{Reason: due.Reason, Message: due.Message}
	case stays != nil:
		trouble = clusteroperator.Problem{
			Reason:  ReasonGuardPodStays,
			Message: strings.ReplaceAll(stays.Error(), "\n", "; "),
		}
	}
	o.set(seen, trouble)
}

// recordFailure records that machines or nodes could not be read.
func (o *observation) recordFailure(err error) {
	o.set(etcdguard.Snapshot{Problem: err.Error()},
		clusteroperator.Problem{Reason: ReasonLookFailed, Message: err.Error()})
}

func (o *observation) set(seen etcdguard.Snapshot, trouble clusteroperator.Problem) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if trouble.Reason == "" || o.trouble.Reason == "" {
		o.since = time.Now()
	}
	if seen.Problem == "" {
		o.looked = time.Now()
	}
	o.seen, o.isMade, o.trouble = seen, true, trouble
}

// lastLook returns when the members and machines were last known; zero if they never were.
func (o *observation) lastLook() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.looked
}

// last returns the last snapshot, or false if there is none yet.
func (o *observation) last() (etcdguard.Snapshot, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.seen, o.isMade
}

// standing returns the status of the guard. Trouble is reported when it has lasted for longer than a member may be
// silent: otherwise each restart of a member would be reported.
func (o *observation) standing(patience time.Duration) (clusteroperator.Status, error) {
	seen, isMade := o.last()
	if !isMade {
		return clusteroperator.Status{}, errors.New("the guard has not looked at etcd yet")
	}
	standing := clusteroperator.Status{NotUpgradeable: replacement(seen)}
	o.mu.Lock()
	defer o.mu.Unlock()
	if time.Since(o.since) >= patience {
		standing.Degraded = o.trouble
	}
	return standing, nil
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
