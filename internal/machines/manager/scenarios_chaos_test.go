package manager_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/machines/overview"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// chaos has failures that occur in clusters. Each function also checks their symptoms, and repairs them as an
// administrator does.
var chaos = map[string]func(*scene){
	"the owner of hooks was uninstalled":      uninstallOwner,
	"a node was deleted":                      loseNode,
	"infrastructure was deleted":              loseInfrastructure,
	"infrastructure never goes":               keepInfrastructure,
	"others have finalizers":                  keepByFinalizer,
	"a machine is edited while it is deleted": editDeleting,
}

// awaitHeldBy waits until `runlevel machines` reports of a machine that this holds it.
func (s *scene) awaitHeldBy(machine, text string) {
	s.t.Helper()
	connected := sandboxtest.Connect(s.t, s.control.Config)
	s.await(func() string {
		list, err := overview.List(s.t.Context(), connected, overview.Query{
			Namespace: metav1.NamespaceDefault, Names: []string{machine},
		})
		s.must(err)
		if len(list.Machines) == 0 {
			return machine + " is deleted"
		}
		heldBy := list.Machines[0].HeldBy()
		return unless(heldBy == text, "%s is held by %q, want %q", machine, heldBy, text)
	})
}

// awaitEvent waits until an event of a machine reports something.
func (s *scene) awaitEvent(machine, reason, text string) {
	s.t.Helper()
	s.await(func() string {
		var list eventsv1.EventList
		s.must(s.List(s.t.Context(), &list, client.InNamespace(metav1.NamespaceDefault)))
		isReported := slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
			return e.Regarding.Name == machine && e.Reason == reason && strings.Contains(e.Note, text)
		})
		return unless(isReported, "no event %s of %s has the text %q", reason, machine, text)
	})
}

// patchCommand is a command that `runlevel why` prints.
var patchCommand = regexp.MustCompile(`^kubectl patch ([a-z]+)\.\S+ (\S+) -n default --type=(json|merge) -p '(.*)'$`)

// runPrinted executes the first command that `runlevel why` prints for a machine. The command must change the object.
func (s *scene) runPrinted(machine string, object client.Object) {
	s.t.Helper()
	id := kinds.NewID(overview.Kind, metav1.NamespaceDefault, machine)
	explanation, err := overview.Explain(s.t.Context(), sandboxtest.Connect(s.t, s.control.Config), id)
	s.must(err)
	for _, statement := range explanation.Messages {
		for _, line := range statement.Details {
			command := patchCommand.FindStringSubmatch(line)
			if command == nil {
				continue
			}
			if kind := strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", object), "*")); !strings.HasSuffix(kind,
				"."+command[1]) {
				s.t.Fatalf("%q is not about a %s", line, kind)
			}
			object.SetNamespace(metav1.NamespaceDefault)
			object.SetName(command[2])
			patchType := map[string]types.PatchType{
				"json":  types.JSONPatchType,
				"merge": types.MergePatchType,
			}[command[3]]
			s.must(s.Patch(s.t.Context(), object, client.RawPatch(patchType, []byte(command[4]))))
			return
		}
	}
	s.t.Fatalf("got messages %+v, want one with a command", explanation.Messages)
}

// patch changes an object as an administrator does.
func (s *scene) patch(object client.Object, name, json string) {
	s.t.Helper()
	object.SetNamespace(metav1.NamespaceDefault)
	object.SetName(name)
	s.must(s.Patch(s.t.Context(), object, client.RawPatch(types.MergePatchType, []byte(json))))
}

func uninstallOwner(s *scene) {
	s.create("orphaned", hooksOf("MigrateApp", "ShipLogs"), "left")
	s.deleteMachine("orphaned")
	s.awaitHeldBy("orphaned", "preDrain hook MigrateApp of owner; later preTerminate hook ShipLogs of owner")
	s.awaitEvent("orphaned", "DrainBlocked", "pre-drain hook")
	s.runPrinted("orphaned", &machinev1beta1.Machine{})
	s.awaitMachine("orphaned", isDrainedAndHeld("ShipLogs"))
	s.awaitHeldBy("orphaned", "preTerminate hook ShipLogs of owner")
	if !s.isWhole("orphaned") {
		s.t.Error("the machine is deleted before the second hook is removed")
	}
	s.runPrinted("orphaned", &machinev1beta1.Machine{})
	s.awaitGone("orphaned")
}

// loseNode deletes the Node whose drain is held: the drain is then complete.
func loseNode(s *scene) {
	s.must(s.Create(s.t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "precious"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &intstr.IntOrString{IntVal: 1},
			Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{"app": "precious"}},
		},
	}))
	s.create("nodeless", hooksOf("", "ShipLogs"), "precious")
	s.deleteMachine("nodeless")
	s.awaitMachine("nodeless", func(m *machinev1beta1.Machine) bool {
		return names(m, machinev1beta1.MachineDrained,
			machinev1beta1.LifecycleHook{Name: "PodDisruptionBudget precious"})
	})
	s.awaitEvent("nodeless", "DrainRequeued", "PodDisruptionBudget precious")
	s.delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "nodeless"}})
	s.awaitHeldBy("nodeless", "preTerminate hook ShipLogs of owner")
	s.removeHook("nodeless", "ShipLogs")
	s.awaitGone("nodeless")
}

// loseInfrastructure removes the infrastructure before the machine: hooks still hold the rest of the deletion.
func loseInfrastructure(s *scene) {
	s.create("lost", hooksOf("", "ShipLogs"), "stranded")
	s.delete(&v1alpha1.KwokMachine{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "lost"}})
	s.awaitHeldBy("lost", "can't find created instance")
	s.deleteMachine("lost")
	s.awaitMachine("lost", isDrainedAndHeld("ShipLogs"))
	s.awaitHeldBy("lost", "preTerminate hook ShipLogs of owner")
	s.must(s.Get(s.t.Context(), client.ObjectKey{Name: "lost"}, &corev1.Node{}))
	s.removeHook("lost", "ShipLogs")
	s.awaitGone("lost")
}

func keepInfrastructure(s *scene) {
	s.create("kept", machinev1beta1.LifecycleHooks{})
	s.patch(&v1alpha1.KwokMachine{}, "kept", `{"spec":{"neverDeletes":true}}`)
	s.deleteMachine("kept")
	s.awaitHeldBy("kept", "KwokMachine kept (finalizer infrastructure.runlevel.dev/kwokmachine): stays until "+
		"spec.neverDeletes is false")
	s.awaitMachine("kept", func(m *machinev1beta1.Machine) bool {
		exists := conditionOf(m, machinev1beta1.InstanceExistsCondition)
		return exists.Reason == "InstanceTerminating" &&
			strings.Contains(exists.Message, "infrastructure.runlevel.dev/kwokmachine")
	})
	s.must(s.Get(s.t.Context(), client.ObjectKey{Name: "kept"}, &corev1.Node{}))
	s.runPrinted("kept", &v1alpha1.KwokMachine{})
	s.awaitGone("kept")
}

// keepByFinalizer has a finalizer of another controller on the Machine: all other objects are deleted, and the Machine
// reports the finalizer.
func keepByFinalizer(s *scene) {
	s.create("audited", machinev1beta1.LifecycleHooks{})
	s.patch(&machinev1beta1.Machine{}, "audited",
		`{"metadata":{"finalizers":["machine.machine.openshift.io","example.com/audit"]}}`)
	s.deleteMachine("audited")
	s.awaitHeldBy("audited", "finalizer example.com/audit")
	s.awaitEvent("audited", "FinalizersRemain", "example.com/audit")
	machinetest.AwaitGone(s.t, s, &v1alpha1.KwokMachine{}, keyOf("audited"))
	machinetest.AwaitGone(s.t, s, &corev1.Node{}, client.ObjectKey{Name: "audited"})
	s.patch(&machinev1beta1.Machine{}, "audited", `{"metadata":{"finalizers":null}}`)
	s.awaitGone("audited")
}

// editDeleting removes hooks in an unusual order, changes fields that no longer have an effect, skips the drain
// half-way and reverts this, and breaks and repairs the machine's infrastructure.
func editDeleting(s *scene) {
	hooks := hooksOf("First", "Third")
	hooks.PreDrain = append(hooks.PreDrain, hooksOf("Second", "").PreDrain...)
	hooks.PreTerminate = append(hooks.PreTerminate, hooksOf("", "Fourth").PreTerminate...)
	s.create("edited", hooks, "bystander")
	s.deleteMachine("edited")
	s.awaitHeldBy("edited", "preDrain hooks First of owner, Second of owner; later preTerminate hooks Third of "+
		"owner, Fourth of owner")
	s.removeHook("edited", "Third")
	s.removeHook("edited", "Second")
	s.patch(&machinev1beta1.Machine{}, "edited",
		`{"metadata":{"labels":{"new":"yes"}},"spec":{"metadata":{"labels":{"new":"yes"}},
		"taints":[{"key":"new","effect":"NoSchedule"}]}}`)
	s.awaitMachine("edited", func(m *machinev1beta1.Machine) bool {
		return names(m, machinev1beta1.MachineDrainable, hooks.PreDrain[0]) &&
			!names(m, machinev1beta1.MachineDrainable, hooks.PreDrain[1])
	})
	s.awaitHeldBy("edited", "preDrain hook First of owner; later preTerminate hook Fourth of owner")

	s.patch(&machinev1beta1.Machine{}, "edited", `{"metadata":{"annotations":{"`+excludeAnnotation+`":""}}}`)
	s.awaitMachine("edited", isDrainedAndHeld("Fourth"))
	s.awaitEvent("edited", "DrainSkipped", "skipped")
	s.must(s.Get(s.t.Context(), keyOf("bystander"), &corev1.Pod{}))
	before := &machinev1beta1.Machine{}
	s.must(s.Get(s.t.Context(), keyOf("edited"), before))
	s.patch(&machinev1beta1.Machine{}, "edited",
		`{"metadata":{"annotations":{"`+excludeAnnotation+`":null}},"spec":{"providerSpec":{"value":null}}}`)
	s.removeHook("edited", "Fourth")
	s.awaitHeldBy("edited", "infrastructure: Failed to check if machine exists: providerSpec.value: it is missing: "+
		"write an object, "+
		`as {"apiVersion": "infrastructure.runlevel.dev/v1alpha1", "kind": "ExternalMachine", "spec": {}}`)
	s.must(s.Get(s.t.Context(), keyOf("edited"), &v1alpha1.KwokMachine{}))
	s.patch(&machinev1beta1.Machine{}, "edited",
		`{"spec":{"providerSpec":{"value":`+string(before.Spec.ProviderSpec.Value.Raw)+`}}}`)
	s.awaitGone("edited")
}
