package controlplane_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/capi/controlplane/v1alpha1"
	infrav1 "github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

// machine returns a machine of the cluster without a controller, and makes its infrastructure and its bootstrap config.
func (f *fixture) machine(name string, labels map[string]string) *clusterv1.Machine {
	f.Helper()
	machine := &infrav1.KwokMachine{ObjectMeta: f.Meta(name)}
	machine.Spec.Node.KubeletVersion = "v1.36.0"
	f.MustCreate(machine, &infrav1.KwokConfig{ObjectMeta: f.Meta(name)})
	m := &clusterv1.Machine{ObjectMeta: f.Meta(name), Spec: machinetest.MachineSpec()}
	m.Labels, m.Spec.Version = labels, "v1.36.0"
	for kind, ref := range map[string]*clusterv1.ContractVersionedObjectReference{
		"KwokMachine": &m.Spec.InfrastructureRef, "KwokConfig": &m.Spec.Bootstrap.ConfigRef,
	} {
		ref.Kind, ref.Name = kind, name
	}
	f.MustCreate(m)
	return m
}

// cluster returns the Cluster.
func (f *fixture) cluster() *clusterv1.Cluster { return &clusterv1.Cluster{ObjectMeta: f.Meta("c")} }

// TestControlPlaneWaitsForItsCluster makes a control plane do nothing until its Cluster is not paused, refers to it,
// and the template exists.
func TestControlPlaneWaitsForItsCluster(t *testing.T) {
	t.Parallel()
	p := newFixture(t, 1, 1)
	p.MustPatch(p.cluster(), `{"spec":{"paused":true}}`)
	p.MustPatch(p.plane, `{"spec":{"machineTemplate":{"spec":{"infrastructureRef":{"name":"later"}}}}}`)
	p.run()
	expectNothing := func() {
		t.Helper()
		if p.MustGet(p.plane); len(p.plane.Finalizers) > 0 || len(p.machines()) > 0 {
			t.Errorf("%v, %v", p.plane.Finalizers, p.names())
		}
	}
	isPaused := func(plane *v1alpha1.RunlevelControlPlane) bool {
		return meta.IsStatusConditionTrue(plane.Status.Conditions, clusterv1.PausedCondition)
	}
	machinetest.Await(t, p, &v1alpha1.RunlevelControlPlane{}, client.ObjectKeyFromObject(p.plane), isPaused)
	expectNothing()

	p.MustPatch(p.cluster(), `{"spec":{"paused":false,"controlPlaneRef":{"name":"other"}}}`)
	p.nudge() // the Cluster no longer leads to it
	p.awaitCondition(clusterv1.AvailableCondition, metav1.ConditionFalse,
		"no Cluster of namespace "+p.Namespace+" has this control plane: set spec.controlPlaneRef")
	expectNothing()

	p.MustPatch(p.cluster(), `{"spec":{"controlPlaneRef":{"name":%q}}}`, p.Namespace)
	p.awaitCondition(clusterv1.ScalingUpCondition, metav1.ConditionTrue,
		"Scaling up from 0 to 1 replicas is blocked because:\n* create 1 of 1 machines")
	p.awaitCondition(clusterv1.ScalingUpCondition, metav1.ConditionTrue, `"later" not found`)
	p.MustCreate(p.infrastructure("later"))
	p.awaitSettled(1)
	p.awaitNoLeftovers()
}

// TestAdoption adopts a machine of the cluster's control plane without a controller, and no worker, for which its
// deletion waits.
func TestAdoption(t *testing.T) {
	t.Parallel()
	p := newFixture(t, 3, 1)
	p.runMachines()
	orphan := p.machine(p.Namespace+"-orphan", map[string]string{clusterv1.MachineControlPlaneLabel: ""})
	worker := p.machine(p.Namespace+"-worker", nil)
	cluster := p.cluster()
	p.MustGet(cluster)
	// as a topology's
	p.MustPatch(p.plane,
		`{"metadata":{"ownerReferences":[{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"Cluster","name":"c","uid":%q}]}}`, cluster.UID)
	p.runPlane(stage.Sandbox(t).Config)
	p.awaitSettled(3)
	if p.MustGet(p.plane); len(p.plane.OwnerReferences) != 1 || p.plane.OwnerReferences[0].UID != cluster.UID {
		t.Errorf("owners of the control plane: got %v, want the Cluster with UID %s", p.plane.OwnerReferences,
			cluster.UID)
	}
	p.MustGet(orphan)
	p.MustGet(worker)
	if !metav1.IsControlledBy(orphan, p.plane) || metav1.GetControllerOf(worker) != nil || len(p.machines()) != 4 {
		t.Errorf("%v, %v, %v", orphan.OwnerReferences, worker.OwnerReferences, p.names())
	}
	p.MustDelete(p.plane)
	p.awaitCondition(clusterv1.DeletingCondition, metav1.ConditionTrue,
		"Waiting for 1 other Machines of the cluster to be deleted")
	for name, m := range p.machines() {
		if m.DeletionTimestamp != nil {
			t.Errorf("machine %s is deleted before the worker", name)
		}
	}
	p.MustDelete(worker)
	p.AwaitGone(p.plane)
	if remaining := p.names(); len(remaining) > 0 {
		t.Errorf("the control plane was deleted before its machines %v", remaining)
	}
}

// TestDeletedCluster deletes the Cluster: the control plane must be deleted with it, after its machines.
func TestDeletedCluster(t *testing.T) {
	t.Parallel()
	p := newFixture(t, 1, 1)
	// or it would be looked for, in passes
	p.MustCreate(&corev1.Secret{ObjectMeta: p.Meta("c-ca"), Data: newSigningAuthority(t).data(t)})
	p.run()
	p.awaitSettled(1)
	p.awaitCondition(kubeconfigAvailable, metav1.ConditionTrue, "")
	p.MustDelete(p.cluster())
	p.AwaitGone(p.plane)
	if remaining := p.names(); len(remaining) > 0 {
		t.Errorf("the control plane was deleted before its machines %v", remaining)
	}
}

// TestFailureDomains spreads machines over the failure domains for control planes, and keeps them so in a rollout and
// scalings.
func TestFailureDomains(t *testing.T) {
	t.Parallel()
	p := newFixture(t, 3, 1)
	p.MustPatchStatus(p.cluster(),
		`{"status":{"failureDomains":[{"name":"x","controlPlane":true},{"name":"y","controlPlane":true},
		{"name":"z","controlPlane":true},{"name":"w","controlPlane":false}]}}`)
	p.run()
	expectSpread := func(replicas int32) {
		t.Helper()
		p.awaitSettled(replicas)
		count := map[string]int{}
		for _, m := range p.machines() {
			count[m.Spec.FailureDomain]++
		}
		if numbers := slices.Sorted(maps.Values(count)); len(count) != 3 || count["w"] > 0 ||
			numbers[2]-numbers[0] > 1 {
			t.Errorf("%d machines are in %v", replicas, count)
		}
	}
	expectSpread(3)
	p.upgrade("v1.36.1")
	expectSpread(3)
	p.MustPatch(p.plane, `{"spec":{"replicas":5}}`)
	expectSpread(5)
	p.MustPatch(p.plane, `{"spec":{"replicas":3}}`)
	expectSpread(3)
}

// TestMetadata brings the labels and annotations of the template to the machines and their objects, and takes them
// away, without new machines.
func TestMetadata(t *testing.T) {
	t.Parallel()
	p := start(t, 1, 1)
	before := p.names()
	await := func(label, annotation, taint string) {
		t.Helper()
		p.Eventually("the metadata is "+label, func() bool {
			var machines infrav1.KwokMachineList
			var configs infrav1.KwokConfigList
			p.MustList(&machines)
			p.MustList(&configs)
			m := p.machines()[before[0]]
			objects := []client.Object{m, &machines.Items[0], &configs.Items[0]}
			return len(m.Spec.Taints) == len(taint) && !slices.ContainsFunc(objects, func(o client.Object) bool {
				return o.GetLabels()["rack"] != label || o.GetAnnotations()["note"] != annotation
			})
		})
	}
	p.MustPatch(p.plane, `{"spec":{"machineTemplate":{"metadata":{"labels":{"rack":"a"},"annotations":{"note":"b"}},
		"spec":{"taints":[{"key":"t","effect":"NoSchedule","propagation":"Always"}]}}}}`)
	await("a", "b", "t")
	p.MustPatch(p.plane, `{"spec":{"machineTemplate":{"metadata":null,"spec":{"taints":null}}}}`)
	await("", "", "")
	if after := p.names(); !slices.Equal(before, after) {
		t.Errorf("machines %v became %v", before, after)
	}
}

// TestVersionSkew checks that the API server refuses a version two minor versions above the oldest machine, even if it
// is only one above the version of the spec.
func TestVersionSkew(t *testing.T) {
	t.Parallel()
	p := newFixture(t, 3, 1)
	p.MustPatchStatus(p.plane, `{"status":{"version":"v1.35.9"}}`)
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"version":"v1.37.0"}}`))
	if err := p.Patch(t.Context(), p.plane, patch); err == nil ||
		!strings.Contains(err.Error(), "more than one minor version above status.version") {
		t.Errorf("got %v", err)
	}
	p.MustPatchStatus(p.plane, `{"status":{"version":"v1.36.0"}}`)
	p.Must(p.Patch(t.Context(), p.plane, patch))
}
