package machinehook

import (
	"slices"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/conditions"
	"github.com/runlevel/runlevel/internal/machines/deletion"
)

// A stageProgress is the progress of a deletion towards the stage of a hook, and past it.
type stageProgress int

const (
	stageAhead stageProgress = iota
	stageReached
	stagePassed // the stage is over or skipped: its hooks do not hold the machine
)

// A machineAPI reads and writes the machines of an API, and their hooks.
type machineAPI struct {
	name     string
	view     func(client.Object) HeldMachine
	progress func(client.Object, HookStage) stageProgress
	// owner returns the owner of a hook, and whether the machine has the hook.
	owner func(client.Object, Hook) (string, bool)
	// set adds the hook to the machine, or removes it.
	set func(m client.Object, h Hook, exists bool)
}

// machineAPIOf returns the API of a Machine.
func machineAPIOf(m client.Object) (machineAPI, bool) {
	switch m.(type) {
	case *machinev1beta1.Machine:
		return machineAPI{"openshift", viewOpenShift, progressOpenShift, ownerOpenShift, setOpenShift}, true
	case *clusterv1.Machine:
		return machineAPI{"clusterapi", viewClusterAPI, progressClusterAPI, ownerClusterAPI, setClusterAPI}, true
	}
	return machineAPI{}, false
}

func viewOpenShift(o client.Object) HeldMachine {
	m := o.(*machinev1beta1.Machine)
	view := HeldMachine{Namespace: m.Namespace, Name: m.Name, ProviderID: ptr.Deref(m.Spec.ProviderID, ""), Object: m}
	if m.Status.NodeRef != nil {
		view.NodeName = m.Status.NodeRef.Name
	}
	return view
}

// progressOpenShift: a machine without a node, or excluded from draining, is not held by hooks before the
// drain.
func progressOpenShift(o client.Object, stage HookStage) stageProgress {
	m := o.(*machinev1beta1.Machine)
	_, isExcluded := m.Annotations[deletion.ExcludeNodeDraining]
	isDrained := conditions.Find(m.Status.Conditions, machinev1beta1.MachineDrained).Status == corev1.ConditionTrue
	isTerminating := conditions.Find(m.Status.Conditions,
		machinev1beta1.InstanceExistsCondition).Reason == deletion.InstanceTerminating
	switch {
	case ptr.Deref(m.Status.Phase, "") != machinev1beta1.PhaseDeleting:
		return stageAhead
	case isTerminating, isDrained && stage == BeforeDrain:
		return stagePassed
	case stage == BeforeDrain && (isExcluded || m.Status.NodeRef == nil):
		return stageAhead // the controller has not reported yet that it skips the drain
	case isDrained == (stage == BeforeTerminate):
		return stageReached
	}
	return stageAhead
}

func ownerOpenShift(o client.Object, h Hook) (string, bool) {
	list := *listOpenShift(o, h.Stage)
	if i := indexOpenShift(list, h.Name); i >= 0 {
		return list[i].Owner, true
	}
	return "", false
}

func setOpenShift(o client.Object, h Hook, exists bool) {
	list := listOpenShift(o, h.Stage)
	*list = slices.DeleteFunc(*list, func(hook machinev1beta1.LifecycleHook) bool {
		return hook.Name == h.Name && !exists
	})
	wanted := machinev1beta1.LifecycleHook{Name: h.Name, Owner: h.Owner}
	switch i := indexOpenShift(*list, h.Name); {
	case i >= 0:
		(*list)[i] = wanted
	case exists:
		*list = append(*list, wanted)
	}
}

func listOpenShift(o client.Object, stage HookStage) *[]machinev1beta1.LifecycleHook {
	hooks := &o.(*machinev1beta1.Machine).Spec.LifecycleHooks
	if stage == BeforeDrain {
		return &hooks.PreDrain
	}
	return &hooks.PreTerminate
}

func indexOpenShift(list []machinev1beta1.LifecycleHook, name string) int {
	return slices.IndexFunc(list, func(hook machinev1beta1.LifecycleHook) bool { return hook.Name == name })
}

func viewClusterAPI(o client.Object) HeldMachine {
	m := o.(*clusterv1.Machine)
	return HeldMachine{
		Namespace:  m.Namespace,
		Name:       m.Name,
		NodeName:   m.Status.NodeRef.Name,
		ProviderID: m.Spec.ProviderID,
		Object:     m,
	}
}

// progressClusterAPI: the condition Deleting has the hooks that the machine waits for.
func progressClusterAPI(o client.Object, stage HookStage) stageProgress {
	switch s := deletion.StageClusterAPI(o.(*clusterv1.Machine)); s {
	case stage:
		return stageReached
	case BeforeTerminate, deletion.Terminating, deletion.RemovingConfig, deletion.RemovingNode, deletion.Completed:
		return stagePassed
	}
	return stageAhead
}

func ownerClusterAPI(o client.Object, h Hook) (string, bool) {
	owner, ok := o.GetAnnotations()[keyClusterAPI(h)]
	return owner, ok
}

func setClusterAPI(o client.Object, h Hook, exists bool) {
	if exists {
		annotate(o, keyClusterAPI(h), h.Owner)
		return
	}
	annotate(o, keyClusterAPI(h), "")
}

func keyClusterAPI(h Hook) string {
	if h.Stage == BeforeDrain {
		return clusterv1.PreDrainDeleteHookAnnotationPrefix + "/" + h.Name
	}
	return clusterv1.PreTerminateDeleteHookAnnotationPrefix + "/" + h.Name
}

// annotate sets an annotation, or removes it if the value is empty.
func annotate(o client.Object, key, value string) {
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	if value == "" {
		delete(annotations, key)
	}
	o.SetAnnotations(annotations)
}
