package controlplane_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// startWithoutRights creates a control plane whose controller loses the right to some requests while lacksRights is
// true.
func startWithoutRights(t *testing.T, lacksRights *atomic.Bool, got func(*http.Request) bool) *fixture {
	t.Helper()
	p := newFixture(t, 3, 0)
	p.runMachines()
	p.runPlane(sandboxtest.Before(stage.Sandbox(p).Config, func(r *http.Request) error {
		if lacksRights.Load() && got(r) {
			r.Header.Set("Impersonate-User", "jane")
		}
		return nil
	}))
	p.awaitSettled(3)
	return p
}

// expectNames reports machines that were created or deleted, or are being deleted.
func (f *fixture) expectNames(before []string) {
	f.Helper()
	for name, m := range f.machines() {
		if m.DeletionTimestamp != nil {
			f.Errorf("machine %s is being deleted", name)
		}
	}
	if after := f.names(); !slices.Equal(before, after) {
		f.Errorf("machines %v became %v", before, after)
	}
}

// TestLackOfRightsReplacesNothing makes the controller lose its rights on infrastructure before an update in place: the
// condition names them, and the machines stay until they are updated.
func TestLackOfRightsReplacesNothing(t *testing.T) {
	t.Parallel()
	var lacksRights atomic.Bool
	p := startWithoutRights(t, &lacksRights, func(r *http.Request) bool {
		return r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/kwokmachines/")
	})
	p.extend()
	before := p.names()
	lacksRights.Store(true)
	p.upgrade("v1.36.1")
	p.awaitCondition(clusterv1.RollingOutCondition, metav1.ConditionTrue,
		`User "jane" cannot patch resource "kwokmachines"`)
	lacksRights.Store(false)
	p.nudge()
	p.awaitSettled(3)
	p.expectNames(before)
}

// TestMachinesWhoseObjectsCannotBeRead revokes the controller's right to read the infrastructure of one machine: the
// control plane reports this, does not change any machine, and can still be deleted.
func TestMachinesWhoseObjectsCannotBeRead(t *testing.T) {
	t.Parallel()
	var lacksRights atomic.Bool
	var unread atomic.Value
	p := startWithoutRights(t, &lacksRights, func(r *http.Request) bool {
		return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/kwokmachines/"+unread.Load().(string))
	})
	before := p.names()
	unread.Store(before[0])
	lacksRights.Store(true)
	p.upgrade("v1.36.1")
	p.awaitCondition(clusterv1.ScalingUpCondition, metav1.ConditionFalse,
		`User "jane" cannot get resource "kwokmachines"`)
	p.pass()
	p.expectNames(before)
	p.MustDelete(p.plane)
	p.AwaitGone(p.plane)
}

// TestReplacementThatCannotBeCreated has templates from which no machine can be created: no machine is deleted for
// being outdated, older than spec.rollout.after or unhealthy, until the templates are corrected.
func TestReplacementThatCannotBeCreated(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec    string
		problem string
		isOld   bool
	}{
		"of no kind": {`{"infrastructureRef":{"kind":"KwokMachinTemplate"}}`, "KwokMachinTemplate", false},
		"missing": {`{"infrastructureRef":{"name":"absent"}}`,
			`kwokmachinetemplates.infrastructure.runlevel.dev "absent" not found`, false},
		"missing, expired": {`{"bootstrap":{"configRef":{"name":"absent"}}}`,
			`kwokconfigtemplates.infrastructure.runlevel.dev "absent" not found`, true},
		"missing, unhealthy": {`{"infrastructureRef":{"name":"absent"}}`,
			`kwokmachinetemplates.infrastructure.runlevel.dev "absent" not found`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, 3, 0)
			before := p.names()
			rollout := "{}"
			if c.isOld {
				rollout = fmt.Sprintf(`{"after":%q}`, time.Now().UTC().Add(time.Second).Format(time.RFC3339))
			}
			p.MustPatch(p.plane, `{"spec":{"rollout":%s,"machineTemplate":{"spec":%s}}}`, rollout, c.spec)
			if name == "missing, unhealthy" {
				p.mark(before[0])
			}
			p.awaitCondition(clusterv1.RollingOutCondition, metav1.ConditionTrue, c.problem)
			p.pass()
			p.expectNames(before)
			p.MustPatch(p.plane,
				`{"spec":{"machineTemplate":{"spec":{"infrastructureRef":{"kind":"KwokMachineTemplate","name":"large"},"bootstrap":{"configRef":{"name":"plain"}}}}}}`)
			p.awaitSettled(3)
			if kept := slices.DeleteFunc(p.names(), func(name string) bool {
				return !slices.Contains(before, name)
			}); len(kept) > 0 {
				t.Errorf("machines that were not replaced: got %v, want none", kept)
			}
		})
	}
}

// TestClusterThatClaimsAControlPlane makes a second Cluster refer to a control plane, by a copied manifest for example:
// it stays that of the first one.
func TestClusterThatClaimsAControlPlane(t *testing.T) {
	t.Parallel()
	p := start(t, 1, 1)
	before := p.names()
	other := &clusterv1.Cluster{ObjectMeta: p.Meta("a-copy")}
	first := &clusterv1.Cluster{}
	p.Must(p.Get(p.Context(), p.Key("c"), first))
	other.Spec.ControlPlaneRef, other.Spec.ControlPlaneEndpoint = first.Spec.ControlPlaneRef,
		first.Spec.ControlPlaneEndpoint
	p.MustCreate(other)
	p.upgrade("v1.36.1")
	p.awaitReplaced(before[0])
	for name, m := range p.machines() {
		if m.Spec.ClusterName != "c" {
			t.Errorf("machine %s is of Cluster %s", name, m.Spec.ClusterName)
		}
	}
	p.MustPatch(first, `{"spec":{"controlPlaneRef":{"name":"other"}}}`)
	p.awaitCondition(clusterv1.AvailableCondition, metav1.ConditionFalse,
		"its machines belong to Cluster "+p.Namespace+"/c, which does not exist")
}

// TestReasonThatChangesWithEachAttempt has an extension whose error message changes each time: the status changes, but
// this does not cause more calls of the extension.
func TestReasonThatChangesWithEachAttempt(t *testing.T) {
	t.Parallel()
	p := start(t, 3, 0)
	e, _ := p.extend()
	var mu sync.Mutex
	var calls []time.Time
	seventh := make(chan struct{})
	e.Serve("CanUpdateMachine", func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if calls = append(calls, time.Now()); len(calls) == 7 {
			close(seventh)
		}
		fmt.Fprintf(w, `{"status":"Failure","message":"attempt %d"}`, len(calls))
	})
	p.upgrade("v1.36.1")
	<-seventh
	mu.Lock()
	defer mu.Unlock()
	if passed := calls[6].Sub(calls[0]); passed < 10*time.Second {
		t.Errorf("7 calls in %s", passed)
	}
}

// TestLongReasonIsTruncated records why a machine is replaced also where an extension leaves much.
func TestLongReasonIsTruncated(t *testing.T) {
	t.Parallel()
	p := start(t, 3, 0)
	e, _ := p.extend()
	e.Serve("CanUpdateMachine", coverNothing)
	many := &infrav1.KwokMachineTemplate{ObjectMeta: p.Meta("many")}
	many.Spec.Template.Spec.Node.Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""}
	for i := range 20 {
		many.Spec.Template.Spec.Node.Labels[fmt.Sprintf("%s-%d", strings.Repeat("long", 15), i)] = ""
	}
	p.MustCreate(many)
	before := p.names()[0]
	p.MustPatch(p.plane, `{"spec":{"machineTemplate":{"spec":{"infrastructureRef":{"name":"many"}}}}}`)
	p.AwaitEvent(before, "Replaced", "Replaced, not updated in place: ")
	p.awaitSettled(3)
}

// TestNamesOfMachinesAreRandom refuses a pattern by which a new machine could have the name of another one.
func TestNamesOfMachinesAreRandom(t *testing.T) {
	t.Parallel()
	p := newFixture(t, 1, 1)
	changed := p.plane.DeepCopy()
	changed.Spec.MachineNaming.Template = "{{ .cluster.name }}-cp"
	if err := p.Update(p.Context(), changed); err == nil ||
		!strings.Contains(err.Error(), "it must contain {{ .random }}") {
		t.Error(err)
	}
}
