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

// staged has two Deployments. The run waits for the second one after its watch has shown both.
var staged = strings.NewReplacer("0000_50", "0000_10", "name: it", "name: early").Replace(deployed) + deployed

// If an object needs no apply, and the watch has shown it ready before the run waits for it, it is ready.
func TestObjectThatTheWatchHasShownEarlyIsReady(t *testing.T) {
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

// If an unchanged object is deleted before the run waits for it, the run waits until it exists again. The run has to
// change something: otherwise the earlier state counts.
func TestObjectDeletedBeforeItsTurnIsAwaited(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	release := load(t, namespace, namespace, staged)
	mustApply(t, release, apply.Options{})
	their := hand{t, sorts["Deployment"].in(namespace), namespace, release}
	before := their.get()
	_, err := their.objects().Patch(t.Context(), "early", types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"mood":"bad"}}}`), metav1.PatchOptions{})
	must(t, err)
	var deleted, created sync.Once
	var waits []string
	did := run(t, t.Context(), release,
		apply.Options{Options: updateMode, ReportWaits: 10 * time.Millisecond, OnEvent: func(event apply.Event) {
			switch {
			case event.Type == apply.Applied && event.Object.Name == "early":
				deleted.Do(func() { _ = their.objects().Delete(context.Background(), "it", metav1.DeleteOptions{}) })
			case event.Type == apply.Waiting && event.Object.Name == "it":
				waits = append(waits, event.Message)
				if !strings.Contains(event.Message, "deleted") {
					return
				}
				created.Do(func() {
					before.SetResourceVersion("")
					before.SetUID("")
					_, _ = their.objects().Create(context.Background(), before, metav1.CreateOptions{})
				})
			}
		}})
	if did.Err != nil || len(waits) == 0 {
		t.Errorf("got error %v, waits %q", did.Err, waits)
	}
}
