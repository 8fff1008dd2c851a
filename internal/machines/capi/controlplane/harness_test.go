package controlplane_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/capi"
	"github.com/runlevel/runlevel/internal/machines/capi/controlplane"
	"github.com/runlevel/runlevel/internal/machines/capi/controlplane/v1alpha1"
	"github.com/runlevel/runlevel/internal/machines/infra/kwok"
	infrav1 "github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/machines/runtimehook"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/internal/sandbox/runtimehooktest"
)

var stage = machinetest.New(sandbox.Options{})

func TestMain(m *testing.M) { os.Exit(stage.Run(m)) }

// A fixture is the namespace of one test, with a Cluster, templates, and a control plane of simulated machines.
type fixture struct {
	*machinetest.Fixture
	plane  *v1alpha1.RunlevelControlPlane
	nudges int
}

// newFixture creates a control plane. Its machines are made once the controllers run.
func newFixture(t testing.TB, replicas, surge int32) *fixture {
	t.Helper()
	p := &fixture{Fixture: stage.NewFixture(t)}
	cluster := &clusterv1.Cluster{ObjectMeta: p.Meta("c")}
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: v1alpha1.GroupVersion.Group,
		Kind:     "RunlevelControlPlane",
		Name:     p.Namespace,
	}
	cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "10.0.0.1", Port: 6443}
	config := &infrav1.KwokConfigTemplate{ObjectMeta: p.Meta("plain")}
	config.Spec.Template.Spec.Data = "#cloud-config"
	p.MustCreate(cluster, p.infrastructure("small"), p.infrastructure("large"), config)

	// nodes have the names of machines, and are those of all tests
	p.plane = &v1alpha1.RunlevelControlPlane{ObjectMeta: p.Meta(p.Namespace)}
	p.plane.Spec.Replicas, p.plane.Spec.Version = &replicas, "v1.36.0"
	spec := machinetest.MachineSpec()
	template := &p.plane.Spec.MachineTemplate.Spec
	template.InfrastructureRef, template.Bootstrap = spec.InfrastructureRef, spec.Bootstrap
	p.plane.Spec.Rollout.Strategy.RollingUpdate.MaxSurge = &surge
	p.MustCreate(p.plane)
	return p
}

// infrastructure returns a template of infrastructure whose nodes have a label with its name.
func (f *fixture) infrastructure(name string) *infrav1.KwokMachineTemplate {
	template := &infrav1.KwokMachineTemplate{ObjectMeta: f.Meta(name)}
	template.Spec.Template.Spec.Node.Labels = map[string]string{
		"size":                                  name,
		"node-role.kubernetes.io/control-plane": "",
	}
	return template
}

// runMachines runs the controllers of Machines, infrastructure and bootstrap configs, until the test ends.
func (f *fixture) runMachines() {
	f.Helper()
	f.Manage(func(m ctrl.Manager) error {
		for _, add := range []func(ctrl.Manager) error{kwok.SetupWithManager, kwok.SetupConfigsWithManager} {
			if err := add(m); err != nil {
				return err
			}
		}
		hooks := runtimehook.NewInPlaceHooks(m.GetClient(), m.GetAPIReader())
		return capi.SetupWithManager(f.Context(), m, capi.Options{Hooks: hooks})
	})
}

// runPlane runs the controller of control planes, until the test ends or stop is called.
func (f *fixture) runPlane(reach *rest.Config) (stop func()) {
	f.Helper()
	return stage.ManageIn(f, f.Namespace, reach, func(m ctrl.Manager) error {
		return controlplane.SetupWithManager(m, runtimehook.NewInPlaceHooks(m.GetClient(), m.GetAPIReader()))
	})
}

// run runs all controllers, until the test ends; stop ends that of control planes before.
func (f *fixture) run() (stop func()) {
	f.Helper()
	f.runMachines()
	return f.runPlane(stage.Sandbox(f).Config)
}

// start creates a control plane whose machines are all available.
func start(t testing.TB, replicas, surge int32) *fixture {
	p := newFixture(t, replicas, surge)
	p.run()
	p.awaitSettled(replicas)
	return p
}

// await waits until the control plane is as wanted, for its newest generation.
func (f *fixture) await(what string, isWanted func(*v1alpha1.RunlevelControlPlane) bool) {
	f.Helper()
	var last v1alpha1.RunlevelControlPlane
	defer func() {
		if f.Failed() {
			text, _ := json.MarshalIndent(last.Status, "", " ")
			f.Logf("it was to be %s, and is %s\nmachines: %v", what, text, f.machines())
		}
	}()
	machinetest.Await(f, f, &v1alpha1.RunlevelControlPlane{}, client.ObjectKeyFromObject(f.plane),
		func(plane *v1alpha1.RunlevelControlPlane) bool {
			last = *plane
			return plane.Status.ObservedGeneration == plane.Generation && isWanted(plane)
		})
}

// awaitSettled waits until a number of machines exist, all available and up to date.
func (f *fixture) awaitSettled(replicas int32) {
	f.Helper()
	f.await("settled", func(plane *v1alpha1.RunlevelControlPlane) bool {
		s := plane.Status
		return s.Replicas != nil && *s.Replicas == replicas && *s.AvailableReplicas == replicas &&
			*s.UpToDateReplicas == replicas &&
			isFalse(s.Conditions, clusterv1.RollingOutCondition)
	})
}

// awaitCondition waits until a condition has a status, and a text in its message.
func (f *fixture) awaitCondition(kind string, status metav1.ConditionStatus, text string) {
	f.Helper()
	f.await(kind+" "+string(status)+": "+text, func(plane *v1alpha1.RunlevelControlPlane) bool {
		found := meta.FindStatusCondition(plane.Status.Conditions, kind)
		return found != nil && found.Status == status && strings.Contains(found.Message, text)
	})
}

func isFalse(conditions []metav1.Condition, kind string) bool {
	return meta.IsStatusConditionFalse(conditions, kind)
}

// machines returns the machines, by name.
func (f *fixture) machines() map[string]*clusterv1.Machine {
	var list clusterv1.MachineList
	f.MustList(&list)
	found := map[string]*clusterv1.Machine{}
	for i := range list.Items {
		found[list.Items[i].Name] = &list.Items[i]
	}
	return found
}

// nudge makes the controller do another pass.
func (f *fixture) nudge() {
	f.Helper()
	f.nudges++
	f.MustPatch(f.plane, `{"metadata":{"annotations":{"nudge":"%d"}}}`, f.nudges)
}

// pass waits until the controller has done another whole pass.
func (f *fixture) pass() {
	f.Helper()
	f.nudges++
	f.MustPatch(f.plane, `{"spec":{"remediation":{"minHealthyPeriodSeconds":%d}}}`, 3600+f.nudges)
	f.await("seen", func(*v1alpha1.RunlevelControlPlane) bool { return true })
}

// names returns the names of the machines.
func (f *fixture) names() []string { return slices.Sorted(maps.Keys(f.machines())) }

// upgrade changes the version of the control plane.
func (f *fixture) upgrade(version string) {
	f.Helper()
	f.MustPatch(f.plane, `{"spec":{"version":%q}}`, version)
}

// extend registers an extension that updates machines at once, and covers all changes of the version.
func (f *fixture) extend() (*runtimehooktest.Extension, *runtimev1.ExtensionConfig) {
	f.Helper()
	e := runtimehooktest.New(f)
	e.Serve("CanUpdateMachine", coverVersion)
	e.Serve("UpdateMachine", f.updateNode)
	config := e.Register(f, f, f.Namespace)
	runtimehooktest.Discover(f, f, config, runtimev1.FailurePolicyFail, "CanUpdateMachine", "UpdateMachine")
	return e, config
}

// coverVersion answers that the version of a machine can be changed in place, and nothing else.
func coverVersion(w http.ResponseWriter, r *http.Request) {
	var request hooksv1.CanUpdateMachineRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	patch, _ := json.Marshal(map[string]any{
		// which do not count
		"metadata": map[string]any{"labels": map[string]string{"patched": "true"}},
		"status":   map[string]string{"phase": "Patched"},
		"spec":     map[string]string{"version": request.Desired.Machine.Spec.Version},
	})
	answer, _ := json.Marshal(map[string]any{
		"apiVersion": hooksv1.GroupVersion.String(), "kind": "CanUpdateMachineResponse", "status": "Success",
		"machinePatch": map[string]any{"patchType": "JSONMergePatch", "patch": patch},
	})
	_, _ = w.Write(answer)
}

// updateNode is an update in place that ends at once: the node of the machine reports the wanted version.
func (f *fixture) updateNode(w http.ResponseWriter, r *http.Request) {
	var request hooksv1.UpdateMachineRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: request.Desired.Machine.Name}}
	version := fmt.Appendf(nil, `{"status":{"nodeInfo":{"kubeletVersion":%q}}}`, request.Desired.Machine.Spec.Version)
	if err := f.Status().Patch(r.Context(), node, client.RawPatch(types.MergePatchType, version)); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write([]byte(done))
}

const done = `{"apiVersion":"hooks.runtime.cluster.x-k8s.io/v1alpha1","kind":"UpdateMachineResponse","status":"Success","retryAfterSeconds":0}`
