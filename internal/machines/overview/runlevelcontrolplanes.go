package overview

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/annotation"
	"github.com/runlevel/runlevel/internal/machines/capi/controlplane"
	"github.com/runlevel/runlevel/internal/machines/capi/controlplane/v1alpha1"
	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// This file is about RunlevelControlPlanes, whose machines are those of Cluster API. All is read from their statuses,
// and from the conditions and annotations of the machines.

// RunlevelControlPlaneKind is the kind of control planes of Cluster API.
var RunlevelControlPlaneKind = schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: "RunlevelControlPlane"}

// planeFacts are the facts about a RunlevelControlPlane.
type planeFacts struct {
	plane    *v1alpha1.RunlevelControlPlane
	machines []*clusterv1.Machine // of the control plane, by name
}

// runlevelControlPlanes returns the control planes of a namespace, or of all, with their machines.
func (g *machineGatherer) runlevelControlPlanes(ctx context.Context, namespace string) ([]*planeFacts, error) {
	listed, err := objectsOf[v1alpha1.RunlevelControlPlane](ctx, g, RunlevelControlPlaneKind,
		MachineQuery{Namespace: namespace})
	if err != nil {
		return nil, unlessNotServed(err)
	}
	var planes []*planeFacts
	for _, plane := range listed {
		machines, err := objectsOf[clusterv1.Machine](ctx, g, ClusterAPIKind, MachineQuery{Namespace: plane.Namespace})
		if err != nil {
			return nil, err
		}
		f := &planeFacts{plane: plane}
		for _, m := range machines {
			if metav1.IsControlledBy(m, plane) {
				f.machines = append(f.machines, m)
			}
		}
		planes = append(planes, f)
	}
	return planes, nil
}

func (f *planeFacts) condition(kind string) metav1.Condition {
	return conditionOf(f.plane.Status.Conditions, kind)
}

func (f *planeFacts) isPaused() bool {
	return f.condition(clusterv1.PausedCondition).Status == metav1.ConditionTrue
}

// hasNoCluster reports whether no Cluster has the control plane.
func (f *planeFacts) hasNoCluster() bool {
	return f.condition(clusterv1.AvailableCondition).Message == controlplane.WithoutCluster(f.plane)
}

// overview returns the state of the control plane.
func (f *planeFacts) overview() *ControlPlaneOverview {
	status := f.plane.Status
	o := &ControlPlaneOverview{
		APIGroup: RunlevelControlPlaneKind.Group, Kind: RunlevelControlPlaneKind.Kind,
		Namespace: f.plane.Namespace, Name: f.plane.Name, UID: string(f.plane.UID), State: "Active",
		Strategy: fmt.Sprintf("RollingUpdate, maxSurge %d",
			ptr.Deref(f.plane.Spec.Rollout.Strategy.RollingUpdate.MaxSurge, 1)),
		Desired: int(ptr.Deref(f.plane.Spec.Replicas, 1)), Updated: int(ptr.Deref(status.UpToDateReplicas, 0)),
		Ready: int(ptr.Deref(status.AvailableReplicas, 0)), Waits: f.waits(),
	}
	if f.isPaused() {
		o.State = "Paused"
	}
	for _, m := range f.machines {
		membership := MachineMembership{Set: o}
		if c := meta.FindStatusCondition(m.Status.Conditions, clusterv1.MachineUpToDateCondition); c != nil {
			membership.IsUpToDate = ptr.To(c.Status == metav1.ConditionTrue)
		}
		o.machines = append(o.machines,
			setMember{kinds.NewID(ClusterAPIKind, m.Namespace, m.Name), membership})
	}
	return o
}

// waits returns what the control plane waits for, or what stops it, as its conditions report it.
func (f *planeFacts) waits() string {
	switch {
	case f.plane.DeletionTimestamp != nil && f.isPaused():
		return "it is being deleted, and paused: its machines stay until the pause ends"
	case f.plane.DeletionTimestamp != nil:
		return "it is being deleted: " +
			cmp.Or(linesOf(f.condition(clusterv1.DeletingCondition).Message, "; "), "the controller has to notice that")
	case f.isPaused():
		return "it is paused, and changes nothing"
	case f.plane.Status.ObservedGeneration < f.plane.Generation:
		return "the controller has to notice its last change"
	case f.hasNoCluster(): // its other conditions are not written any more
		return f.condition(clusterv1.AvailableCondition).Message
	}
	for _, kind := range []string{clusterv1.RollingOutCondition, clusterv1.ScalingUpCondition,
		clusterv1.ScalingDownCondition, clusterv1.RemediatingCondition} {
		if message := f.condition(kind).Message; message != "" {
			return linesOf(message, "; ")
		}
	}
	if available := f.condition(clusterv1.AvailableCondition); available.Status == metav1.ConditionFalse {
		return linesOf(cmp.Or(available.Message, available.Reason), "; ")
	}
	if upToDate := f.condition(clusterv1.MachinesUpToDateCondition); upToDate.Status == metav1.ConditionFalse {
		return linesOf(strings.ReplaceAll(upToDate.Message, ":\n  * ", ": "), "; ")
	}
	return ""
}

// explainPlane returns the explanation of a RunlevelControlPlane, without its conditions and events, and these
// conditions. It returns nil if the control plane does not exist.
func (g *machineGatherer) explainPlane(ctx context.Context,
	id kinds.ID) (*ControlPlaneExplanation, metav1.Object, []metav1.Condition, error) {
	planes, err := g.runlevelControlPlanes(ctx, id.Namespace)
	for _, f := range planes {
		if f.plane.Name == id.Name {
			return f.explain(ctx, g), f.plane, f.plane.Status.Conditions, err
		}
	}
	return nil, nil, nil, err
}

// explain returns the explanation of the control plane, without its conditions and events.
func (f *planeFacts) explain(ctx context.Context, g *machineGatherer) *ControlPlaneExplanation {
	o := f.overview()
	e := &ControlPlaneExplanation{IsDone: o.Waits == ""}
	e.add(fmt.Sprintf("it is %s (%s): %d machines are desired, %d are up to date, %d are available", o.State,
		o.Strategy, o.Desired, o.Updated, o.Ready))
	if o.Waits != "" {
		e.add("it waits: "+o.Waits, f.remedy()...)
	}
	awaited := MachineQuery{Namespace: f.plane.Namespace}
	var lines []string
	for _, m := range f.machines {
		if m.DeletionTimestamp != nil || rolloutrules.IsUpdating(m) || !rolloutrules.IsAvailable(m) ||
			rolloutrules.IsMarked(m) {
			awaited.Names = append(awaited.Names, m.Name)
		}
		line := m.Name
		if m.Spec.FailureDomain != "" {
			line += ", " + m.Spec.FailureDomain
		}
		standing, why := standingOf(m, g.cluster.Now())
		lines = append(lines, line+": "+standing.with(why))
	}
	if len(awaited.Names) > 0 {
		e.addPlaneMachines(ctx, g, awaited)
	}
	if len(lines) > 0 {
		e.add("its machines:", lines...)
	}
	return e
}

// addPlaneMachines adds what holds the machines of Cluster API that a control plane waits for.
func (e *ControlPlaneExplanation) addPlaneMachines(ctx context.Context, g *machineGatherer, awaited MachineQuery) {
	machines, err := g.clusterAPIMachines(ctx, awaited)
	if err != nil {
		e.Unknown = append(e.Unknown, inLine(err))
	}
	for _, f := range machines {
		e.addMachine(f.judge(), f.remedy, g.cluster.Now())
	}
}

// remedy returns what to do about what the control plane waits for, beside what holds its machines.
func (f *planeFacts) remedy() []string {
	on := fmt.Sprintf("%s -n %s", f.plane.Name, f.plane.Namespace)
	cluster := f.plane.Labels[clusterv1.ClusterNameLabel]
	switch {
	case metav1.HasAnnotation(f.plane.ObjectMeta, clusterv1.PausedAnnotation):
		return []string{"go on:",
			fmt.Sprintf("kubectl annotate %s.%s %s %s-", strings.ToLower(RunlevelControlPlaneKind.Kind),
				RunlevelControlPlaneKind.Group, on, clusterv1.PausedAnnotation)}
	case f.isPaused() && cluster == "": // it was created after the pause began
		return []string{"set spec.paused of its Cluster to false; see which Clusters there are:",
			fmt.Sprintf("kubectl get cluster.%s -n %s", ClusterAPIKind.Group, f.plane.Namespace)}
	case f.isPaused():
		return []string{"go on:",
			fmt.Sprintf("kubectl patch cluster.%s %s -n %s --type=merge -p '{\"spec\":{\"paused\":false}}'",
				ClusterAPIKind.Group, cluster, f.plane.Namespace)}
	// what it waits for is to be done, and a preview of it fails
	case f.plane.DeletionTimestamp != nil, f.hasNoCluster():
		return nil
	}
	return []string{"see what it does next:", "runlevel machines plan runlevelcontrolplane/" + on}
}

// A planeStanding is what becomes of a machine of a RunlevelControlPlane, in words.
type planeStanding string

// The standings.
const (
	standingReplaced    planeStanding = "replaced, not updated in place" // after its deletion
	standingDeleted     planeStanding = "being deleted"
	standingUpdating    planeStanding = "updated in place"
	standingHeld        planeStanding = "outdated, and the etcd quorum guard does not permit its update in place yet"
	standingOutdated    planeStanding = "outdated"
	standingIncomplete  planeStanding = "not updated completely"
	standingUnreported  planeStanding = "not reported to be up to date yet"
	standingUnavailable planeStanding = "up to date, and not available"
	standingUpToDate    planeStanding = "up to date"
)

// standingOf returns what becomes of a machine, and why. Annotations of an earlier rollout may be left on a machine
// that is up to date.
func standingOf(m *clusterv1.Machine, now time.Time) (standing planeStanding, why []string) {
	upToDate := conditionOf(m.Status.Conditions, clusterv1.MachineUpToDateCondition)
	missing := strings.Split(linesOf(upToDate.Message, "\n"), "\n")
	because, held := m.Annotations[annotation.ReplacedBecause], m.Annotations[annotation.UpdateHeld]
	isOutdated := upToDate.Reason == clusterv1.MachineNotUpToDateReason
	switch {
	case m.DeletionTimestamp != nil && isOutdated && because != "":
		return standingReplaced, []string{because}
	case m.DeletionTimestamp != nil:
		return standingDeleted, nil
	case rolloutrules.IsUpdating(m):
		return standingUpdating, nil
	case isOutdated && (held != "" || rolloutrules.AwaitsPermission(m, now)):
		return standingHeld, append([]string{cmp.Or(held, "it has not answered yet")}, missing...)
	case isOutdated:
		return standingOutdated, missing
	case upToDate.Status == metav1.ConditionFalse:
		return standingIncomplete, missing
	case upToDate.Status != metav1.ConditionTrue:
		return standingUnreported, nil
	case !rolloutrules.IsAvailable(m):
		return standingUnavailable, nil
	}
	return standingUpToDate, nil
}

// with returns a standing with its reasons.
func (s planeStanding) with(why []string) string {
	if len(why) == 0 {
		return string(s)
	}
	return string(s) + ": " + strings.Join(why, ", ")
}

// askPlane finds the RunlevelControlPlane of a machine.
func (g *machineGatherer) askPlane(ctx context.Context, f *clusterAPIFacts) {
	planes, err := g.runlevelControlPlanes(ctx, f.machine.Namespace)
	if err != nil {
		f.unknown = append(f.unknown, inLine(err))
	}
	for _, plane := range planes {
		if metav1.IsControlledBy(f.machine, plane.plane) {
			f.plane = plane
		}
	}
}

// replacing returns what becomes of a machine of the control plane, with details. A nil control plane returns "".
func (f *planeFacts) replacing(m *clusterv1.Machine, now time.Time) (text string, details []string) {
	if f == nil {
		return "", nil
	}
	plane := "RunlevelControlPlane " + f.plane.Name
	on := fmt.Sprintf("runlevelcontrolplane/%s -n %s", f.plane.Name, f.plane.Namespace)
	switch standing, why := standingOf(m, now); standing {
	case standingReplaced:
		return plane + " replaces it, and does not update it in place: " + why[0], []string{"runlevel why " + on}
	case standingDeleted:
		return plane + " has it, and replaces it if it wants as many machines", []string{"runlevel why " + on}
	case standingUpdating:
		return plane + " updates it in place", nil
	case standingHeld:
		return plane + " is to update it in place, and waits for the etcd quorum guard to permit that: " + why[0],
			append(why[1:], "see the members of etcd, and what the guard reports:", guardCommand)
	case standingOutdated:
		if f.isPaused() {
			return plane + " is paused, and leaves it outdated", append(why, f.remedy()...)
		}
		return plane + " updates it in place or replaces it, as it is outdated", append(why, f.remedy()...)
	default:
		return plane + " has it, and it is " + standing.with(why), nil
	}
}
