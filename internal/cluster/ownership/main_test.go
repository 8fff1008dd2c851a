package ownership_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/ownership"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

var test = sandboxtest.New(sandbox.Options{})

func TestMain(m *testing.M) { os.Exit(test.Run(m)) }

// A bed is a namespace to test in, and a connection.
type bed struct {
	*testing.T
	*cluster.Cluster
	namespace string
}

func newBed(t *testing.T) bed {
	t.Helper()
	return bed{t, test.Connect(t), test.Namespace(t)}
}

// through is the bed with a connection whose requests are looked at before they go out.
func (b bed) through(before func(method string)) bed {
	b.Helper()
	b.Cluster = sandboxtest.Connect(b, sandboxtest.Before(test.Sandbox(b).Config, func(request *http.Request) error {
		before(request.Method)
		return nil
	}))
	return b
}

// parse reads an object of YAML, in which NS is the namespace.
func (b bed) parse(text string) *unstructured.Unstructured {
	b.Helper()
	return sandboxtest.ParseObject(b, strings.ReplaceAll(text, "NS", b.namespace))
}

// in finds the resource of an object.
func (b bed) in(object *unstructured.Unstructured) cluster.Resource {
	b.Helper()
	resource, err := b.Find(b.Context(), object.GroupVersionKind())
	if err != nil {
		b.Fatal(err)
	}
	return resource
}

// create makes an object as a manager does.
func (b bed) create(manager, text string) *unstructured.Unstructured {
	b.Helper()
	object := b.parse(text)
	made, err := b.In(b.in(object), object.GetNamespace()).Create(b.Context(), object,
		metav1.CreateOptions{FieldManager: manager})
	if err != nil {
		b.Fatal(err)
	}
	if made.GetNamespace() == "" {
		b.Cleanup(func() {
			_ = b.In(b.in(object), "").Delete(context.Background(), object.GetName(), metav1.DeleteOptions{})
		})
	}
	return made
}

// merge changes an object by a merge patch, as a manager does, maybe of a subresource.
func (b bed) merge(manager string, object *unstructured.Unstructured, patch string,
	subresource ...string) *unstructured.Unstructured {
	b.Helper()
	body, err := yaml.YAMLToJSON([]byte(patch))
	if err != nil {
		b.Fatal(err)
	}
	changed, err := b.In(b.in(object), object.GetNamespace()).Patch(b.Context(), object.GetName(), types.MergePatchType,
		body,
		metav1.PatchOptions{FieldManager: manager}, subresource...)
	if err != nil {
		b.Fatal(err)
	}
	if len(subresource) > 0 {
		return b.get(object)
	}
	return changed
}

// serverSide applies an object, as a manager does.
func (b bed) serverSide(manager, text string) *unstructured.Unstructured {
	b.Helper()
	object := b.parse(text)
	applied, err := b.In(b.in(object), object.GetNamespace()).Apply(b.Context(), object.GetName(), object,
		metav1.ApplyOptions{FieldManager: manager, Force: true})
	if err != nil {
		b.Fatal(err)
	}
	return applied
}

// apply applies an object as we do.
func (b bed) apply(text string) *unstructured.Unstructured {
	b.Helper()
	return sandboxtest.ApplyObject(b, b.Cluster, b.parse(text)).Object
}

// get reads an object as it is now.
func (b bed) get(object *unstructured.Unstructured) *unstructured.Unstructured {
	b.Helper()
	live, err := b.In(b.in(object), object.GetNamespace()).Get(b.Context(), object.GetName(), metav1.GetOptions{})
	if err != nil {
		b.Fatal(err)
	}
	return live
}

// adopt takes fields over, and wants to have found some managers.
func (b bed) adopt(live *unstructured.Unstructured, from []string, want ...string) *unstructured.Unstructured {
	b.Helper()
	var now metav1.Object
	var found []string
	// a new Deployment's controller may write more often than Adopt tries
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() (err error) {
		now, found, err = ownership.Adopt(b.Context(), b.Cluster, b.in(live), live, from)
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	if !slices.Equal(found, want) {
		b.Errorf("adopted fields of %q, want %q", found, want)
	}
	got := b.get(live)
	ours := func(object metav1.Object) []metav1.ManagedFieldsEntry { // a controller may have written its status since
		return slices.DeleteFunc(slices.Clone(object.GetManagedFields()), func(entry metav1.ManagedFieldsEntry) bool {
			return entry.Manager != cluster.FieldManager
		})
	}
	if now.GetUID() != got.GetUID() || !reflect.DeepEqual(ours(now), ours(got)) {
		b.Error("the returned object differs from the live object")
	}
	return got
}

// owners are the entries of an object, in a line for each: who, how, and of what.
func owners(object *unstructured.Unstructured) []string {
	var lines []string
	for _, entry := range object.GetManagedFields() {
		line := fmt.Sprintf("%s %s", entry.Manager, entry.Operation)
		if entry.Subresource != "" {
			line += " " + entry.Subresource
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

// keys are those of a mapping in an object, in order.
func keys(object *unstructured.Unstructured, path ...string) []string {
	fields, _, _ := unstructured.NestedMap(object.Object, path...)
	return slices.Sorted(maps.Keys(fields))
}

// path is one of the given steps.
func path(steps ...any) fieldpath.Path { return fieldpath.MakePathOrDie(steps...) }

// define makes a definition, and waits until its kind is served.
func (b bed) define(text string) {
	b.Helper()
	made := b.create("other-manager", text)
	definitions := apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
	sandboxtest.Await(b, test, definitions, made.GetName(), func(got *apiextensionsv1.CustomResourceDefinition) bool {
		return got != nil && slices.ContainsFunc(got.Status.Conditions,
			func(condition apiextensionsv1.CustomResourceDefinitionCondition) bool {
				return condition.Type == apiextensionsv1.Established &&
					condition.Status == apiextensionsv1.ConditionTrue
			})
	})
	b.Learn(made)
}

// awaitUnserved waits until a version of a kind is no longer served.
func (b bed) awaitUnserved(object *unstructured.Unstructured) {
	b.Helper()
	b = b.through(func(string) {})
	err := wait.PollUntilContextTimeout(b.Context(), 20*time.Millisecond, 5*time.Minute, true,
		func(ctx context.Context) (bool, error) {
			b.Refresh()
			_, err := b.Find(ctx, object.GroupVersionKind())
			return errors.Is(err, cluster.ErrNotServed), nil
		})
	if err != nil {
		b.Fatal(err)
	}
}
