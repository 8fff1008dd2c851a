package infra_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/annotation"
	"github.com/runlevel/runlevel/internal/machines/infra"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

func TestInfrastructureIsMadeReadAndDeleted(t *testing.T) {
	t.Parallel()
	serve(t, "Blade", "blades")
	objects := &infra.Objects{Client: shared.Client(t)}
	m := machineOf(t, shared.Namespace(t), "m", `{
		"apiVersion": "infra.example.com/v1", "kind": "Blade", "spec": {"size": "small"},
		"metadata": {"name": "ignored", "labels": {"rack": "7", "pool": "overruled"}, "annotations": {"note": "n"}}}`)
	for range 2 { // a request whose answer was lost is made again
		if instance := mustCreate(t, objects, m); !instance.Exists || instance.IsProvisioned || instance.IsDeleting {
			t.Errorf("new infrastructure: got %+v, want it to exist, not provisioned and not deleted", instance)
		}
	}
	object := read(t, m)
	want := map[string]any{"size": "small"}
	if diff := cmp.Diff(want, object.Object["spec"]); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"rack": "7", "pool": "a"}, object.GetLabels()); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	annotations := map[string]string{"note": "n", annotation.MachineUID: "uid-of-m"}
	if diff := cmp.Diff(annotations, object.GetAnnotations()); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if owners := object.GetOwnerReferences(); len(owners) > 0 {
		t.Errorf("the garbage collector would follow %v", owners)
	}

	edit(t, m, func(o *unstructured.Unstructured) {
		o.SetFinalizers([]string{"infra.example.com/blade"})
		o.Object["spec"] = map[string]any{"size": "small", "providerID": "blade://7"}
		o.Object["status"] = map[string]any{
			"initialization": map[string]any{"provisioned": true}, "failureDomain": "rack-7",
			"addresses": []any{map[string]any{"type": "InternalIP", "address": "10.0.0.7"}},
			"conditions": []any{map[string]any{
				"type":    "Ready",
				"status":  "False",
				"reason":  "Hot",
				"message": "too hot",
			}},
		}
	})
	got, err := objects.Get(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	instance := infra.Instance{
		Kind: m.Template.GroupVersionKind(), Exists: true, IsProvisioned: true, ProviderID: "blade://7",
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.7"}},
		Failure:   "too hot", Finalizers: []string{"infra.example.com/blade"},
	}
	if diff := cmp.Diff(instance, got); diff != "" {
		t.Errorf("instance (-want +got):\n%s", diff)
	}

	for range 2 {
		if instance, err := objects.Delete(t.Context(), m); err != nil || !instance.Exists || !instance.IsDeleting {
			t.Errorf("after it was deleted: %+v, %v", instance, err)
		}
	}
	edit(t, m, func(o *unstructured.Unstructured) { o.SetFinalizers(nil) })
	machinetest.AwaitGone(t, shared.Client(t), object, client.ObjectKeyFromObject(object))
	for name, call := range map[string]func() (infra.Instance, error){
		"Get":    func() (infra.Instance, error) { return objects.Get(t.Context(), m) },
		"Delete": func() (infra.Instance, error) { return objects.Delete(t.Context(), m) },
	} {
		if instance, err := call(); err != nil || instance.Exists {
			t.Errorf("%s of a deleted object: got %+v, error %v, want that it does not exist", name, instance, err)
		}
	}
}

func mustCreate(t *testing.T, objects *infra.Objects, m infra.Machine) infra.Instance {
	t.Helper()
	instance, err := objects.Create(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	return instance
}

// Infrastructure of another machine, or created by a person, is neither used nor deleted.
func TestInfrastructureOfOthersIsLeftAlone(t *testing.T) {
	t.Parallel()
	serve(t, "Shelf", "shelves")
	objects := &infra.Objects{Client: shared.Client(t)}
	namespace := shared.Namespace(t)
	m := machineOf(t, namespace, "m", `{"apiVersion": "infra.example.com/v1", "kind": "Shelf", "spec": {}}`)
	before := m
	before.UID = "uid-before"
	mustCreate(t, objects, before)
	advice := ": delete it, or have this machine take it: kubectl annotate --overwrite -n " + namespace +
		" Shelf.infra.example.com m machine.runlevel.dev/machine-uid=uid-of-m"
	expect := func(want string) {
		t.Helper()
		for name, call := range map[string]func() (infra.Instance, error){
			"Get":    func() (infra.Instance, error) { return objects.Get(t.Context(), m) },
			"Create": func() (infra.Instance, error) { return objects.Create(t.Context(), m) },
			"Delete": func() (infra.Instance, error) { return objects.Delete(t.Context(), m) },
		} {
			if _, err := call(); err == nil || err.Error() != want || errors.As(err, new(*infra.InvalidError)) {
				t.Errorf("%s: %v\nwant %s", name, err, want)
			}
		}
	}
	expect("Shelf " + namespace + "/m belongs to another machine of that name, with the UID uid-before" + advice)
	edit(t, m, func(o *unstructured.Unstructured) { o.SetAnnotations(nil) })
	expect("Shelf " + namespace + "/m does not belong to a machine" + advice)
	if object := read(t, m); object.GetDeletionTimestamp() != nil {
		t.Error("it was deleted")
	}
	edit(t, m, func(o *unstructured.Unstructured) {
		o.SetAnnotations(map[string]string{annotation.MachineUID: string(m.UID)})
	})
	if instance := mustCreate(t, objects, m); !instance.Exists {
		t.Errorf("infrastructure with the UID of the machine: got %+v, want it to exist", instance)
	}
}

func TestInfrastructureThatCannotBeMade(t *testing.T) {
	t.Parallel()
	crd := serve(t, "Drawer", "drawers")
	objects := &infra.Objects{Client: shared.Client(t)}
	namespace := shared.Namespace(t)
	for _, c := range []struct {
		name, value string
		want        error
	}{
		{
			"kind", `{"apiVersion": "infra.example.com/v1", "kind": "Attic"}`,
			&infra.UnservedError{Message: "providerSpec.value: the cluster serves no kind Attic of " +
				"infra.example.com/v1: install its CustomResourceDefinition, " +
				"or write a kind that is served (kubectl api-resources)"},
		},
		{
			"version", `{"apiVersion": "infra.example.com/v2", "kind": "Drawer"}`,
			&infra.UnservedError{Message: "providerSpec.value: the cluster serves no kind Drawer of " +
				"infra.example.com/v2: install its CustomResourceDefinition, " +
				"or write a kind that is served (kubectl api-resources)"},
		},
		{
			"value", `{"apiVersion": "infra.example.com/v1", "kind": "Drawer", "spec": {"size": "huge"}}`,
			&infra.InvalidError{Message: `providerSpec.value: the server refuses it: spec.size: Unsupported value: "huge": supported values: "small", "large": ` +
				"correct it (kubectl explain drawer.spec --api-version=infra.example.com/v1)"},
		},
		{
			"field", `{"apiVersion": "infra.example.com/v1", "kind": "Drawer", "spec": {"colour": "red"}}`,
			&infra.InvalidError{Message: `providerSpec.value: the server refuses it: unknown field "spec.colour": ` +
				"correct it (kubectl explain drawer.spec --api-version=infra.example.com/v1)"},
		},
		{
			"a spec of the wrong type", `{"apiVersion": "infra.example.com/v1", "kind": "Drawer", "spec": []}`,
			&infra.InvalidError{Message: "providerSpec.value: its spec is not an object: " + example},
		},
		{
			"a status", `{"apiVersion": "infra.example.com/v1", "kind": "Drawer", "spec": {}, "status": {}}`,
			&infra.InvalidError{Message: "providerSpec.value: it has a status, which only the controller of the " +
				"infrastructure writes: remove it"},
		},
		{
			"fields beside the spec", `{"apiVersion": "infra.example.com/v1", "kind": "Drawer", "region": "eu"}`,
			&infra.InvalidError{
				Message: `providerSpec.value: it has a field "region", which objects do not have: put it under spec`,
			},
		},
	} {
		_, err := objects.Create(t.Context(), machineOf(t, namespace, "m", c.value))
		if err == nil || reflect.TypeOf(err) != reflect.TypeOf(c.want) ||
			!strings.HasSuffix(err.Error(), c.want.Error()) {
			t.Errorf("%s: %T %v\nwant %T %v", c.name, err, err, c.want, c.want)
		}
	}

	m := machineOf(t, namespace, "m", `{"apiVersion": "infra.example.com/v1", "kind": "Drawer", "spec": {}}`)
	mustCreate(t, objects, m)
	if err := admin(t).Delete(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	machinetest.AwaitGone(t, admin(t), crd, client.ObjectKeyFromObject(crd))
	if _, err := objects.Get(t.Context(), m); !errors.As(err, new(*infra.UnservedError)) {
		t.Errorf("after its definition was deleted: %v", err)
	}
}

// An object is found and deleted also after an edit of its template that prevents its creation.
func TestInfrastructureWhoseTemplateWasEdited(t *testing.T) {
	t.Parallel()
	serve(t, "Rail", "rails")
	objects := &infra.Objects{Client: shared.Client(t)}
	namespace := shared.Namespace(t)
	for name, value := range map[string]string{
		"spec":    `{"apiVersion": "infra.example.com/v1", "kind": "Rail", "spec": []}`,
		"status":  `{"apiVersion": "infra.example.com/v1", "kind": "Rail", "status": {}}`,
		"field":   `{"apiVersion": "infra.example.com/v1", "kind": "Rail", "size": 3}`,
		"version": `{"apiVersion": "infra.example.com/v2", "kind": "Rail", "spec": {}}`,
	} {
		m := machineOf(t, namespace, name, `{"apiVersion": "infra.example.com/v1", "kind": "Rail", "spec": {}}`)
		mustCreate(t, objects, m)
		edited := machineOf(t, namespace, name, value)
		if instance, err := objects.Get(t.Context(), edited); err != nil || !instance.Exists {
			t.Errorf("%s: Get: %+v, %v", name, instance, err)
		}
		if _, err := objects.Delete(t.Context(), edited); err != nil {
			t.Errorf("%s: Delete: %v", name, err)
		}
		if instance, err := objects.Get(t.Context(), m); err != nil || instance.Exists {
			t.Errorf("%s: after Delete: %+v, %v", name, instance, err)
		}
	}
}

// If rights are missing, the machine is retried, because they may be granted later.
func TestRightsThatAreMissing(t *testing.T) {
	t.Parallel()
	serve(t, "Crate", "crates")
	namespace := shared.Namespace(t)
	config := shared.Account(t, namespace, "controller",
		rbacv1.PolicyRule{
			APIGroups: []string{"infra.example.com"},
			Resources: []string{"crates"},
			Verbs:     []string{"get"},
		})
	limited, err := client.New(config, client.Options{Scheme: machinetest.NewScheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	objects := &infra.Objects{Client: limited}
	m := machineOf(t, namespace, "m", `{"apiVersion": "infra.example.com/v1", "kind": "Crate", "spec": {}}`)
	_, err = objects.Create(t.Context(), m)
	want := "create Crate " + namespace +
		"/m: grant the machine controller the right to create that kind (docs/machines.md): " +
		`crates.infra.example.com is forbidden: User "system:serviceaccount:` + namespace +
		`:controller" cannot create resource ` +
		`"crates" in API group "infra.example.com" in the namespace "` + namespace + `"`
	if err == nil || err.Error() != want || errors.As(err, new(*infra.InvalidError)) {
		t.Errorf("%v\nwant %s", err, want)
	}
}
