package ownership_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/cluster/ownership"
	"github.com/runlevel/runlevel/internal/objects/fields"
)

// Each field that differs is found in the entries of an object that a server has, whatever
// distinguishes the items of its list.
func TestOwnersOfFieldsThatDiffer(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	live := b.create("helm",
		`{apiVersion: apps/v1, kind: Deployment, metadata: {name: shop, namespace: NS, annotations: {a.b/c: x}}, spec: {selector: {matchLabels: {app: shop}},
 template: {metadata: {labels: {app: shop}}, spec: {tolerations: [{key: a, operator: Exists}], containers: [
  {name: first, image: registry.example/a},
  {name: shop, image: registry.example/a, args: [p, q], ports: [{containerPort: 53, protocol: TCP}, {containerPort: 53, protocol: UDP}]}]}}}}`)
	b.merge("bob", live, `{metadata: {annotations: {a.b/c: theirs}, finalizers: [example.com/a]}}`)
	live = b.serverSide("ann",
		`{apiVersion: apps/v1, kind: Deployment, metadata: {name: shop, namespace: NS}, spec: {template: {spec: {containers: [
  {name: shop, image: registry.example/b, ports: [{containerPort: 53, protocol: UDP, name: dns}]}]}}}}`)
	build := func(keys ...any) func(map[string]any, any) {
		return func(object map[string]any, value any) { put(object, value, keys...) }
	}
	pod := []any{"spec", "template", "spec"}
	for name, row := range map[string]struct {
		change func(map[string]any, any)
		to     any
		want   []string
	}{
		"a key with dots":     {build("metadata", "annotations", "a.b/c"), "r", []string{"bob"}},
		"an item by its name": {build(append(slices.Clone(pod), "containers", 1, "image")...), "r", []string{"ann"}},
		"an item by two keys": {build(append(slices.Clone(pod), "containers", 1, "ports", 1, "name")...), "r",
			[]string{"ann"}},
		"its neighbour": {build(append(slices.Clone(pod), "containers", 1, "ports", 0, "hostPort")...), int64(1), nil},
		"within a list as a whole": {build(append(slices.Clone(pod), "containers", 1, "args", 0)...), "r",
			[]string{"helm"}},
		"a value of a set":         {build("metadata", "finalizers", 0), "example.com/b", []string{"bob"}},
		"a field without an owner": {build("spec", "paused"), true, nil},
		"a whole list":             {build(append(slices.Clone(pod), "tolerations")...), nil, []string{"helm"}},
	} {
		t.Run(name, func(t *testing.T) {
			result := live.DeepCopy()
			row.change(result.Object, row.to)
			changes := fields.Diff(live.Object, result.Object)
			if len(changes) != 1 {
				t.Fatalf("%d differences: %v", len(changes), changes)
			}
			if diff := cmp.Diff(row.want, ownership.OwnersIn(live)(changes[0].Path)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", changes[0].Path, diff)
			}
		})
	}
	if owners := ownership.OwnersIn(&unstructured.Unstructured{Object: map[string]any{}})(
		fields.Path{{Key: "spec", Index: -1}},
	); owners != nil {
		t.Errorf("an object without entries has the owners %v", owners)
	}
}

// put sets a field of an object, by keys and places.
func put(within, value any, keys ...any) {
	for _, key := range keys[:len(keys)-1] {
		switch step := key.(type) {
		case string:
			within = within.(map[string]any)[step]
		case int:
			within = within.([]any)[step]
		}
	}
	switch step := keys[len(keys)-1].(type) {
	case string:
		within.(map[string]any)[step] = value
	case int:
		within.([]any)[step] = value
	}
}
