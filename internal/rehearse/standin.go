package rehearse

import (
	"context"
	"encoding/json"
	"reflect"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
)

// standInEvery is the interval between two rounds of a standIn.
const standInEvery = 250 * time.Millisecond

// A standIn replaces operators and controllers, which do not run in a rehearsal: each round sets the status of
// ClusterOperators and, by rules, of custom resources. A round ignores errors, because the next round tries again. The
// sandbox itself provides volumes.
type standIn struct {
	cluster *cluster.Cluster
	rules   ReadyRules

	mu       sync.Mutex
	versions map[string][]any // versions of the current release, by the name of the ClusterOperator that reports them
}

// startStandIn starts the rounds of a standIn, and returns a function that stops them.
func (r *rehearsal) startStandIn(ctx context.Context) (stop func()) {
	r.programs = &standIn{cluster: r.cluster, rules: r.Ready}
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() { wait.UntilWithContext(ctx, r.programs.runRound, standInEvery) })
	return func() {
		cancel()
		group.Wait()
	}
}

// setRelease sets the release whose versions the ClusterOperators report.
func (s *standIn) setRelease(release *payload.Payload) {
	versions := map[string][]any{}
	for _, m := range release.Manifests {
		if m.ID().GroupKind() == kinds.ClusterOperator {
			versions[m.ID().Name], _, _ = unstructured.NestedSlice(m.Object().Object, "status", "versions")
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.versions = versions
}

// runRound sets the status of all ClusterOperators, and of the custom resources that have a rule.
func (s *standIn) runRound(ctx context.Context) {
	s.mu.Lock()
	versions := s.versions
	s.mu.Unlock()
	if len(versions) > 0 {
		s.setStatuses(ctx, kinds.ClusterOperator, func(object *unstructured.Unstructured) map[string]any {
			return operatorStatus(versions[object.GetName()])
		})
	}
	for _, kind := range s.rules.kinds() {
		s.setStatuses(ctx, kind, func(*unstructured.Unstructured) map[string]any { return s.rules[kind] })
	}
}

// operatorStatus returns the status of a healthy ClusterOperator with versions.
func operatorStatus(versions []any) map[string]any {
	var conditions []any
	for _, condition := range []struct {
		name, status string
	}{{"Available", "True"}, {"Progressing", "False"}, {"Degraded", "False"}, {"Upgradeable", "True"}} {
		conditions = append(conditions, map[string]any{
			"type":               condition.name,
			"status":             condition.status,
			"reason":             "Rehearsal",
			"lastTransitionTime": "2000-01-01T00:00:00Z",
		})
	}
	return map[string]any{"conditions": conditions, "versions": versions}
}

// setStatuses sets the status of all objects of a kind that lack fields of it.
func (s *standIn) setStatuses(ctx context.Context, kind schema.GroupKind,
	status func(*unstructured.Unstructured) map[string]any) {
	objects, err := s.cluster.List(ctx, kind, "", "")
	if err != nil {
		return
	}
	resource, err := s.cluster.FindKind(ctx, kind)
	if err != nil {
		return
	}
	for i := range objects {
		object := &objects[i]
		wanted := status(object)
		if hasStatus(object, wanted) {
			continue
		}
		patch, err := json.Marshal(map[string]any{"status": wanted})
		if err != nil {
			continue
		}
		api := s.cluster.In(resource, object.GetNamespace())
		if _, err := api.Patch(ctx, object.GetName(), types.MergePatchType, patch, metav1.PatchOptions{},
			"status"); err != nil {
			// The kind has no status subresource.
			_, _ = api.Patch(ctx, object.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
		}
	}
}

// hasStatus reports whether an object has all fields of a status.
func hasStatus(object *unstructured.Unstructured, wanted map[string]any) bool {
	has, _, _ := unstructured.NestedMap(object.Object, "status")
	for key, value := range wanted {
		if !reflect.DeepEqual(has[key], value) {
			return false
		}
	}
	return true
}
