package machineset_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
)

// No machines are created while the control plane is not stable, or changes its version.
func TestMachinesWaitForTheControlPlane(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	plane := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"version": "v1.36.3"}}}
	plane.SetGroupVersionKind(schema.GroupVersionKind{Group: "infra.example.com", Version: "v1", Kind: "Slab"})
	plane.SetNamespace(f.Namespace)
	plane.SetName("plane")
	f.MustCreate(plane)
	f.MustPatch(&clusterv1.Cluster{ObjectMeta: f.Meta("c")},
		`{"spec":{"controlPlaneRef":{"apiGroup":"infra.example.com","kind":"Slab","name":"plane"}}}`)
	set := f.newSet("web", 1)
	set.Spec.Template.Spec.Version = "v1.36.3"
	f.MustCreate(set)
	isBlocked := func(reason string) {
		t.Helper()
		f.awaitSet(set, func(s clusterv1.MachineSetStatus) bool {
			return hasCondition(s, clusterv1.ScalingUpCondition, metav1.ConditionTrue, reason)
		})
	}
	isBlocked("Slab " + f.Namespace + "/plane is provisioning (preflight check ControlPlaneIsStable)")
	f.MustPatch(plane, `{"status":{"versions":[{"version":"v1.36.3"},{"version":"v1.35.0"}]}}`)
	isBlocked("is upgrading from 1.35.0 to 1.36.3")
	f.MustPatch(plane, `{"status":{"versions":[{"version":"v1.36.3"}]}}`)
	f.awaitReplicas(set, 1)

	f.MustPatch(set, `{"spec":{"replicas":2,"template":{"spec":{"version":"v1.37.0"}}}}`)
	isBlocked("machines of version 1.37.0 would be newer (preflight check KubernetesVersionSkew)")
	f.MustPatch(set, `{"spec":{"template":{"spec":{"version":"v1.32.0"}}}}`)
	isBlocked("more than 3 minor versions older")
	config := &v1alpha1.KwokConfigTemplate{ObjectMeta: f.Meta("plain")}
	f.MustPatch(config, `{"metadata":{"annotations":{%q:"KubernetesVersionSkew"}}}`,
		clusterv1.MachineSetSkipPreflightChecksAnnotation)
	f.MustPatch(set, `{"metadata":{"annotations":{%q:"ControlPlaneIsStable"}}}`,
		clusterv1.MachineSetSkipPreflightChecksAnnotation)
	isBlocked("more than 3 minor versions older") // the annotation of the set comes first
	f.MustPatch(set, `{"metadata":{"annotations":{%q:null}}}`, clusterv1.MachineSetSkipPreflightChecksAnnotation)
	marked := ""
	for name := range f.awaitReplicas(set, 2) {
		marked = name
	}

	// A marked machine is not deleted either while its replacement is blocked.
	f.MustPatch(plane, `{"status":{"versions":[{"version":"v1.35.0"}]}}`)
	f.mark(marked, metav1.ConditionFalse, true)
	machine := f.awaitMachine(marked, func(m *clusterv1.Machine) bool {
		aggregated := remediation(m)
		return aggregated.Reason == clusterv1.MachineSetMachineRemediationDeferredReason &&
			strings.Contains(aggregated.Message, "is upgrading from 1.35.0 to 1.36.3")
	})
	f.MustPatch(plane, `{"status":{"versions":[{"version":"v1.36.3"}]}}`)
	f.AwaitGone(machine)
	f.awaitReplicas(set, 2)
}
