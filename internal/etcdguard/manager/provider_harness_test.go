package manager_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/sandbox/etcdcluster"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

func (s *scene) createSet(t *testing.T) {
	t.Helper()
	set := &machinev1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "control-plane"}}
	spec := fmt.Sprintf(`{replicas: 3, selector: {matchLabels: {test: %s}}, template: {
		metadata: {labels: {test: %s, machine.openshift.io/cluster-api-machine-role: master}},
		spec: {providerSpec: {value: {apiVersion: infrastructure.runlevel.dev/v1alpha1, kind: ExternalMachine}}}}}`,
		s.namespace, s.namespace)
	if err := yaml.Unmarshal([]byte(spec), &set.Spec); err != nil {
		t.Fatal(err)
	}
	if err := s.client.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
}

// provide starts new machines, and ends deleted ones.
func (s *scene) provide(ctx context.Context) error {
	var list v1alpha1.ExternalMachineList
	if err := s.client.List(ctx, &list, client.InNamespace(s.namespace)); err != nil {
		return err
	}
	for _, m := range list.Items {
		number := s.number(m.Name)
		switch {
		case m.DeletionTimestamp != nil:
			s.kill(number)
			if err := s.dropLearner(ctx, number); err != nil {
				return err
			}
			if err := s.patch(ctx, &m, `{"spec":{"terminated":true}}`); err != nil {
				return err
			}
		case m.Spec.ProviderID == "":
			if err := s.startNode(ctx, number); err != nil {
				return err
			}
			err := s.patch(ctx, &m,
				fmt.Sprintf(`{"spec":{"providerID":%q,"addresses":[{"type":"InternalIP","address":%q}]}}`,
					s.providerID(number), s.Address(number)))
			if err != nil {
				return err
			}
		case s.isToJoin(number) || s.hasFailedToStart(ctx, number):
			s.kill(number)
			joining, cancel := context.WithTimeout(ctx, 10*time.Second)
			err := s.Join(joining, number)
			cancel()
			if err != nil {
				return fmt.Errorf("join: %w", err)
			}
		}
	}
	return nil
}

// hasFailedToStart returns whether a member has ended before it joined: etcd refuses to start if the members have
// changed meanwhile. A kubelet would start it again. A removed member has ended, too, and is not in the list.
func (s *scene) hasFailedToStart(ctx context.Context, number int) bool {
	if !s.HasEnded(number) {
		return false
	}
	members, err := s.Members(ctx)
	return err == nil && slices.ContainsFunc(members, func(m etcdcluster.Member) bool {
		return m.Name == "" && strings.Contains(strings.Join(m.PeerURLs, " "), "//"+s.Address(number)+":")
	})
}

// dropLearner removes a member that has joined when its machine was no longer held: the operator that adds members has
// to remove such a member.
func (s *scene) dropLearner(ctx context.Context, number int) error {
	members, err := s.members(ctx)
	if err != nil {
		return err
	}
	for _, member := range members {
		if member.IsLearner && strings.Contains(strings.Join(member.PeerURLs, " "), "//"+s.Address(number)+":") {
			_, err = s.etcdCluster.client.MemberRemove(ctx, member.ID)
		}
	}
	return err
}

func (s *scene) patch(ctx context.Context, object client.Object, patch string) error {
	return client.IgnoreNotFound(s.client.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// number returns the number of a machine: the first ones are 1, 2 and 3.
func (s *scene) number(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.numbers[name] == 0 {
		s.numbers[name] = len(s.numbers) + 1
	}
	return s.numbers[name]
}

// machine returns the name of the machine with a number; empty if there was none.
func (s *scene) machine(number int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, got := range s.numbers {
		if got == number {
			return name
		}
	}
	return ""
}

// isToJoin returns whether a machine must get a member: each machine gets one member only.
func (s *scene) isToJoin(number int) bool {
	s.mu.Lock()
	mayJoin := s.mayJoin
	s.mu.Unlock()
	return mayJoin && !s.hasStarted(number)
}

func (s *scene) allowMembers(are bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mayJoin = are
}

func (s *scene) providerID(number int) string {
	return fmt.Sprintf("external://%s/%d", s.namespace, number)
}

func (s *scene) node(number int) string { return fmt.Sprintf("%s-%d", s.namespace, number) }

// startNode creates the node of a machine. The machine controller drains the nodes of a control plane one at a time in
// the whole cluster. Therefore nodes on the shared sandbox lack the label of a control plane: a drain that one scene
// holds on purpose would hold those of all other scenes.
func (s *scene) startNode(ctx context.Context, number int) error {
	labels := map[string]string{}
	if s.shared != shared {
		labels["node-role.kubernetes.io/control-plane"] = ""
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: s.node(number), Labels: labels},
		Spec:       corev1.NodeSpec{ProviderID: s.providerID(number)},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: s.Address(number)}},
		},
	}
	s.Cleanup(func() { _ = s.client.Delete(context.Background(), node) }) // the test's own context has ended by then
	if err := s.client.Create(ctx, node); !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

func (s *scene) getNode(t *testing.T, number int) *corev1.Node {
	t.Helper()
	node := &corev1.Node{}
	if err := s.client.Get(t.Context(), client.ObjectKey{Name: s.node(number)}, node); err != nil {
		t.Fatal(err)
	}
	return node
}

// replaceHost lets the host of a machine join under the name of another machine's node.
func (s *scene) replaceHost(t *testing.T, replaced, by int) {
	t.Helper()
	node := s.getNode(t, replaced)
	if err := s.client.Delete(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	machinetest.AwaitGone(t, s.client, node, client.ObjectKeyFromObject(node))
	rejoined := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: node.Labels},
		Spec:       corev1.NodeSpec{ProviderID: s.providerID(by) + "/again"},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: s.Address(by)}},
		},
	}
	if err := s.client.Create(t.Context(), rejoined); err != nil {
		t.Fatal(err)
	}
}
