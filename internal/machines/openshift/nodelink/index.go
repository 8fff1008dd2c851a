package nodelink

import (
	"context"
	"fmt"
	"slices"
	"strings"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Fields that Machines and nodes are found by, in the cache.
const (
	byProviderID = "nodelink.providerID"
	byInternalIP = "nodelink.internalIP"
	byNode       = "nodelink.nodeUID"
)

func addIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	for _, index := range []struct {
		object  client.Object
		field   string
		extract client.IndexerFunc
	}{
		{&corev1.Node{}, byProviderID, func(o client.Object) []string { return nonEmpty(o.(*corev1.Node).Spec.ProviderID) }},
		{&corev1.Node{}, byInternalIP, func(o client.Object) []string { return internalIPs(o.(*corev1.Node).Status.Addresses) }},
		{&machinev1beta1.Machine{}, byProviderID, func(o client.Object) []string {
			return nonEmpty(providerID(o.(*machinev1beta1.Machine)))
		}},
		{&machinev1beta1.Machine{}, byInternalIP, func(o client.Object) []string {
			return internalIPs(o.(*machinev1beta1.Machine).Status.Addresses)
		}},
		{&machinev1beta1.Machine{}, byNode, func(o client.Object) []string {
			if ref := o.(*machinev1beta1.Machine).Status.NodeRef; ref != nil {
				return nonEmpty(string(ref.UID))
			}
			return nil
		}},
	} {
		if err := indexer.IndexField(ctx, index.object, index.field, index.extract); err != nil {
			return fmt.Errorf("%T by %s: %w", index.object, index.field, err)
		}
	}
	return nil
}

func nonEmpty(value string) []string {
	if value == "" {
		return nil
	}
	return []string{value}
}

func providerID(machine *machinev1beta1.Machine) string {
	if machine.Spec.ProviderID == nil {
		return ""
	}
	return *machine.Spec.ProviderID
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

// gatherCandidates gathers the facts about a node for judge, from indexes of the cache. The objects must not be changed.
func (r *NodeLinkReconciler) gatherCandidates(ctx context.Context, node *corev1.Node) (candidates, error) {
	seen := candidates{node: node}
	var err error
	if seen.machines, err = r.machines(ctx, node); err != nil || len(seen.machines) != 1 {
		return seen, err
	}
	machine := seen.machines[0]
	if seen.nodes, err = r.nodes(ctx, machine); err != nil {
		return seen, err
	}
	if seen.owners, err = r.machinesBy(ctx, byNode, string(node.UID)); err != nil {
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
func (r *NodeLinkReconciler) machines(ctx context.Context, node *corev1.Node) ([]*machinev1beta1.Machine, error) {
	found, err := r.machinesBy(ctx, byProviderID, node.Spec.ProviderID)
	if err != nil {
		return nil, err
	}
	for _, ip := range internalIPs(node.Status.Addresses) {
		more, err := r.machinesBy(ctx, byInternalIP, ip)
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	return unique(found), nil
}

// nodes returns the nodes that share a providerID or an internal IP with a Machine.
func (r *NodeLinkReconciler) nodes(ctx context.Context, machine *machinev1beta1.Machine) ([]*corev1.Node, error) {
	found, err := r.nodesBy(ctx, byProviderID, providerID(machine))
	if err != nil {
		return nil, err
	}
	for _, ip := range internalIPs(machine.Status.Addresses) {
		more, err := r.nodesBy(ctx, byInternalIP, ip)
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	return unique(found), nil
}

func (r *NodeLinkReconciler) machinesBy(ctx context.Context, field, value string) ([]*machinev1beta1.Machine, error) {
	var list machinev1beta1.MachineList
	if err := r.listBy(ctx, &list, field, value); err != nil {
		return nil, fmt.Errorf("find machines by %s: %w", field, err)
	}
	return pointers(list.Items), nil
}

func (r *NodeLinkReconciler) nodesBy(ctx context.Context, field, value string) ([]*corev1.Node, error) {
	var list corev1.NodeList
	if err := r.listBy(ctx, &list, field, value); err != nil {
		return nil, fmt.Errorf("find nodes by %s: %w", field, err)
	}
	return pointers(list.Items), nil
}

func (r *NodeLinkReconciler) listBy(ctx context.Context, list client.ObjectList, field, value string) error {
	if value == "" {
		return nil
	}
	return r.client.List(ctx, list, client.MatchingFields{field: value}, client.UnsafeDisableDeepCopy)
}

func pointers[T any](items []T) []*T {
	var all []*T
	for i := range items {
		all = append(all, &items[i])
	}
	return all
}

// unique returns each object once, in the order of their names.
func unique[T client.Object](objects []T) []T {
	byName := func(a, b T) int {
		return strings.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
	}
	slices.SortFunc(objects, byName)
	return slices.CompactFunc(objects, func(a, b T) bool { return byName(a, b) == 0 })
}
