package manager_test

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/etcdguard/manager"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

const preTerminate = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/EtcdQuorumOperator"

// TestClusterAPI replaces a member whose machine is one of Cluster API.
func TestClusterAPI(t *testing.T) {
	s := newClusterAPIScene(t)
	provided := s.create(t,
		`{apiVersion: cluster.x-k8s.io/v1beta2, kind: Machine, metadata: {namespace: %s, name: provided,
		labels: {cluster.x-k8s.io/control-plane: "", cluster.x-k8s.io/control-plane-name: kcp}},
		spec: {clusterName: c, bootstrap: {dataSecretName: d}, infrastructureRef: {apiGroup: infrastructure.runlevel.dev, kind: ExternalMachine, name: none}}}`,
		s.namespace)
	first := s.awaitAnnotation(t, 1, true)
	if err := s.client.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	machinetest.Await(t, s.client, first, client.ObjectKeyFromObject(first), func(m *unstructured.Unstructured) bool {
		return m.GetAnnotations()["pre-terminate.hook.machine.runlevel.dev/EtcdQuorumOperator"] != ""
	})
	s.awaitMembers("1 2 3")
	s.createClusterAPIMachine(t, 4)
	machinetest.AwaitGone(t, s.client, first, client.ObjectKeyFromObject(first))
	s.awaitMembers("2 3 4")
	machinetest.Await(t, s.client, provided, client.ObjectKeyFromObject(provided),
		func(m *unstructured.Unstructured) bool {
			if _, ok := m.GetAnnotations()[preTerminate]; ok {
				t.Error("a machine of a control plane with a controller of its own has the hook")
			}
			return true
		})
}

// newClusterAPIScene returns a scene with three machines of Cluster API, a member on each, and a guard.
func newClusterAPIScene(t *testing.T) *scene {
	t.Helper()
	s := newEmptyScene(t)
	s.create(t, `{apiVersion: cluster.x-k8s.io/v1beta2, kind: Cluster, metadata: {namespace: %s, name: c},
		spec: {infrastructureRef: {apiGroup: infrastructure.runlevel.dev, kind: ExternalMachine, name: any}}}`,
		s.namespace)
	for number := 1; number <= 3; number++ {
		s.createClusterAPIMachine(t, number)
	}
	s.bootstrap(1, 2, 3)
	s.allowMembers(true)
	options := s.guardOptions()
	options.MachineAPI = manager.ClusterAPI
	s.run(t, func(ctx context.Context) error { return manager.Run(ctx, s.api, options) })
	for number := 1; number <= 3; number++ {
		s.awaitAnnotation(t, number, true)
	}
	return s
}

// createClusterAPIMachine creates a machine of the control plane, and its infrastructure.
func (s *scene) createClusterAPIMachine(t *testing.T, number int) {
	t.Helper()
	s.create(t,
		`{apiVersion: infrastructure.runlevel.dev/v1alpha1, kind: ExternalMachine, metadata: {namespace: %s, name: m%d}}`, s.namespace, number)
	s.create(t, `{apiVersion: cluster.x-k8s.io/v1beta2, kind: Machine,
		metadata: {namespace: %s, name: m%d, labels: {cluster.x-k8s.io/control-plane: ""}},
		spec: {clusterName: c, version: v1.36.0, bootstrap: {dataSecretName: d}, infrastructureRef: {apiGroup: infrastructure.runlevel.dev, kind: ExternalMachine, name: m%d}}}`,
		s.namespace, number, number)
}

// parse returns the object of a manifest.
func parse(t *testing.T, manifest string, args ...any) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(fmt.Appendf(nil, manifest, args...), &object.Object); err != nil {
		t.Fatal(err)
	}
	return object
}

// create creates an object of a manifest.
func (s *scene) create(t *testing.T, manifest string, args ...any) *unstructured.Unstructured {
	t.Helper()
	object := parse(t, manifest, args...)
	if err := s.client.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	return object
}

// awaitAnnotation waits until a machine has the hook, or lacks it.
func (s *scene) awaitAnnotation(t *testing.T, number int, exists bool) *unstructured.Unstructured {
	t.Helper()
	m := &unstructured.Unstructured{}
	m.SetAPIVersion("cluster.x-k8s.io/v1beta2")
	m.SetKind("Machine")
	key := client.ObjectKey{Namespace: s.namespace, Name: fmt.Sprint("m", number)}
	return machinetest.Await(t, s.client, m, key, func(m *unstructured.Unstructured) bool {
		owner, ok := m.GetAnnotations()[preTerminate]
		return ok == exists && (!ok || owner == "clusteroperator/etcd")
	})
}
