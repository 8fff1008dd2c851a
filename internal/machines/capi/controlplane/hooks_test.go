package controlplane_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/capi/controlplane/v1alpha1"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/internal/sandbox/runtimehooktest"
)

// requestsOf returns the requests for a hook that an extension has received.
func requestsOf[T any](p *fixture, e *runtimehooktest.Extension, hook string) []T {
	p.Helper()
	var requests []T
	for _, call := range e.Calls() {
		if !strings.Contains(call.URL, "/"+strings.ToLower(hook)+"/") {
			continue
		}
		var request T
		p.Must(json.Unmarshal([]byte(call.Body), &request))
		requests = append(requests, request)
	}
	return requests
}

// hurry limits the calls of an extension to a second each.
func (f *fixture) hurry(config *runtimev1.ExtensionConfig) {
	f.Helper()
	for i := range config.Status.Handlers {
		config.Status.Handlers[i].TimeoutSeconds = 1
	}
	f.Must(f.Status().Update(f.Context(), config))
}

// TestExtensionThatDoesNotDecide makes an extension refuse, fail and hang: nothing is updated or replaced, the reason
// is reported, and once it answers the machines are updated in place. Its patches of metadata and status do not count.
func TestExtensionThatDoesNotDecide(t *testing.T) {
	t.Parallel()
	p := start(t, 3, 0)
	e, config := p.extend()
	p.hurry(config)
	before := p.names()
	e.Answer("CanUpdateMachine", `{"status":"Failure","message":"the vault is sealed"}`)
	p.upgrade("v1.36.1")
	p.awaitCondition(clusterv1.RollingOutCondition, metav1.ConditionTrue, "the vault is sealed")

	hung := make(chan struct{})
	for text, answer := range map[string]http.HandlerFunc{
		"500 Internal Server Error": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "", http.StatusInternalServerError)
		},
		"did not answer within 1s": func(http.ResponseWriter, *http.Request) { <-hung },
		"its patchType is \"Guess\"": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"status":"Success","machinePatch":{"patchType":"Guess","patch":"e30="}}`))
		},
	} {
		e.Serve("CanUpdateMachine", answer)
		p.nudge()
		p.awaitCondition(clusterv1.RollingOutCondition, metav1.ConditionTrue, text)
	}
	close(hung)
	for name, m := range p.machines() {
		_, isMarked := m.Annotations[clusterv1.UpdateInProgressAnnotation]
		if m.Spec.Version != "v1.36.0" || isMarked || m.DeletionTimestamp != nil || !slices.Contains(before, name) {
			t.Errorf("machine %s was touched: %v, %s", name, m.Annotations, m.Spec.Version)
		}
	}
	e.Serve("CanUpdateMachine", coverVersion)
	p.awaitSettled(3)
	if after := p.names(); !slices.Equal(before, after) {
		t.Errorf("machines %v became %v", before, after)
	}
	for _, request := range requestsOf[hooksv1.CanUpdateMachineRequest](p, e, "CanUpdateMachine") {
		// asked again after a conflict
		if _, hasBegun := request.Current.Machine.Annotations[clusterv1.UpdateInProgressAnnotation]; !hasBegun {
			expectRequest(t, request)
		}
	}
}

// TestExtensionThatHangsHoldsUpNoOther claims another control plane while an extension does not answer for the first.
func TestExtensionThatHangsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	p := start(t, 3, 0)
	e, _ := p.extend()
	begun, ended := make(chan struct{}, 100), make(chan struct{}, 100)
	e.Serve("CanUpdateMachine", func(_ http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		<-r.Context().Done()
		ended <- struct{}{}
	})
	p.upgrade("v1.36.1")
	<-begun
	other := &v1alpha1.RunlevelControlPlane{ObjectMeta: p.Meta(p.Namespace + "-other"), Spec: *p.plane.Spec.DeepCopy()}
	cluster := &clusterv1.Cluster{ObjectMeta: p.Meta("other")}
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: v1alpha1.GroupVersion.Group,
		Kind:     "RunlevelControlPlane",
		Name:     other.Name,
	}
	p.MustCreate(other, cluster)
	machinetest.Await(t, p, other, client.ObjectKeyFromObject(other), func(plane *v1alpha1.RunlevelControlPlane) bool {
		return len(plane.Finalizers) > 0
	})
	if len(ended) > 0 {
		t.Error("the other control plane waited for the extension")
	}
}

// expectRequest compares a request with the one that Cluster API sends for a change of the version.
func expectRequest(t *testing.T, request hooksv1.CanUpdateMachineRequest) {
	t.Helper()
	current, desired := request.Current.Machine, request.Desired.Machine
	if current.Spec.Version != "v1.36.0" || desired.Spec.Version != "v1.36.1" {
		t.Errorf("versions %s and %s", current.Spec.Version, desired.Spec.Version)
	}
	for side, objects := range map[string]hooksv1.CanUpdateMachineRequestObjects{"current": request.Current,
		"desired": request.Desired} {
		machine, err := json.Marshal(objects.Machine)
		if err != nil {
			t.Fatal(err)
		}
		for kind, raw := range map[string][]byte{
			"cluster.x-k8s.io/v1beta2, Machine":                 machine,
			"infrastructure.runlevel.dev/v1alpha1, KwokMachine": objects.InfrastructureMachine.Raw,
			"infrastructure.runlevel.dev/v1alpha1, KwokConfig":  objects.BootstrapConfig.Raw,
		} {
			var object struct {
				metav1.TypeMeta
				Metadata     metav1.ObjectMeta
				Spec, Status map[string]any
			}
			if err := json.Unmarshal(raw, &object); err != nil {
				t.Fatalf("%s %s: %v", side, kind, err)
			}
			got := object.APIVersion + ", " + object.Kind
			_, isMarked := object.Metadata.Annotations[clusterv1.UpdateInProgressAnnotation]
			if got != kind || object.Metadata.Name != current.Name || len(object.Spec) == 0 || len(object.Status) > 0 ||
				isMarked {
				t.Errorf("%s: %+v, of kind %s, want %s", side, object, got, kind)
			}
			// the provider's, not the template's
			if kind != "infrastructure.runlevel.dev/v1alpha1, KwokConfig" && object.Spec["providerID"] == nil {
				t.Errorf("%s %s has no providerID: %v", side, kind, object.Spec)
			}
		}
	}
}
