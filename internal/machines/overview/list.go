package overview

import (
	"context"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/machines/typedread"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// A Query selects machines.
type Query = typedread.Query

// ErrNotServed is returned, wrapped, if the cluster does not serve this API.
var ErrNotServed = cluster.ErrNotServed

// A Listing contains the machines of a cluster, in the order of namespaces and names, and the control planes.
type Listing struct {
	Machines      []Machine
	ControlPlanes []*ControlPlane
	Unknown       []string // failed reads of control planes, which each machine has, too
}

// List returns the states of machines. Machines and nodes are listed once, and the machines of a control plane once
// more. Pods are listed only for nodes that are being drained, and infrastructure is read only if a machine waits for
// it.
func List(ctx context.Context, c *cluster.Cluster, q Query) (*Listing, error) {
	g := &gatherer{cluster: c}
	machines, err := g.openshiftMachines(ctx, q)
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
			unknown, unlisted = append(unknown, errorLine(problem)), append(unlisted, groups[i])
		}
	}
	list := &Listing{Machines: []Machine{}}
	sets, setsErr := g.controlPlaneMachineSets(ctx, q.Namespace)
	for _, f := range machines {
		f.set = setOf(f.machine, sets)
		list.Machines = append(list.Machines, f.overview())
	}
	for _, f := range others {
		list.Machines = append(list.Machines, f.overview())
	}
	planes, planesErr := g.runlevelControlPlanes(ctx, q.Namespace)
	for _, problem := range []error{setsErr, planesErr} {
		if problem != nil {
			list.Unknown = append(list.Unknown, errorLine(problem))
		}
	}
	for _, f := range sets {
		list.addControlPlane(f.overview(), q)
	}
	for _, f := range planes {
		list.addControlPlane(f.overview(), q)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	unknown = append(unknown, list.Unknown...) // a machine may belong to an unread control plane
	for i := range list.Machines {
		m := &list.Machines[i]
		m.Unknown, m.Unlisted = append(m.Unknown, unknown...), unlisted
	}
	slices.SortStableFunc(list.Machines, func(a, b Machine) int {
		return kinds.Compare(
			kinds.ID{Namespace: a.Namespace, Name: a.Name}, kinds.ID{Namespace: b.Namespace, Name: b.Name})
	})
	return list, nil
}

// addControlPlane adds a control plane to its machines. It adds the control plane to the list, unless the query selects
// single machines and it has none of these.
func (l *Listing) addControlPlane(o *ControlPlane, q Query) {
	isListed := len(q.Names) == 0 && !q.OnlyDeleting
	for _, member := range o.members {
		for i := range l.Machines {
			if m := &l.Machines[i]; m.ID() == member.id {
				m.ControlPlane, isListed = &member.Membership, true
			}
		}
	}
	if isListed {
		l.ControlPlanes = append(l.ControlPlanes, o)
	}
}

// AllUnknown returns the failed reads of control planes and machines, each once.
func (l *Listing) AllUnknown() []string {
	unknown := slices.Clone(l.Unknown)
	for i := range l.Machines {
		unknown = append(unknown, l.Machines[i].Unknown...)
	}
	slices.Sort(unknown)
	return slices.Compact(unknown)
}

// listObjects lists objects of a kind in the version that the cluster prefers.
func listObjects[T any](ctx context.Context, g *gatherer, kind schema.GroupKind, q Query) ([]*T, error) {
	return typedread.List[T](ctx, g.cluster, kind.WithVersion(""), q)
}

// errorLine returns an error as one line.
func errorLine(err error) string { return printable.Error(err).Error() }
