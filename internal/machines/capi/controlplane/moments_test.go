package controlplane_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	infrav1 "github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// coverAll answers that all changes of a machine can be made in place.
func coverAll(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Desired map[string]struct{ Spec json.RawMessage }
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer := map[string]any{
		"apiVersion": hooksv1.GroupVersion.String(),
		"kind":       "CanUpdateMachineResponse",
		"status":     "Success",
	}
	for field, object := range request.Desired {
		patch, _ := json.Marshal(map[string]any{"spec": object.Spec})
		answer[field+"Patch"] = map[string]any{"patchType": "JSONMergePatch", "patch": patch}
	}
	text, _ := json.Marshal(answer)
	_, _ = w.Write(text)
}

// TestMomentsOfARollout changes the version and both templates of a control plane, which an extension applies slowly,
// and then the template of infrastructure, which it cannot apply. The test compares the states with those of a
// KubeadmControlPlane of Cluster API that had the same extension, infrastructure, and changes: they are recorded in
// testdata/moments. It ran beside Cluster API's core, with an external etcd, ready static pods, and bootstrap configs
// that had their data at once.
func TestMomentsOfARollout(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	s := &momentScene{fixture: newFixture(t, 3, 0)}
	config := &infrav1.KwokConfigTemplate{ObjectMeta: s.Meta("greeting")}
	config.Spec.Template.Spec.Data = "#cloud-config\nmotd: hello"
	s.MustCreate(config, s.infrastructure("huge"))
	s.MustPatch(s.plane, `{"spec":{"version":"v1.36.2"}}`)
	s.record()
	s.run()
	s.awaitSettled(3)
	e, _ := s.extend()
	var isOver atomic.Bool
	e.Serve("CanUpdateMachine", coverAll)
	e.Serve("UpdateMachine", func(w http.ResponseWriter, r *http.Request) {
		if isOver.Load() {
			s.updateNode(w, r)
			return
		}
		_, _ = w.Write([]byte(`{"status":"Success","retryAfterSeconds":1,"message":"it copies"}`))
	})
	s.first = slices.MinFunc(s.names(), func(a, b string) int {
		x, y := s.machines()[a], s.machines()[b]
		return 2*x.CreationTimestamp.Compare(y.CreationTimestamp.Time) + strings.Compare(a, b)
	})

	s.mark()
	s.MustPatch(s.plane, `{"spec":{"version":"v1.36.3","machineTemplate":{"spec":{
		"infrastructureRef":{"name":"large"},"bootstrap":{"configRef":{"name":"greeting"}}}}}}`)
	s.expectMoment("1-updating")
	s.awaitCondition(clusterv1.RollingOutCondition, metav1.ConditionTrue,
		"replicas\n* Version v1.36.2, v1.36.3 required\n* KwokConfig is not up-to-date\n"+
			"* KwokMachine is not up-to-date\n* Machine "+s.first+
			" is updated in place: In-place update in progress: it copies")
	for _, request := range requestsOf[hooksv1.CanUpdateMachineRequest](s.fixture, e, "CanUpdateMachine") {
		expectMetadata(t, request)
	}
	isOver.Store(true)
	s.expectMoment("2-updated")

	e.Serve("CanUpdateMachine", coverNothing)
	held := &infrav1.KwokMachine{ObjectMeta: s.Meta(s.first)}
	s.MustGet(held)
	s.MustPatch(held, `{"metadata":{"finalizers":["infrastructure.runlevel.dev/kwokmachine","test.dev/hold"]}}`)
	s.MustPatch(s.plane, `{"spec":{"machineTemplate":{"spec":{"infrastructureRef":{"name":"huge"}}}}}`)
	s.expectMoment("3-replacing")
	s.MustGet(held)
	s.MustPatch(held, `{"metadata":{"finalizers":null}}`)
	s.expectMoment("4-replaced")
}

// expectMetadata has the labels and annotations of the wanted state in the current state of a request: they need no
// update.
func expectMetadata(t *testing.T, request hooksv1.CanUpdateMachineRequest) {
	t.Helper()
	read := func(raw runtime.RawExtension) metav1.ObjectMeta {
		var object struct{ Metadata metav1.ObjectMeta }
		if err := json.Unmarshal(raw.Raw, &object); err != nil {
			t.Fatal(err)
		}
		return object.Metadata
	}
	current, desired := request.Current, request.Desired
	if diff := cmp.Diff(read(desired.InfrastructureMachine), read(current.InfrastructureMachine)); diff != "" {
		t.Errorf("infrastructure (-desired +current):\n%s", diff)
	}
	if diff := cmp.Diff(read(desired.BootstrapConfig), read(current.BootstrapConfig)); diff != "" {
		t.Errorf("bootstrap config (-desired +current):\n%s", diff)
	}
}
