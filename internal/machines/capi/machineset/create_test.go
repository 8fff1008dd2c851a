package machineset_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/capi/machineset"
	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// A set without its templates creates its machines as soon as the templates exist, long before the next retry.
func TestMissingTemplates(t *testing.T) {
	t.Parallel()
	f := newIdleFixture(t)
	var looks atomic.Int32
	counted := sandboxtest.Before(stage.Sandbox(t).Config, func(request *http.Request) error {
		if request.Method == http.MethodGet && strings.Contains(request.URL.Path, "templates/") {
			looks.Add(1)
		}
		return nil
	})
	f.manageWith(counted, machineset.Options{RetrySoon: time.Hour})
	set := f.newSet("web", 2)
	set.Spec.Template.Spec.InfrastructureRef.Name, set.Spec.Template.Spec.Bootstrap.ConfigRef.Name = "large", "special"
	f.MustCreate(set)
	lacks := func(template string) {
		f.awaitSet(set, func(s clusterv1.MachineSetStatus) bool {
			return hasCondition(s, clusterv1.ScalingUpCondition, metav1.ConditionTrue,
				"Scaling up from 0 to 2 replicas is blocked because:\n* ") &&
				hasCondition(s, clusterv1.ScalingUpCondition, metav1.ConditionTrue, template)
		})
		// The write of the status causes another reconciliation. The test waits for it before it creates the template.
		var before, polls int32
		f.Eventually("the set is at rest", func() bool {
			now := looks.Load()
			if polls++; now != before {
				before, polls = now, 0
			}
			return polls > 20
		})
	}
	lacks("KwokConfigTemplate " + f.Namespace + "/special")
	f.MustCreate(&v1alpha1.KwokConfigTemplate{ObjectMeta: f.Meta("special")})
	lacks("KwokMachineTemplate " + f.Namespace + "/large")
	f.MustCreate(&v1alpha1.KwokMachineTemplate{ObjectMeta: f.Meta("large")})
	f.awaitReplicas(set, 2)
	var configs v1alpha1.KwokConfigList
	if f.MustList(&configs); len(configs.Items) != 2 {
		t.Errorf("%d bootstrap configs for 2 machines", len(configs.Items))
	}
}

func TestMissingCluster(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	set := f.newSet("web", 1)
	set.Spec.ClusterName, set.Spec.Template.Spec.ClusterName = "later", "later"
	f.MustCreate(set)
	f.awaitSet(set, func(s clusterv1.MachineSetStatus) bool {
		return hasCondition(s, clusterv1.ScalingUpCondition, metav1.ConditionTrue,
			"the Cluster later of spec.clusterName does not exist")
	})
	cluster := f.NewCluster()
	cluster.Name = "later"
	f.MustCreate(cluster)
	f.awaitReplicas(set, 1)
}

// The objects of machines that are refused are deleted.
func TestRefusedMachinesLeaveNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	quota := stage.Limit(t, f.Namespace, "machines.cluster.x-k8s.io", 2)
	set := f.newSet("web", 5)
	f.MustCreate(set)
	f.awaitSet(set, func(s clusterv1.MachineSetStatus) bool {
		return *s.Replicas == 2 &&
			hasCondition(s, clusterv1.ScalingUpCondition, metav1.ConditionTrue, "exceeded quota: limit")
	})
	f.Eventually("nothing is left over", func() bool { return len(f.infrastructure()) == 2 })
	f.MustDelete(quota)
	f.awaitReplicas(set, 5)
}

// If a machine is created and the response is lost, its objects are kept.
func TestCreationWithoutAResponse(t *testing.T) {
	t.Parallel()
	f := newIdleFixture(t)
	var lost atomic.Bool
	f.manage(sandboxtest.Tap(stage.Sandbox(t).Config,
		func(request *http.Request, send http.RoundTripper) (*http.Response, error) {
			answer, err := send.RoundTrip(request)
			if err == nil && request.Method == http.MethodPatch && strings.Contains(request.URL.Path, "/machines/") &&
				lost.CompareAndSwap(false, true) {
				_ = answer.Body.Close()
				return nil, io.ErrUnexpectedEOF
			}
			return answer, err
		}))
	set := f.newSet("web", 1)
	f.MustCreate(set)
	for name := range f.awaitReplicas(set, 1) {
		if all := f.infrastructure(); !all[name] || len(all) != 1 {
			t.Errorf("infrastructure of machine %s: %v", name, all)
		}
	}
}

// A controller that ended between the infrastructure and its machine has left the infrastructure.
func TestLeftoversAreDeleted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	set := f.newSet("web", 1)
	f.MustCreate(set)
	f.awaitReplicas(set, 1)
	leftover, foreign := &v1alpha1.KwokMachine{ObjectMeta: f.Meta("leftover")},
		&v1alpha1.KwokMachine{ObjectMeta: f.Meta("foreign")}
	for _, object := range []*v1alpha1.KwokMachine{leftover, foreign} {
		object.Labels = map[string]string{clusterv1.ClusterNameLabel: "c"}
	}
	leftover.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: clusterv1.GroupVersion.String(),
		Kind:       "MachineSet",
		Name:       set.Name,
		UID:        set.UID,
	}}
	f.MustCreate(leftover, foreign)
	f.scale(set, 2)
	f.AwaitGone(leftover)
	f.awaitReplicas(set, 2)
	if all := f.infrastructure(); len(all) != 3 || !all["foreign"] {
		t.Errorf("infrastructure: got %v, want three objects, with foreign", all)
	}
}

// Of this provider nothing is known but the contract.
func TestAnyProviderOfTheContract(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	template := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"cores": int64(4)}}},
	}}
	template.SetGroupVersionKind(schema.GroupVersionKind{
		Group:   "infra.example.com",
		Version: "v1",
		Kind:    "SlabTemplate",
	})
	template.SetNamespace(f.Namespace)
	template.SetName("four")
	f.MustCreate(template)
	set := f.newSet("web", 2)
	set.Spec.Template.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: "infra.example.com",
		Kind:     "SlabTemplate",
		Name:     "four",
	}
	set.Spec.Template.Spec.Bootstrap = f.newMachine("", nil).Spec.Bootstrap
	f.MustCreate(set)
	for name, machine := range f.awaitReplicas(set, 2) {
		slab := &unstructured.Unstructured{}
		slab.SetGroupVersionKind(schema.GroupVersionKind{Group: "infra.example.com", Version: "v1", Kind: "Slab"})
		f.Must(f.Get(t.Context(), client.ObjectKeyFromObject(machine), slab))
		if cores, _, _ := unstructured.NestedInt64(slab.Object, "spec", "cores"); cores != 4 ||
			machine.Spec.InfrastructureRef.Kind != "Slab" {
			t.Errorf("%s: %v, %+v", name, slab, machine.Spec)
		}
	}
}
