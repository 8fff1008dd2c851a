package kinds_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// A specimen is an object of a kind with the changes to try. Specimens are read from
// testdata/generations.yaml.
type specimen struct {
	Object  map[string]any
	Changes []map[string]any
	Refused []map[string]any
	At      map[string]map[string]any
	Status  map[string]any
}

func (s specimen) object() *unstructured.Unstructured {
	object := (&unstructured.Unstructured{Object: s.Object}).DeepCopy()
	if object.GetName() == "" {
		object.SetName("probe")
	}
	return object
}

func (s specimen) kind() schema.GroupKind { return s.object().GroupVersionKind().GroupKind() }

func specimens(t *testing.T) []specimen {
	t.Helper()
	text, err := os.ReadFile("testdata/generations.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var list []specimen
	if err := yaml.UnmarshalStrict(text, &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// TestEveryFieldOfACountingKindIsTried fails when a kind has a new field: the field may not
// count, so it must be tried.
func TestEveryFieldOfACountingKindIsTried(t *testing.T) {
	tried := map[schema.GroupKind]bool{}
	for _, s := range specimens(t) {
		tried[s.kind()] = true
		if !kinds.RaisesGeneration(s.kind()) {
			continue
		}
		typed, err := kinds.Scheme().New(s.object().GroupVersionKind())
		if err != nil {
			t.Fatal(err)
		}
		patches := append(slices.Clone(s.Changes), s.Refused...)
		for _, path := range fieldsOf(reflect.TypeOf(typed).Elem()) {
			isTried := slices.ContainsFunc(patches, func(patch map[string]any) bool {
				_, found, err := unstructured.NestedFieldNoCopy(patch, path...)
				return found && err == nil
			})
			if !isTried {
				t.Errorf("%s: no case changes %s", s.kind(), strings.Join(path, "."))
			}
		}
	}
	for _, kind := range kinds.Table() {
		if kinds.RaisesGeneration(kind) && !tried[kind] {
			t.Errorf("no change of %s is tested", kind)
		}
	}
}

// fieldsOf are the paths of a kind's fields, and of those of its spec, without metadata
// and status.
func fieldsOf(kind reflect.Type) (paths [][]string) {
	for field := range kind.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch name {
		case "", "metadata", "status":
		case "spec":
			for part := range field.Type.Fields() {
				name, _, _ := strings.Cut(part.Tag.Get("json"), ",")
				paths = append(paths, []string{"spec", name})
			}
		default:
			paths = append(paths, []string{name})
		}
	}
	return paths
}

// withoutGenerationBefore are kinds that have a generation since Kubernetes 1.37. The table says what holds for all
// supported versions.
var withoutGenerationBefore = []schema.GroupKind{kinds.HorizontalPodAutoscaler}

// TestServerGenerationsOfAllKinds makes each change of each specimen, and compares whether the generation is raised
// with the table.
func TestServerGenerationsOfAllKinds(t *testing.T) {
	server := newServer(t)
	tried := map[schema.GroupKind]bool{}
	for _, s := range specimens(t) {
		tried[s.kind()] = true
		t.Run(s.kind().String(), func(t *testing.T) {
			counts := newProbe(t, server, s).raisesAlways()
			if slices.Contains(withoutGenerationBefore, s.kind()) {
				counts = false
			}
			if got := kinds.RaisesGeneration(s.kind()); got != counts {
				t.Errorf("each change raises the generation: %t in the table, want %t", got, counts)
			}
		})
	}
	for kind := range server.parts {
		if !tried[kind.GroupKind()] {
			t.Errorf("the server has %s, and no specimen tests it", kind)
		}
	}
}

// A server is the API server's kinds that can be made and changed.
type server struct {
	client    dynamic.Interface
	namespace string
	resources map[schema.GroupVersionKind]metav1.APIResource
	parts     map[schema.GroupVersionKind][]string // the subresources by which they are changed
}

func newServer(t *testing.T) server {
	t.Helper()
	config := rest.CopyConfig(cluster.Sandbox(t).Config)
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	s := server{dynamic.NewForConfigOrDie(config), cluster.Namespace(t),
		map[schema.GroupVersionKind]metav1.APIResource{}, map[schema.GroupVersionKind][]string{}}
	// Pods need the account that the namespace gets after a while.
	sandboxtest.Await(t, cluster, corev1.SchemeGroupVersion.WithResource("serviceaccounts"), s.namespace+"/default",
		func(a *corev1.ServiceAccount) bool { return a != nil })
	_, lists, err := cluster.Client(t).Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		s.add(schema.FromAPIVersionAndKind(list.GroupVersion, "").GroupVersion(), list.APIResources)
	}
	return s
}

// noChanges are subresources, of kinds with a generation, that do not change the object.
var noChanges = []string{"attach", "eviction", "exec", "portforward", "proxy"}

// add takes in the kinds of a version of a group.
func (s server) add(version schema.GroupVersion, resources []metav1.APIResource) {
	byName := map[string]schema.GroupVersionKind{}
	for _, resource := range resources {
		if slices.Contains(resource.Verbs, "create") && slices.Contains(resource.Verbs, "patch") &&
			!strings.Contains(resource.Name, "/") {
			byName[resource.Name] = version.WithKind(resource.Kind)
			s.resources[byName[resource.Name]], s.parts[byName[resource.Name]] = resource, nil
		}
	}
	for _, resource := range resources {
		name, part, isPart := strings.Cut(resource.Name, "/")
		isRead := slices.Equal(resource.Verbs, metav1.Verbs{"get"})
		if kind, ok := byName[name]; ok && isPart && !isRead && !slices.Contains(noChanges, part) {
			s.parts[kind] = append(s.parts[kind], part)
		}
	}
}

// A probe is a specimen on the server.
type probe struct {
	*testing.T
	specimen
	in    dynamic.ResourceInterface
	parts []string
	last  *unstructured.Unstructured
}

func newProbe(t *testing.T, server server, s specimen) *probe {
	t.Helper()
	object := s.object()
	kind := object.GroupVersionKind()
	resource, ok := server.resources[kind]
	if !ok {
		t.Fatalf("the server has no %s", kind)
	}
	all := server.client.Resource(kind.GroupVersion().WithResource(resource.Name))
	p := &probe{T: t, specimen: s, in: all, parts: server.parts[kind]}
	if resource.Namespaced {
		p.in = all.Namespace(cmp.Or(object.GetNamespace(), server.namespace))
	}
	made, err := p.in.Create(t.Context(), object, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.last = made
	t.Cleanup(func() { // the test's own context has ended by now
		_ = p.in.Delete(context.Background(), object.GetName(), metav1.DeleteOptions{})
	})
	return p
}

// raisesAlways reports whether the object was created with a generation that each change raised.
func (p *probe) raisesAlways() bool {
	if p.last.GetGeneration() == 0 {
		return false
	}
	if len(p.Changes) == 0 {
		p.Error("it has a generation, and no case changes it")
	}
	counts := true
	for _, patch := range p.Changes {
		counts = p.change(patch, "") && counts
	}
	for _, patch := range p.Refused {
		p.refuse(patch)
	}
	slices.Sort(p.parts)
	for _, part := range slices.Backward(p.parts) { // a pod is not bound before all else is tried
		if part == "status" {
			p.changeStatus()
		} else {
			counts = p.change(p.At[part], part) && counts
		}
	}
	return counts
}

// change makes a change, which must have an effect, and reports whether it raised the generation.
func (p *probe) change(patch map[string]any, part string) bool {
	p.Helper()
	before := p.last
	if err := p.write(patch, part); err != nil {
		p.Errorf("%s: %v", shown(patch, part), err)
		return true
	}
	if sameBody(before, p.last) {
		p.Errorf("%s changes nothing", shown(patch, part))
		return true
	}
	if raised := p.last.GetGeneration() - before.GetGeneration(); raised <= 0 {
		p.Logf("%s raises the generation by %d", shown(patch, part), raised)
		return false
	}
	return true
}

// refuse tries a change that the API server must refuse.
func (p *probe) refuse(patch map[string]any) {
	p.Helper()
	before := p.last
	if err := p.write(patch, ""); err != nil && !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
		p.Errorf("%s: %v", shown(patch, ""), err)
	} else if !sameBody(before, p.last) {
		p.Errorf("%s is a change after all: list it as one", shown(patch, ""))
	}
}

// changeStatus writes the status, and tries to change other fields with it. The API server
// must ignore these.
func (p *probe) changeStatus() {
	p.Helper()
	before := p.last
	if err := p.write(map[string]any{"status": p.Status}, "status"); err != nil || p.Status == nil {
		p.Errorf("write the status: %v", err)
	}
	if reflect.DeepEqual(before.Object["status"], p.last.Object["status"]) {
		p.Error("the write of the status changes nothing")
	}
	if raised := p.last.GetGeneration() - before.GetGeneration(); raised != 0 {
		p.Logf("a write of the status raises the generation by %d", raised)
	}
	for _, patch := range p.Changes {
		_ = p.write(patch, "status") // which may be refused, too
		if !sameBody(before, p.last) {
			p.Errorf("%s could be written with the status", shown(patch, "status"))
		}
	}
}

// write sends a patch, or a binding of a pod, and reads the object again.
func (p *probe) write(patch map[string]any, part string) error {
	body, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	var parts []string
	if part != "" {
		parts = []string{part}
	}
	if part == "binding" {
		_, err = p.in.Create(p.Context(), &unstructured.Unstructured{Object: patch}, metav1.CreateOptions{}, part)
	} else {
		_, err = p.in.Patch(p.Context(), p.last.GetName(), types.MergePatchType, body, metav1.PatchOptions{}, parts...)
	}
	last, readErr := p.in.Get(p.Context(), p.last.GetName(), metav1.GetOptions{})
	if readErr != nil {
		return errors.Join(err, fmt.Errorf("read it again: %w", readErr))
	}
	p.last = last
	return err
}

// shown returns a change as people write it.
func shown(patch map[string]any, part string) string {
	text, _ := json.Marshal(patch)
	if part != "" {
		return fmt.Sprintf("%s by %s", text, part)
	}
	return string(text)
}

// sameBody reports whether two objects are equal, except for their metadata and status.
func sameBody(a, b *unstructured.Unstructured) bool {
	bodies := [2]map[string]any{a.DeepCopy().Object, b.DeepCopy().Object}
	for _, body := range bodies {
		delete(body, "metadata")
		delete(body, "status")
	}
	return reflect.DeepEqual(bodies[0], bodies[1])
}
