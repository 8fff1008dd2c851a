package main

import (
	"fmt"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/machines/manager"
)

// A dialect is how machines of one API are made, looked at, and let go.
type dialect interface {
	machineMaker
	machineReader
}

// A machineMaker makes the objects of a bench.
type machineMaker interface {
	// surroundings are what has to be there before the machines.
	surroundings() []client.Object
	// machine returns a Machine with nothing but its name.
	machine(name string) client.Object
	// newMachine returns a Machine and, before it, its infrastructure where the user makes that.
	newMachine(kind, name string, isHooked bool) []client.Object
}

// A machineReader looks at the machines of an API, and lets them go.
type machineReader interface {
	// name is that of the controller's flag.
	name() manager.MachineDialect
	// look says how far a Machine is.
	look(machine client.Object) sighting
	// unhook is a patch that removes the hook.
	unhook() string
}

func inBench(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// openshift is machine.openshift.io.
type openshift struct{}

func (openshift) name() manager.MachineDialect  { return manager.OpenShift }
func (openshift) surroundings() []client.Object { return nil }
func (openshift) machine(name string) client.Object {
	return &machinev1beta1.Machine{ObjectMeta: inBench(name)}
}

func (openshift) newMachine(kind, name string, isHooked bool) []client.Object {
	m := &machinev1beta1.Machine{ObjectMeta: inBench(name)}
	value := fmt.Appendf(nil, `{"apiVersion": %q, "kind": %q}`, v1alpha1.GroupVersion, kind)
	if kind == "ExternalMachine" {
		value = fmt.Appendf(nil, `{"apiVersion": %q, "kind": %q, "spec": {"providerID": %q}}`, v1alpha1.GroupVersion, kind, providerID(name))
	}
	m.Spec.ProviderSpec.Value = &runtime.RawExtension{Raw: value}
	if isHooked {
		m.Spec.LifecycleHooks.PreTerminate = []machinev1beta1.LifecycleHook{{Name: "ShipLogs", Owner: "bench"}}
	}
	return []client.Object{m}
}

func (openshift) look(object client.Object) sighting {
	m := object.(*machinev1beta1.Machine)
	s := sighting{isRunning: ptr.Deref(m.Status.Phase, "") == machinev1beta1.PhaseRunning}
	for _, one := range m.Status.Conditions {
		isDrained := one.Type == machinev1beta1.MachineDrained && one.Status == corev1.ConditionTrue
		s.isHeld = s.isHeld || isDrained && len(m.Spec.LifecycleHooks.PreTerminate) > 0
	}
	return s
}

func (openshift) unhook() string { return `{"spec":{"lifecycleHooks":{"preTerminate":null}}}` }

// clusterAPI is cluster.x-k8s.io.
type clusterAPI struct{}

const (
	clusterName = "bench"
	clusterHook = clusterv1.PreTerminateDeleteHookAnnotationPrefix + "/ship-logs"
)

func (clusterAPI) name() manager.MachineDialect { return manager.ClusterAPI }
func (clusterAPI) machine(name string) client.Object {
	return &clusterv1.Machine{ObjectMeta: inBench(name)}
}

// surroundings are a Cluster, and a Machine of its control plane that stays: without any, no node is drained.
func (a clusterAPI) surroundings() []client.Object {
	const plane = "control-plane"
	cluster := &clusterv1.Cluster{ObjectMeta: inBench(clusterName)}
	cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: v1alpha1.GroupVersion.Group, Kind: "ExternalMachine", Name: plane,
	}
	objects := a.newMachine("ExternalMachine", plane, false)
	objects[1].SetLabels(map[string]string{clusterv1.MachineControlPlaneLabel: "", clusterv1.ClusterNameLabel: clusterName})
	return append([]client.Object{cluster}, objects...)
}

func (clusterAPI) newMachine(kind, name string, isHooked bool) []client.Object {
	var infrastructure client.Object = &v1alpha1.KwokMachine{ObjectMeta: inBench(name)}
	if kind == "ExternalMachine" {
		infrastructure = &v1alpha1.ExternalMachine{ObjectMeta: inBench(name), Spec: v1alpha1.ExternalMachineSpec{ProviderID: providerID(name)}}
	}
	m := &clusterv1.Machine{ObjectMeta: inBench(name)}
	m.Spec.ClusterName, m.Spec.Bootstrap.DataSecretName = clusterName, ptr.To("none")
	m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: v1alpha1.GroupVersion.Group, Kind: kind, Name: name}
	if isHooked {
		m.Annotations = map[string]string{clusterHook: "bench"}
	}
	return []client.Object{infrastructure, m}
}

func (clusterAPI) look(object client.Object) sighting {
	m := object.(*clusterv1.Machine)
	deleting := meta.FindStatusCondition(m.Status.Conditions, clusterv1.MachineDeletingCondition)
	return sighting{
		isRunning: m.Status.Phase == string(clusterv1.MachinePhaseRunning),
		isHeld:    deleting != nil && deleting.Reason == clusterv1.MachineDeletingWaitingForPreTerminateHookReason,
	}
}

func (clusterAPI) unhook() string {
	return fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, clusterHook)
}
