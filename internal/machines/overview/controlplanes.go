package overview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	machinev1 "github.com/openshift/api/machine/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/runlevel/runlevel/internal/machines/openshift/controlplane"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// This file is about what replaces the machines of a control plane, and about ControlPlaneMachineSets of OpenShift's
// API. Their counts and what they wait for are read from the status; which machine is up to date, from the judgement of
// the controller.

// ControlPlaneMachineSetKind is the kind of the sets.
var ControlPlaneMachineSetKind = schema.GroupKind{Group: Kind.Group, Kind: "ControlPlaneMachineSet"}

// A ControlPlaneOverview is the state of what replaces the machines of a control plane.
type ControlPlaneOverview struct {
	APIGroup  string `json:"apiGroup"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	State     string `json:"state,omitempty"` // Active; or Inactive or Paused: it changes nothing
	Strategy  string `json:"strategy"`
	Desired   int    `json:"desired"`
	Updated   int    `json:"updated"`
	Ready     int    `json:"ready"` // of a RunlevelControlPlane: available
	// Degraded is the reason why it does nothing; empty if nothing stops it.
	Degraded string `json:"degraded,omitempty"`
	Waits    string `json:"waits,omitempty"` // what it waits for, or what stops it
	// machines are its machines, in the order of their indexes.
	machines []setMember
}

// ID identifies the set.
func (o *ControlPlaneOverview) ID() kinds.ID {
	return kinds.ID{Group: o.APIGroup, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}
}

// A setMember is a machine of a control plane.
type setMember struct {
	id kinds.ID
	MachineMembership
}

// A MachineMembership is the place of a machine in a control plane.
type MachineMembership struct {
	Set   *ControlPlaneOverview `json:"set"`
	Index *int                  `json:"index,omitempty"`
	// IsUpToDate is whether the machine is as the template asks for; nil if only another controller knows.
	IsUpToDate *bool `json:"isUpToDate,omitempty"`
}

// Members returns the machines of a list that belong to the set, in the order of their indexes.
func (o *ControlPlaneOverview) Members(list []MachineOverview) []MachineOverview {
	var members []MachineOverview
	for _, member := range o.machines {
		at := slices.IndexFunc(list, func(m MachineOverview) bool {
			return m.ID() == member.id
		})
		if at >= 0 {
			members = append(members, list[at])
		}
	}
	return members
}

// setFacts are the facts about a ControlPlaneMachineSet.
type setFacts struct {
	set      *machinev1.ControlPlaneMachineSet
	machines []machinev1beta1.Machine // of its namespace
	judged   *controlplane.Snapshot
	// unknown is why it is not known which machines are ready: the nodes can't be listed.
	unknown string
}

// controlPlaneSets returns the sets of a namespace, or of all, with the machines of their namespaces.
func (g *machineGatherer) controlPlaneSets(ctx context.Context, namespace string) ([]*setFacts, error) {
	listed, err := objectsOf[machinev1.ControlPlaneMachineSet](ctx, g, ControlPlaneMachineSetKind,
		MachineQuery{Namespace: namespace})
	if err != nil {
		return nil, unlessNotServed(err)
	}
	var sets []*setFacts
	for _, set := range listed {
		f := &setFacts{set: set}
		machines, err := objectsOf[machinev1beta1.Machine](ctx, g, Kind, MachineQuery{Namespace: f.set.Namespace})
		if err != nil {
			return nil, err
		}
		for _, m := range machines {
			f.machines = append(f.machines, *m)
		}
		g.listNodes(ctx)
		var nodes []corev1.Node
		for _, node := range g.nodes.byName {
			nodes = append(nodes, *node)
		}
		f.unknown = g.nodes.unknown
		f.judged = controlplane.Judge(f.set, f.machines, nodes, g.cluster.Now())
		sets = append(sets, f)
	}
	return sets, nil
}

// unlessNotServed returns an error, unless it is that the cluster does not serve a kind: then there are no objects of
// it.
func unlessNotServed(err error) error {
	if errors.Is(err, ErrNotServed) {
		return nil
	}
	return err
}

// overview returns the state of the set.
func (f *setFacts) overview() *ControlPlaneOverview {
	o := &ControlPlaneOverview{
		APIGroup: ControlPlaneMachineSetKind.Group, Kind: ControlPlaneMachineSetKind.Kind,
		Namespace: f.set.Namespace, Name: f.set.Name, UID: string(f.set.UID),
		State: string(f.set.Spec.State), Strategy: string(f.set.Spec.Strategy.Type),
		Desired: int(ptr.Deref(f.set.Spec.Replicas, 3)),
		Updated: int(f.set.Status.UpdatedReplicas), Ready: int(f.set.Status.ReadyReplicas), Waits: f.waits(),
	}
	if degraded := f.condition(controlplane.Degraded); degraded.Status == metav1.ConditionTrue {
		o.Degraded = degraded.Reason
	}
	for _, m := range f.judged.Machines {
		membership := MachineMembership{Set: o, Index: ptr.To(m.Index)}
		if !f.judged.IsOfPlatform {
			membership.IsUpToDate = ptr.To(!m.IsOutdated)
		}
		o.machines = append(o.machines,
			setMember{kinds.NewID(Kind, o.Namespace, m.Name), membership})
	}
	return o
}

// isNotReady reports whether a machine is known not to be ready.
func (f *setFacts) isNotReady(m controlplane.Machine) bool {
	return f.unknown == "" && !m.IsReady
}

func (f *setFacts) condition(kind string) metav1.Condition {
	return conditionOf(f.set.Status.Conditions, kind)
}

// waits returns what the set waits for, or what stops it, as its conditions report it.
func (f *setFacts) waits() string {
	switch degraded, failed, progressing := f.condition(controlplane.Degraded), f.condition(
		controlplane.Error,
	), f.condition(controlplane.Progressing); {
	case f.set.DeletionTimestamp != nil && failed.Status == metav1.ConditionTrue &&
		failed.ObservedGeneration == f.set.Generation:
		return "it is being deleted, and its machines can't be released: " + failed.Message
	case f.set.DeletionTimestamp != nil:
		return "it is being deleted, and releases its machines"
	case f.set.Status.ObservedGeneration < f.set.Generation:
		return "the controller has to notice its last change"
	case degraded.Status == metav1.ConditionTrue:
		return fmt.Sprintf("Degraded (%s): %s", degraded.Reason, degraded.Message)
	case failed.Status == metav1.ConditionTrue:
		return cmp.Or(failed.Message, failed.Reason)
	case progressing.Status == metav1.ConditionTrue:
		return cmp.Or(progressing.Message, progressing.Reason)
	}
	if available := f.condition(controlplane.Available); available.Status == metav1.ConditionFalse {
		return cmp.Or(available.Message, available.Reason)
	}
	return ""
}

// addControlPlanes adds what replaces the machines of control planes to a list: sets, as far as they were read, and
// those of Cluster API. Of some machines, only their sets are added.
func (l *MachineList) addControlPlanes(ctx context.Context, g *machineGatherer, q MachineQuery, sets []*setFacts,
	err error) {
	var all []*ControlPlaneOverview
	for _, f := range sets {
		all = append(all, f.overview())
	}
	planes, planesErr := g.runlevelControlPlanes(ctx, q.Namespace)
	for _, f := range planes {
		all = append(all, f.overview())
	}
	for _, problem := range []error{err, planesErr} {
		if problem != nil {
			l.Unknown = append(l.Unknown, inLine(problem))
		}
	}
	for _, o := range all {
		isListed := len(q.Names) == 0 && !q.OnlyDeleting
		for _, member := range o.machines {
			for i := range l.Machines {
				if m := &l.Machines[i]; m.ID() == member.id {
					m.ControlPlane, isListed = &member.MachineMembership, true
				}
			}
		}
		if isListed {
			l.ControlPlanes = append(l.ControlPlanes, o)
		}
	}
}
