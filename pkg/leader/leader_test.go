package leader

import (
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// TestOnlyARenewedLeaseIsHeld: a replica that was asleep does not hold its Lease any more, whatever it believes.
func TestOnlyARenewedLeaseIsHeld(t *testing.T) {
	l := &ElectionLease{
		Interface: &resourcelock.LeaseLock{LockConfig: resourcelock.ResourceLockConfig{Identity: "me"}},
		duration:  time.Minute,
	}
	send := func() error { return nil }
	if l.IsHeld() {
		t.Error("held from the start")
	}
	if err := l.note(resourcelock.LeaderElectionRecord{HolderIdentity: "me"}, send); err != nil || !l.IsHeld() {
		t.Error("not held after it was acquired", err)
	}
	l.renewed.Store(time.Now().Add(-2 * time.Minute).UnixNano())
	if l.IsHeld() {
		t.Error("held, and not renewed for longer than it lasts")
	}
	if err := l.note(resourcelock.LeaderElectionRecord{HolderIdentity: "me"}, send); err != nil || !l.IsHeld() {
		t.Error("not held after it was renewed", err)
	}
	if err := l.note(resourcelock.LeaderElectionRecord{}, send); err != nil || l.IsHeld() {
		t.Error("held after it was released", err)
	}
}

// TestElectionThatHangs is not alive once it was silent for longer than requests can take.
func TestElectionThatHangs(t *testing.T) {
	l := &ElectionLease{duration: 90 * time.Second}
	if err := l.checkElection(nil); err != nil {
		t.Errorf("before the first request: %v", err)
	}
	l.asked.Store(time.Now().Add(-time.Minute).UnixNano())
	if err := l.checkElection(nil); err != nil {
		t.Errorf("while a request is under way: %v", err)
	}
	l.asked.Store(time.Now().Add(-time.Hour).UnixNano())
	if err := l.checkElection(nil); err == nil || err.Error() != "no request for the Lease was sent for 1h0m0s" {
		t.Errorf("after an hour of silence: %v", err)
	}
}
