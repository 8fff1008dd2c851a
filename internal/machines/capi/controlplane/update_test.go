package controlplane_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/runlevel/runlevel/internal/machines/annotation"
	"github.com/runlevel/runlevel/internal/machines/capi/controlplane/v1alpha1"
	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	"github.com/runlevel/runlevel/internal/machines/patch"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/internal/sandbox/runtimehooktest"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// updating returns the machines that are updated in place.
func (f *fixture) updating() []string {
	f.Helper()
	var names []string
	for name, m := range f.machines() {
		if rolloutrules.IsUpdating(m) {
			names = append(names, name)
		}
	}
	return names
}

// awaitUpdates waits until an extension was called so often, for one machine, which it returns.
func (f *fixture) awaitUpdates(e *runtimehooktest.Extension, count int) string {
	f.Helper()
	var calls []hooksv1.UpdateMachineRequest
	f.Eventually("the extension is called", func() bool {
		calls = requestsOf[hooksv1.UpdateMachineRequest](f, e, "UpdateMachine")
		return len(calls) >= count
	})
	for _, call := range calls {
		if call.Desired.Machine.Name != calls[0].Desired.Machine.Name {
			f.Errorf("machines %s and %s are updated at once", call.Desired.Machine.Name, calls[0].Desired.Machine.Name)
		}
	}
	return calls[0].Desired.Machine.Name
}

// TestUpdateThatTakesLong has a slow update in place: the machine is unavailable meanwhile, and no other one is
// changed. The version changes again: the update ends, and the machine is updated to that version.
func TestUpdateThatTakesLong(t *testing.T) {
	t.Parallel()
	p := start(t, 3, 0)
	e, _ := p.extend()
	before := p.names()
	var isOver atomic.Bool
	e.Serve("UpdateMachine", func(w http.ResponseWriter, r *http.Request) {
		if isOver.Load() {
			p.updateNode(w, r)
			return
		}
		_, _ = w.Write([]byte(`{"status":"Success","retryAfterSeconds":1,"message":"it copies"}`))
	})
	p.upgrade("v1.36.1")
	first := p.awaitUpdates(e, 3)
	p.awaitCondition(clusterv1.RollingOutCondition, metav1.ConditionTrue,
		"Machine "+first+" is updated in place: In-place update in progress: it copies")
	p.await("without the machine", func(plane *v1alpha1.RunlevelControlPlane) bool {
		return *plane.Status.Replicas == 3 && *plane.Status.AvailableReplicas == 2 &&
			*plane.Status.UpToDateReplicas == 0
	})
	p.upgrade("v1.36.2")
	p.pass()
	if names := p.updating(); !slices.Equal(names, []string{first}) {
		t.Errorf("%v are updated, want %s", names, first)
	}
	isOver.Store(true)
	p.awaitSettled(3)
	if after := p.names(); !slices.Equal(before, after) {
		t.Errorf("machines %v became %v", before, after)
	}
	var versions []string
	for _, call := range requestsOf[hooksv1.UpdateMachineRequest](p, e, "UpdateMachine") {
		if call.Desired.Machine.Name == first {
			versions = append(versions, call.Desired.Machine.Spec.Version)
		}
	}
	if got := slices.Compact(versions); !slices.Equal(got, []string{"v1.36.1", "v1.36.2"}) {
		t.Errorf("%s was updated to %v", first, got)
	}
}

// TestUpdateThatFails has a failing update in place: the machine stays failed, with the reason, until the user deletes
// it. Then it is replaced.
func TestUpdateThatFails(t *testing.T) {
	t.Parallel()
	p := start(t, 3, 0)
	e, _ := p.extend()
	before := p.machines()
	e.Answer("UpdateMachine", `{"status":"Failure","message":"the disk is full"}`)
	p.upgrade("v1.36.1")
	name := p.awaitUpdates(e, 2)
	p.awaitCondition(clusterv1.RollingOutCondition, metav1.ConditionTrue,
		"Machine "+name+" is updated in place: UpdateMachine hook failed")
	p.awaitCondition(clusterv1.RollingOutCondition, metav1.ConditionTrue, "the disk is full")
	p.pass()
	if names := p.updating(); !slices.Equal(names, []string{name}) || len(p.machines()) != 3 {
		t.Errorf("%v are updated, want %s; machines: %v", names, name, p.names())
	}
	e.Serve("UpdateMachine", p.updateNode)
	p.MustDelete(before[name])
	p.awaitSettled(3)
	kept := slices.DeleteFunc(p.names(), func(name string) bool { return before[name] == nil })
	if len(kept) != 2 || slices.Contains(kept, name) {
		t.Errorf("kept: %v; %s failed", kept, name)
	}
}

// TestMachineThatIsWrittenWhileItsUpdateBegins has another controller write the status of each machine between its mark
// and the trigger of its update in place, as the controller of Machines does: the update begins, and the extension is
// asked once for each machine.
func TestMachineThatIsWrittenWhileItsUpdateBegins(t *testing.T) {
	t.Parallel()
	p := newFixture(t, 3, 0)
	p.runMachines()
	var written sync.Map
	p.runPlane(sandboxtest.Before(stage.Sandbox(p).Config, func(r *http.Request) error {
		_, name, isInfrastructure := strings.Cut(r.URL.Path, "/kwokmachines/")
		if isInfrastructure && r.Method == http.MethodPatch && !r.URL.Query().Has("dryRun") &&
			slices.Contains(p.updating(), name) {
			if _, isAgain := written.LoadOrStore(name, true); !isAgain {
				p.setCondition(name, "Tested", metav1.ConditionTrue, "Tested")
			}
		}
		return nil
	}))
	p.awaitSettled(3)
	e, _ := p.extend()
	before := p.names()
	p.upgrade("v1.36.1")
	p.awaitSettled(3)
	if after := p.names(); !slices.Equal(before, after) {
		t.Errorf("machines %v became %v", before, after)
	}
	if asked := requestsOf[hooksv1.CanUpdateMachineRequest](p, e, "CanUpdateMachine"); len(asked) != 3 {
		t.Errorf("the extension was asked %d times about 3 machines", len(asked))
	}
}

// cutTriggers runs the controllers. While isCut is true, the controller of control planes can't write infrastructure,
// so that it marks an update without triggering it.
func (f *fixture) cutTriggers(isCut *atomic.Bool) {
	f.Helper()
	f.runMachines()
	f.runPlane(sandboxtest.Before(stage.Sandbox(f).Config, func(r *http.Request) error {
		isApply := strings.Contains(r.Header.Get("Content-Type"), "apply-patch") && !r.URL.Query().Has("dryRun")
		if isCut.Load() && isApply && strings.Contains(r.URL.Path, "/kwokmachines/") {
			return errors.New("the connection is cut")
		}
		return nil
	}))
	f.awaitSettled(3)
}

// setHealth sets a machine's health.
func (f *fixture) setHealth(name string, status metav1.ConditionStatus) {
	f.Helper()
	f.setCondition(name, clusterv1.MachineHealthCheckSucceededCondition, status, "Tested")
	machinetest.Await(f, f, &clusterv1.Machine{}, f.Key(name), func(m *clusterv1.Machine) bool {
		return rolloutrules.IsAvailable(m) == (status == metav1.ConditionTrue)
	})
}

// TestMachineThatFailsBeforeTheTrigger has another machine fail after one was marked for its update in place, and
// before the update is triggered: it waits until the other one is available again, also if it would be replaced now.
func TestMachineThatFailsBeforeTheTrigger(t *testing.T) {
	t.Parallel()
	p := newFixture(t, 3, 0)
	var isCut atomic.Bool
	p.cutTriggers(&isCut)
	e, _ := p.extend()
	before := p.names()
	isCut.Store(true)
	p.upgrade("v1.36.1")
	p.Eventually("a machine is marked", func() bool { return len(p.updating()) == 1 })
	marked := p.updating()[0]
	other := before[(slices.Index(before, marked)+1)%len(before)]
	p.setHealth(other, metav1.ConditionFalse)
	for _, answer := range []http.HandlerFunc{coverVersion, coverNothing} {
		e.Serve("CanUpdateMachine", answer)
		isCut.Store(false)
		p.pass()
		p.awaitCondition(clusterv1.RollingOutCondition, metav1.ConditionTrue, "Machine "+other+": ")
		if m := p.machines()[marked]; m == nil || m.DeletionTimestamp != nil || m.Spec.Version != "v1.36.0" {
			t.Errorf("machine %s was touched while %s was down", marked, other)
		}
	}
	e.Serve("CanUpdateMachine", coverVersion)
	p.setHealth(other, metav1.ConditionTrue)
	p.awaitSettled(3)
	if after := p.names(); !slices.Equal(before, after) {
		t.Errorf("machines %v became %v", before, after)
	}
}

// coverNothing answers that no change of a machine can be made in place.
func coverNothing(w http.ResponseWriter, _ *http.Request) {
	_, _ = w.Write([]byte(
		`{"apiVersion":"hooks.runtime.cluster.x-k8s.io/v1alpha1","kind":"CanUpdateMachineResponse","status":"Success"}`,
	))
}

// TestMachineThatIsDeletedWhileTheExtensionDecides deletes another machine before the extension answers: none is
// replaced until that one is deleted.
func TestMachineThatIsDeletedWhileTheExtensionDecides(t *testing.T) {
	t.Parallel()
	p := start(t, 3, 0)
	e, _ := p.extend()
	before := p.names()
	asked, answer := make(chan string, 100), make(chan struct{})
	e.Serve("CanUpdateMachine", func(w http.ResponseWriter, r *http.Request) {
		var request hooksv1.CanUpdateMachineRequest
		_ = json.NewDecoder(r.Body).Decode(&request)
		asked <- request.Current.Machine.Name
		<-answer
		coverNothing(w, r)
	})
	p.upgrade("v1.36.1")
	first := <-asked
	other := p.machines()[before[(slices.Index(before, first)+1)%len(before)]]
	p.MustPatch(other, `{"metadata":{"finalizers":[%q,"test.dev/hold"]}}`, clusterv1.MachineFinalizer)
	p.MustDelete(other)
	close(answer)
	p.awaitCondition(clusterv1.RollingOutCondition, metav1.ConditionTrue, "Machine "+other.Name+" is being deleted")
	if m := p.machines()[first]; m == nil || m.DeletionTimestamp != nil {
		t.Errorf("machine %s is replaced while %s goes", first, other.Name)
	}
	p.Eventually("the other machine goes", func() bool {
		err := p.Get(t.Context(), p.Key(other.Name), other)
		return apierrors.IsNotFound(err) ||
			err == nil && patch.RemoveFinalizer(t.Context(), p, other, "test.dev/hold") == nil
	})
	p.awaitSettled(3)
}

// TestObsoleteRequestIsRemoved removes a request to the quorum guard, and its answer, if the machine is not to be
// updated any more, and why a machine is replaced, if it is not.
func TestObsoleteRequestIsRemoved(t *testing.T) {
	t.Parallel()
	p := start(t, 3, 0)
	e, _ := p.extend()
	for _, m := range p.machines() {
		p.MustPatch(m,
			`{"metadata":{"annotations":{"pre-terminate.delete.hook.machine.cluster.x-k8s.io/EtcdQuorumOperator":""}}}`)
	}
	annotations := func(key string) (names []string) {
		for name, m := range p.machines() {
			if metav1.HasAnnotation(m.ObjectMeta, key) {
				names = append(names, name)
			}
		}
		return names
	}
	p.upgrade("v1.36.1")
	p.Eventually("the guard is asked", func() bool {
		return len(annotations(annotation.UpdateRequested)) == 1
	})
	m := p.machines()[annotations(annotation.UpdateRequested)[0]]
	p.MustPatch(m, `{"metadata":{"annotations":{%q:"a member does not answer",%q:"no"}}}`,
		annotation.UpdateHeld, annotation.ReplacedBecause)
	p.awaitCondition(clusterv1.RollingOutCondition, metav1.ConditionTrue,
		"to permit its update in place: a member does not answer")
	if asked := requestsOf[hooksv1.CanUpdateMachineRequest](p, e, "CanUpdateMachine"); len(asked) != 1 {
		t.Errorf("the extension was asked %d times, also while the guard does not answer", len(asked))
	}
	p.upgrade("v1.36.0")
	p.Eventually("no annotation is left", func() bool {
		return len(annotations(annotation.UpdateRequested))+
			len(annotations(annotation.UpdateHeld))+len(annotations(annotation.ReplacedBecause)) == 0
	})
}

// TestTemplateThatChangesBeforeTheTrigger changes the template after a machine was marked for its update in place, and
// before the update is triggered: the extension is called again, and can't do it.
func TestTemplateThatChangesBeforeTheTrigger(t *testing.T) {
	t.Parallel()
	p := newFixture(t, 3, 0)
	var isCut atomic.Bool
	p.cutTriggers(&isCut)
	e, _ := p.extend()
	before := p.names()
	isCut.Store(true)
	p.upgrade("v1.36.1")
	p.Eventually("a machine is marked", func() bool { return len(p.updating()) == 1 })
	marked := p.updating()[0]
	p.MustPatch(p.plane, `{"spec":{"machineTemplate":{"spec":{"infrastructureRef":{"name":"large"}}}}}`)
	p.AwaitEvent(marked, "Replaced", "spec.node.labels.size is not covered")
	isCut.Store(false)
	p.awaitSettled(3)
	if kept := slices.DeleteFunc(p.names(), func(name string) bool {
		return !slices.Contains(before, name)
	}); len(kept) > 0 {
		t.Errorf("machines that were not replaced: got %v, want none", kept)
	}
	if calls := requestsOf[hooksv1.UpdateMachineRequest](p, e, "UpdateMachine"); len(calls) > 0 {
		t.Error(fmt.Sprint("updated in place: ", calls))
	}
}
