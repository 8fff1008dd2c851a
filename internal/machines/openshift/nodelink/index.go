package nodelink

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/enqueue"
)

// Fields that Machines and nodes are found by, in the cache.
const (
	byProviderID = "nodelink.providerID"
	byInternalIP = "nodelink.internalIP"
	byNode       = "nodelink.nodeUID"
	byMachine    = "nodelink.machine"
)

func addIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	return errors.Join(
		enqueue.AddIndex(ctx, indexer, byProviderID, func(n *corev1.Node) []string {
			return []string{n.Spec.ProviderID}
		}),
		enqueue.AddIndex(ctx, indexer, byInternalIP, func(n *corev1.Node) []string {
			return internalIPs(n.Status.Addresses)
		}),
		enqueue.AddIndex(ctx, indexer, byMachine, func(n *corev1.Node) []string {
			return []string{n.Annotations[MachineAnnotation]}
		}),
		enqueue.AddIndex(ctx, indexer, byProviderID, func(m *machinev1beta1.Machine) []string {
			return []string{providerID(m)}
		}),
		enqueue.AddIndex(ctx, indexer, byInternalIP, func(m *machinev1beta1.Machine) []string {
			return internalIPs(m.Status.Addresses)
		}),
		enqueue.AddIndex(ctx, indexer, byNode, func(m *machinev1beta1.Machine) []string {
			return []string{string(ptr.Deref(m.Status.NodeRef, corev1.ObjectReference{}).UID)}
		}),
	)
}

func providerID(machine *machinev1beta1.Machine) string {
	return ptr.Deref(machine.Spec.ProviderID, "")
}

// internalIPs returns the internal addresses in order, each once.
func internalIPs(addresses []corev1.NodeAddress) []string {
	var ips []string
	for _, address := range addresses {
		if address.Type == corev1.NodeInternalIP && address.Address != "" {
			ips = append(ips, address.Address)
		}
	}
	slices.Sort(ips)
	return slices.Compact(ips)
}

func name(machine *machinev1beta1.Machine) string { return machine.Namespace + "/" + machine.Name }

// gatherCandidates gathers the facts about a node for judge, from indexes of the cache. The objects must not be
// changed.
func (r *reconciler) gatherCandidates(ctx context.Context, node *corev1.Node) (candidates, error) {
	seen := candidates{node: node}
	var err error
	if seen.machines, err = r.machines(ctx, node); err != nil || len(seen.machines) != 1 {
		return seen, err
	}
	machine := seen.machines[0]
	if seen.nodes, err = r.nodes(ctx, machine); err != nil {
		return seen, err
	}
	if seen.owners, err = r.owners(ctx, node); err != nil {
		return seen, err
	}
	if err := r.addNamedOwner(ctx, &seen); err != nil {
		return seen, err
	}
	ref := machine.Status.NodeRef
	if ref == nil || ref.Name == node.Name {
		return seen, nil
	}
	former := &corev1.Node{}
	err = r.client.Get(ctx, client.ObjectKey{Name: ref.Name}, former)
	if err == nil {
		seen.former = former
	} else if !apierrors.IsNotFound(err) {
		return seen, fmt.Errorf("get node %s: %w", ref.Name, err)
	}
	return seen, nil
}

// machines returns the Machines that share a providerID or an internal IP with a node.
func (r *reconciler) machines(ctx context.Context, node *corev1.Node) ([]*machinev1beta1.Machine, error) {
	return sharing[*machinev1beta1.Machine, machinev1beta1.MachineList](ctx, r.client, "machines", node.Spec.ProviderID,
		node.Status.Addresses)
}

// nodes returns the nodes that share a providerID or an internal IP with a Machine.
func (r *reconciler) nodes(ctx context.Context, machine *machinev1beta1.Machine) ([]*corev1.Node, error) {
	return sharing[*corev1.Node, corev1.NodeList](ctx, r.client, "nodes", providerID(machine), machine.Status.Addresses)
}

// owners returns the Machines whose nodeRef has the UID of a node.
func (r *reconciler) owners(ctx context.Context, node *corev1.Node) ([]*machinev1beta1.Machine, error) {
	return listBy[*machinev1beta1.Machine, machinev1beta1.MachineList](ctx, r.client, "machines", byNode,
		string(node.UID))
}

// addNamedOwner adds the Machine that the annotation of the node names, if it exists. It may have no nodeRef yet, or be
// in a namespace that the controller does not watch.
func (r *reconciler) addNamedOwner(ctx context.Context, seen *candidates) error {
	named := seen.node.Annotations[MachineAnnotation]
	namespace, machine, isName := strings.Cut(named, "/")
	if !isName || named == name(seen.machines[0]) {
		return nil
	}
	owner := &machinev1beta1.Machine{}
	err := r.server.Get(ctx, client.ObjectKey{Namespace: namespace, Name: machine}, owner)
	switch {
	case err == nil && !slices.ContainsFunc(seen.owners, func(m *machinev1beta1.Machine) bool {
		return m.UID == owner.UID
	}):
		seen.owners = append(seen.owners, owner)
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("get Machine %s, which node %s names: %w", named, seen.node.Name, err)
	}
	return nil
}

// An objectList is a pointer to a list L of objects.
type objectList[L any] interface {
	*L
	client.ObjectList
}

// sharing returns the objects that have a providerID or one of some internal IPs, each once, in the order of their
// names.
func sharing[T client.Object, L any, P objectList[L]](ctx context.Context, reader client.Reader, what,
	providerID string, addresses []corev1.NodeAddress) ([]T, error) {
	found, err := listBy[T, L, P](ctx, reader, what, byProviderID, providerID)
	for _, ip := range internalIPs(addresses) {
		if err != nil {
			return nil, err
		}
		var more []T
		more, err = listBy[T, L, P](ctx, reader, what, byInternalIP, ip)
		found = append(found, more...)
	}
	byName := func(a, b T) int {
		return strings.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
	}
	slices.SortFunc(found, byName)
	return slices.CompactFunc(found, func(a, b T) bool { return byName(a, b) == 0 }), err
}

// listBy returns the objects with a value in an index, which belong to the cache.
func listBy[T client.Object, L any, P objectList[L]](ctx context.Context, reader client.Reader, what, field,
	value string) ([]T, error) {
	if value == "" {
		return nil, nil
	}
	list := P(new(L))
	if err := reader.List(ctx, list, client.MatchingFields{field: value}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("find %s by %s: %w", what, field, err)
	}
	var found []T
	err := meta.EachListItem(list, func(item runtime.Object) error {
		found = append(found, item.(T))
		return nil
	})
	return found, err
}
