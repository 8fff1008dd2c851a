package leader

import (
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/runlevel/runlevel/internal/record/bootclock"
)

// TestOnlyARenewedLeaseIsHeld checks that a replica no longer holds its Lease after it was asleep.
func TestOnlyARenewedLeaseIsHeld(t *testing.T) {
	l := &Lease{
		Interface: &resourcelock.LeaseLock{LockConfig: resourcelock.ResourceLockConfig{Identity: "me"}},
		duration:  time.Minute,
	}
	send := func() error { return nil }
	if l.IsHeld() {
		t.Error("held from the start")
	}
	if err := l.recordRenewal(resourcelock.LeaderElectionRecord{HolderIdentity: "me"}, send); err != nil ||
		!l.IsHeld() {
		t.Error("not held after it was acquired", err)
	}
	l.renewedAt.Store(int64(bootclock.Now() - 2*time.Minute))
	if l.IsHeld() {
		t.Error("still held, although it has expired")
	}
	if err := l.recordRenewal(resourcelock.LeaderElectionRecord{HolderIdentity: "me"}, send); err != nil ||
		!l.IsHeld() {
		t.Error("not held after it was renewed", err)
	}
	if err := l.recordRenewal(resourcelock.LeaderElectionRecord{}, send); err != nil || l.IsHeld() {
		t.Error("held after it was released", err)
	}
}

// TestALeaseAgesByTheClockSinceBoot sets back the wall clock: by this clock, the Lease would stay held for that time.
func TestALeaseAgesByTheClockSinceBoot(t *testing.T) {
	l := &Lease{
		Interface: &resourcelock.LeaseLock{LockConfig: resourcelock.ResourceLockConfig{Identity: "me"}},
		duration:  time.Minute,
	}
	before := bootclock.Now()
	if err := l.recordRenewal(resourcelock.LeaderElectionRecord{HolderIdentity: "me"}, func() error {
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for what, index := range map[string]int64{"renewed": l.renewedAt.Load(), "asked": l.requestedAt.Load()} {
		if noted := time.Duration(index); noted < before || noted > bootclock.Now() {
			t.Errorf("%s at %s, which is not between %s and %s since the start of the machine", what, noted, before,
				bootclock.Now())
		}
	}
}

// TestElectionThatHangs is not alive once it was silent for longer than requests can take.
func TestElectionThatHangs(t *testing.T) {
	l := &Lease{duration: 90 * time.Second}
	if err := l.checkElection(nil); err != nil {
		t.Errorf("before the first request: %v", err)
	}
	l.requestedAt.Store(int64(bootclock.Now() - time.Minute))
	if err := l.checkElection(nil); err != nil {
		t.Errorf("while a request is under way: %v", err)
	}
	l.requestedAt.Store(int64(bootclock.Now() - time.Hour))
	if err := l.checkElection(nil); err == nil || err.Error() != "no request for the Lease was sent for 1h0m0s" {
		t.Errorf("after an hour of silence: %v", err)
	}
}
