package capi_test

import (
	"errors"
	"net/http"
	"os"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/capi"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// No garbage is collected, and no volume detached: only the controller deletes objects.
var stage = machinetest.New(sandbox.Options{
	CRDs: []string{"testdata/crds"},
	Controllers: []string{"*", "-garbage-collector-controller", "-persistentvolume-attach-detach-controller",
		"-persistentvolume-binder-controller"},
})

func TestMain(m *testing.M) { os.Exit(stage.Run(m)) }

const (
	preDrain     = "pre-drain.delete.hook.machine.cluster.x-k8s.io/"
	preTerminate = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/"
	held         = "infra.example.com/held" // a finalizer
)

// A scene is a Cluster in a namespace of its own, with a machine of its control plane, and a controller that sees no
// others.
type scene struct {
	*machinetest.Fixture
	user         string       // user of the controller; empty for the administrator
	keepsNodes   atomic.Bool  // the controller's deletions of Nodes fail
	keepsStatus  atomic.Bool  // the controller's writes of conditions of Nodes fail
	writes       writeCut     // may have the controller die
	ahead        atomic.Int64 // how far the controller's clock is, a time.Duration
	overtakes    atomic.Int64 // how many of the controller's patches of Nodes come after another writer's
	workers      int          // workers of the controller; 0 for its default
	controlPlane *clusterv1.Machine
	cluster      *clusterv1.Cluster
}

func newScene(t *testing.T) *scene {
	t.Helper()
	return newSceneAs(t, "")
}

// newSceneAs returns a scene whose controller acts as a user, or as the administrator if the name is empty.
func newSceneAs(t *testing.T, user string) *scene {
	t.Helper()
	s := newStoppedScene(t)
	s.user = user
	s.start()
	return s
}

// newStoppedScene starts no controller yet.
func newStoppedScene(t *testing.T) *scene {
	t.Helper()
	t.Parallel()
	s := &scene{Fixture: stage.NewFixture(t)}
	s.cluster = &clusterv1.Cluster{
		ObjectMeta: s.Meta("c"),
		Spec:       clusterv1.ClusterSpec{InfrastructureRef: s.ref("TestMachine", "any")},
	}
	s.MustCreate(s.cluster)
	s.controlPlane = s.machine("cp")
	s.controlPlane.Labels = map[string]string{clusterv1.MachineControlPlaneLabel: "", clusterv1.ClusterNameLabel: "c"}
	s.MustCreate(s.controlPlane)
	return s
}

// start starts the controller.
func (s *scene) start() (stop func()) {
	s.Helper()
	config := rest.CopyConfig(stage.Sandbox(s).Config)
	config.Impersonate.UserName = s.user
	return stage.ManageIn(s, s.Namespace, sandboxtest.Tap(config, s.tap), func(mgr ctrl.Manager) error {
		return capi.SetupWithManager(s.Context(), mgr, capi.Options{
			Concurrency: s.workers,
			LongestWait: 300 * time.Millisecond,
			Now:         func() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) },
		})
	})
}

// tap is the controller's way to the API server.
func (s *scene) tap(request *http.Request, send http.RoundTripper) (*http.Response, error) {
	if request.Method == http.MethodDelete && strings.HasPrefix(request.URL.Path, "/api/v1/nodes/") &&
		s.keepsNodes.Load() {
		return nil, errors.New("no Node is deleted")
	}
	if path.Base(request.URL.Path) == "status" && strings.HasPrefix(request.URL.Path, "/api/v1/nodes/") &&
		s.keepsStatus.Load() {
		return nil, errors.New("no conditions are written")
	}
	if request.Method == http.MethodPatch && path.Dir(request.URL.Path) == "/api/v1/nodes" &&
		s.overtakes.Add(-1) >= 0 {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: path.Base(request.URL.Path)}}
		s.MustPatch(node, `{"metadata": {"annotations": {"overtakes": "%d"}}}`, s.overtakes.Load())
	}
	return s.writes.tap(request, send)
}

func (s *scene) ref(kind, name string) clusterv1.ContractVersionedObjectReference {
	return clusterv1.ContractVersionedObjectReference{APIGroup: "infra.example.com", Kind: kind, Name: name}
}

// machine returns a Machine without creating it.
func (s *scene) machine(name string) *clusterv1.Machine {
	return &clusterv1.Machine{
		ObjectMeta: s.Meta(name),
		Spec: clusterv1.MachineSpec{
			ClusterName: "c", InfrastructureRef: s.ref("TestMachine", name),
			Bootstrap: clusterv1.Bootstrap{DataSecretName: ptr.To("data")},
		},
	}
}

// addInfrastructure creates provisioned infrastructure.
func (s *scene) addInfrastructure(name string, finalizers ...string) *unstructured.Unstructured {
	s.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "infra.example.com/v1", "kind": "TestMachine",
		"spec": map[string]any{"providerID": s.providerID(name)},
		"status": map[string]any{
			"initialization": map[string]any{"provisioned": true}, "failureDomain": "rack-7",
			"addresses": []any{map[string]any{"type": "InternalIP", "address": "10.0.0.7"}},
			"conditions": []any{map[string]any{
				"type": "Ready", "status": "True", "reason": "Ready", "message": "",
				"lastTransitionTime": "2026-01-01T00:00:00Z",
			}},
		},
	}}
	object.SetNamespace(s.Namespace)
	object.SetName(name)
	object.SetFinalizers(finalizers)
	s.MustCreate(object)
	return object
}

func (s *scene) providerID(name string) string { return "test://" + s.Namespace + "/" + name }

// addNode creates the node of a machine, and waits until it is ready.
func (s *scene) addNode(name string) *corev1.Node {
	s.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace + "-" + name}}
	node.Spec.ProviderID = s.providerID(name)
	return s.AddNode(node)
}

// run creates a Machine, with infrastructure, and waits until its node is linked.
func (s *scene) run(m *clusterv1.Machine, finalizers ...string) (*clusterv1.Machine, *corev1.Node) {
	s.Helper()
	node := s.addNode(m.Name)
	s.addInfrastructure(m.Name, finalizers...)
	s.MustCreate(m)
	return s.await(m.Name, func(m *clusterv1.Machine) bool {
		return m.Status.NodeRef.Name != "" && m.Status.Phase == "Running"
	}), node
}

// runs creates a Machine with annotations that runs.
func (s *scene) runs(annotations ...string) (*clusterv1.Machine, *corev1.Node) {
	s.Helper()
	m := s.machine("m1")
	m.Annotations = map[string]string{}
	for _, key := range annotations {
		m.Annotations[key] = "owner"
	}
	return s.run(m)
}

func (s *scene) await(name string, isWanted func(*clusterv1.Machine) bool) *clusterv1.Machine {
	s.Helper()
	return machinetest.Await(s, s, &clusterv1.Machine{}, s.Key(name), isWanted)
}

// awaitDeleting waits until the condition Deleting has a reason, and a message with a text in it.
func (s *scene) awaitDeleting(reason, text string) *clusterv1.Machine {
	s.Helper()
	return s.await("m1", func(m *clusterv1.Machine) bool {
		deleting := meta.FindStatusCondition(m.Status.Conditions, clusterv1.MachineDeletingCondition)
		return deleting != nil && deleting.Reason == reason && strings.Contains(deleting.Message, text)
	})
}

// removeHook removes an annotation.
func (s *scene) removeHook(m *clusterv1.Machine, key string) {
	s.Helper()
	s.MustPatch(m, `{"metadata": {"annotations": {%q: null}}}`, key)
}

// infrastructure reads the infrastructure of the machine.
func (s *scene) infrastructure() *unstructured.Unstructured {
	s.Helper()
	return s.object("TestMachine", "m1")
}

func (s *scene) object(kind, name string) *unstructured.Unstructured {
	s.Helper()
	object := &unstructured.Unstructured{}
	object.SetAPIVersion("infra.example.com/v1")
	object.SetKind(kind)
	s.Must(s.Get(s.Context(), s.Key(name), object))
	return object
}

// expectInfrastructure checks that the infrastructure was not asked to go.
func (s *scene) expectInfrastructure() {
	s.Helper()
	if object := s.infrastructure(); object.GetDeletionTimestamp() != nil {
		s.Error("the infrastructure is being deleted")
	}
}

// addPod creates a pod on a node, and waits until it is ready.
func (s *scene) addPod(node *corev1.Node, name string, change func(*corev1.Pod)) *corev1.Pod {
	s.Helper()
	pod := s.NewPod(name, node)
	if change != nil {
		change(pod)
	}
	return s.RunPod(pod)
}

// expectUntouched checks that a node takes pods.
func (s *scene) expectUntouched(node *corev1.Node, pods ...*corev1.Pod) {
	s.Helper()
	if err := s.Get(s.Context(), client.ObjectKeyFromObject(node), node); err != nil || node.Spec.Unschedulable {
		s.Errorf("node %s is cordoned: %t, %v", node.Name, node.Spec.Unschedulable, err)
	}
	for _, pod := range pods {
		if err := s.Get(s.Context(), client.ObjectKeyFromObject(pod), pod); err != nil || pod.DeletionTimestamp != nil {
			s.Errorf("pod %s is evicted: %v", pod.Name, err)
		}
	}
}
