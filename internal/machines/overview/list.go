package overview

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/pager"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/drain"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// atOnce is how many nodes and infrastructure objects are read at a time.
const atOnce = 10

// A MachineQuery selects machines.
type MachineQuery struct {
	Namespace    string   // "" is all
	Names        []string // none is all
	OnlyDeleting bool
}

// ErrNotServed is returned, wrapped, if the cluster does not serve this API.
var ErrNotServed = cluster.ErrNotServed

// A MachineList is the machines of a cluster, in the order of namespaces and names, and what replaces those of control
// planes.
type MachineList struct {
	Machines      []MachineOverview
	ControlPlanes []*ControlPlaneOverview
	Unknown       []string // failed reads of control planes, which each machine has too
}

// List returns the states of machines. Machines and nodes are listed once, and the machines of a control plane once
// more. Pods are listed only for nodes that are being drained, and infrastructure is read only if a machine waits for
// it.
func List(ctx context.Context, c *cluster.Cluster, q MachineQuery) (*MachineList, error) {
	g := &machineGatherer{cluster: c}
	machines, err := objectsOf[machinev1beta1.Machine](ctx, g, Kind, q)
	others, otherErr := g.clusterAPIMachines(ctx, q)
	if errors.Is(err, ErrNotServed) && errors.Is(otherErr, ErrNotServed) {
		return nil, err
	}
	var unknown, unlisted []string
	groups := []string{Kind.Group, ClusterAPIKind.Group}
	for i, problem := range []error{err, otherErr} {
		switch {
		case problem == nil, errors.Is(problem, ErrNotServed): // without the API there are no machines
		case len(machines) == 0 && len(others) == 0:
			return nil, problem
		default:
			unknown, unlisted = append(unknown, inLine(problem)), append(unlisted, groups[i])
		}
	}
	list := &MachineList{Machines: []MachineOverview{}}
	sets, setsErr := g.controlPlaneSets(ctx, q.Namespace)
	for _, f := range g.facts(ctx, machines) {
		f.set = setOf(f.machine, sets)
		list.Machines = append(list.Machines, judge(f))
	}
	for _, f := range others {
		list.Machines = append(list.Machines, f.judge())
	}
	list.addControlPlanes(ctx, g, q, sets, setsErr)
	unknown = append(unknown, list.Unknown...) // a machine may be one of a control plane
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	for i := range list.Machines {
		m := &list.Machines[i]
		m.Unknown, m.Unlisted = append(m.Unknown, unknown...), unlisted
	}
	slices.SortStableFunc(list.Machines, func(a, b MachineOverview) int {
		return kinds.Compare(kinds.ID{Namespace: a.Namespace, Name: a.Name},
			kinds.ID{Namespace: b.Namespace, Name: b.Name})
	})
	return list, nil
}

// A machineGatherer gathers the facts about machines.
type machineGatherer struct {
	cluster        *cluster.Cluster
	nodes          nodeList
	hasListedNodes bool
	healthChecks   map[string]healthCheckList // of Cluster API, by namespace
}

// objectsOf lists the selected objects of a kind: machines, or what replaces those of a control plane.
func objectsOf[M any](ctx context.Context, g *machineGatherer, kind schema.GroupKind, q MachineQuery) ([]*M, error) {
	what := "list machines"
	if kind != Kind {
		what = fmt.Sprintf("list %ss.%s", strings.ToLower(kind.Kind), kind.Group)
	}
	in, err := g.cluster.FindKind(ctx, kind)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	var options metav1.ListOptions
	if len(q.Names) == 1 {
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, q.Names[0]).String()
	}
	var objects []*M
	resource := g.cluster.In(in, q.Namespace)
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return resource.List(ctx, options)
	})
	err = pages.EachListItem(ctx, options, func(item runtime.Object) error {
		object := item.(*unstructured.Unstructured)
		if q.OnlyDeleting && object.GetDeletionTimestamp() == nil ||
			len(q.Names) > 0 && !slices.Contains(q.Names, object.GetName()) {
			return nil
		}
		m := new(M)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, m); err != nil {
			return fmt.Errorf("%s %s/%s can't be read: %w", kind.Kind, object.GetNamespace(), object.GetName(), err)
		}
		objects = append(objects, m)
		return nil
	})
	if err != nil {
		return nil, requestError(what+where(q.Namespace), err)
	}
	return objects, nil
}

// facts gathers the facts about machines.
func (g *machineGatherer) facts(ctx context.Context, machines []*machinev1beta1.Machine) []*machineFacts {
	if len(machines) > 0 {
		g.listNodes(ctx)
	}
	facts := make([]*machineFacts, len(machines))
	var asking errgroup.Group
	asking.SetLimit(atOnce)
	for i, m := range machines {
		facts[i] = &machineFacts{machine: m, nodes: &g.nodes}
		asking.Go(func() error {
			g.gather(ctx, facts[i])
			return nil
		})
	}
	_ = asking.Wait() // failed reads are in the facts
	return facts
}

// listNodes lists the nodes of the cluster, once.
func (g *machineGatherer) listNodes(ctx context.Context) {
	if g.hasListedNodes {
		return
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
		g.nodes.unknown = inLine(requestError("list nodes", err))
		return
	}
	g.nodes.byName = nodes
}

// gather reads the objects that a machine waits for.
func (g *machineGatherer) gather(ctx context.Context, f *machineFacts) {
	f.infra.kind = templateKind(f.machine)
	if !f.isDeleting() {
		if phase := f.phase(); phase == machinev1beta1.PhaseProvisioning || phase == "Pending" {
			g.askInfrastructure(ctx, f)
		}
		return
	}
	if f.isReleased() {
		return
	}
	if g.nodes.unknown != "" && f.nodeName() != "" {
		f.unknown = append(f.unknown, g.nodes.unknown)
	}
	switch stage, reason := deletion.StageOpenShift(f.machine); {
	case stage == deletion.BeforeDrain, reason == deletion.DrainSkipped:
	case stage != deletion.Draining:
		g.askInfrastructure(ctx, f)
	case f.node() != nil && f.node().Spec.Unschedulable:
		f.pods = g.podsOf(ctx, f.node(), nil, &f.unknown)
		f.pods.setStaying()
	}
}

// podsOf lists the pods of a node that is being drained by some rules, or adds why that is not possible to what is
// unknown.
func (g *machineGatherer) podsOf(ctx context.Context, node *corev1.Node, rules drain.PodRules,
	unknown *[]string) *nodePods {
	left, err := drain.HeldPods(ctx, drain.Client{Interface: g.cluster.Client, Now: g.cluster.Now}, node, rules)
	switch {
	case apierrors.IsForbidden(err):
		*unknown = append(*unknown, "this user may not list pods, or PodDisruptionBudgets, in all namespaces")
	case err != nil:
		*unknown = append(*unknown, inLine(err))
	}
	return &nodePods{left: left, isUnknown: err != nil}
}

// askInfrastructure reads the infrastructure object.
func (g *machineGatherer) askInfrastructure(ctx context.Context, f *machineFacts) {
	if f.infra.kind.Kind == "" {
		return
	}
	in, err := g.cluster.Find(ctx, f.infra.kind)
	// the infrastructure is no object of the cluster
	if errors.Is(err, cluster.ErrNotServed) || err == nil && !in.Namespaced {
		return
	}
	if err == nil {
		f.infra.object, err = g.cluster.In(in, f.machine.Namespace).Get(ctx, f.machine.Name, metav1.GetOptions{})
	}
	switch {
	case err == nil:
		f.infra.isKnown = true
	case apierrors.IsNotFound(err):
		f.infra.isKnown, f.infra.object = true, nil
	default:
		f.infra.object = nil
		f.unknown = append(f.unknown, inLine(requestError("get "+f.infraID().String(), err)))
	}
}

// requestError is the error of a failed request.
func requestError(what string, err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("this user may not %s", what)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// inLine is an error as one line.
func inLine(err error) string { return printable.Error(err).Error() }

// where returns the namespace in words.
func where(namespace string) string {
	if namespace == "" {
		return " in all namespaces"
	}
	return " in namespace " + namespace
}
