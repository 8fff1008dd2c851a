package machinehook_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/pkg/machinehook"
)

// TestServerHookHoldsADeletingMachine follows a hook: it is added to a running machine, waits for its turn, acts, and
// is removed.
func TestServerHookHoldsADeletingMachine(t *testing.T) {
	for _, stage := range []deletion.Stage{deletion.BeforeDrain, deletion.BeforeTerminate} {
		t.Run(string(stage), func(t *testing.T) {
			s, script := newFixture(t), newScript()
			h := script.hook("ShipLogs", stage)
			s.serve(h)
			m := s.add("m", machinev1beta1.LifecycleHooks{})
			m = s.awaitHook(m, h, true)
			if called := script.acted(); len(called) > 0 {
				t.Errorf("got calls of the hook %+v before the deletion of the machine, want none", called)
			}
			s.MustDelete(m)
			s.AwaitEvent(m.Name, "HookWaits", "hook ShipLogs: waits: the queue has 3 entries")
			held := s.await(m, func(*machinev1beta1.Machine) bool { return true })
			node := &corev1.Node{}
			s.Must(s.Get(t.Context(), client.ObjectKey{Name: m.Name}, node))
			isDrained := slices.ContainsFunc(held.Status.Conditions, func(c machinev1beta1.Condition) bool {
				return c.Type == machinev1beta1.MachineDrained && c.Status == corev1.ConditionTrue
			})
			if isAfter := stage == deletion.BeforeTerminate; node.Spec.Unschedulable != isAfter ||
				isDrained != isAfter {
				t.Errorf("the node is cordoned: %t, drained: %t", node.Spec.Unschedulable, isDrained)
			}
			seen := script.acted()[0]
			if seen.Name != m.Name || seen.Namespace != s.Namespace || seen.NodeName != node.Name ||
				seen.ProviderID != node.Spec.ProviderID ||
				seen.Object.GetUID() != m.UID {
				t.Errorf("got a call of the hook with %+v, want machine %s/%s on node %s with ID %s", seen, s.Namespace,
					m.Name, node.Name, node.Spec.ProviderID)
			}
			script.setAnswer(done)
			s.AwaitGone(m)
			if count := s.AwaitEvent(m.Name, "HookDone", "hook ShipLogs is done"); count != 1 {
				t.Errorf("it was reported %d times that the hook is done", count)
			}
		})
	}
}

// A machine being deleted when the controller of the hook is installed does not get it.
func TestServerAddsNoHookDuringDeletion(t *testing.T) {
	s, script := newFixture(t), newScript()
	m := s.add("m",
		machinev1beta1.LifecycleHooks{PreTerminate: []machinev1beta1.LifecycleHook{{Name: "Other", Owner: "admin"}}})
	s.MustDelete(m)
	s.await(m, isDrained)
	h := script.hook("ShipLogs", deletion.BeforeTerminate)
	s.serve(h)
	live := s.add("live", machinev1beta1.LifecycleHooks{})
	s.awaitHook(live, h, true) // so that it has looked at both
	m = s.await(m, func(*machinev1beta1.Machine) bool { return true })
	if got, want := hooksOf(m), []string{"BeforeTerminate Other admin"}; !slices.Equal(got, want) {
		t.Errorf("a machine being deleted has the hooks %q, want %q", got, want)
	}
	s.MustPatch(m, `{"spec":{"lifecycleHooks":{"preTerminate":null}}}`)
	s.AwaitGone(m)
	if called := script.acted(); len(called) > 0 {
		t.Errorf("got calls of the hook %+v, want none", called)
	}
}

func isDrained(m *machinev1beta1.Machine) bool {
	return slices.ContainsFunc(m.Status.Conditions, func(c machinev1beta1.Condition) bool {
		return c.Type == machinev1beta1.MachineDrained && c.Status == corev1.ConditionTrue
	})
}

// An administrator removes a hook: the hook is not added again, and the deletion continues. The other hook of the list
// stays until its own controller has done its part.
func TestServerHookRemovedByAnAdministrator(t *testing.T) {
	s, script, otherScript := newFixture(t), newScript(), newScript()
	h, other := script.hook("ShipLogs", deletion.BeforeTerminate), otherScript.hook("Backup", deletion.BeforeTerminate)
	s.serve(h)
	s.serve(other)
	m := s.add("m", machinev1beta1.LifecycleHooks{})
	s.awaitHook(m, h, true)
	s.awaitHook(m, other, true)
	s.MustDelete(m)
	s.AwaitEvent(m.Name, "HookWaits", "ShipLogs")
	s.AwaitEvent(m.Name, "HookWaits", "Backup")
	s.MustPatch(m, `{"spec":{"lifecycleHooks":{"preTerminate":[{"name":"Backup","owner":"Backup-operator"}]}}}`)
	s.MustPatch(m, `{"metadata":{"labels":{"nudge":"1"}}}`) // both controllers look again
	called := len(otherScript.acted())
	m = s.await(m, func(m *machinev1beta1.Machine) bool { return len(otherScript.acted()) > called+1 })
	if got, want := hooksOf(m), []string{described(other)}; !slices.Equal(got, want) {
		t.Errorf("the machine has the hooks %q, want %q", got, want)
	}
	otherScript.setAnswer(done)
	s.AwaitGone(m)
}

// Two controllers agree on an order by an annotation of their own; the machine controller knows of none.
func TestServerHooksCoordinateByAnnotations(t *testing.T) {
	const isMigrated = "shop.example/migrated"
	s := newFixture(t)
	migrate, backup := newScript(), newScript()
	first, second := migrate.hook("MigrateApp", deletion.BeforeDrain), backup.hook("BackUp", deletion.BeforeDrain)
	second.Owner = "backup-operator"
	first.Act = func(ctx context.Context, held machinehook.HeldMachine) (machinehook.HookAnswer, error) {
		if _, err := migrate.act(ctx, held); err != nil ||
			held.Object.GetAnnotations()["shop.example/may-migrate"] == "" {
			return machinehook.HookAnswer{Message: "the shop is open"}, err
		}
		m := held.Object.(*machinev1beta1.Machine)
		base := m.DeepCopy()
		m.Annotations[isMigrated] = "true"
		return machinehook.HookAnswer{IsDone: true}, s.Patch(ctx, m, client.MergeFrom(base))
	}
	var order []string
	second.Act = func(ctx context.Context, held machinehook.HeldMachine) (machinehook.HookAnswer, error) {
		_, err := backup.act(ctx, held)
		if held.Object.GetAnnotations()[isMigrated] == "" {
			return machinehook.HookAnswer{Message: "MigrateApp is not done", After: time.Hour}, err
		}
		order = hooksOf(held.Object.(*machinev1beta1.Machine))
		return machinehook.HookAnswer{IsDone: true}, err
	}
	s.serve(second)
	s.serve(first)
	m := s.add("m", machinev1beta1.LifecycleHooks{})
	s.awaitHook(m, first, true)
	s.awaitHook(m, second, true)
	s.MustDelete(m)
	s.AwaitEvent(m.Name, "HookWaits", "the shop is open")
	s.AwaitEvent(m.Name, "HookWaits", "MigrateApp is not done")
	s.MustPatch(m, `{"metadata":{"annotations":{"shop.example/may-migrate":"yes"}}}`)
	s.AwaitGone(m) // long before the hour
	if len(order) == 0 {
		t.Error("the second hook has not done its part")
	}
}

// A tool that removes hooks from live machines meets pauses that grow, and an event that reports so.
func TestServerHookPrunedByAnotherWriterIsAddedAgain(t *testing.T) {
	s, script := newFixture(t), newScript()
	h := script.hook("ShipLogs", deletion.BeforeDrain)
	s.serve(h)
	m := s.add("m", machinev1beta1.LifecycleHooks{})
	for pause := time.Second; pause <= 4*time.Second; pause *= 2 {
		m = s.awaitHook(m, h, true)
		s.MustPatch(m, `{"spec":{"lifecycleHooks":null}}`)
		s.AwaitEvent(m.Name, "HookPruned", fmt.Sprintf("put back %s after it was added last", pause))
	}
	s.awaitHook(m, h, true)
}

// A failure of Act is reported and retried; the machine stays held.
func TestServerReportsFailuresOfAct(t *testing.T) {
	for name, fail := range map[string]func() (machinehook.HookAnswer, error){
		"an error": func() (machinehook.HookAnswer, error) {
			return machinehook.HookAnswer{IsDone: true}, errors.New("no such bucket")
		},
		"a panic": func() (machinehook.HookAnswer, error) { panic("no such bucket") },
		"a missing object": func() (machinehook.HookAnswer, error) {
			return machinehook.HookAnswer{}, apierrors.NewNotFound(corev1.Resource("configmaps"), "no such bucket")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, script := newFixture(t), newScript()
			script.setAnswer(fail)
			h := script.hook("ShipLogs", deletion.BeforeDrain)
			s.serve(h)
			m := s.add("m", machinev1beta1.LifecycleHooks{})
			s.awaitHook(m, h, true)
			s.MustDelete(m)
			s.AwaitEvent(m.Name, "HookFailed", "no such bucket")
			m = s.await(m, func(*machinev1beta1.Machine) bool { return len(script.acted()) > 2 })
			if !slices.Contains(hooksOf(m), described(h)) ||
				!strings.Contains(m.Annotations["pre-drain.hook.machine.runlevel.dev/ShipLogs"], "no such bucket") {
				t.Errorf("the machine has the hooks %q and the annotations %q", hooksOf(m), m.Annotations)
			}
			script.setAnswer(done)
			s.AwaitGone(m)
			if count := s.AwaitEvent(m.Name, "HookFailed", ""); count != 1 {
				t.Errorf("the same failure was reported %d times", count)
			}
		})
	}
}

// A machine without a node is not held by hooks before the drain, which is reported.
func TestServerReportsASkippedStage(t *testing.T) {
	s, script := newFixture(t), newScript()
	h := script.hook("MigrateApp", deletion.BeforeDrain)
	s.serve(h)
	last := script.hook("Other", deletion.BeforeTerminate)
	s.serve(last)
	m := s.add("m", machinev1beta1.LifecycleHooks{})
	s.awaitHook(m, h, true)
	s.awaitHook(m, last, true)
	s.MustPatch(m, `{"metadata":{"annotations":{%q:""}}}`, deletion.ExcludeNodeDraining)
	s.MustDelete(m)
	s.AwaitEvent(m.Name, "HookSkipped", "MigrateApp")
	script.setAnswer(done)
	s.AwaitGone(m)
	for _, call := range script.acted() {
		if !isDrained(call.Object.(*machinev1beta1.Machine)) {
			t.Error("the hook before the drain has acted, though nothing waits for it")
		}
	}
}

// The owner of a hook is corrected on a machine that is not being deleted.
func TestServerReplacesAWrongOwner(t *testing.T) {
	s, script := newFixture(t), newScript()
	h := script.hook("ShipLogs", deletion.BeforeTerminate)
	m := s.add("m", machinev1beta1.LifecycleHooks{PreTerminate: []machinev1beta1.LifecycleHook{
		{Name: "Other", Owner: "admin"}, {Name: "ShipLogs", Owner: "its predecessor"},
	}})
	s.serve(h)
	m = s.awaitHook(m, h, true)
	if got, want := hooksOf(m), []string{"BeforeTerminate Other admin", described(h)}; !slices.Equal(got, want) {
		t.Errorf("the machine has the hooks %q, want %q", got, want)
	}
}

// A machine that the hook does not choose has it only if its template has it, and is served all the same.
func TestServerLeavesMachinesThatAreNotSelected(t *testing.T) {
	s, script := newFixture(t), newScript()
	h := script.hook("ShipLogs", deletion.BeforeTerminate)
	script.setAnswer(done)
	template := machinev1beta1.LifecycleHooks{
		PreTerminate: []machinev1beta1.LifecycleHook{{Name: h.Name, Owner: h.Owner}},
	}
	without, with, chosen := s.add("without", machinev1beta1.LifecycleHooks{}), s.add("with", template),
		s.add("chosen", machinev1beta1.LifecycleHooks{})
	s.MustPatch(without, `{"metadata":{"labels":{"role":"db"}}}`)
	s.MustPatch(with, `{"metadata":{"labels":{"role":"db"}}}`)
	s.serve(h)
	s.awaitHook(chosen, h, true)
	if without = s.await(without, func(*machinev1beta1.Machine) bool { return true }); len(hooksOf(without)) > 0 {
		t.Errorf("it has the hooks %q", hooksOf(without))
	}
	s.MustDelete(with)
	s.AwaitGone(with)
}

// A message that changes at each call does not cause another call.
func TestServerMessageWithATimeCausesNoCall(t *testing.T) {
	s, script := newFixture(t), newScript()
	script.setAnswer(func() (machinehook.HookAnswer, error) {
		return machinehook.HookAnswer{Message: time.Now().String(), After: time.Hour}, nil
	})
	h := script.hook("ShipLogs", deletion.BeforeTerminate)
	s.serve(h)
	m := s.add("m", machinev1beta1.LifecycleHooks{})
	s.awaitHook(m, h, true)
	s.MustDelete(m)
	s.AwaitEvent(m.Name, "HookWaits", "")
	for i := range 20 { // changes of other hooks cause a call, but the first patch is not a change
		s.MustPatch(m, `{"metadata":{"annotations":{"pre-drain.hook.machine.runlevel.dev/Other":"waits: %d"}}}`, i)
	}
	s.MustPatch(m, `{"metadata":{"labels":{"nudge":"1"}}}`)
	s.await(m, func(*machinev1beta1.Machine) bool { return len(script.acted()) > 1 })
	if calls := len(script.acted()); calls > 5 {
		t.Errorf("the hook was called %d times", calls)
	}
}

// A hook that could not be added to machines is refused, with all its problems.
func TestInvalidHook(t *testing.T) {
	for name, c := range map[string]struct {
		hook machinehook.Hook
		want []string
	}{
		"all": {
			machinehook.Hook{Name: "shop.example/x", Owner: "me"},
			[]string{"Name must have", `Owner "me" must have`, `Stage is ""`, "Act is nil"},
		},
		"machine": {
			func() machinehook.Hook {
				h := newScript().hook("ShipLogs", deletion.Draining)
				h.Machine = &corev1.Node{}
				return h
			}(),
			[]string{`Stage is "Draining"`, "Machine is *v1.Node"},
		},
	} {
		shared.NewFixture(t).Manage(func(mgr ctrl.Manager) error {
			err := c.hook.SetupWithManager(mgr)
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: the error is %v, which lacks %q", name, err, want)
				}
			}
			return nil
		})
	}
}
