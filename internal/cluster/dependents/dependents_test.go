package dependents_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/dependents"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

func TestCountWithANamespace(t *testing.T) {
	t.Parallel()
	c, namespace, elsewhere := test.Connect(t), test.Namespace(t), test.Namespace(t)
	shop := headOf(t, c, kinds.ID{Kind: "Namespace", Name: namespace})
	sandboxtest.Apply(t, c, deployment(namespace))
	inside := own(t, c, "ConfigMap", namespace, "inside")
	own(t, c, "Secret", namespace, "inside", inside)
	own(t, c, "Event", namespace, "unmissed")
	own(t, c, "ConfigMap", elsewhere, "owned", shop)
	own(t, c, "ClusterRole", "", namespace+"-owned", shop)
	// Cluster-wide objects can't be owned from within a namespace: the garbage collector
	// leaves them alone.
	stay := []objectmeta.LiveMetadata{
		own(t, c, "ConfigMap", elsewhere, "stays"),
		own(t, c, "ClusterRole", "", namespace+"-stays", inside),
		own(t, c, "ClusterRole", "", namespace+"-stays-too", shop, inside),
	}
	for _, head := range stay {
		defer c.Delete(context.Background(), head.Resource, head.ID.Namespace, head.ID.Name, head.UID)
	}
	// A namespace has a ConfigMap and a ServiceAccount from the start.
	const wanted = "11 objects: 3 ConfigMaps, 3 Pods, ClusterRole, Deployment and 3 more"
	goes(t, c, shop, wanted, namespace, elsewhere)
	for _, head := range stay {
		headOf(t, c, head.ID)
	}
}

func TestCountWithADefinition(t *testing.T) {
	t.Parallel()
	c, namespace, elsewhere := test.Connect(t), test.Namespace(t), test.Namespace(t)
	group := namespace + ".example.com"
	sandboxtest.Apply(t, c, fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.%s}
spec:
  group: %[1]s
  scope: Namespaced
  names: {kind: Gadget, plural: gadgets}
  versions:
  - {name: v2, served: true, storage: true, schema: &any {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
  - {name: v1, served: true, storage: false, schema: *any}`, group))
	definition := headOf(t, c,
		kinds.ID{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: "gadgets." + group})
	gadget := func(namespace, name string) objectmeta.LiveMetadata {
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": group + "/v2",
			"kind":       "Gadget",
			"metadata":   map[string]any{"name": name, "namespace": namespace},
		}}
		sandboxtest.EventuallySucceeds(t, func(ctx context.Context) error { // a new kind is not served at once
			c.Refresh()
			resource, err := c.FindKind(ctx, object.GroupVersionKind().GroupKind())
			if err == nil {
				_, err = c.Apply(ctx, resource, object, cluster.Force)
			}
			return err
		})
		return headOf(t, c, kinds.ID{Group: group, Kind: "Gadget", Namespace: namespace, Name: name})
	}
	known := gadget(namespace, "known")
	own(t, c, "ConfigMap", namespace, "collected", known)
	// The garbage collector takes half a minute to notice a new kind.
	remove(t, c, known)
	sandboxtest.EventuallySucceeds(t, isGone(c, kinds.ID{Kind: "ConfigMap", Namespace: namespace, Name: "collected"}))

	own(t, c, "ConfigMap", namespace, "owned", gadget(namespace, "one"))
	own(t, c, "Secret", elsewhere, "owned", gadget(elsewhere, "one"))
	gadget(namespace, "two")
	goes(t, c, definition, "5 objects: 3 Gadgets, ConfigMap, Secret", namespace, elsewhere)
}

func TestCountWithADeployment(t *testing.T) {
	t.Parallel()
	c, namespace := test.Connect(t), test.Namespace(t)
	sandboxtest.Apply(t, c, deployment(namespace))
	goes(t, c, headOf(t, c, kinds.ID{Group: "apps", Kind: "Deployment", Namespace: namespace, Name: "web"}),
		"4 objects: 3 Pods, ReplicaSet", namespace)
}

func TestCountWithAnOwner(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		owners map[string]string // owners of each object, beside "owner" and "other"
		wanted string
		stay   []string
	}{
		"its dependents, and their dependents": {map[string]string{"child": "owner", "grandchild": "child"},
			"2 objects: 2 ConfigMaps", nil},
		"with another owner that stays": {map[string]string{
			"child":  "owner",
			"shared": "owner other",
			"sharer": "shared",
		}, "1 object: ConfigMap", []string{"shared", "sharer"}},
		"with two owners that go": {map[string]string{"child": "owner", "shared": "owner child"},
			"2 objects: 2 ConfigMaps", nil},
		"with an owner that does not exist": {map[string]string{"child": "owner missing"}, "1 object: ConfigMap", nil},
		"that own each other": {map[string]string{"child": "owner twin", "twin": "child"}, "no objects",
			[]string{"child", "twin"}},
		"that own the owner": {map[string]string{"owner": "child", "child": "owner"}, "1 object: ConfigMap", nil},
		"that own themselves": {map[string]string{"child": "owner child"}, "no objects",
			[]string{"child"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			connection, namespace := test.Connect(t), test.Namespace(t)
			made := map[string]objectmeta.LiveMetadata{"missing": {
				ID:       kinds.ID{Kind: "ConfigMap", Name: "missing"},
				Resource: cluster.Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("configmaps")},
				UID:      "00000000-0000-0000-0000-000000000000",
			}}
			for _, name := range append([]string{"owner", "other"}, slices.Collect(maps.Keys(c.owners))...) {
				made[name] = own(t, connection, "ConfigMap", namespace, name)
			}
			for _, name := range slices.Backward(slices.Sorted(maps.Keys(c.owners))) {
				var owners []objectmeta.LiveMetadata
				for owner := range strings.FieldsSeq(c.owners[name]) {
					owners = append(owners, made[owner])
				}
				own(t, connection, "ConfigMap", namespace, name, owners...)
			}
			goes(t, connection, made["owner"], c.wanted, namespace)
			for _, name := range append(c.stay, "other") {
				headOf(t, connection, made[name].ID)
			}
		})
	}
}

func TestCountWithAClusterWideOwner(t *testing.T) {
	t.Parallel()
	c, namespace, elsewhere := test.Connect(t), test.Namespace(t), test.Namespace(t)
	owner := own(t, c, "ClusterRole", "", namespace+"-owner")
	own(t, c, "ClusterRole", "", namespace+"-owned", owner)
	own(t, c, "ConfigMap", namespace, "owned", owner)
	own(t, c, "ConfigMap", elsewhere, "owned", owner)
	own(t, c, "ConfigMap", elsewhere, "shared", owner, own(t, c, "ConfigMap", elsewhere, "stays"))
	goes(t, c, owner, "3 objects: 2 ConfigMaps, ClusterRole", namespace, elsewhere)
}

// What terminates is still there, and keeps nothing.
func TestTerminatingObjectsCountAndKeepNothing(t *testing.T) {
	t.Parallel()
	c, namespace := test.Connect(t), test.Namespace(t)
	owner := own(t, c, "ConfigMap", namespace, "owner")
	other := own(t, c, "ConfigMap", namespace, "other")
	child := own(t, c, "ConfigMap", namespace, "child", owner)
	shared := own(t, c, "ConfigMap", namespace, "shared", owner, other)
	finalizers := func(head objectmeta.LiveMetadata, list string) {
		t.Helper()
		patch := fmt.Sprintf(`{"metadata": {"finalizers": %s}}`, list)
		if _, err := c.Client.CoreV1().ConfigMaps(namespace).Patch(t.Context(), head.ID.Name, types.MergePatchType,
			[]byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	terminating := []objectmeta.LiveMetadata{child, other}
	for _, head := range terminating {
		finalizers(head, `["example.com/hold"]`)
		remove(t, c, head)
	}
	if got := countOf(t, c, owner); got.String() != "2 objects: 2 ConfigMaps" {
		t.Errorf("deleted with the owner: %s, want the child and the shared object", got)
	}
	if got := countOf(t, c, other); got.Objects != 0 {
		t.Errorf("what terminates takes %s, although the owner stays", got)
	}
	remove(t, c, owner)
	for _, head := range terminating {
		finalizers(head, `[]`)
		sandboxtest.EventuallySucceeds(t, isGone(c, head.ID))
	}
	sandboxtest.EventuallySucceeds(t, isGone(c, shared.ID))
}

func TestDependentsAreCountedForEachObject(t *testing.T) {
	t.Parallel()
	c, namespace := test.Connect(t), test.Namespace(t)
	owner := own(t, c, "ConfigMap", namespace, "owner")
	child := own(t, c, "ConfigMap", namespace, "child", owner)
	other := own(t, c, "ConfigMap", namespace, "other")
	own(t, c, "ConfigMap", namespace, "grandchild", child)
	own(t, c, "ConfigMap", namespace, "shared", owner, other)
	counts, _, err := dependents.Count(t.Context(), c, []objectmeta.LiveMetadata{owner, child, other, owner})
	if err != nil || len(counts) != 3 {
		t.Fatalf("%v, %v", counts, err)
	}
	for name, want := range map[string]struct {
		of      objectmeta.LiveMetadata
		objects int
	}{"the owner": {owner, 2}, "the child": {child, 1}, "the other": {other, 0}} {
		if got, exists := counts[want.of.UID]; !exists || got.Objects != want.objects {
			t.Errorf("%s takes %s, want %d", name, got, want.objects)
		}
	}
}

func TestKindsThatCantBeCounted(t *testing.T) {
	t.Parallel()
	admin, namespace := test.Connect(t), test.Namespace(t)
	owner := own(t, admin, "ConfigMap", namespace, "owner")
	own(t, admin, "ConfigMap", namespace, "owned", owner)
	own(t, admin, "ConfigMap", namespace, "shared", owner, own(t, admin, "Secret", namespace, "unseen"))
	own(t, admin, "Secret", namespace, "owned", owner)
	config := test.Account(t, namespace, "reader",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}})
	reader, err := cluster.Connect(config)
	if err != nil {
		t.Fatal(err)
	}
	sandboxtest.EventuallySucceeds(t, func(ctx context.Context) error { // the new rights take effect after a while
		counts, notes, err := dependents.Count(ctx, reader, []objectmeta.LiveMetadata{owner})
		switch {
		case err != nil:
			return err
		case counts[owner.UID].String() != "1 object: ConfigMap":
			return fmt.Errorf("the owner takes %s", counts[owner.UID])
		case len(notes) != 1 || !strings.HasPrefix(notes[0], "not counted, because it can't be listed: ") ||
			!strings.Contains(notes[0], " Secret, ") || strings.Contains(notes[0], " ConfigMap,"):
			return fmt.Errorf("the notes are %q", notes)
		case !strings.Contains(notes[0], `is forbidden: User "system:serviceaccount:`+namespace+
			`:reader" cannot list resource`) || strings.Count(notes[0], "forbidden") != 1:
			return fmt.Errorf("the notes are %q, want the reason", notes)
		}
		return nil
	})
	counts, notes, err := dependents.Count(t.Context(), test.ConnectAs(t, "user-of-"+namespace),
		[]objectmeta.LiveMetadata{headOf(t, admin, kinds.ID{Kind: "Namespace", Name: namespace})})
	if err != nil || len(counts) != 1 || len(notes) != 1 || !strings.Contains(notes[0], " ConfigMap, ") {
		t.Errorf("for a user without rights: %v, %q, %v", counts, notes, err)
	}
}

// goes checks the count of the objects that are deleted with an object, and then deletes it and compares.
func goes(t *testing.T, c *cluster.Cluster, head objectmeta.LiveMetadata, wanted string, namespaces ...string) {
	t.Helper()
	var counted kinds.ObjectCounts
	sandboxtest.EventuallySucceeds(t, func(context.Context) error { // controllers still make objects
		if counted = countOf(t, c, head); counted.String() != wanted {
			return fmt.Errorf("%s takes %s, want %s", head.ID, counted, wanted)
		}
		return nil
	})
	before := everything(t, c, namespaces)
	remove(t, c, head)
	checkDeleted := func(context.Context) error {
		after, deleted := everything(t, c, namespaces), []string{}
		for uid, name := range before {
			if uid != head.UID && after[uid] == "" {
				deleted = append(deleted, name)
			}
		}
		if len(deleted) != counted.Objects || after[head.UID] != "" {
			return fmt.Errorf("%d objects were deleted with %s, want %d: %q",
				len(deleted), head.ID, counted.Objects, deleted)
		}
		return nil
	}
	sandboxtest.EventuallySucceeds(t, checkDeleted)
	// The garbage collector works in order: the objects of earlier deletes come first.
	place := test.Namespace(t)
	last := own(t, c, "ConfigMap", place, "last")
	own(t, c, "ConfigMap", place, "owned", last)
	remove(t, c, last)
	sandboxtest.EventuallySucceeds(t, isGone(c, kinds.ID{Kind: "ConfigMap", Namespace: place, Name: "owned"}))
	if err := checkDeleted(t.Context()); err != nil {
		t.Error(err)
	}
}

// everything is the objects in some namespaces, and those with their names in theirs.
func everything(t *testing.T, c *cluster.Cluster, namespaces []string) map[types.UID]string {
	t.Helper()
	lists, _ := test.Client(t).Discovery().ServerPreferredResources() // some groups may not answer
	found := map[types.UID]string{}
	for _, list := range lists {
		version, _ := schema.ParseGroupVersion(list.GroupVersion)
		for _, resource := range list.APIResources {
			// APIServices of definitions are bookkeeping of the API server's own.
			if resource.Kind == "Event" || resource.Kind == "APIService" || !slices.Contains(resource.Verbs, "delete") {
				continue
			}
			objects, err := c.Metadata.Resource(version.WithResource(resource.Name)).List(t.Context(),
				metav1.ListOptions{})
			if err != nil {
				continue // the kind was just deleted, or can't be listed
			}
			for _, object := range objects.Items {
				isOurs := func(namespace string) bool {
					return object.Namespace == namespace || strings.Contains(object.Name, namespace)
				}
				if slices.ContainsFunc(namespaces, isOurs) {
					found[object.UID] = resource.Kind + " " + object.Namespace + "/" + object.Name
				}
			}
		}
	}
	return found
}

// countOf returns the count of the objects that are deleted with one object.
func countOf(t *testing.T, c *cluster.Cluster, head objectmeta.LiveMetadata) kinds.ObjectCounts {
	t.Helper()
	counts, _, err := dependents.Count(t.Context(), c, []objectmeta.LiveMetadata{head})
	if err != nil {
		t.Fatal(err)
	}
	return counts[head.UID]
}

// own makes an object that has owners.
func own(t *testing.T, c *cluster.Cluster, kind, namespace, name string,
	owners ...objectmeta.LiveMetadata) objectmeta.LiveMetadata {
	t.Helper()
	version := map[string]string{"ClusterRole": "rbac.authorization.k8s.io/v1"}[kind]
	if version == "" {
		version = "v1"
	}
	manifest := fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {name: %s, namespace: %q, ownerReferences: [",
		version, kind, name, namespace)
	for _, owner := range owners {
		manifest += fmt.Sprintf("{apiVersion: %s, kind: %s, name: %s, uid: %s}, ", owner.Resource.GroupVersion(),
			owner.ID.Kind, owner.ID.Name, owner.UID)
	}
	manifest += "]}"
	if kind == "Event" {
		manifest += fmt.Sprintf(", involvedObject: {namespace: %s}", namespace)
	}
	made := sandboxtest.Apply(t, c, manifest+"}")
	return headOf(t, c, kinds.ID{Group: made.GroupVersionKind().Group, Kind: kind, Namespace: namespace, Name: name})
}

// deployment is one that has three pods.
func deployment(namespace string) string {
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: %s}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: registry.example/web}]}`, namespace)
}

// headOf reads an object, which must be there.
func headOf(t *testing.T, c *cluster.Cluster, id kinds.ID) objectmeta.LiveMetadata {
	t.Helper()
	resource, err := c.FindKind(t.Context(), id.GroupKind())
	if err != nil {
		t.Fatal(err)
	}
	object, err := c.GetMetadata(t.Context(), resource, id.Namespace, id.Name)
	if err != nil {
		t.Fatal(err)
	}
	return objectmeta.Of(resource, object)
}

func remove(t *testing.T, c *cluster.Cluster, head objectmeta.LiveMetadata) {
	t.Helper()
	if err := c.Delete(t.Context(), head.Resource, head.ID.Namespace, head.ID.Name, head.UID); err != nil {
		t.Fatal(err)
	}
}

// isGone returns a check that an object does not exist.
func isGone(c *cluster.Cluster, id kinds.ID) func(context.Context) error {
	return func(ctx context.Context) error {
		resource, err := c.FindKind(ctx, id.GroupKind())
		if err != nil {
			return err
		}
		_, err = c.GetMetadata(ctx, resource, id.Namespace, id.Name)
		if err == nil {
			return fmt.Errorf("%s is still there", id)
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
}
