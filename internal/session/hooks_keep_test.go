package session_test

import (
	"context"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/session/keep"
)

// keepIn applies a version and keeps it in place, until the function that it returns is called.
func (r hookedRelease) keepIn(version, files string) (stop func()) {
	r.Helper()
	ctx, cancel := context.WithCancel(r.Context())
	begun, ended := make(chan *session.Outcome, 1), make(chan struct{})
	go func() {
		defer close(ended)
		r.roll(ctx, version, files, func(options *session.Options) {
			options.Keep = &keep.Options{}
			options.Observer = observer{onOutcome: func(outcome *session.Outcome) { begun <- outcome }}
		})
	}()
	if outcome := <-begun; outcome.Err != nil {
		r.Fatal(outcome.Err)
	}
	return func() {
		cancel()
		<-ended
	}
}

// patch changes the Deployment as kubectl does.
func (r hookedRelease) patch(how types.PatchType, patch string) {
	r.Helper()
	if _, err := test.Client(r).AppsV1().Deployments(r.namespace).Patch(r.Context(), "web", how, []byte(patch),
		metav1.PatchOptions{FieldManager: "kubectl"}); err != nil {
		r.Fatal(err)
	}
}

// delete deletes the Deployment, as kubectl does, and returns a function that reports whether another one exists.
func (r hookedRelease) delete() (isAnother func(*appsv1.Deployment) bool) {
	r.Helper()
	before := r.deployment(func(*appsv1.Deployment) bool { return true })
	if err := test.Client(r).AppsV1().Deployments(r.namespace).Delete(r.Context(), "web",
		metav1.DeleteOptions{}); err != nil {
		r.Fatal(err)
	}
	return func(d *appsv1.Deployment) bool { return d.UID != before.UID }
}

// TestRepairsRunNoHooks checks that the hooks of a Deployment do not run again after its template was rolled out.
func TestRepairsRunNoHooks(t *testing.T) {
	r := newHookedRelease(t)
	files := hookedWeb("one", allHooks)
	ranOnce := []string{"post one Succeeded", "pre one Succeeded"}
	stop := r.keepIn("1.0.0", files)
	r.hasRun(ranOnce...)

	before := r.deployment(isOf("one", 1))
	r.patch(types.StrategicMergePatchType,
		`{"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "other"}]}}}}`)
	r.deployment(func(d *appsv1.Deployment) bool { return isOf("one", 1)(d) && d.Generation >= before.Generation+2 })
	r.scale(3)
	r.deployment(r.delete())
	r.deployment(r.delete()) // the Deployment has no hook state
	stop()
	r.hasRun(ranOnce...)

	r.scale(2)
	r.patch(types.StrategicMergePatchType,
		`{"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "other"}]}}}}`)
	stop = r.keepIn("1.0.0", files)
	r.deployment(isOf("one", 2))
	stop()
	isAnother := r.delete()
	stop = r.keepIn("1.0.0", files)
	r.deployment(isAnother)
	stop()
	if outcome := r.must("1.0.1", files); strings.Contains(done(outcome), "ran") {
		t.Errorf("another version with the same template: %s", done(outcome))
	}
	r.hasRun(ranOnce...)
}

// TestAnUpdateIsKeptInPlaceOnceItsHooksHaveRun: what keeps a release in place does not roll out the new template while
// its hooks run.
func TestAnUpdateIsKeptInPlaceOnceItsHooksHaveRun(t *testing.T) {
	r := newHookedRelease(t)
	r.keepIn("1.0.0", hookedWeb("one", allHooks))()
	r.scale(2)
	r.keepIn("1.0.1", hookedWeb("two", allHooks))()
	r.deployment(isOf("two", 2))
	r.hasRun("mid two Succeeded", "post one Succeeded", "post two Succeeded", "pre one Succeeded", "pre two Succeeded")
}
