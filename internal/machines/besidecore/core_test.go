package besidecore

import (
	"context"
	"fmt"
	"maps"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/machines/capi/controlplane/v1alpha1"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

// patience is the timeout of waits: far longer than any wait takes.
const patience = 5 * time.Minute

// newFixture returns a namespace with a client that knows control planes.
func newFixture(t *testing.T) *machinetest.Fixture {
	t.Helper()
	f := shared.NewFixture(t)
	t.Cleanup(func() { logObjects(t, f.Namespace) })
	return f
}

// logObjects logs the objects in the namespace of a failed test.
func logObjects(t *testing.T, namespace string) {
	if !t.Failed() {
		return
	}
	for _, list := range []client.ObjectList{&clusterv1.ClusterList{}, &v1alpha1.RunlevelControlPlaneList{},
		&clusterv1.MachineList{}} {
		_ = shared.Client(t).List(context.Background(), list, client.InNamespace(namespace))
		_ = meta.EachListItem(list, func(o runtime.Object) error {
			o.(client.Object).SetManagedFields(nil)
			text, err := yaml.Marshal(o)
			t.Logf("%s", text)
			return err
		})
	}
}

// newControlPlane returns a Cluster c, whose infrastructure exists, and its control plane of three simulated machines.
func newControlPlane(f *machinetest.Fixture) (*clusterv1.Cluster, *v1alpha1.RunlevelControlPlane) {
	f.Helper()
	infrastructure := newObject(f, devInfrastructure, "DevCluster", "c", "{backend: {docker: {}}}")
	f.MustCreate(infrastructure)
	f.MustPatchStatus(infrastructure, `{"status":{"initialization":{"provisioned":true}}}`)
	plane := &v1alpha1.RunlevelControlPlane{ObjectMeta: f.Meta("plane")}
	plane.Spec = v1alpha1.RunlevelControlPlaneSpec{Replicas: ptr.To[int32](3), Version: "v1.36.2"}
	machine := machinetest.MachineSpec()
	plane.Spec.MachineTemplate.Spec.InfrastructureRef = machine.InfrastructureRef
	plane.Spec.MachineTemplate.Spec.Bootstrap = machine.Bootstrap
	cluster := &clusterv1.Cluster{ObjectMeta: f.Meta("c")}
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: v1alpha1.GroupVersion.Group, Kind: "RunlevelControlPlane", Name: plane.Name,
	}
	cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: devInfrastructure.Group,
		Kind:     "DevCluster",
		Name:     "c",
	}
	return cluster, plane
}

// awaitCluster waits until conditions of the Cluster are as wanted: "STATUS REASON", and the message after a colon if
// there is one.
func awaitCluster(f *machinetest.Fixture, wanted map[string]string) *clusterv1.Cluster {
	f.Helper()
	cluster, found := &clusterv1.Cluster{ObjectMeta: f.Meta("c")}, map[string]string{}
	err := wait.PollUntilContextTimeout(f.Context(), time.Second/10, patience, true,
		func(context.Context) (bool, error) {
			f.MustGet(cluster)
			for name := range wanted {
				found[name] = conditionText(cluster.Status.Conditions, name)
			}
			return maps.Equal(wanted, found), nil
		})
	if err != nil {
		f.Fatalf("core has not set the conditions of the Cluster: %v\n%s", err, cmp.Diff(wanted, found))
	}
	return cluster
}

func conditionText(conditions []metav1.Condition, name string) string {
	found := meta.FindStatusCondition(conditions, name)
	switch {
	case found == nil:
		return ""
	case found.Message == "":
		return fmt.Sprintf("%s %s", found.Status, found.Reason)
	}
	return fmt.Sprintf("%s %s: %s", found.Status, found.Reason, found.Message)
}

// TestCoreReadsTheStatus has core read the status of a control plane that no controller keeps: every field of the
// contract alone.
func TestCoreReadsTheStatus(t *testing.T) {
	runCore(t)
	applyDefinitions(t)
	f := newFixture(t)
	cluster, plane := newControlPlane(f)
	f.MustCreate(cluster, plane)
	awaitCluster(f, map[string]string{
		clusterv1.ClusterControlPlaneInitializedCondition: "False NotInitialized: Control plane not yet initialized",
		clusterv1.ClusterControlPlaneAvailableCondition: "False NotAvailable: RunlevelControlPlane " +
			"status.initialization.controlPlaneInitialized is false",
	})
	f.MustGet(plane)
	if len(plane.OwnerReferences) != 1 || plane.OwnerReferences[0].UID != cluster.UID ||
		plane.Labels[clusterv1.ClusterNameLabel] != "c" {
		t.Errorf("core has connected the control plane with its Cluster by %v and %v", plane.OwnerReferences,
			plane.Labels)
	}

	kubeconfig, err := os.ReadFile(shared.Sandbox(t).Kubeconfig)
	f.Must(err)
	secret := &corev1.Secret{
		ObjectMeta: f.Meta("c-kubeconfig"),
		Type:       clusterv1.ClusterSecretType,
		Data:       map[string][]byte{"value": kubeconfig},
	}
	secret.Labels = map[string]string{clusterv1.ClusterNameLabel: "c"}
	f.MustCreate(secret)
	now := metav1.Now().UTC().Format("2006-01-02T15:04:05Z")
	f.MustPatch(plane, `{"spec":{"controlPlaneEndpoint":{"host":"127.0.0.1","port":6443}}}`)
	f.MustPatchStatus(plane, `{"status":{"initialization":{"controlPlaneInitialized":true},"observedGeneration":%d,
		"replicas":3,"readyReplicas":2,"availableReplicas":1,"upToDateReplicas":0,"version":"v1.36.1","conditions":[
		{"type":"Available","status":"True","reason":"Available","message":"two of three","lastTransitionTime":%[2]q},
		{"type":"RollingOut","status":"True","reason":"RollingOut","message":"three to go","lastTransitionTime":%[2]q}]}}`, plane.Generation, now)
	cluster = awaitCluster(f, map[string]string{
		clusterv1.ClusterControlPlaneInitializedCondition: "True Initialized",
		clusterv1.ClusterControlPlaneAvailableCondition:   "True Available: two of three",
		clusterv1.ClusterRollingOutCondition:              "True RollingOut: * RunlevelControlPlane plane: three to go",
		clusterv1.ClusterRemoteConnectionProbeCondition:   "True ProbeSucceeded",
		clusterv1.ClusterAvailableCondition:               "True Available: * ControlPlaneAvailable: two of three",
	})
	seen := cluster.Status.ControlPlane
	counts := fmt.Sprint(*seen.DesiredReplicas, *seen.Replicas, *seen.ReadyReplicas, *seen.AvailableReplicas,
		*seen.UpToDateReplicas)
	if counts != "3 3 2 1 0" || !*cluster.Status.Initialization.ControlPlaneInitialized ||
		cluster.Spec.ControlPlaneEndpoint.Port != 6443 {
		t.Errorf("core has seen the counts %s, the endpoint %v and the initialization %+v", counts,
			cluster.Spec.ControlPlaneEndpoint, cluster.Status.Initialization)
	}

	f.MustDelete(cluster)
	f.AwaitGone(plane)
	f.AwaitGone(cluster)
}
