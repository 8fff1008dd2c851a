package manager

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/etcdguard"
	"github.com/runlevel/runlevel/internal/etcdguard/members"
	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	"github.com/runlevel/runlevel/internal/machines/deletion"
)

// The APIs of machines, by their groups.
const (
	OpenShift  = "machine.openshift.io"
	ClusterAPI = "cluster.x-k8s.io"
)

// The name and owner of the hook that holds machines, as in OpenShift.
const (
	HookName  = rolloutrules.QuorumHook
	HookOwner = "clusteroperator/etcd"
)

// etcdPort is the port on which members serve clients.
const etcdPort = "2379"

// A machineAPI reads the machines of an API.
type machineAPI struct {
	machine  client.Object     // an empty one
	list     client.ObjectList // an empty one
	selector string            // selector of control plane machines, unless the options set one
	stage    deletion.Stage
	view     func(client.Object) hostFacts
}

// hostFacts are the fields that are read from a machine.
type hostFacts struct {
	addresses []string
	node      string
	isHeld    bool // before the drain
	hasHook   bool // whether the guard's hook is set, at its stage
	// ownership returns whether the Node of that name is the machine's.
	ownership func(*corev1.Node) deletion.NodeOwnership
	// Of updates in place, which only Cluster API has.
	asksForUpdate, mayUpdate, isUpdating bool
}

// machineAPIs are by group. The machines of a control plane whose own controller manages its etcd members are left to
// that controller: in Cluster API they have a label with its name.
var machineAPIs = map[string]machineAPI{
	OpenShift: {
		machine: &machinev1beta1.Machine{}, list: &machinev1beta1.MachineList{}, view: viewOpenShift,
		stage:    deletion.BeforeDrain,
		selector: "machine.openshift.io/cluster-api-machine-role in (master, control-plane)",
	},
	// In Cluster API the hook is before the termination: a machine without a node, or the last one of its cluster, is
	// not held by hooks before the drain. A drain does not evict members.
	ClusterAPI: {
		machine: &clusterv1.Machine{}, list: &clusterv1.MachineList{}, view: viewClusterAPI,
		stage:    deletion.BeforeTerminate,
		selector: clusterv1.MachineControlPlaneLabel + ",!" + clusterv1.MachineControlPlaneNameLabel,
	},
}

func viewOpenShift(o client.Object) hostFacts {
	m := o.(*machinev1beta1.Machine)
	facts := hostFacts{isHeld: slices.ContainsFunc(m.Spec.LifecycleHooks.PreDrain,
		func(h machinev1beta1.LifecycleHook) bool {
			return h.Name == HookName
		}), ownership: func(node *corev1.Node) deletion.NodeOwnership { return deletion.OwnershipOpenShift(node, m) }}
	facts.hasHook = facts.isHeld
	for _, address := range m.Status.Addresses {
		facts.addresses = append(facts.addresses, members.Host(address.Address))
	}
	if m.Status.NodeRef != nil {
		facts.node = m.Status.NodeRef.Name
	}
	return facts
}

func viewClusterAPI(o client.Object) hostFacts {
	m, now := o.(*clusterv1.Machine), time.Now()
	facts := hostFacts{
		node: m.Status.NodeRef.Name,
		hasHook: slices.Contains(deletion.HooksClusterAPI(m, clusterv1.PreTerminateDeleteHookAnnotationPrefix),
			clusterv1.PreTerminateDeleteHookAnnotationPrefix+"/"+HookName),
		ownership:     func(node *corev1.Node) deletion.NodeOwnership { return deletion.OwnershipClusterAPI(node, m) },
		asksForUpdate: rolloutrules.AwaitsPermission(m, now), mayUpdate: rolloutrules.MayBegin(m, now),
		isUpdating: rolloutrules.IsUpdating(m),
	}
	for _, address := range m.Status.Addresses {
		facts.addresses = append(facts.addresses, members.Host(address.Address))
	}
	return facts
}

// readMachines reads the machines of the control plane, and their nodes, from the API server.
func (g *guard) readMachines(ctx context.Context) ([]etcdguard.Machine, error) {
	list := g.api.list.DeepCopyObject().(client.ObjectList)
	if err := g.server.List(ctx, list, client.MatchingLabelsSelector{Selector: g.selector}); err != nil {
		return nil, fmt.Errorf("list the machines of the control plane: %w", err)
	}
	var machines []etcdguard.Machine
	err := meta.EachListItem(list, func(o runtime.Object) error {
		machine, err := g.readMachine(ctx, o.(client.Object))
		machines = append(machines, machine)
		return err
	})
	return machines, err
}

// readMachine returns the facts about a machine and its node. If another host has joined under the name of its node,
// the addresses, by which members are found, and the guard pods of that node are not the machine's.
func (g *guard) readMachine(ctx context.Context, o client.Object) (etcdguard.Machine, error) {
	facts := g.api.view(o)
	m := etcdguard.Machine{
		Name: key(o), IsDeleting: !o.GetDeletionTimestamp().IsZero(), IsHeld: facts.isHeld, Addresses: facts.addresses,
		AsksForUpdate: facts.asksForUpdate, MayUpdate: facts.mayUpdate, IsUpdating: facts.isUpdating,
	}
	if m.IsDeleting && facts.hasHook {
		m.HeldSince = o.GetDeletionTimestamp().Time
	}
	if facts.node == "" {
		return m, nil
	}
	node := &corev1.Node{}
	err := g.server.Get(ctx, client.ObjectKey{Name: facts.node}, node)
	if apierrors.IsNotFound(err) {
		return m, nil
	}
	if err != nil {
		return m, fmt.Errorf("get node %s: %w", facts.node, err)
	}
	if ownership := facts.ownership(node); ownership != deletion.OwnNode {
		m.IsNodeUnknown = ownership == deletion.UnknownNode
		return m, nil
	}
	m.Zone, m.IsCordoned = node.Labels[corev1.LabelTopologyZone], node.Spec.Unschedulable
	for _, address := range node.Status.Addresses {
		m.Addresses = append(m.Addresses, members.Host(address.Address))
	}
	slices.Sort(m.Addresses)
	m.Addresses = slices.Compact(m.Addresses)
	if m.IsDeleting && m.IsCordoned {
		m.GuardPods, err = g.guardPods(ctx, node.Name)
	}
	return m, err
}

// guardPods returns the guard pods of a node not being deleted.
func (g *guard) guardPods(ctx context.Context, node string) ([]etcdguard.GuardPod, error) {
	var pods corev1.PodList
	err := g.server.List(ctx, &pods, client.InNamespace(g.options.GuardPodsNamespace),
		client.MatchingLabelsSelector{Selector: g.guardPodSelector}, client.MatchingFields{"spec.nodeName": node})
	if err != nil {
		return nil, fmt.Errorf("list the guard pods of node %s: %w", node, err)
	}
	var found []etcdguard.GuardPod
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp.IsZero() {
			found = append(found, etcdguard.GuardPod{Name: key(&pod), UID: pod.UID})
		}
	}
	return found, nil
}

// endpoints returns the endpoints of etcd: those of the options, or else the internal addresses of the control plane's
// nodes.
func (g *guard) endpoints(ctx context.Context) ([]string, error) {
	if len(g.options.Endpoints) > 0 {
		return g.options.Endpoints, nil
	}
	var endpoints []string
	for _, label := range []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"} {
		var nodes corev1.NodeList
		if err := g.server.List(ctx, &nodes, client.HasLabels{label}); err != nil {
			return nil, fmt.Errorf("list the nodes of the control plane: %w", err)
		}
		for _, node := range nodes.Items {
			for _, address := range node.Status.Addresses {
				if address.Type == corev1.NodeInternalIP {
					endpoints = append(endpoints, "https://"+net.JoinHostPort(address.Address, etcdPort))
				}
			}
		}
	}
	slices.Sort(endpoints)
	return slices.Compact(endpoints), nil
}

// key returns the name of an object with its namespace.
func key(o client.Object) string { return client.ObjectKeyFromObject(o).String() }
