package machineevents_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/machineevents"
)

func TestAnEventIsRecordedOncePerChange(t *testing.T) {
	t.Parallel()
	written := events.NewFakeRecorder(20)
	recorder := machineevents.Recorder{Events: written}
	machine := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m", UID: "1"}} // any object will do
	record := func(reason, note, cause string) {
		recorder.Record(machine, machineevents.Event{
			Type:   "Normal",
			Reason: reason,
			Action: "Drain",
			Note:   note,
			Cause:  cause,
		})
	}
	record("Blocked", "held", "by a")
	record("Blocked", "held", "by a")
	record("Proceeds", "continues", "")
	record("Blocked", "held", "by b") // the same note, of another cause
	record("Blocked", "held still", "by b")
	recorder.Repeat(machine, "Proceeds")
	record("Proceeds", "continues", "")
	machine.UID = "2" // another machine of that name
	record("Proceeds", "continues", "")
	recorder.Forget(client.ObjectKeyFromObject(machine))
	record("Proceeds", "continues", "")
	recorder.Repeat(&corev1.Node{}, "Proceeds") // a node without a recorded event
	close(written.Events)
	want := []string{
		"Normal Blocked held", "Normal Proceeds continues", "Normal Blocked held", "Normal Blocked held still",
		"Normal Proceeds continues", "Normal Proceeds continues", "Normal Proceeds continues",
	}
	var got []string
	for event := range written.Events {
		got = append(got, event)
	}
	if !slices.Equal(got, want) {
		t.Errorf("recorded %q, want %q", got, want)
	}
}
