package controlplane_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	machinev1 "github.com/openshift/api/machine/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/machines/openshift/controlplane"
	"github.com/runlevel/runlevel/internal/machines/overview"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// TestKilledAtEachWrite kills the controller at each of its writes, and starts another one, which finds the objects
// that the killed one has written. In the end the set must have its machines, and no others.
func TestKilledAtEachWrite(t *testing.T) {
	manageMachines(t)
	for name, c := range map[string]struct {
		size       string // instance size in the template
		isLost     bool   // the infrastructure of a machine was deleted
		isDeleted  bool   // two machines are deleted by hand, after their adoption
		wantedKept int
		wantedCuts int // one for each write besides the first
	}{
		"adopted": {size: "small", wantedKept: 3, wantedCuts: 3}, // the finalizer, and three machines
		// besides, three are created, and three deleted
		"adopted and replaced":   {size: "large", wantedCuts: 9},
		"replaced beside a loss": {size: "large", isLost: true, wantedCuts: 9},
		"two are deleted":        {size: "small", isDeleted: true, wantedKept: 1, wantedCuts: 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			s.addThree()
			old := s.uids()
			if c.isLost {
				s.loseMachine("b")
			}
			s.MustCreate(s.newSet("Active", "RollingUpdate", c.size))
			if c.isDeleted {
				stop := s.runSet(stage.Sandbox(t).Config)
				s.Eventually("the machines are adopted", func() bool { return s.isSettled(c.size) })
				stop()
				s.deleteMachine("a")
				s.deleteMachine("b")
			}
			if cuts := s.liveAndDie(func() bool { return s.isSettled(c.size) }); cuts < c.wantedCuts {
				t.Errorf("it was killed %d times, want %d", cuts, c.wantedCuts)
			}
			after := s.uids()
			kept := slices.DeleteFunc(old, func(uid types.UID) bool { return !slices.Contains(after, uid) })
			if len(kept) != c.wantedKept {
				t.Errorf("%d machines were kept, want %d", len(kept), c.wantedKept)
			}
		})
	}
	t.Run("released", testKilledRelease)
	t.Run("not released", testReleaseThatFails)
}

// testKilledRelease deletes a set: its machines stay, also if the controller is killed before it has released all of
// them.
func testKilledRelease(t *testing.T) {
	s := newFixture(t)
	s.addThree()
	old := s.uids()
	set := s.newSet("Active", "RollingUpdate", "small")
	s.MustCreate(set)
	stop := s.runSet(stage.Sandbox(t).Config)
	s.Eventually("the machines are adopted", func() bool { return s.isSettled("small") })
	stop()
	s.MustDelete(set)
	cuts := s.liveAndDie(func() bool { return apierrors.IsNotFound(s.Get(s.Context(), s.Key("cluster"), set)) })
	if cuts != 3 { // two machines, and the finalizer
		t.Errorf("got %d kills, want 3", cuts)
	}
	s.expectReleased(old)
}

// testReleaseThatFails checks the report of a release that fails.
func testReleaseThatFails(t *testing.T) {
	s := newFixture(t)
	s.addThree()
	old := s.uids()
	set := s.newSet("Active", "RollingUpdate", "small")
	s.MustCreate(set)
	stop := s.runSet(stage.Sandbox(t).Config)
	s.Eventually("the machines are adopted", func() bool { return s.isSettled("small") })
	stop()
	s.MustDelete(set)
	stop = s.runSet(sandboxtest.Before(stage.Sandbox(t).Config, func(r *http.Request) error {
		if request, ok := sandboxtest.ParseRequest(r); ok && request.Resource == "machines" &&
			r.Method == http.MethodPatch {
			return errors.New("a right is missing")
		}
		return nil
	}))
	s.awaitCondition("Error", metav1.ConditionTrue, "WriteFailed", "a right is missing")
	listed, err := overview.List(t.Context(), stage.Connect(t), overview.Query{Namespace: s.Namespace})
	s.Must(err)
	if waits := listed.ControlPlanes[0].Waits; !strings.Contains(waits, "can't be released: release machine ") {
		t.Errorf("got wait %q, want one for machines that can't be released", waits)
	}
	stop()
	s.runSet(stage.Sandbox(t).Config)
	s.AwaitGone(set)
	s.expectReleased(old)
}

// expectReleased expects that the machines with some UIDs exist, and have no controller.
func (f *fixture) expectReleased(wanted []types.UID) {
	f.Helper()
	if after := f.uids(); !slices.Equal(after, wanted) {
		f.Errorf("the machines are %v, want %v", after, wanted)
	}
	for _, m := range f.machines() {
		if m.DeletionTimestamp != nil || len(m.OwnerReferences) > 0 {
			f.Errorf("machine %s is being deleted since %v, and owned by %v", m.Name, m.DeletionTimestamp,
				m.OwnerReferences)
		}
	}
}

// uids returns the UIDs of the machines, in the order of their names.
func (f *fixture) uids() []types.UID {
	f.Helper()
	var uids []types.UID
	for _, m := range f.machines() {
		uids = append(uids, m.UID)
	}
	return uids
}

// loseMachine deletes the infrastructure of a machine.
func (f *fixture) loseMachine(short string) {
	f.Helper()
	f.MustDelete(&v1alpha1.KwokMachine{ObjectMeta: f.Meta(f.name(short))})
	f.AwaitMachine(f.name(short), func(m *machinev1beta1.Machine) bool {
		return ptr.Deref(m.Status.Phase, "") == machinev1beta1.PhaseFailed
	})
}

// runSet runs the controller of sets, for this namespace only, until the test ends or stop is called.
func (f *fixture) runSet(reach *rest.Config) (stop func()) {
	f.Helper()
	return stage.ManageIn(f, f.Namespace, reach, controlplane.SetupWithManager)
}

// liveAndDie runs the controller, and kills it before its second write, until the work is done without one. It returns
// how often it was killed.
func (f *fixture) liveAndDie(isDone func() bool) (cuts int) {
	f.Helper()
	for {
		cut := sandboxtest.NewCut(2)
		stop := f.runSet(sandboxtest.Before(sandboxtest.Before(stage.Sandbox(f).Config, f.checkWrite), cut.Check))
		f.Eventually("the controller is killed, or done", func() bool { return cut.Missed() != "" || isDone() })
		stop()
		if cut.Missed() == "" {
			return cuts
		}
		cuts++
		f.Logf("life %d ended before %s", cuts, cut.Missed())
	}
}

// checkWrite looks at the machines before the controller creates or deletes one: no fourth one is created beside four,
// and one that runs is deleted only while three others do, any other one while two do.
func (f *fixture) checkWrite(r *http.Request) error {
	request, ok := sandboxtest.ParseRequest(r)
	if !ok || request.Resource != "machines" || r.Method != http.MethodPost && r.Method != http.MethodDelete {
		return nil
	}
	var list machinev1beta1.MachineList
	if err := f.List(r.Context(), &list, client.InNamespace(f.Namespace)); err != nil {
		return err
	}
	others, least := 0, 2
	for i := range list.Items {
		switch m := &list.Items[i]; {
		case !isServing(m):
		case m.Name == request.Name:
			least = 3
		default:
			others++
		}
	}
	if r.Method == http.MethodPost && len(list.Items) > 3 {
		f.Errorf("a machine is created beside %s", describe(list.Items))
	}
	if r.Method == http.MethodDelete && others < least {
		f.Errorf("machine %s is deleted, of %s", request.Name, describe(list.Items))
	}
	return nil
}

// isServing reports whether a machine runs, and is not being deleted.
func isServing(m *machinev1beta1.Machine) bool {
	return m.DeletionTimestamp == nil && ptr.Deref(m.Status.Phase, "") == machinev1beta1.PhaseRunning
}

func describe(machines []machinev1beta1.Machine) []string {
	var texts []string
	for i := range machines {
		m := &machines[i]
		texts = append(texts, fmt.Sprintf("%s (%s, deleted: %t)", m.Name, ptr.Deref(m.Status.Phase, ""),
			m.DeletionTimestamp != nil))
	}
	return texts
}

// isSettled reports whether the set has three machines of a size, one in each rack, and nothing to do.
func (f *fixture) isSettled(size string) bool {
	f.Helper()
	set := &machinev1.ControlPlaneMachineSet{}
	f.Must(f.Get(f.Context(), f.Key("cluster"), set))
	machines := f.machines()
	areServing := !slices.ContainsFunc(machines, func(m machinev1beta1.Machine) bool { return !isServing(&m) })
	return areServing && len(f.owned()) == 3 && f.racks() == fmt.Sprintf("a:%[1]s b:%[1]s c:%[1]s", size) &&
		meta.IsStatusConditionFalse(set.Status.Conditions, "Progressing")
}
