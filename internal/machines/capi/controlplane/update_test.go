package controlplane_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/runlevel/runlevel/internal/machines/capi/controlplane/v1alpha1"
	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	"github.com/runlevel/runlevel/internal/sandbox/runtimehooktest"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// updating returns the machines that are updated in place.
func (p *plant) updating() []string {
	p.Helper()
	var names []string
	for name, m := range p.machines() {
		if rolloutrules.IsUpdating(m) {
			names = append(names, name)
		}
	}
	return names
}

// awaitUpdates waits until an extension was called so often, for one machine, which it returns.
func (p *plant) awaitUpdates(e *runtimehooktest.TestExtension, count int) string {
	p.Helper()
	var calls []hooksv1.UpdateMachineRequest
	p.Eventually("the extension is called", func() bool {
		calls = requestsOf[hooksv1.UpdateMachineRequest](p, e, "UpdateMachine")
		return len(calls) >= count
	})
	for _, call := range calls {
		if call.Desired.Machine.Name != calls[0].Desired.Machine.Name {
			p.Errorf("machines %s and %s are updated at once", call.Desired.Machine.Name, calls[0].Desired.Machine.Name)
		}
	}
	return calls[0].Desired.Machine.Name
}

// TestUpdateThatTakesLong has an update in place take its time: the machine is missed meanwhile, and no other is touched. The version
// changes again: the update ends, and the machine is updated to that version.
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
	p.awaitCondition(clusterv1.RollingOutCondition, metav1.ConditionTrue, "Machine "+first+" is updated in place: In-place update in progress: it copies")
	p.await("without the machine", func(plane *v1alpha1.RunlevelControlPlane) bool {
		return *plane.Status.Replicas == 3 && *plane.Status.AvailableReplicas == 2 && *plane.Status.UpToDateReplicas == 0
	})
	p.upgrade("v1.36.2")
	p.pass()
	if names := p.updating(); !slices.Equal(names, []string{first}) {
		t.Errorf("%v are updated, and %s is to be", names, first)
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

// TestUpdateThatFails has an update in place fail: it stays so, with the reason, until the user deletes the machine, which is replaced.
func TestUpdateThatFails(t *testing.T) {
	t.Parallel()
	p := start(t, 3, 0)
	e, _ := p.extend()
	before := p.machines()
	e.Answer("UpdateMachine", `{"status":"Failure","message":"the disk is full"}`)
	p.upgrade("v1.36.1")
	name := p.awaitUpdates(e, 2)
	p.awaitCondition(clusterv1.RollingOutCondition, metav1.ConditionTrue, "Machine "+name+" is updated in place: UpdateMachine hook failed")
	p.awaitCondition(clusterv1.RollingOutCondition, metav1.ConditionTrue, "the disk is full")
	p.pass()
	if names := p.updating(); !slices.Equal(names, []string{name}) || len(p.machines()) != 3 {
		t.Errorf("%v are updated, and %s is to be; machines: %v", names, name, p.names())
	}
	e.Serve("UpdateMachine", p.updateNode)
	p.MustDelete(before[name])
	p.awaitSettled(3)
	kept := slices.DeleteFunc(p.names(), func(name string) bool { return before[name] == nil })
	if len(kept) != 2 || slices.Contains(kept, name) {
		t.Errorf("kept: %v; %s failed", kept, name)
	}
}

// TestTemplateThatChangesBeforeTheTrigger changes the template after a machine was marked for its update in place, and before the update is
// triggered: the extension is asked again, and can't do it.
func TestTemplateThatChangesBeforeTheTrigger(t *testing.T) {
	t.Parallel()
	p := newPlant(t, 3, 0)
	var isCut atomic.Bool
	p.runMachines()
	p.runPlane(sandboxtest.Before(stage.Sandbox(t).Config, func(r *http.Request) error {
		isApply := strings.Contains(r.Header.Get("Content-Type"), "apply-patch") && !r.URL.Query().Has("dryRun")
		if isCut.Load() && isApply && strings.Contains(r.URL.Path, "/kwokmachines/") {
			return errors.New("the connection is cut")
		}
		return nil
	}))
	p.awaitSettled(3)
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
	if kept := slices.DeleteFunc(p.names(), func(name string) bool { return !slices.Contains(before, name) }); len(kept) > 0 {
		t.Errorf("not replaced: %v", kept)
	}
	if calls := requestsOf[hooksv1.UpdateMachineRequest](p, e, "UpdateMachine"); len(calls) > 0 {
		t.Error(fmt.Sprint("updated in place: ", calls))
	}
}
