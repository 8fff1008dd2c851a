package manager_test

import (
	"fmt"
	"testing"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/annotation"
	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

// An apiSide is one of two APIs that are compared, with a machine.
type apiSide struct {
	*scene
	*crowdMember
	difference difference
	want       string
}

// in is the side for a part of a test. The machine is the same.
func (a *apiSide) in(t *testing.T) *apiSide {
	part := *a
	part.scene = a.scene.in(t)
	return &part
}

func (a *apiSide) title() string {
	if a.isClusterAPI {
		return a.difference.name + ", cluster-api"
	}
	return a.difference.name + ", openshift"
}

// mismatch returns the observed and the expected result if they differ.
func (a *apiSide) mismatch() string {
	seen := a.difference.seen(a)
	return unless(seen == a.want, "%s, not %s", seen, a.want)
}

// start makes the machine, and waits until it runs.
func (a *apiSide) start() {
	a.t.Helper()
	for _, object := range a.objects() {
		a.must(a.Create(a.t.Context(), object))
	}
	a.await(func() string {
		m := a.state()
		return unless(m != nil && m.phase == machinev1beta1.PhaseRunning && m.node != "", "%s does not run", a.name)
	})
}

// state returns the state of the machine, or nil if it does not exist.
func (a *apiSide) state() *machineState {
	a.t.Helper()
	m := a.machine()
	if err := a.Get(a.t.Context(), keyOf(a.name), m); err != nil {
		a.must(client.IgnoreNotFound(err))
		return nil
	}
	if machine, ok := m.(*clusterv1.Machine); ok {
		return stateOfClusterAPI(machine)
	}
	return stateOfOpenShift(m.(*machinev1beta1.Machine))
}

func (a *apiSide) deleteIt() {
	a.t.Helper()
	a.delete(a.machine())
}

// heldBy returns the reason that the machine reports for its hold: the last stage counts.
func (a *apiSide) heldBy() string {
	a.t.Helper()
	m := a.state()
	if m == nil {
		return "nothing: it is deleted"
	}
	for _, wait := range []string{waitsForInfrastructure, waitsForPreTerminate, waitsForPods, waitsForPreDrain} {
		if m.waits[wait] != "" {
			return wait
		}
	}
	return fmt.Sprintf("stage %d", m.stage)
}

func (a *apiSide) awaitHeld(by string) {
	a.t.Helper()
	a.await(func() string {
		seen := a.heldBy()
		return unless(seen == by, "%s is held by %s, not %s", a.name, seen, by)
	})
}

// tryHook adds a hook to the machine, as a user does: to a list, or as an annotation.
func (a *apiSide) tryHook(list, name string, options ...client.PatchOption) error {
	text := fmt.Sprintf(`{"spec":{"lifecycleHooks":{%q:[{"name":%q,"owner":"owner"}]}}}`, list, name)
	if a.isClusterAPI {
		prefix := map[string]string{
			"preDrain":     clusterv1.PreDrainDeleteHookAnnotationPrefix,
			"preTerminate": clusterv1.PreTerminateDeleteHookAnnotationPrefix,
		}[list]
		text = fmt.Sprintf(`{"metadata":{"annotations":{%q:"owner"}}}`, prefix+"/"+name)
	}
	return a.Patch(a.t.Context(), a.machine(), client.RawPatch("application/merge-patch+json", []byte(text)),
		options...)
}

func (a *apiSide) addHook(list, name string) {
	a.t.Helper()
	a.must(a.tryHook(list, name))
}

// The following methods are the actions that compare the APIs.

func (a *apiSide) excludeHeld() {
	a.isExcluded, a.preDrain, a.preTerminate = true, []string{"Migrate"}, []string{"Detach"}
	a.start()
	a.deleteIt()
}

func (a *apiSide) hookAfterDrain() {
	a.preTerminate = []string{"Detach"}
	a.start()
	a.deleteIt()
	a.awaitHeld(waitsForPreTerminate)
	a.addHook("preDrain", "Late")
}

// hookWhileEnding adds a hook when the Machine reports that its infrastructure ends, and then removes the
// infrastructure.
func (a *apiSide) hookWhileEnding() {
	a.start()
	infrastructure := &v1alpha1.KwokMachine{}
	a.patch(infrastructure, a.name, `{"spec":{"neverDeletes":true}}`)
	a.deleteIt()
	a.awaitHeld(waitsForInfrastructure)
	a.addHook("preTerminate", "Late")
	a.patch(infrastructure, a.name, `{"spec":{"neverDeletes":false}}`)
	machinetest.AwaitGone(a.t, a, infrastructure, keyOf(a.name))
}

// podAfterDrain creates a pod when the drain is complete. An attached volume and a hook keep the machine in this state.
func (a *apiSide) podAfterDrain() {
	a.preTerminate = []string{"Detach"}
	a.start()
	attachment := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: a.name, Finalizers: []string{"example.com/attacher"}},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "csi.example.com", NodeName: a.name,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("volume-" + a.name)},
		},
	}
	a.must(a.Create(a.t.Context(), attachment))
	attachment.Status.Attached = true
	a.must(a.Status().Update(a.t.Context(), attachment))
	a.deleteIt()
	wanted := 2 // drained
	if a.isClusterAPI {
		wanted = 3 // waiting for volumes
	}
	a.await(func() string { return unless(a.state().stage == wanted, "the drain of %s is not complete", a.name) })
	a.must(a.Create(a.t.Context(), newPod(a.name, a.name)))
}

// fateOfPod changes the machine, so that the controllers reconcile it again, and returns the state of the pod.
func (a *apiSide) fateOfPod() string {
	a.t.Helper()
	a.must(a.Patch(a.t.Context(), a.machine(), client.RawPatch("application/merge-patch+json", fmt.Appendf(nil,
		`{"metadata":{"labels":{"looked":%q}}}`, a.state().ResourceVersion))))
	pod := &corev1.Pod{}
	err := a.Get(a.t.Context(), keyOf(a.name), pod)
	a.must(client.IgnoreNotFound(err))
	if err != nil || pod.DeletionTimestamp != nil {
		return "it is evicted"
	}
	return "it runs"
}

// ownerOfInfrastructure returns how the infrastructure names its Machine.
func (a *apiSide) ownerOfInfrastructure() string {
	a.t.Helper()
	infrastructure, uid := &v1alpha1.KwokMachine{}, string(a.state().UID)
	a.must(a.Get(a.t.Context(), keyOf(a.name), infrastructure))
	controller := metav1.GetControllerOf(infrastructure)
	switch {
	case controller != nil && string(controller.UID) == uid:
		return "it has its Machine as controller"
	case len(infrastructure.OwnerReferences) == 0 && infrastructure.Annotations[annotation.MachineUID] == uid:
		return "it names its Machine in an annotation"
	}
	return fmt.Sprintf("it has the owners %v and the annotations %q", infrastructure.OwnerReferences,
		infrastructure.Annotations)
}
