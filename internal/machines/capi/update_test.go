package capi_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	"github.com/runlevel/runlevel/internal/sandbox/runtimehooktest"
)

// TestC5ExtensionIsCalledWhenItRequests: however often the Machine changes in between.
func TestC5ExtensionIsCalledWhenItRequests(t *testing.T) {
	u := startUpdates(newScene(t), map[string]string{"disk": "fast"})
	const again = `{"status":"Success","retryAfterSeconds":1,"message":"step %d of 3"}`
	u.answers(fmt.Sprintf(again, 1), fmt.Sprintf(again, 2), done)
	u.trigger(2)
	for step := 1; step < 3; step++ {
		seen := u.awaitUpdating("InPlaceUpdating", fmt.Sprintf("In-place update in progress: step %d of 3", step))
		u.MustPatch(u.m, `{"metadata": {"labels": {"nudge": "%d"}}}`, step)
		ready := meta.FindStatusCondition(seen.Status.Conditions, "Ready")
		if seen.Status.Phase != "Updating" ||
			ready.Message != fmt.Sprintf("* Updating: In-place update in progress: step %d of 3", step) ||
			!meta.IsStatusConditionFalse(seen.Status.Conditions, "Available") {
			t.Errorf("phase %s, %+v", seen.Status.Phase, seen.Status.Conditions)
		}
	}
	u.awaitUpdated()
	u.AwaitEvent("m1", "SuccessfulInPlaceUpdate", "")
	timestamps := u.calls()
	if len(timestamps) != 3 || timestamps[1].Sub(timestamps[0]) < time.Second ||
		timestamps[2].Sub(timestamps[1]) < time.Second {
		t.Errorf("calls of the extension: got %v, want three, a second apart", timestamps)
	}
	asked := u.Calls()[0].Body
	for _, want := range []string{`"kind":"UpdateMachineRequest"`, `"size":2`, `"kind":"TestConfig"`,
		`"settings":{"disk":"fast"}`} {
		if !strings.Contains(asked, want) {
			t.Errorf("the extension was asked without %s: %s", want, asked)
		}
	}
	if strings.Contains(asked, `"status"`) {
		t.Errorf("the request to the extension has a status: %s", asked)
	}
}

// TestC6FailureIsReportedAndRetried: with growing pauses, whatever happens in between.
func TestC6FailureIsReportedAndRetried(t *testing.T) {
	u := startUpdates(newScene(t), nil)
	u.answers(`{"status":"Failure","message":"the disk is full"}`)
	u.trigger(2)
	seen := u.awaitUpdating("InPlaceUpdateFailed",
		"UpdateMachine hook failed: extension update-machine."+u.Namespace+" answered Failure (the disk is full)")
	if seen.Status.Phase != "Updating" || seen.DeletionTimestamp != nil ||
		u.infrastructure().GetDeletionTimestamp() != nil {
		t.Errorf("phase %s, or something is deleted", seen.Status.Phase)
	}
	u.AwaitEvent("m1", "FailedInPlaceUpdate", "the disk is full")
	for n := range 5 {
		u.MustPatch(u.m, `{"metadata": {"labels": {"nudge": "%d"}}}`, n)
		u.awaitCalls(min(n+1, 3))
	}
	timestamps := u.calls()
	for i := 1; i < len(timestamps); i++ {
		if pause := timestamps[i].Sub(timestamps[i-1]); pause < 250*time.Millisecond<<(i-1) {
			t.Errorf("call %d came %s after the one before", i+1, pause)
		}
	}
	u.answers(done)
	u.awaitUpdated()
}

// TestResponsesOfAnExtensionAreReported checks that an invalid response does not end an update.
func TestResponsesOfAnExtensionAreReported(t *testing.T) {
	u := startUpdates(newScene(t), nil)
	u.answers("<html>")
	u.trigger(2)
	for _, c := range []struct {
		answer http.HandlerFunc
		want   string
	}{
		{func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "<html>")
		}, "sent a response that is not valid JSON for the hook"},
		{func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(make([]byte, 30<<20))
		}, "answered more than 20 MiB"},
		{func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://example.com", http.StatusFound)
		}, "redirects to https://example.com"},
		{func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"status":"Success"}`)
		}, "sent no retryAfterSeconds"},
	} {
		u.Serve("UpdateMachine", c.answer)
		u.awaitUpdating("InPlaceUpdateFailed", c.want)
	}
	u.answers(done)
	u.awaitUpdated()
}

// TestC10DeletionWins: hooks hold the Machine as ever, and the extension is no longer called.
func TestC10DeletionWins(t *testing.T) {
	u := startUpdates(newScene(t), nil)
	u.answers(`{"status":"Success","retryAfterSeconds":1}`)
	u.MustPatch(u.m, `{"metadata": {"annotations": {"`+preDrain+`a": "owner"}}}`)
	u.trigger(2)
	u.awaitCalls(1)
	u.MustDelete(u.m)
	seen := u.awaitDeleting("WaitingForPreDrainHook", preDrain+"a")
	if seen.Status.Phase != "Deleting" || !meta.IsStatusConditionFalse(seen.Status.Conditions, "Updating") {
		t.Errorf("phase %s, %+v", seen.Status.Phase, seen.Status.Conditions)
	}
	before := len(u.calls())
	u.ahead.Store(int64(time.Hour)) // the time of the next call is over
	u.MustPatch(u.m, `{"metadata": {"labels": {"nudge": "1"}}}`)
	u.MustPatch(u.cluster, `{"metadata": {"labels": {"nudge": "1"}}}`)
	u.removeHook(u.m, preDrain+"a")
	u.AwaitGone(u.m)
	if after := len(u.calls()); after != before {
		t.Errorf("got %d calls of the extension after the deletion, want none", after-before)
	}
}

// TestAnUnknownExtensionDoesNotStopAnUpdate creates an ExtensionConfig for other hooks, whose server does not run yet.
func TestAnUnknownExtensionDoesNotStopAnUpdate(t *testing.T) {
	u := startUpdates(newScene(t), nil)
	u.answers(`{"status":"Success","retryAfterSeconds":1}`)
	u.trigger(2)
	u.awaitCalls(1)
	other := &runtimev1.ExtensionConfig{ObjectMeta: metav1.ObjectMeta{Name: u.Namespace + "-topology"}}
	other.Spec.ClientConfig.URL = "https://" + runtimehooktest.FreeAddress(t)
	other.Spec.NamespaceSelector = u.config.Spec.NamespaceSelector
	u.MustCreate(other)
	u.awaitCalls(len(u.calls()) + 2)
	u.answers(done)
	u.awaitUpdated()
}

// TestAUserEndsAnUpdate checks that an update ends without traces when a user removes the annotation of the Machine.
func TestAUserEndsAnUpdate(t *testing.T) {
	u := startUpdates(newScene(t), map[string]string{"drain": "true"})
	u.answers(`{"status":"Success","retryAfterSeconds":3600}`)
	u.MustPatch(u.m, `{"metadata": {"annotations": {"`+runtimev1.PendingHooksAnnotation+`": "Other"}}}`)
	u.trigger(2)
	u.MustPatch(u.m, `{"metadata": {"annotations": {"`+runtimev1.PendingHooksAnnotation+`": "Other,UpdateMachine"}}}`)
	u.awaitCalls(1)
	u.removeHook(u.m, inProgress)
	u.await("m1", func(m *clusterv1.Machine) bool {
		return m.Annotations[runtimev1.PendingHooksAnnotation] == "Other" // which is not ours to remove
	})
	u.removeHook(u.m, runtimev1.PendingHooksAnnotation)
	u.awaitUpdated()
	u.awaitUncordoned()
}

// TestAnUpdateWaitsForItsOwner: until all is written, and while the Machine is on its way to another set.
func TestAnUpdateWaitsForItsOwner(t *testing.T) {
	u := startUpdates(newScene(t), nil)
	u.answers(done)
	u.MustPatch(u.m, `{"metadata": {"annotations": {"`+inProgress+`": "", "`+clusterv1.PendingAcknowledgeMoveAnnotation+
		`": "", "`+
		runtimev1.PendingHooksAnnotation+`": "UpdateMachine"}}}`)
	seen := u.awaitUpdating("InPlaceUpdating", "")
	if updating := meta.FindStatusCondition(seen.Status.Conditions,
		"Updating"); updating.Message != "In-place update in progress" {
		t.Errorf("Updating: got %+v, want message \"In-place update in progress\"", updating)
	}
	u.removeHook(u.m, clusterv1.PendingAcknowledgeMoveAnnotation)
	u.awaitUpdating("InPlaceUpdating", "waiting for the annotation "+inProgress+" of TestMachine m1")
	u.MustPatch(u.infrastructure(), `{"metadata": {"annotations": {"`+inProgress+`": ""}}}`)
	u.awaitUpdating("InPlaceUpdating", "waiting for the annotation "+inProgress+" of TestConfig m1")
	if calls := u.calls(); len(calls) > 0 {
		t.Errorf("got %d calls of the extension, want none", len(calls))
	}
	u.MustPatch(u.object("TestConfig", "m1"), `{"metadata": {"annotations": {"`+inProgress+`": ""}}}`)
	u.awaitUpdated()
}

// TestExtensionsThatHangHoldUpNoDeletion: one of two workers is left for machines that are not updated.
func TestExtensionsThatHangHoldUpNoDeletion(t *testing.T) {
	s := newStoppedScene(t)
	s.workers = 2
	s.start()
	u := startUpdates(s, nil)
	other, _ := s.run(s.machine("m2"))
	deleted, _ := s.run(s.machine("m3"))
	called, released := make(chan struct{}, 100), make(chan struct{})
	t.Cleanup(func() { close(released) }) // the server waits for its handlers
	u.Serve("UpdateMachine", func(_ http.ResponseWriter, request *http.Request) {
		called <- struct{}{}
		select {
		case <-released:
		case <-request.Context().Done():
		}
	})
	u.config.Status.Handlers[0].TimeoutSeconds = 30
	u.discover()
	u.trigger(2)
	<-called
	const mark = `{"metadata": {"annotations": {"` + inProgress + `": ""}}}`
	u.MustPatch(other, mark)
	u.MustPatch(u.object("TestMachine", "m2"), mark)
	u.MustPatch(other, `{"metadata": {"annotations": {"`+runtimev1.PendingHooksAnnotation+`": "UpdateMachine"}}}`)
	// passes of the other Machine, which end: one that waited for the extension would write no status
	for i := range 5 {
		u.MustPatch(other, `{"spec": {"minReadySeconds": %d}}`, i+1)
		u.await("m2", func(m *clusterv1.Machine) bool { return m.Status.ObservedGeneration == m.Generation })
	}
	u.MustDelete(deleted)
	u.AwaitGone(deleted)
	if more := len(called); more > 0 {
		t.Errorf("%d more calls at once", more)
	}
}

// TestALongPauseIsCut: an extension that asks for decades, and is repaired, does not hold its Machine for them. The
// condition has the time of the next call.
func TestALongPauseIsCut(t *testing.T) {
	u := startUpdates(newScene(t), nil)
	u.answers(`{"status":"Success","retryAfterSeconds":2147483647,"message":"copying"}`, done)
	u.trigger(2)
	seen := u.awaitUpdating("InPlaceUpdating",
		"In-place update in progress: copying; the extension requested 2147483647 s, and is called again after 10m, at ")
	updating := meta.FindStatusCondition(seen.Status.Conditions, clusterv1.MachineUpdatingCondition)
	_, nextCall, _ := strings.Cut(updating.Message, ", at ")
	next, err := time.Parse(time.RFC3339, nextCall)
	if wait := time.Until(next); err != nil || wait > 10*time.Minute || wait < 8*time.Minute {
		t.Errorf("next call: got %s, in %s, error %v, want it in 8 to 10 minutes", nextCall, wait, err)
	}
	u.ahead.Store(int64(11 * time.Minute))
	u.MustPatch(u.m, `{"metadata": {"labels": {"nudge": "1"}}}`)
	u.awaitUpdated()
}
