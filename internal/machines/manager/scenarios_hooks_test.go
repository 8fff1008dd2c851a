package manager_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/manager"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// TestHookOwners acts as the owners of hooks in the use cases of OpenShift's documentation. It also runs the failures
// of chaos.
func TestHookOwners(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	s := newScene(t)
	s.manage(manager.OpenShift)
	t.Run("stories", func(t *testing.T) {
		stories := map[string]func(*scene){
			"a replacement runs before its predecessor is drained": replaceProactively,
			"a drain controller of one's own":                      drainInOrder,
			"storage is detached before the machine ends":          detachStorage,
			"logs are shipped after the drain":                     shipLogs,
			"a set is deleted in the foreground":                   deleteSet,
		}
		maps.Copy(stories, chaos)
		for name, story := range stories {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				story(s.in(t))
			})
		}
	})
	if t.Failed() {
		return // a story that has no end has no whole history
	}
	histories := s.checkHistories(1, inDefault...)
	for _, eviction := range histories["ordered"].Evictions {
		if strings.HasPrefix(eviction.By, controllerAgent) {
			t.Errorf("pod %s was for another drain controller to evict", eviction.Pod)
		}
	}
}

func hooksOf(preDrain, preTerminate string) machinev1beta1.LifecycleHooks {
	list := func(name string) []machinev1beta1.LifecycleHook {
		if name == "" {
			return nil
		}
		return []machinev1beta1.LifecycleHook{{Name: name, Owner: "owner"}}
	}
	return machinev1beta1.LifecycleHooks{PreDrain: list(preDrain), PreTerminate: list(preTerminate)}
}

// create creates a machine with a pod and waits until both run.
func (s *scene) create(name string, hooks machinev1beta1.LifecycleHooks, pods ...string) {
	s.t.Helper()
	s.must(s.Create(s.t.Context(), newMachine(name, 0, hooks)))
	s.awaitMachine(name, isRunning)
	for _, pod := range pods {
		s.must(s.Create(s.t.Context(), newPod(pod, name)))
		machinetest.Await(s.t, s, &corev1.Pod{}, keyOf(pod), func(p *corev1.Pod) bool {
			return p.Status.Phase == corev1.PodRunning
		})
	}
}

func (s *scene) delete(object client.Object, options ...client.DeleteOption) {
	s.t.Helper()
	s.must(s.Delete(s.t.Context(), object, options...))
}

func (s *scene) deleteMachine(name string) {
	s.t.Helper()
	s.delete(newMachine(name, 0, machinev1beta1.LifecycleHooks{}))
}

// newSet returns a set of machines with hooks.
func newSet(name string, replicas int32, hooks machinev1beta1.LifecycleHooks) *machinev1beta1.MachineSet {
	labels := map[string]string{"set": name}
	return &machinev1beta1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec: machinev1beta1.MachineSetSpec{
			Replicas: ptr.To(replicas), Selector: metav1.LabelSelector{MatchLabels: labels},
			Template: machinev1beta1.MachineTemplateSpec{
				ObjectMeta: machinev1beta1.ObjectMeta{Labels: labels},
				Spec:       machinev1beta1.MachineSpec{ProviderSpec: simulatedSpec(0), LifecycleHooks: hooks},
			},
		},
	}
}

// awaitSet waits until so many machines of a set are as wanted, and returns their names.
func (s *scene) awaitSet(set string, count int, isWanted func(*machinev1beta1.Machine) bool) []string {
	s.t.Helper()
	var found []string
	s.await(func() string {
		found = nil
		for _, m := range s.machines() {
			if m.Labels["set"] == set && isWanted(&m) {
				found = append(found, m.Name)
			}
		}
		return unless(len(found) == count, "%q of set %s are as wanted, not %d", found, set, count)
	})
	return found
}

func replaceProactively(s *scene) {
	set := newSet("replaced", 1, hooksOf("AwaitReplacement", ""))
	s.must(s.Create(s.t.Context(), set))
	old := s.awaitSet("replaced", 1, isRunning)[0]
	s.deleteMachine(old)
	replacement := s.awaitSet("replaced", 1, func(m *machinev1beta1.Machine) bool {
		return m.Name != old && isRunning(m)
	})[0]
	node := &corev1.Node{}
	s.must(s.Get(s.t.Context(), client.ObjectKey{Name: old}, node))
	if node.Spec.Unschedulable || !s.isWhole(old) {
		s.t.Errorf("%s does not run as before while %s replaces it", old, replacement)
	}
	s.removeHook(old, "AwaitReplacement")
	s.awaitGone(old)
	s.awaitMachine(replacement, isRunning)

	s.delete(set)
	s.awaitSet("replaced", 1, isDeleting)
	s.removeHook(replacement, "AwaitReplacement")
	s.awaitGone(replacement)
}

func drainInOrder(s *scene) {
	s.create("ordered", hooksOf("DrainInOrder", ""), "first", "second")
	s.deleteMachine("ordered")
	s.awaitMachine("ordered", func(m *machinev1beta1.Machine) bool {
		return names(m, machinev1beta1.MachineDrainable, machinev1beta1.LifecycleHook{Name: "DrainInOrder"})
	})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "ordered"}}
	s.must(s.Patch(s.t.Context(), node,
		client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"unschedulable":true}}`))))
	for _, name := range []string{"first", "second"} {
		pod := &corev1.Pod{}
		s.must(s.Get(s.t.Context(), keyOf(name), pod))
		s.delete(pod)
		machinetest.AwaitGone(s.t, s, pod, keyOf(name))
	}
	s.removeHook("ordered", "DrainInOrder")
	s.awaitGone("ordered")
}

func detachStorage(s *scene) {
	s.create("attached", hooksOf("", "WaitForStorageDetach"), "database")
	attachment := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "attachment"},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "csi.example.com", NodeName: "attached",
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("volume")},
		},
	}
	attachment.Finalizers = []string{"example.com/attacher"}
	s.must(s.Create(s.t.Context(), attachment))
	s.deleteMachine("attached")
	s.awaitMachine("attached", isDrainedAndHeld("WaitForStorageDetach"))
	if !s.isWhole("attached") {
		s.t.Error("the machine ends while storage is attached")
	}
	s.delete(attachment)
	s.must(s.Patch(s.t.Context(), attachment,
		client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))))
	machinetest.AwaitGone(s.t, s, attachment, client.ObjectKey{Name: "attachment"})
	s.removeHook("attached", "WaitForStorageDetach")
	s.awaitGone("attached")
}

// isDrainedAndHeld reports that a machine waits, drained, for a hook.
func isDrainedAndHeld(hook string) func(*machinev1beta1.Machine) bool {
	return func(m *machinev1beta1.Machine) bool {
		return isDrained(m) && names(m, machinev1beta1.MachineTerminable, machinev1beta1.LifecycleHook{Name: hook})
	}
}

func shipLogs(s *scene) {
	s.create("logged", hooksOf("", "ShipLogs"), "talkative")
	s.deleteMachine("logged")
	s.awaitMachine("logged", isDrainedAndHeld("ShipLogs"))
	if err := s.Get(s.t.Context(), keyOf("talkative"), &corev1.Pod{}); client.IgnoreNotFound(err) != nil || err == nil {
		s.t.Errorf("a pod still makes logs (%v)", err)
	}
	if !s.isWhole("logged") {
		s.t.Error("the machine ends before its logs are shipped")
	}
	s.removeHook("logged", "ShipLogs")
	s.awaitGone("logged")
}

// deleteSet deletes a set in the foreground, where the garbage collector must not go past the hooks of its machines.
func deleteSet(s *scene) {
	set := newSet("foreground", 2, hooksOf("", "Keep"))
	s.must(s.Create(s.t.Context(), set))
	s.awaitSet("foreground", 2, isRunning)
	machinetest.AwaitCollector(s.t, s, newMachine("last", 0, machinev1beta1.LifecycleHooks{}))
	s.delete(set, client.PropagationPolicy(metav1.DeletePropagationForeground))
	machines := s.awaitSet("foreground", 2, isDrainedAndHeld("Keep"))
	for _, name := range machines {
		if !s.isWhole(name) {
			s.t.Errorf("%s ends in spite of its hook", name)
		}
	}
	s.must(s.Get(s.t.Context(), client.ObjectKeyFromObject(set), set))
	if all := s.awaitSet("foreground", 2, func(*machinev1beta1.Machine) bool {
		return true
	}); fmt.Sprint(all) != fmt.Sprint(machines) {
		s.t.Errorf("machines %q are there, not %q", all, machines)
	}
	s.removeHook(machines[0], "Keep")
	s.awaitGone(machines[0])
	s.must(s.Get(s.t.Context(), client.ObjectKeyFromObject(set), set))
	s.removeHook(machines[1], "Keep")
	s.awaitGone(machines[1])
	machinetest.AwaitGone(s.t, s, set, client.ObjectKeyFromObject(set))
}
