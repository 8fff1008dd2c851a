package kinds_test

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// TestScopesAreThoseOfTheClient: the constructor of the client of a namespaced kind has a namespace parameter.
func TestScopesAreThoseOfTheClient(t *testing.T) {
	t.Parallel()
	want := map[schema.GroupKind]kinds.Scope{ // kinds of other clients
		kinds.CustomResourceDefinition: kinds.Cluster, kinds.APIService: kinds.Cluster,
	}
	clients := reflect.TypeFor[kubernetes.Interface]()
	for i := range clients.NumMethod() {
		group := clients.Method(i).Type
		if group.NumOut() != 1 || group.Out(0).Kind() != reflect.Interface {
			continue
		}
		for j := range group.Out(0).NumMethod() {
			getter := group.Out(0).Method(j).Type
			for _, kind := range kindsOf(t, getter) {
				want[kind] = kinds.Cluster
				if getter.NumIn() == 1 {
					want[kind] = kinds.Namespaced
				}
			}
		}
	}
	if diff := cmp.Diff(want, kinds.Scopes()); diff != "" {
		t.Errorf("change kindsByScope (-client +table):\n%s", diff)
	}
}

// kindsOf returns the kinds that the client of one kind creates, as in Create(ctx, *v1.Pod, options).
func kindsOf(t *testing.T, getter reflect.Type) []schema.GroupKind {
	if getter.NumOut() != 1 || getter.Out(0).Kind() != reflect.Interface {
		return nil
	}
	create, hasCreate := getter.Out(0).MethodByName("Create")
	if !hasCreate || create.Type.NumIn() < 2 || create.Type.In(1).Kind() != reflect.Pointer {
		return nil
	}
	object, isObject := reflect.New(create.Type.In(1).Elem()).Interface().(runtime.Object)
	if !isObject {
		return nil
	}
	types, _, err := kinds.Scheme().ObjectKinds(object)
	if err != nil {
		t.Fatal(err)
	}
	var found []schema.GroupKind
	for _, kind := range types {
		found = append(found, kind.GroupKind())
	}
	return found
}
