package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/machines/capi"
	"github.com/runlevel/runlevel/internal/machines/capi/machinedeployment"
	"github.com/runlevel/runlevel/internal/machines/capi/machineset"
	"github.com/runlevel/runlevel/internal/machines/infra/kwok"
	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/machines/runtimehook"
	"github.com/runlevel/runlevel/internal/machines/runtimehook/extensionconfig"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/internal/sandbox/runtimehooktest"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

var shared = machinetest.New(sandbox.Options{})

// isProgram is the variable that makes the program of the test run as the extension.
const isProgram = "TEST_IS_KWOK_EXTENSION"

func TestMain(m *testing.M) {
	if os.Getenv(isProgram) != "" {
		os.Args = slices.Insert(os.Args, 1, "kwok-extension")
		main()
		return
	}
	os.Exit(shared.Run(m))
}

// register runs the program with the rights of its manifests, and returns its ExtensionConfig once it is discovered.
// It serves one namespace.
func register(f *machinetest.Fixture) *runtimev1.ExtensionConfig {
	f.Helper()
	rights, err := os.ReadFile("kwok_extension_rights.yaml")
	f.Must(err)
	sandboxtest.Apply(f, shared.Connect(f), string(rights))
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: f.Namespace},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: f.Namespace}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "kwok-extension"},
	}
	config := &runtimev1.ExtensionConfig{ObjectMeta: metav1.ObjectMeta{Name: "kwok"}}
	config.Spec.ClientConfig = runtimehooktest.StartProcess(f, program(f, f.Namespace))
	config.Spec.NamespaceSelector = &metav1.LabelSelector{
		MatchLabels: map[string]string{corev1.LabelMetadataName: f.Namespace},
	}
	f.MustCreate(binding, config)
	f.DeleteAfterwards(config) // the next test registers its own
	shared.ManageAs(f, shared.Sandbox(f).Config, func(m ctrl.Manager) error {
		return extensionconfig.SetupWithManager(m, extensionconfig.Options{})
	})
	return machinetest.Await(f, f, config, client.ObjectKeyFromObject(config), func(e *runtimev1.ExtensionConfig) bool {
		return meta.IsStatusConditionTrue(e.Status.Conditions, runtimev1.ExtensionConfigDiscoveredCondition) &&
			len(e.Status.Handlers) == 3
	})
}

// program returns the extension as a user of the cluster.
func program(t testing.TB, user string) *exec.Cmd {
	t.Helper()
	config, err := clientcmd.LoadFromFile(shared.Sandbox(t).Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, auth := range config.AuthInfos {
		auth.Impersonate = user
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), isProgram+"=1", "KUBECONFIG="+path)
	return command
}

// sideOf returns a set and its template, with the version and the spec of machines.
func sideOf(t *testing.T, namespace, name, version, machine string) hooksv1.CanUpdateMachineSetRequestObjects {
	t.Helper()
	set := &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	set.Spec.Template.Spec.Version = version
	template := &unstructured.Unstructured{}
	text := "apiVersion: infrastructure.runlevel.dev/v1alpha1\nkind: KwokMachineTemplate\nmetadata: {name: " + name +
		"}\nspec: {template: {spec: " + machine + "}}"
	if err := yaml.Unmarshal([]byte(text), &template.Object); err != nil {
		t.Fatal(err)
	}
	return runtimehook.NewMachineSetObjects(set, template, nil)
}

// TestMachinesAreUpdatedInPlace calls the program through its ExtensionConfig: it reports the changes that it covers,
// and updates a Node once, after a delay. If it is configured to fail, it does not update the Node.
func TestMachinesAreUpdatedInPlace(t *testing.T) {
	f := shared.NewFixture(t)
	config := register(f)
	hooks := runtimehook.NewInPlaceHooks(f, f)
	for after, want := range map[string]string{
		"{node: {kubeletVersion: v1.36.0, osImage: new, labels: {a: x, b: y}}}": "extension can-update-machineset.kwok can update in place",
		"{node: {osImage: old, labels: {b: y}}}":                                "replaced, since infrastructureMachineTemplate spec.template.spec.node.labels.a is not covered by extension can-update-machineset.kwok",
		"{startAfter: 3s, node: {osImage: new, labels: {a: x}}}":                "replaced, since infrastructureMachineTemplate spec.template.spec.startAfter is not covered by extension can-update-machineset.kwok",
	} {
		request := &hooksv1.CanUpdateMachineSetRequest{
			Current: sideOf(t, f.Namespace, "old", "v1.35.0", "{node: {osImage: old, labels: {a: b}}}"),
			Desired: sideOf(t, f.Namespace, "new", "v1.36.0", after),
		}
		if decision, err := hooks.CanUpdateMachineSet(t.Context(), request); err != nil || decision.String() != want {
			t.Errorf("%s: %s %v, want %s", after, decision, err, want)
		}
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:   f.Namespace,
		Labels: map[string]string{"a": "b", "own": "1"},
	}}
	node.Spec.ProviderID = "kwok://" + f.Namespace
	f.MustCreate(node)
	set := func(settings map[string]string) {
		t.Helper()
		before := config.DeepCopy()
		config.Spec.Settings = settings
		f.Must(f.Patch(t.Context(), config, client.MergeFrom(before)))
		machinetest.Await(f, f, config, client.ObjectKeyFromObject(config), func(e *runtimev1.ExtensionConfig) bool {
			found := meta.FindStatusCondition(e.Status.Conditions, runtimev1.ExtensionConfigDiscoveredCondition)
			return found.Status == metav1.ConditionTrue && found.ObservedGeneration == e.Generation
		})
	}
	request := updateOf(t, node, `{"providerID":"kwok://`+f.Namespace+`","node":{"osImage":"new","labels":{"a":"x"}}}`)
	set(map[string]string{"fail": "the disk is full", "delay": "2s"})
	if _, err := hooks.UpdateMachine(t.Context(), request); err == nil ||
		!strings.Contains(err.Error(), "answered Failure (the disk is full)") {
		t.Errorf("got error %v, want the failure of the hook", err)
	}
	set(map[string]string{"delay": "2s"})
	began := time.Now()
	awaitDone(t, hooks, request, func(p runtimehook.Progress) {
		if p.RetryAfter > 3*time.Second || p.Message != "takes 2s" {
			t.Errorf("got progress %+v, want a retry within 3s and the message \"takes 2s\"", p)
		}
	})
	if took := time.Since(began); took < time.Second { // the annotation has the start in full seconds
		t.Errorf("update took %s", took)
	}
	updated := &corev1.Node{}
	f.Must(f.Get(t.Context(), client.ObjectKeyFromObject(node), updated))
	if info := updated.Status.NodeInfo; info.KubeletVersion != "v1.36.0" || info.OSImage != "new" ||
		updated.Labels["a"] != "x" || updated.Labels["own"] != "1" || updated.Annotations[beganAnnotation] != "" {
		t.Errorf("got %+v, labels %v, annotations %v; want v1.36.0, the image new, the labels a=x and own=1, and no %s",
			info, updated.Labels, updated.Annotations, beganAnnotation)
	}
	if progress, err := hooks.UpdateMachine(t.Context(), request); err != nil || !progress.Done {
		t.Errorf("a second update: got %+v, %v; want it done", progress, err)
	}
	request = updateOf(t, node, `{"providerID":"kwok://other"}`)
	if _, err := hooks.UpdateMachine(t.Context(), request); err == nil ||
		!strings.Contains(err.Error(), "is of another machine") {
		t.Errorf("the Node of another: %v", err)
	}
}

// updateOf returns the request that updates the machine of a Node to the next version.
func updateOf(t *testing.T, node *corev1.Node, spec string) *hooksv1.UpdateMachineRequest {
	t.Helper()
	machine := &v1alpha1.KwokMachine{TypeMeta: metav1.TypeMeta{
		APIVersion: v1alpha1.GroupVersion.String(),
		Kind:       "KwokMachine",
	}}
	machine.Name = node.Name
	if err := json.Unmarshal([]byte(spec), &machine.Spec); err != nil {
		t.Fatal(err)
	}
	request := &hooksv1.UpdateMachineRequest{}
	request.Desired.Machine.Name, request.Desired.Machine.Namespace = "m", node.Name // both have the same name
	request.Desired.Machine.Spec.Version = "v1.36.0"
	request.Desired.InfrastructureMachine = runtime.RawExtension{Object: machine}
	return request
}

// awaitDone calls the extension until it is done, and shows each answer before that.
func awaitDone(t *testing.T, hooks *runtimehook.InPlaceHooks, request *hooksv1.UpdateMachineRequest,
	check func(runtimehook.Progress)) {
	t.Helper()
	for tick := time.NewTicker(200 * time.Millisecond); ; <-tick.C {
		progress, err := hooks.UpdateMachine(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		if progress.Done {
			return
		}
		check(progress)
	}
}

// rollout is a MachineDeployment of two simulated machines, with all objects that it refers to.
var rollout = []string{
	`{apiVersion: cluster.x-k8s.io/v1beta2, kind: Cluster, metadata: {name: c, namespace: NS}, spec: {
		infrastructureRef: {apiGroup: infra.example.com, kind: Rack, name: r}}}`,
	`{apiVersion: infrastructure.runlevel.dev/v1alpha1, kind: KwokMachineTemplate, metadata: {name: m, namespace: NS}, spec: {template: {spec: {}}}}`,
	`{apiVersion: cluster.x-k8s.io/v1beta2, kind: MachineDeployment, metadata: {name: web, namespace: NS}, spec: {
		clusterName: c, replicas: 2, selector: {matchLabels: {role: web}},
		rollout: {strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}},
		template: {metadata: {labels: {role: web}}, spec: {
			clusterName: c, version: v1.35.0, bootstrap: {dataSecretName: none},
			infrastructureRef: {apiGroup: infrastructure.runlevel.dev, kind: KwokMachineTemplate, name: m}}}}}`,
}

// TestAVersionIsRolledOutInPlace changes the version of a MachineDeployment: its machines stay, and their Nodes have
// the version.
func TestAVersionIsRolledOutInPlace(t *testing.T) {
	f := shared.NewFixture(t)
	register(f)
	f.Manage(func(m ctrl.Manager) error {
		return errors.Join(
			machinedeployment.SetupWithManager(m, runtimehook.NewInPlaceHooks(m.GetClient(), m.GetAPIReader())),
			machineset.SetupWithManager(m, machineset.Options{}),
			capi.SetupWithManager(t.Context(), m, capi.Options{}), kwok.SetupWithManager(m),
		)
	})
	for _, manifest := range rollout {
		sandboxtest.Apply(t, shared.Connect(t),
			strings.ReplaceAll(strings.ReplaceAll(manifest, "NS", f.Namespace), "\t", "  "))
	}
	before := awaitVersion(f, "v1.35.0")
	deployment := &clusterv1.MachineDeployment{ObjectMeta: f.Meta("web")}
	f.MustPatch(deployment, `{"spec": {"template": {"spec": {"version": "v1.36.0"}}}}`)
	if diff := cmp.Diff(before, awaitVersion(f, "v1.36.0")); diff != "" {
		t.Errorf("other machines than before (-before +after):\n%s", diff)
	}
}

// awaitVersion waits until the rollout is over, and two Nodes have the version. It returns the UIDs of the machines by
// their names.
func awaitVersion(f *machinetest.Fixture, version string) map[string]types.UID {
	f.Helper()
	found := map[string]types.UID{}
	machinetest.Await(f, f, &clusterv1.MachineDeployment{}, f.Key("web"), func(d *clusterv1.MachineDeployment) bool {
		s := d.Status
		if s.ObservedGeneration != d.Generation || ptr.Deref(s.UpToDateReplicas, 0) != 2 ||
			ptr.Deref(s.AvailableReplicas, 0) != 2 || ptr.Deref(s.Replicas, 0) != 2 {
			return false
		}
		var machines clusterv1.MachineList
		f.MustList(&machines)
		clear(found)
		for _, machine := range machines.Items {
			node := &corev1.Node{}
			f.Must(f.Get(f.Context(), client.ObjectKey{Name: machine.Status.NodeRef.Name}, node))
			if machine.Spec.Version == version && node.Status.NodeInfo.KubeletVersion == version {
				found[machine.Name] = machine.UID
			}
		}
		return len(found) == 2
	})
	return found
}
