package openshift

import (
	"fmt"
	"strings"
	"time"

	"github.com/runlevel/runlevel/internal/machines/deletion"
)

const (
	// podsEnd is the interval at which terminating pods are checked: first short, later long.
	podsEndSoon, podsEndSeldom = time.Second, 10 * time.Second
	// A refused eviction is retried after 5 s, and then after twice as long each time, up to a minute: an
	// administrator who loosens a disruption budget waits for the drain to notice.
	refusedSoon, refusedSeldom = 5 * time.Second, time.Minute
	// patientLooks is the number of checks of terminating pods before they are reported as a problem: half a minute.
	patientLooks = 5
	// mostPods is how many of the remaining pods are shown: a node may have hundreds.
	mostPods = 5
)

// drainProgress is the progress of draining a node. It is a value, and decides how long a drain waits.
type drainProgress struct {
	left    []string // what holds each remaining pod, in words; the first ones are shown
	problem string   // why the pods could not be listed or evicted
	isStuck bool     // an eviction is refused, or finalizers hold a pod, so that waiting alone does not help
	looks   int      // number of evictions since the number of pods last fell
}

// evicted returns the progress after another eviction of pods. If there was a problem, left and isStuck are not
// known.
func (p drainProgress) evicted(left []string, isStuck bool, problem string) drainProgress {
	after := drainProgress{left: left, problem: problem, isStuck: isStuck, looks: p.looks + 1}
	if problem == "" && p.problem == "" && len(left) < len(p.left) {
		after.looks = 1
	}
	return after
}

// wait returns what the drain waits for; nil if no pods remain.
func (p drainProgress) wait() *deletion.DeletionWait {
	if p.problem == "" && len(p.left) == 0 {
		return nil
	}
	wait := &deletion.DeletionWait{Stage: deletion.Draining, Reason: deletion.PodsEnd, Message: fewPods(p.left)}
	if p.problem != "" {
		wait.Message = p.problem
	}
	if p.problem != "" || p.isStuck || p.looks > patientLooks {
		wait.Reason = deletion.DrainError
	}
	wait.After = doubled(refusedSoon, p.looks, refusedSeldom)
	if p.problem == "" && !p.isStuck {
		wait.After = doubled(podsEndSoon, p.looks, podsEndSeldom)
	}
	return wait
}

// fewPods returns what holds the first of some pods, and how many more there are.
func fewPods(left []string) string {
	text := strings.Join(left[:min(mostPods, len(left))], "; ")
	if more := len(left) - mostPods; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// doubled returns a duration that doubles with each check except for the first, up to a limit.
func doubled(first time.Duration, looks int, limit time.Duration) time.Duration {
	for ; looks > 1 && first < limit; looks-- {
		first *= 2
	}
	return min(first, limit)
}
