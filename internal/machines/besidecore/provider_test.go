package besidecore

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// The kinds of Cluster API's providers, which Cluster API's test extension knows. No controller of Cluster API provides
// them here.
var (
	devInfrastructure = schema.GroupVersion{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2"}
	kubeadmBootstrap  = schema.GroupVersion{Group: "bootstrap.cluster.x-k8s.io", Version: "v1beta2"}
)

// definitions are the paths, in Cluster API's modules, of the definitions of these kinds, and of those that only the
// whole core needs.
var definitions = map[string]string{
	"core/config/crd/bases/addons*.yaml":                       "sigs.k8s.io/cluster-api",
	"bootstrap/kubeadm/config/crd/bases/*_kubeadmconfig*.yaml": "sigs.k8s.io/cluster-api",
	"infrastructure/docker/config/crd/bases/*_dev*.yaml":       "sigs.k8s.io/cluster-api/test",
}

// applyDefinitions applies the definitions, with the label that reports which version keeps Cluster API's contract: it
// is added to them when Cluster API is released.
func applyDefinitions(t *testing.T) {
	t.Helper()
	c := shared.Connect(t)
	for pattern, path := range definitions {
		folder, err := exec.Command("go", "list", "-C", module, "-m", "-f", "{{.Dir}}", path).Output()
		if err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(folder)), pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s has no definitions: %v", path, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			definition := sandboxtest.ParseObject(t, string(text))
			definition.SetLabels(map[string]string{clusterv1.GroupVersion.String(): "v1beta2"})
			sandboxtest.ApplyObject(t, c, definition)
			awaitServed(t, definition)
		}
	}
}

// awaitServed waits until the API server serves the kind of a definition.
func awaitServed(t *testing.T, definition *unstructured.Unstructured) {
	t.Helper()
	group, _, _ := unstructured.NestedString(definition.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "listKind")
	var list unstructured.UnstructuredList
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1beta2", Kind: kind})
	sandboxtest.EventuallySucceeds(t, func(ctx context.Context) error { return shared.Client(t).List(ctx, &list) })
}

// newObject returns an object of a kind of Cluster API's providers.
func newObject(f *machinetest.Fixture, version schema.GroupVersion, kind, name,
	spec string) *unstructured.Unstructured {
	f.Helper()
	object := sandboxtest.ParseObject(f, "spec: "+spec)
	object.SetGroupVersionKind(version.WithKind(kind))
	object.SetNamespace(f.Namespace)
	object.SetName(name)
	return object
}

// provide acts as the providers of DevMachines and KubeadmConfigs until the test ends: each machine gets a node at
// once, and each config its data.
func provide(f *machinetest.Fixture) {
	go func() {
		_ = wait.PollUntilContextCancel(f.Context(), time.Second/5, true, func(ctx context.Context) (bool, error) {
			for _, machine := range uninitialized(ctx, f, devInfrastructure.WithKind("DevMachine"), "provisioned") {
				provideMachine(ctx, f, machine)
			}
			for _, config := range uninitialized(ctx, f, kubeadmBootstrap.WithKind("KubeadmConfig"),
				"dataSecretCreated") {
				_ = f.Status().Patch(ctx, config,
					merge(`{"status":{"dataSecretName":"data","initialization":{"dataSecretCreated":true}}}`))
			}
			provideVersions(ctx, f)
			return false, nil
		})
	}()
}

// uninitialized returns the objects of a kind without a field of their initialization.
func uninitialized(ctx context.Context, f *machinetest.Fixture, kind schema.GroupVersionKind,
	field string) []*unstructured.Unstructured {
	var list unstructured.UnstructuredList
	list.SetGroupVersionKind(kind)
	if err := f.List(ctx, &list, client.InNamespace(f.Namespace)); err != nil {
		return nil
	}
	var found []*unstructured.Unstructured
	for i := range list.Items {
		if isDone, _, _ := unstructured.NestedBool(list.Items[i].Object, "status", "initialization", field); !isDone {
			found = append(found, &list.Items[i])
		}
	}
	return found
}

// provideMachine creates a node, and connects the machine with it. Failures are retried.
func provideMachine(ctx context.Context, f *machinetest.Fixture, machine *unstructured.Unstructured) {
	providerID := "dev:////" + machine.GetName()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: machine.GetName()},
		Spec:       corev1.NodeSpec{ProviderID: providerID},
	}
	_ = f.Create(ctx, node)
	if err := f.Patch(ctx, machine, merge(`{"spec":{"providerID":"`+providerID+`"}}`)); err == nil {
		_ = f.Status().Patch(ctx, machine, merge(`{"status":{"initialization":{"provisioned":true}}}`))
	}
}

// provideVersions has each node report the version of its Machine: the test extension does not change it.
func provideVersions(ctx context.Context, f *machinetest.Fixture) {
	var machines clusterv1.MachineList
	_ = f.List(ctx, &machines, client.InNamespace(f.Namespace))
	for _, m := range machines.Items {
		if m.Status.NodeInfo != nil && m.Status.NodeInfo.KubeletVersion != m.Spec.Version {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.Status.NodeRef.Name}}
			_ = f.Status().Patch(ctx, node, merge(`{"status":{"nodeInfo":{"kubeletVersion":"`+m.Spec.Version+`"}}}`))
		}
	}
}

func merge(patch string) client.Patch {
	return client.RawPatch("application/merge-patch+json", []byte(patch))
}
