package apply_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/pkg/apply"
)

// staged has a Deployment that is awaited only once the watch has shown both.
var staged = strings.NewReplacer("0000_50", "0000_10", "name: it", "name: early").Replace(deployed) + deployed

// What needs no apply, and whose watch has shown it before it was its turn, is seen.
func TestWhatWasSeenEarlyIsReady(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	release := load(t, namespace, namespace, staged)
	mustApply(t, release, apply.Options{})
	for range 3 {
		if got := mustApply(t, release, apply.Options{}); got != "unchanged Deployment, unchanged Deployment" {
			t.Error(got)
		}
	}
}

// What needed no apply, and is gone when it is its turn, is missed, and seen when it is back:
// not in a run that changes nothing, in which what was seen before counts.
func TestWhatGoesBeforeItsTurnIsMissed(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	release := load(t, namespace, namespace, staged)
	mustApply(t, release, apply.Options{})
	their := hand{t, sorts["Deployment"].in(namespace), namespace, release}
	before := their.get()
	_, err := their.objects().Patch(t.Context(), "early", types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"mood":"bad"}}}`), metav1.PatchOptions{})
	must(t, err)
	var gone, back sync.Once
	var waits []string
	did := run(t, t.Context(), release,
		apply.Options{Options: updateMode, ReportWaits: 10 * time.Millisecond, OnEvent: func(event apply.Event) {
			switch {
			case event.Type == apply.Applied && event.Object.Name == "early":
				gone.Do(func() { _ = their.objects().Delete(context.Background(), "it", metav1.DeleteOptions{}) })
			case event.Type == apply.Waiting && event.Object.Name == "it":
				waits = append(waits, event.Message)
				if !strings.Contains(event.Message, "deleted") {
					return
				}
				back.Do(func() {
					before.SetResourceVersion("")
					before.SetUID("")
					_, _ = their.objects().Create(context.Background(), before, metav1.CreateOptions{})
				})
			}
		}})
	if did.Err != nil || len(waits) == 0 {
		t.Errorf("%v, it waited for %q", did.Err, waits)
	}
}
