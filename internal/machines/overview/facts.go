package overview

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/drain"
	"github.com/runlevel/runlevel/internal/machines/typedread"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// A gatherer reads the facts about machines and control planes. It lists the nodes of the cluster once, and the health
// checks of each namespace once.
type gatherer struct {
	cluster        *cluster.Cluster
	nodes          nodeList
	hasListedNodes bool
	healthChecks   map[string]healthCheckList // Cluster API health checks, by namespace
}

// listNodes lists the nodes of the cluster, once.
func (g *gatherer) listNodes(ctx context.Context) *nodeList {
	if g.hasListedNodes {
		return &g.nodes
	}
	g.hasListedNodes = true
	nodes := map[string]*corev1.Node{}
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return g.cluster.Client.CoreV1().Nodes().List(ctx, options)
	})
	err := pages.EachListItem(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
		node := item.(*corev1.Node)
		nodes[node.Name] = node
		return nil
	})
	if err != nil {
		g.nodes.unknown = errorLine(typedread.RequestError("list nodes", err))
		return &g.nodes
	}
	g.nodes.byName = nodes
	return &g.nodes
}

// machineFacts are the facts about a machine of either API.
type machineFacts struct {
	group   string
	object  metav1.Object
	nodes   *nodeList
	pods    *nodePods // nil if the pods of the node were not read
	unknown []string  // failed reads
}

// isDeleting reports whether the machine is being deleted.
func (f *machineFacts) isDeleting() bool { return f.object.GetDeletionTimestamp() != nil }

// command returns a kubectl command on the machine.
func (f *machineFacts) command(verb, arguments string) string {
	return fmt.Sprintf("kubectl %s machine.%s %s -n %s%s",
		verb, f.group, f.object.GetName(), f.object.GetNamespace(), arguments)
}

// readPods lists the pods of the machine's node, which is being drained by rules.
func (f *machineFacts) readPods(ctx context.Context, g *gatherer, node *corev1.Node, rules drain.PodRules) {
	client := drain.Client{Interface: g.cluster.Client, Now: g.cluster.Now}
	pods, err := drain.HeldPods(ctx, client, node, rules)
	switch {
	case apierrors.IsForbidden(err):
		f.unknown = append(f.unknown, "this user may not list pods, or PodDisruptionBudgets, in all namespaces")
	case err != nil:
		f.unknown = append(f.unknown, errorLine(err))
	}
	f.pods = &nodePods{holding: pods, isUnknown: err != nil}
}

// hookHold returns the hold of a lifecycle hook, with the message that its controller reports if it uses package
// machinehook.
func (f *machineFacts) hookHold(kind HoldType, name, owner, key string, since *time.Time) Hold {
	stage := deletion.BeforeDrain
	if kind == PreTerminateHook {
		stage = deletion.BeforeTerminate
	}
	message := f.object.GetAnnotations()[deletion.HookStatusAnnotation(stage, name)]
	return Hold{Type: kind, Name: name, Owner: owner, key: key, Message: message, Since: since}
}

// finalizerHolds returns the finalizers of other controllers.
func (f *machineFacts) finalizerHolds(own string) []Hold {
	var holds []Hold
	for _, finalizer := range f.object.GetFinalizers() {
		if finalizer != own {
			holds = append(holds, Hold{Type: Finalizer, Name: finalizer, Since: &f.object.GetDeletionTimestamp().Time})
		}
	}
	return holds
}

// podWeights order the pods of a drain: stuck pods come first.
var podWeights = map[drain.PodHold]int{
	drain.Budget: 0, drain.Refused: 1, drain.Finalizers: 2, drain.Ending: 3, drain.ToBeEvicted: 4,
	drain.Completion: 5, drain.Later: 6, drain.CompletionLater: 7,
}

// podHolds returns the pods that hold a drain.
func (f *machineFacts) podHolds(since *time.Time) []Hold {
	pods := slices.SortedFunc(slices.Values(f.pods.holding), func(a, b drain.HeldPod) int {
		return cmp.Or(cmp.Compare(podWeights[a.Hold], podWeights[b.Hold]), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name))
	})
	var holds []Hold
	for _, pod := range pods {
		holds = append(holds, Hold{
			Type: Pod, Name: string(pod.Hold), Message: pod.Message, Since: since,
			Object:  new(kinds.NewID(kinds.Pod, pod.Namespace, pod.Name)),
			Budgets: pod.Budgets, Toleration: pod.Toleration,
		})
	}
	return holds
}

// controllerHold returns the hold of an action that the machine controller has not done yet.
func controllerHold(action string) []Hold { return []Hold{{Type: Controller, Message: action}} }

// nodeHold returns the hold of a machine whose node has not joined. It names another machine that has the node with the
// machine's providerID.
func (f *machineFacts) nodeHold(providerID string, since time.Time) Hold {
	wanted := "with its internal IP address"
	if providerID != "" {
		wanted = "with the providerID " + providerID
	}
	hold := Hold{Type: Node, Message: wanted, Since: &since}
	own := ownerName(f.object.GetNamespace(), f.object.GetName(), f.group)
	var nodes []*corev1.Node
	for _, node := range f.nodes.byName {
		owner := nodeOwner(node)
		if providerID != "" && node.Spec.ProviderID == providerID && owner != "" && owner != own {
			nodes = append(nodes, node)
		}
	}
	if len(nodes) > 0 {
		node := slices.MinFunc(nodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
		hold.Object = new(kinds.NewID(kinds.Node, "", node.Name))
		hold.Message += fmt.Sprintf(", which node %s has; it belongs to machine %s", node.Name, nodeOwner(node))
	}
	return hold
}

// nodeOwner returns the name of the machine that a node belongs to, by its annotations; "" if it has none.
func nodeOwner(node *corev1.Node) string {
	if name := node.Annotations[deletion.OpenShiftMachineAnnotation]; name != "" {
		namespace, name, _ := strings.Cut(name, "/")
		return ownerName(namespace, name, Kind.Group)
	}
	if name := node.Annotations[clusterv1.MachineAnnotation]; name != "" {
		return ownerName(node.Annotations[clusterv1.ClusterNamespaceAnnotation], name, ClusterAPIKind.Group)
	}
	return ""
}

func ownerName(namespace, name, group string) string {
	return fmt.Sprintf("%s/%s of %s", namespace, name, group)
}

// nodePods are the pods of a node being drained.
type nodePods struct {
	holding   []drain.HeldPod // the pods that hold the drain
	staying   []drain.HeldPod // the pods that are deleted with the node
	isUnknown bool            // the pods can't be listed
}

// separateStaying separates the pods that tolerate the cordon, and were scheduled after it: they do not hold the drain.
func (p *nodePods) separateStaying() {
	pods := p.holding
	p.holding = nil
	for _, pod := range pods {
		isLeaving := pod.Hold == drain.Ending || pod.Hold == drain.Finalizers
		if pod.Toleration != "" && pod.IsAfterCordon && !isLeaving {
			p.staying = append(p.staying, pod)
		} else {
			p.holding = append(p.holding, pod)
		}
	}
}

// A nodeList contains the nodes of the cluster.
type nodeList struct {
	unknown string                  // the reason why the nodes can't be listed
	byName  map[string]*corev1.Node // nil if the nodes can't be listed
}

// otherCordoned returns the other nodes of the control plane that are cordoned, if a node must wait for them.
func (n *nodeList) otherCordoned(node *corev1.Node) []string {
	if !deletion.IsControlPlane(node) {
		return nil
	}
	var others []string
	for name, other := range n.byName {
		if name != node.Name && deletion.IsControlPlane(other) && other.Spec.Unschedulable {
			others = append(others, name)
		}
	}
	slices.Sort(others)
	return others
}

// findCondition returns the condition of a type; an empty one if it has none.
func findCondition(conditions []metav1.Condition, kind string) metav1.Condition {
	return ptr.Deref(meta.FindStatusCondition(conditions, kind), metav1.Condition{})
}
