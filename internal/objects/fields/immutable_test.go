package fields_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/rand"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

var cluster = sandboxtest.New(sandbox.Options{})

func TestMain(m *testing.M) { os.Exit(cluster.Run(m)) }

// A kindOfTruth has the truths of testdata/immutables.yaml about a kind.
type kindOfTruth struct {
	Kind   string         `json:"kind"`
	Object map[string]any `json:"object"`
	Needs  []map[string]any
	Await  []string
	Cases  []truth `json:"cases"`
}

// A truth is a change, and the claim of the table about the change.
type truth struct {
	Claim         string
	Before, After map[string]any
}

func (t truth) isRefused() bool {
	return strings.HasSuffix(t.Claim, " is refused") && !strings.HasPrefix(t.Claim, "nothing ")
}

func truths(t *testing.T) []kindOfTruth {
	t.Helper()
	text, err := os.ReadFile("testdata/immutables.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var kinds []kindOfTruth
	if err := yaml.UnmarshalStrict(text, &kinds); err != nil {
		t.Fatal(err)
	}
	return kinds
}

// TestEveryClaimIsTried compares the table with its tests: the tests must cover each
// claim.
func TestEveryClaimIsTried(t *testing.T) {
	tried := map[string][]string{}
	for _, kind := range truths(t) {
		for _, c := range kind.Cases {
			if c.Claim != "nothing else is refused" {
				tried[kind.Kind] = append(tried[kind.Kind], c.Claim)
			}
		}
		slices.Sort(tried[kind.Kind])
		tried[kind.Kind] = slices.Compact(tried[kind.Kind])
	}
	if diff := cmp.Diff(fields.Claims(), tried); diff != "" {
		t.Errorf("-claims of the table, +claims that are tried\n%s", diff)
	}
}

// TestAnotherObjectCanBeAnything: where the kind is another, nothing is changed.
func TestAnotherObjectCanBeAnything(t *testing.T) {
	before := object(t, `{apiVersion: v1, kind: ConfigMap, immutable: true, data: {a: b}}`)
	after := object(t, `{apiVersion: v1, kind: Secret, immutable: true, data: {a: c}}`)
	if refused := fields.Immutable(before, after, fields.Diff(before, after)); len(refused) > 0 {
		t.Errorf("refused: %v", refused)
	}
}

// TestServerRefusesImmutableFields tries every claim on an API server.
func TestServerRefusesImmutableFields(t *testing.T) {
	server := newServer(t)
	// Pods need the account that the namespace gets after a while.
	sandboxtest.Await(t, cluster, corev1.SchemeGroupVersion.WithResource("serviceaccounts"),
		server.namespace+"/default",
		func(a *corev1.ServiceAccount) bool { return a != nil })
	for _, kind := range truths(t) {
		for i, c := range kind.Cases {
			t.Run(fmt.Sprintf("%s %d %s", kind.Kind, i, c.Claim), func(t *testing.T) {
				t.Parallel()
				id := "fields-" + rand.String(8)
				for _, needed := range kind.Needs {
					if err := server.apply(t, fill(t, needed, id)); err != nil {
						t.Fatal(err)
					}
				}
				before, after := fill(t, kind.object(c.Before), id), fill(t, kind.object(c.After), id)
				if err := server.apply(t, before); err != nil {
					t.Fatal("create the object:", err)
				}
				server.await(t, before, kind.Await)
				err := server.apply(t, after)
				if err != nil && !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
					t.Fatal(err)
				}
				if isRefused := err != nil; isRefused != c.isRefused() {
					t.Errorf("the API server disagrees: %v", err)
				}
				refused := fields.Immutable(before, after, fields.Diff(before, after))
				if isRefused := len(refused) > 0; isRefused != c.isRefused() {
					t.Errorf("the table disagrees: %v", refused)
				}
			})
		}
	}
}

// object is one of the kind, with something merged into it.
func (k kindOfTruth) object(patch map[string]any) map[string]any {
	made := merge(k.Object, patch)
	made["kind"], _, _ = strings.Cut(k.Kind, ".")
	return made
}

// merge lays one mapping over another, and changes neither. Null fields are
// taken away.
func merge(below, above map[string]any) map[string]any {
	merged := maps.Clone(below)
	for key, value := range above {
		lower, isMapping := below[key].(map[string]any)
		upper, both := value.(map[string]any)
		switch {
		case value == nil:
			delete(merged, key)
		case isMapping && both:
			merged[key] = merge(lower, upper)
		default:
			merged[key] = value
		}
	}
	return merged
}

// fill puts an ID in the place of $ID.
func fill(t *testing.T, object map[string]any, id string) map[string]any {
	t.Helper()
	text, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var filled map[string]any
	if err := utilyaml.Unmarshal([]byte(strings.ReplaceAll(string(text), "$ID", id)), &filled); err != nil {
		t.Fatal(err)
	}
	metadata, _ := filled["metadata"].(map[string]any)
	if name, _ := metadata["name"].(string); !strings.Contains(name, id) {
		metadata["name"] = name + "-" + id
	}
	return filled
}

// A server is an API server to apply objects to.
type server struct {
	client    dynamic.Interface
	mapper    meta.RESTMapper
	namespace string
}

func newServer(t *testing.T) server {
	t.Helper()
	config := rest.CopyConfig(cluster.Sandbox(t).Config)
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	groups, err := restmapper.GetAPIGroupResources(cluster.Client(t).Discovery())
	if err != nil {
		t.Fatal(err)
	}
	return server{dynamic.NewForConfigOrDie(config), restmapper.NewDiscoveryRESTMapper(groups), cluster.Namespace(t)}
}

// resource returns the client for the kind of an object.
func (s server) resource(t *testing.T, object map[string]any) (*meta.RESTMapping, dynamic.ResourceInterface) {
	t.Helper()
	kind := (&unstructured.Unstructured{Object: object}).GroupVersionKind()
	mapping, err := s.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		t.Fatal(err)
	}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		return mapping, s.client.Resource(mapping.Resource).Namespace(s.namespace)
	}
	return mapping, s.client.Resource(mapping.Resource)
}

// apply applies an object as Runlevel does, and has it deleted afterwards.
func (s server) apply(t *testing.T, object map[string]any) error {
	t.Helper()
	_, resource := s.resource(t, object)
	applied := (&unstructured.Unstructured{Object: object}).DeepCopy()
	t.Cleanup(func() {
		// The context of the test is already canceled.
		_ = resource.Delete(context.Background(), applied.GetName(), metav1.DeleteOptions{})
	})
	_, err := resource.Apply(t.Context(), applied.GetName(), applied,
		metav1.ApplyOptions{FieldManager: "runlevel", Force: true})
	return err
}

// await waits until a field of an object has a value, or a condition in a list is
// true.
func (s server) await(t *testing.T, object map[string]any, wanted []string) {
	t.Helper()
	if wanted == nil {
		return
	}
	mapping, _ := s.resource(t, object)
	key := (&unstructured.Unstructured{Object: object}).GetName()
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		key = s.namespace + "/" + key
	}
	path, last := wanted[:len(wanted)-1], wanted[len(wanted)-1]
	sandboxtest.Await(t, cluster, mapping.Resource, key, func(o *map[string]any) bool {
		if o == nil {
			return false
		}
		value, _, _ := unstructured.NestedFieldNoCopy(*o, path...)
		conditions, _ := value.([]any)
		return value == last || slices.ContainsFunc(conditions, func(condition any) bool {
			c, _ := condition.(map[string]any)
			return c["type"] == last && c["status"] == "True"
		})
	})
}
