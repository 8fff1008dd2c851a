package conformance_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/yaml"
)

var (
	objectFile = flag.String("object", "",
		"the file of an infrastructure object with a namespace; its name is not used")
	patience = flag.Duration("patience", 10*time.Minute, "how long a machine may take to start, and to end")
	joins    = flag.Bool("node", false, "also wait for the Node with the providerID")
)

// interval is the interval at which an object is read. steady is the time for which it must stay unchanged.
const interval, steady = 250 * time.Millisecond, 3 * time.Second

// TestProvider checks the provider of the object of -object.
func TestProvider(t *testing.T) {
	if *objectFile == "" {
		t.Skip("-object is not set")
	}
	text, err := os.ReadFile(*objectFile)
	if err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, &object.Object); err != nil {
		t.Fatalf("%s: %v", *objectFile, err)
	}
	cluster, err := config.GetConfig() // of the flag -kubeconfig, or of $KUBECONFIG
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cluster, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	check(t, provider{client: c, object: object, patience: *patience, joins: *joins})
}

// A provider is the provider under test.
type provider struct {
	client   client.Client
	object   *unstructured.Unstructured
	patience time.Duration
	joins    bool // a Node of the machine joins the cluster
}

// check checks a provider as each of the two machine APIs uses it.
func check(t *testing.T, p provider) {
	t.Helper()
	kind := p.object.GroupVersionKind()
	mapping, err := p.client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	switch {
	case err != nil:
		t.Fatalf("the cluster does not serve the kind of the object: %v", err)
	case mapping.Scope.Name() != meta.RESTScopeNameNamespace:
		t.Fatalf("kind %s has no namespaces: infrastructure is an object of its machine's namespace", kind.Kind)
	case p.object.GetNamespace() == "":
		t.Fatal("the object has no namespace")
	}
	t.Run("machine.openshift.io", func(t *testing.T) {
		// The object has the machine's name and, in an annotation, its UID. It has no owner.
		object := p.newObject()
		annotations := object.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations["machine.runlevel.dev/machine-uid"] = "conformance-" + object.GetName()
		object.SetAnnotations(annotations)
		p.checkLife(t, object)
	})
	t.Run("cluster.x-k8s.io", func(t *testing.T) {
		if !p.keepsClusterAPI(t, mapping.Resource) {
			t.Skipf("no label cluster.x-k8s.io/v1beta2 of CustomResourceDefinition %s names the served version that "+
				"keeps the contract, "+
				"or the cluster has no Machines of Cluster API: there this provider can't be used",
				mapping.Resource.GroupResource())
		}
		// The object has the label of its Cluster, and the Machine as its controller.
		object := p.newObject()
		owner := p.newMachine(t, object)
		labels := object.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels["cluster.x-k8s.io/cluster-name"] = "conformance"
		object.SetLabels(labels)
		object.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(owner, owner.GroupVersionKind())})
		p.checkLife(t, object)
	})
}

// newObject returns a copy of the object with a unique name.
func (p provider) newObject() *unstructured.Unstructured {
	object := p.object.DeepCopy()
	object.SetName("conformance-" + rand.String(8))
	return object
}

// checkLife has a machine start and end.
func (p provider) checkLife(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	p.create(t, object)
	p.await(t, object, "it has no status.initialization.provisioned: true", func() bool {
		provisioned, _, _ := unstructured.NestedBool(object.Object, "status", "initialization", "provisioned")
		return provisioned
	})
	id := providerID(object)
	for _, problem := range problemsOf(object) {
		t.Error(problem)
	}
	if p.joins {
		p.awaitNode(t, id)
	}
	p.touch(t, object)
	err := wait.PollUntilContextTimeout(t.Context(), interval, steady, true, func(ctx context.Context) (bool, error) {
		err := p.client.Get(ctx, client.ObjectKeyFromObject(object), object)
		return providerID(object) != id, err
	})
	if !wait.Interrupted(err) {
		t.Errorf("providerID changed after an update of annotations: got %q (error %v), want %q", providerID(object),
			err, id)
	}
	if err := p.client.Delete(t.Context(), object); err != nil {
		t.Fatalf("delete it: %v", err)
	}
	if !p.awaitGone(t, object) {
		t.Errorf("object still exists %s after its deletion; finalizers: %v; message of the condition Ready: %q",
			p.patience, object.GetFinalizers(), readyMessage(object))
	}
}

// create creates an object, which is always deleted at the end of the test.
func (p provider) create(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	if err := p.client.Create(t.Context(), object); err != nil {
		t.Fatalf("create %s %s: %v", object.GetKind(), object.GetName(), err)
	}
	t.Cleanup(func() {
		if err := p.client.Delete(context.Background(), object); client.IgnoreNotFound(err) != nil {
			t.Errorf("delete %s %s: %v", object.GetKind(), object.GetName(), err)
		}
	})
}

// await polls an object until it fulfils a condition.
func (p provider) await(t *testing.T, object *unstructured.Unstructured, otherwise string, done func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), interval, p.patience, true,
		func(ctx context.Context) (bool, error) {
			if err := p.client.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
				return false, err
			}
			return done(), nil
		})
	if err != nil {
		t.Fatalf("%s after %s (%v). The message of its condition Ready: %q", otherwise, p.patience, err,
			readyMessage(object))
	}
}

func (p provider) awaitGone(t *testing.T, object *unstructured.Unstructured) bool {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), interval, p.patience, true,
		func(ctx context.Context) (bool, error) {
			err := p.client.Get(ctx, client.ObjectKeyFromObject(object), object)
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		})
	return err == nil
}

// awaitNode waits for a Node with the providerID: by that a machine and its Node are linked.
func (p provider) awaitNode(t *testing.T, id string) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), interval, p.patience, true,
		func(ctx context.Context) (bool, error) {
			var nodes corev1.NodeList
			err := p.client.List(ctx, &nodes)
			return slices.ContainsFunc(nodes.Items, func(node corev1.Node) bool { return node.Spec.ProviderID == id }),
				err
		})
	if err != nil {
		t.Errorf("there is no Node with the providerID %q (kubelet --provider-id) after %s: %v", id, p.patience, err)
	}
}

// touch changes an annotation, so that the provider reconciles the object.
func (p provider) touch(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	patch := client.RawPatch("application/merge-patch+json",
		[]byte(`{"metadata": {"annotations": {"example.com/conformance": "touched"}}}`))
	if err := p.client.Patch(t.Context(), object, patch); err != nil {
		t.Fatalf("annotate it: %v", err)
	}
}

// keepsClusterAPI reports whether the kind can be used by Cluster API: a label of its definition names the version.
func (p provider) keepsClusterAPI(t *testing.T, resource schema.GroupVersionResource) bool {
	t.Helper()
	definition := &metav1.PartialObjectMetadata{}
	definition.SetGroupVersionKind(schema.GroupVersionKind{
		Group:   "apiextensions.k8s.io",
		Version: "v1",
		Kind:    "CustomResourceDefinition",
	})
	if err := p.client.Get(t.Context(), client.ObjectKey{Name: resource.GroupResource().String()},
		definition); err != nil {
		t.Fatalf("get the CustomResourceDefinition: %v", err)
	}
	_, err := p.client.RESTMapper().RESTMapping(schema.GroupKind{Group: "cluster.x-k8s.io", Kind: "Machine"}, "v1beta2")
	return err == nil && definition.Labels["cluster.x-k8s.io/v1beta2"] != ""
}

// newMachine creates a paused Machine, which its own controller leaves alone, with the bootstrap data of a test.
func (p provider) newMachine(t *testing.T, object *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	named := func(apiVersion, kind string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind}}
		o.SetNamespace(object.GetNamespace())
		o.SetName(object.GetName())
		return o
	}
	secret := named("v1", "Secret")
	secret.Object["stringData"] = map[string]any{"value": "", "format": "cloud-config"}
	p.create(t, secret)
	machine := named("cluster.x-k8s.io/v1beta2", "Machine")
	machine.SetAnnotations(map[string]string{"cluster.x-k8s.io/paused": ""})
	machine.Object["spec"] = map[string]any{
		"clusterName": "conformance", "bootstrap": map[string]any{"dataSecretName": secret.GetName()},
		"infrastructureRef": map[string]any{
			"apiGroup": object.GroupVersionKind().Group, "kind": object.GetKind(), "name": object.GetName(),
		},
	}
	p.create(t, machine)
	return machine
}

// problemsOf returns the problems of a provisioned object.
func problemsOf(object *unstructured.Unstructured) []string {
	var problems []string
	if providerID(object) == "" {
		problems = append(problems,
			"it is provisioned without a spec.providerID, which has to be set before: the machine waits for it")
	}
	if len(object.GetFinalizers()) == 0 {
		problems = append(problems, "it has no finalizer: it would be deleted before its machine is terminated")
	}
	addresses, _, err := unstructured.NestedSlice(object.Object, "status", "addresses") // a provider may leave them out
	if err != nil {
		problems = append(problems, "status.addresses is not a list")
	}
	for _, item := range addresses {
		fields, _ := item.(map[string]any)
		address, _ := fields["address"].(string)
		if address == "" || !slices.Contains(
			[]any{"InternalIP", "ExternalIP", "Hostname", "InternalDNS", "ExternalDNS"}, fields["type"],
		) {
			problems = append(problems,
				fmt.Sprintf("status.addresses has %v: write the type (such as InternalIP) and the address", item))
		}
	}
	return problems
}

func providerID(object *unstructured.Unstructured) string {
	id, _, _ := unstructured.NestedString(object.Object, "spec", "providerID")
	return id
}

// readyMessage is the message of the condition Ready, which users see while the machine waits.
func readyMessage(object *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, item := range conditions {
		if condition, _ := item.(map[string]any); condition["type"] == "Ready" {
			return fmt.Sprint(condition["message"])
		}
	}
	return ""
}
