package contract_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/machines/contract"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

func references(t *testing.T) contract.References {
	return contract.References{Client: stage.Client(t)}
}

func to(kind, name string) clusterv1.ContractVersionedObjectReference {
	return clusterv1.ContractVersionedObjectReference{APIGroup: "infra.example.com", Kind: kind, Name: name}
}

// create creates an object from YAML.
func create(t *testing.T, namespace, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		t.Fatal(err)
	}
	object.SetNamespace(namespace)
	if err := stage.Client(t).Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	return object
}

func TestServedReadsTheLabelOfTheDefinition(t *testing.T) {
	t.Parallel()
	group := schema.GroupVersion{Group: "infra.example.com", Version: "v1"}
	for kind, want := range map[string]contract.ServedKind{
		"Blade": {
			GroupVersionKind: group.WithKind("Blade"),
			Resource:         group.WithResource("blades"),
			Contract:         "v1beta2",
		},
		"Rack": {
			GroupVersionKind: group.WithKind("Rack"),
			Resource:         group.WithResource("rackery"),
			Contract:         "v1beta1",
		},
	} {
		got, err := references(t).Served(t.Context(), schema.GroupKind{Group: "infra.example.com", Kind: kind})
		if err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", kind, diff)
		}
	}
}

func TestGetReportsProblemsOfReferences(t *testing.T) {
	t.Parallel()
	namespace := stage.Namespace(t)
	for kind, want := range map[string]string{
		"Cupboard": "the cluster serves no kind Cupboard of infra.example.com: install its CustomResourceDefinition",
		"Shelf":    "label it, such as cluster.x-k8s.io/v1beta2=v1",
		"Drawer":   "the cluster does not serve drawers.v7.infra.example.com",
	} {
		_, err := references(t).Get(t.Context(), to(kind, "a"), namespace)
		if err == nil || !strings.Contains(err.Error(), want) || apierrors.IsNotFound(err) {
			t.Errorf("%s: got error %v, want %q", kind, err, want)
		}
	}
	_, err := references(t).Get(t.Context(), to("Blade", "a"), namespace)
	if !apierrors.IsNotFound(err) {
		t.Errorf("a missing object: got %v, want NotFound", err)
	}
	_, err = references(t).Get(t.Context(), clusterv1.ContractVersionedObjectReference{}, namespace)
	if err == nil || !strings.Contains(err.Error(), "write its apiGroup, kind and name") {
		t.Errorf("an empty reference: got error %v, want one that names the fields", err)
	}
}

func TestTheFieldsOfTheContractAreRead(t *testing.T) {
	t.Parallel()
	namespace := stage.Namespace(t)
	create(t, namespace, `
apiVersion: infra.example.com/v1
kind: Blade
metadata: {name: full}
spec: {providerID: "blade://7"}
status:
  initialization: {provisioned: true, dataSecretCreated: true}
  dataSecretName: secret
  failureDomain: rack-7
  addresses: [{type: InternalIP, address: 10.0.0.7}]
  conditions: [{type: Ready, status: "False", reason: Hot, message: too hot, lastTransitionTime: "2026-01-01T00:00:00Z"}]`)
	create(t, namespace, "{apiVersion: infra.example.com/v1, kind: Blade, metadata: {name: odd}, "+
		"spec: {providerID: 7}, status: {ready: true, initialization: yes, addresses: none, conditions: {}}}")
	create(t, namespace, "{apiVersion: infra.example.com/v1, kind: Rack, metadata: {name: old}, status: {ready: true}}")

	full, err := references(t).Get(t.Context(), to("Blade", "full"), namespace)
	if err != nil {
		t.Fatal(err)
	}
	if full.ProviderID() != "blade://7" || !full.IsProvisioned() || !full.IsDataSecretCreated() ||
		full.DataSecretName() != "secret" || full.FailureDomain() != "rack-7" {
		t.Errorf("got %+v, want the fields of the YAML", full)
	}
	addresses := clusterv1.MachineAddresses{{Type: clusterv1.MachineInternalIP, Address: "10.0.0.7"}}
	if diff := cmp.Diff(addresses, full.Addresses()); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	if conditions := full.Conditions(); len(conditions) != 1 || conditions[0].Message != "too hot" {
		t.Errorf("got conditions %v, want one with the message too hot", conditions)
	}
	odd, err := references(t).Get(t.Context(), to("Blade", "odd"), namespace)
	if err != nil {
		t.Fatal(err)
	}
	if odd.ProviderID() != "" || odd.IsProvisioned() || len(odd.Addresses()) > 0 || len(odd.Conditions()) > 0 {
		t.Errorf("fields of other types: got %+v, want none", odd)
	}
	old, err := references(t).Get(t.Context(), to("Rack", "old"), namespace)
	if err != nil || !old.IsProvisioned() || !old.IsDataSecretCreated() {
		t.Errorf("the older contract: got %+v, error %v, want provisioned", old, err)
	}
}

func TestATemplateIsClonedAndTheCloneDeleted(t *testing.T) {
	t.Parallel()
	namespace := stage.Namespace(t)
	create(t, namespace, `
apiVersion: infra.example.com/v1
kind: BladeTemplate
metadata: {name: small, labels: {of: template}}
spec:
  template:
    metadata: {name: ignored, labels: {rack: "7", pool: overruled}, annotations: {note: hot}}
    spec: {size: small}`)
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "owner"}}
	if err := stage.Client(t).Create(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	ref := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID}
	wanted := contract.Clone{
		Namespace: namespace, Name: "a", ClusterName: "c", Owner: &ref,
		Labels: map[string]string{"pool": "blue"}, Annotations: map[string]string{"more": "m"},
	}
	made, err := references(t).Clone(t.Context(), to("BladeTemplate", "small"), wanted)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(to("Blade", "a"), made); diff != "" {
		t.Errorf("reference (-want +got):\n%s", diff)
	}
	clone, err := references(t).Get(t.Context(), made, namespace)
	if err != nil {
		t.Fatal(err)
	}
	type parts struct {
		Spec                any
		Labels, Annotations map[string]string
		Owners              []metav1.OwnerReference
	}
	want := parts{
		Spec:   map[string]any{"size": "small"},
		Labels: map[string]string{"rack": "7", "pool": "blue", "cluster.x-k8s.io/cluster-name": "c"},
		Annotations: map[string]string{
			"note": "hot", "more": "m", "cluster.x-k8s.io/cloned-from-name": "small",
			"cluster.x-k8s.io/cloned-from-groupkind": "BladeTemplate.infra.example.com",
		},
		Owners: []metav1.OwnerReference{ref},
	}
	got := parts{clone.Object["spec"], clone.GetLabels(), clone.GetAnnotations(), clone.GetOwnerReferences()}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the clone (-want +got):\n%s", diff)
	}
	if _, err := references(t).Clone(t.Context(), to("BladeTemplate", "small"),
		wanted); !apierrors.IsAlreadyExists(err) {
		t.Errorf("a second clone of that name: got error %v, want AlreadyExists", err)
	}
	for range 2 { // a missing object counts as deleted
		if err := references(t).Delete(t.Context(), clone); err != nil {
			t.Error(err)
		}
	}
	machinetest.AwaitGone(t, stage.Client(t), clone.Unstructured, client.ObjectKeyFromObject(clone))
}

// TestAnotherObjectOfThatNameIsNotDeleted replaces an object between the read and the deletion.
func TestAnotherObjectOfThatNameIsNotDeleted(t *testing.T) {
	t.Parallel()
	namespace := stage.Namespace(t)
	const text = "{apiVersion: infra.example.com/v1, kind: Blade, metadata: {name: a}}"
	first := create(t, namespace, text)
	found, err := references(t).Get(t.Context(), to("Blade", "a"), namespace)
	if err != nil {
		t.Fatal(err)
	}
	if err := stage.Client(t).Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	second := create(t, namespace, text)
	if err := references(t).Delete(t.Context(), found); !apierrors.IsConflict(err) {
		t.Errorf("delete of a replaced object: got error %v, want Conflict", err)
	}
	if err := stage.Client(t).Get(t.Context(), client.ObjectKeyFromObject(second), second); err != nil ||
		second.GetDeletionTimestamp() != nil {
		t.Errorf("the replacement: got %v, error %v, want no deletion", second, err)
	}
}
