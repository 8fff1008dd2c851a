package operator_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/record"
)

// reaper kills an operator after each of its writes: each kind of write once in each stage of a journey, and those of
// the record and the status several times.
type reaper struct {
	mu     sync.Mutex
	stage  string
	deaths map[string]int // keyed by the write at which the operator was killed
	writes []string       // writes that reached the API server
}

// kills returns whether a write is one that too few operators of this stage have died of.
func (r *reaper) kills(request *http.Request) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	path := request.URL.Path
	if before, _, isEvent := strings.Cut(path, "/events/"); isEvent { // names of events are random
		path = before + "/events"
	}
	write := r.stage + ": " + request.Method + " " + path
	r.writes = append(r.writes, write)
	deaths := 1
	if strings.HasSuffix(path, "configmaps/runlevel-release-default") || strings.HasSuffix(path, "/version/status") {
		deaths = 5
	}
	if r.deaths[write] == deaths {
		return false
	}
	r.deaths[write]++
	return true
}

// enter begins a stage of the journey.
func (r *reaper) enter(stage string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stage = stage
}

// TestKilledAtEachWrite: an install, a patch with a tombstone, a minor version that the gate holds back, and a forced
// downgrade, while the operator is killed after each of its writes. No operator repeats a step of the one before.
func TestKilledAtEachWrite(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.prepare("1.0.0", shop+old+till)
	r := &reaper{deaths: map[string]int{}}
	r.enter("install")
	ctx, end := context.WithCancel(t.Context())
	var lives sync.WaitGroup
	lives.Go(func() { s.live(ctx, r.kills, func() time.Duration { return 0 }) })
	defer lives.Wait()
	defer end()

	s.report("till", "1.0.0")
	s.until("installed", isAt("1.0.0"))
	s.hold("prices", `["example.com/hold"]`)

	r.enter("patch")
	patch := s.push("1.0.1", shop+oldDeleted+till)
	s.update(patch)
	s.until("the patch waits", has(configv1.OperatorUpgradeable, configv1.ConditionFalse, "MultipleReasons"))
	s.report("till", "1.0.1")
	s.until("the patch is applied", isAt("1.0.1"))

	r.enter("minor")
	s.update(s.push("1.1.0", shop+till))
	s.until("the minor version is held back", has("ReleaseAccepted", configv1.ConditionFalse, "PreconditionChecks"))
	s.hold("prices", "null")
	s.report("till", "1.1.0")
	s.until("the minor version is applied", isAt("1.1.0"))

	r.enter("rollback")
	s.update(patch)
	s.until("the rollback is refused", has("ReleaseAccepted", configv1.ConditionFalse, "PreconditionChecks"))
	s.update(patch, func(u *configv1.Update) { u.Force = true })
	s.report("till", "1.0.1")
	done := s.until("the rollback is applied", isAt("1.0.1"))
	s.untilSettings("1.0.1")

	var versions []string
	for _, entry := range done.Status.History {
		versions = append(versions, string(entry.State)+" "+entry.Version)
	}
	if want := []string{"Completed 1.0.1", "Completed 1.1.0", "Completed 1.0.1",
		"Completed 1.0.0"}; !slices.Equal(versions, want) {
		t.Errorf("the history is %q, want %q", versions, want)
	}
	s.checkThatTheFirstWasAnInstall()
	r.mu.Lock()
	defer r.mu.Unlock()
	deletes := slices.DeleteFunc(slices.Clone(r.writes), func(w string) bool { return !strings.Contains(w, "DELETE") })
	if want := []string{"patch: DELETE /api/v1/namespaces/shop/configmaps/prices"}; !slices.Equal(deletes, want) {
		t.Errorf("got deletes %q, want %q", deletes, want)
	}
	t.Logf("killed after %d kinds of write, of %d writes", len(r.deaths), len(r.writes))
	if len(r.deaths) < 30 {
		t.Errorf("the operator was killed only after %d kinds of write, of %q", len(r.deaths), r.writes)
	}
}

// hold sets the finalizers of a ConfigMap.
func (s *stage) hold(name, finalizers string) {
	s.t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":`+finalizers+`}}`))
	s.must(s.client.Patch(s.t.Context(), object, patch))
}

// checkThatTheFirstWasAnInstall reads the record: an operator that was killed early may take its own first objects for
// those of a release before.
func (s *stage) checkThatTheFirstWasAnInstall() {
	s.t.Helper()
	known, _, err := record.NewStore(kubernetes.NewForConfigOrDie(s.sandbox.Config), system,
		"default").Load(s.t.Context())
	s.must(err)
	if first := known.History[len(known.History)-1]; first.Mode != "install" {
		s.t.Errorf("the first release was applied in mode %s", first.Mode)
	}
}
