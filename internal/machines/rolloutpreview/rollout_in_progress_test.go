package rolloutpreview_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/rolloutpreview"
	"github.com/runlevel/runlevel/internal/sandbox/runtimehooktest"
)

// A startedRollout is a rollout of newDeployment to version v2 that has begun: web-2 is the new set.
type startedRollout struct {
	*scene
	oldSet, newSet *clusterv1.MachineSet
}

// newStartedRollout creates the new set, and scales the old one down.
func newStartedRollout(t *testing.T, replicas int32, annotations map[string]string) *startedRollout {
	t.Helper()
	r := &startedRollout{scene: newDeployment(t)}
	r.oldSet = &clusterv1.MachineSet{ObjectMeta: r.Meta("web-1")}
	r.MustGet(r.oldSet)
	r.newSet = &clusterv1.MachineSet{ObjectMeta: r.Meta("web-2"), Spec: *r.oldSet.Spec.DeepCopy()}
	r.newSet.OwnerReferences = r.oldSet.OwnerReferences
	r.newSet.Annotations = annotations
	r.newSet.Spec.Replicas = ptr.To[int32](1)
	r.newSet.Spec.Template.Spec.Version = "v2"
	r.MustCreate(r.newSet)
	r.MustPatch(r.oldSet, `{"spec":{"replicas":%d}}`, replicas)
	return r
}

// machine returns a machine of the cluster.
func (r *startedRollout) machine(name string) *clusterv1.Machine {
	r.Helper()
	machine := &clusterv1.Machine{ObjectMeta: r.Meta(name)}
	r.MustGet(machine)
	return machine
}

// add creates a machine of the new set. It is available, or has no Node yet.
func (r *startedRollout) add(name string, isAvailable bool) {
	r.Helper()
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: r.Namespace, Name: name,
		OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(r.newSet, clusterv1.GroupVersion.WithKind("MachineSet")),
		},
	}, Spec: r.newSet.Spec.Template.Spec}
	machine.Spec.InfrastructureRef.Kind = "KwokMachine"
	r.MustCreate(machine)
	if !isAvailable {
		return
	}
	before := machine.DeepCopy()
	machine.Status.NodeRef.Name = name
	meta.SetStatusCondition(&machine.Status.Conditions,
		metav1.Condition{Type: clusterv1.MachineAvailableCondition, Status: metav1.ConditionTrue, Reason: "Available"})
	r.Must(r.Client.Status().Patch(r.Context(), machine, client.MergeFrom(before)))
}

// move moves a machine to the new set, as the controller does.
func (r *startedRollout) move(name string) {
	r.Helper()
	owner := metav1.NewControllerRef(r.newSet, clusterv1.GroupVersion.WithKind("MachineSet"))
	machine := r.machine(name)
	before := machine.DeepCopy()
	machine.OwnerReferences = []metav1.OwnerReference{*owner}
	machine.Annotations = map[string]string{
		clusterv1.UpdateInProgressAnnotation:       "",
		clusterv1.PendingAcknowledgeMoveAnnotation: "",
	}
	r.Must(r.Client.Patch(r.Context(), machine, client.MergeFrom(before)))
}

// hold deletes a machine that a finalizer holds.
func (r *startedRollout) hold(name string) {
	r.Helper()
	machine := r.machine(name)
	r.MustPatch(machine, `{"metadata":{"finalizers":["example.com/held"]}}`)
	r.MustDelete(machine)
}

// markUnhealthy marks a machine as unhealthy, so that it is replaced.
func (r *startedRollout) markUnhealthy(name string) {
	r.Helper()
	machine := r.machine(name)
	before := machine.DeepCopy()
	for _, condition := range []string{clusterv1.MachineHealthCheckSucceededCondition,
		clusterv1.MachineOwnerRemediatedCondition} {
		meta.SetStatusCondition(&machine.Status.Conditions,
			metav1.Condition{Type: condition, Status: metav1.ConditionFalse, Reason: "Test"})
	}
	r.Must(r.Client.Status().Patch(r.Context(), machine, client.MergeFrom(before)))
}

// expect compares the steps without their reasons.
func (r *startedRollout) expect(extension rolloutpreview.ExtensionQuery, wanted, want string) {
	r.Helper()
	p := r.previewDeployment(extension, wanted)
	got := p.Unanswered
	for _, step := range p.Steps {
		got += fmt.Sprintf("%d %s %s, ", step.Round, step.Action, step.Machine)
		if step.Reason == "" {
			r.Errorf("%s of %s has no reason", step.Action, step.Machine)
		}
	}
	if p.IsStuck {
		got += "stuck, "
	}
	if diff := cmp.Diff(want, strings.TrimSuffix(got, ", ")); diff != "" {
		r.Errorf("(-want +got):\n%s", diff)
	}
}

// versionExtension returns an extension that updates machines of v1 to v2 in place.
func versionExtension(t *testing.T) (*runtimehooktest.Extension, rolloutpreview.ExtensionQuery) {
	patch := base64.StdEncoding.EncodeToString(
		[]byte(`[{"op":"replace","path":"/spec/template/spec/version","value":"v2"}]`))
	answer := fmt.Sprintf(`{"status":"Success","machineSetPatch":{"patchType":"JSONPatch","patch":%q}}`, patch)
	return newExtension(t, "CanUpdateMachineSet", answer)
}

// newExtension returns an extension with a hook that gives an answer, and with the hook UpdateMachine.
func newExtension(t *testing.T, hook, answer string) (*runtimehooktest.Extension, rolloutpreview.ExtensionQuery) {
	extension := runtimehooktest.New(t)
	handler := func(name, hook string) string {
		return fmt.Sprintf(`{"name":%q,"requestHook":{"apiVersion":%q,"hook":%q}}`, name,
			"hooks.runtime.cluster.x-k8s.io/v1alpha1", hook)
	}
	extension.Answer("Discovery", fmt.Sprintf(`{"status":"Success","handlers":[%s,%s]}`,
		handler("can", hook), handler("do", "UpdateMachine")))
	extension.Answer(hook, answer)
	return extension, rolloutpreview.ExtensionQuery{URL: extension.ClientConfig().URL, CA: extension.CA()}
}

// newMove returns a rollout in which the old set moves machines to the new one, which has acknowledged one.
func newMove(t *testing.T) *startedRollout {
	t.Helper()
	r := newStartedRollout(t, 2, map[string]string{
		clusterv1.MachineSetReceiveMachinesFromMachineSetsAnnotation: "web-1",
		clusterv1.AcknowledgedMoveAnnotation:                         "m1",
	})
	r.MustPatch(r.oldSet, `{"metadata":{"annotations":{"`+clusterv1.MachineSetMoveMachinesToMachineSetAnnotation+
		`":"web-2"}}}`)
	r.move("m1")
	return r
}

func TestStartedRolloutCountsMovedMachineOnce(t *testing.T) {
	r := newMove(t)
	_, extension := versionExtension(t)
	r.expect(extension, fmt.Sprintf(deployment, 0, 1, "v2", "small"), "1 UpdateInPlace m2, 2 UpdateInPlace m3")
}

func TestStartedRolloutReplacesUnhealthyMachine(t *testing.T) {
	r := newMove(t)
	r.markUnhealthy("m2")
	_, extension := versionExtension(t)
	r.expect(extension, fmt.Sprintf(deployment, 0, 1, "v2", "small"),
		"1 Delete m2, 2 Create new 1, 3 UpdateInPlace m3")
}

func TestStartedRolloutIsPaused(t *testing.T) {
	r := newMove(t)
	r.MustPatch(r.oldSet, `{"spec":{"replicas":1}}`) // one more machine has to be moved
	wanted := strings.Replace(fmt.Sprintf(deployment, 0, 1, "v2", "small"), "spec:\n", "spec:\n  paused: true\n", 1)
	_, extension := versionExtension(t)
	r.expect(extension, wanted, "")
}

func TestStartedRolloutWaitsForStartingMachine(t *testing.T) {
	r := newStartedRollout(t, 3, nil)
	r.add("n1", false)
	r.expect(rolloutpreview.ExtensionQuery{}, fmt.Sprintf(deployment, 1, 0, "v2", "small"),
		"1 Delete m1, 2 Create new 1, 3 Delete m2, 4 Create new 2, 5 Delete m3")
}

func TestStartedRolloutIgnoresDeletedMachine(t *testing.T) {
	r := newStartedRollout(t, 2, nil)
	r.add("n1", true)
	r.hold("m1")
	r.expect(rolloutpreview.ExtensionQuery{}, fmt.Sprintf(deployment, 1, 0, "v2", "small"),
		"1 Create new 1, 2 Delete m2, 3 Create new 2, 4 Delete m3")
}
