package overview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/cluster/diagnosis"
	"github.com/runlevel/runlevel/internal/machines/annotation"
	"github.com/runlevel/runlevel/internal/machines/capi/controlplane"
	"github.com/runlevel/runlevel/internal/machines/capi/controlplane/v1alpha1"
	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// This file is about RunlevelControlPlanes, whose machines are those of Cluster API. The facts are read from their
// statuses, and from the conditions and annotations of the machines.

// planeFacts are the facts about a RunlevelControlPlane.
type planeFacts struct {
	plane    *v1alpha1.RunlevelControlPlane
	machines []*clusterv1.Machine // the machines of the control plane, by name
	now      time.Time
}

// runlevelControlPlanes returns the control planes of a namespace, or of all, with their machines.
func (g *gatherer) runlevelControlPlanes(ctx context.Context, namespace string) ([]*planeFacts, error) {
	q := Query{Namespace: namespace}
	listed, err := listObjects[v1alpha1.RunlevelControlPlane](ctx, g, RunlevelControlPlaneKind, q)
	if err != nil {
		return nil, unlessNotServed(err)
	}
	var planes []*planeFacts
	for _, plane := range listed {
		machines, err := listObjects[clusterv1.Machine](ctx, g, ClusterAPIKind, Query{Namespace: plane.Namespace})
		if err != nil {
			return nil, err
		}
		f := &planeFacts{plane: plane, now: g.cluster.Now()}
		for _, m := range machines {
			if metav1.IsControlledBy(m, plane) {
				f.machines = append(f.machines, m)
			}
		}
		planes = append(planes, f)
	}
	return planes, nil
}

// unlessNotServed returns an error, or nil if the cluster does not serve the kind: it has no objects of the kind then.
func unlessNotServed(err error) error {
	if errors.Is(err, ErrNotServed) {
		return nil
	}
	return err
}

// readPlane finds the RunlevelControlPlane of the machine.
func (cm *clusterAPIMachine) readPlane(ctx context.Context, g *gatherer) {
	planes, err := g.runlevelControlPlanes(ctx, cm.machine.Namespace)
	if err != nil {
		cm.unknown = append(cm.unknown, errorLine(err))
	}
	for _, plane := range planes {
		if metav1.IsControlledBy(cm.machine, plane.plane) {
			cm.plane = plane
		}
	}
}

func (f *planeFacts) condition(kind string) metav1.Condition {
	return findCondition(f.plane.Status.Conditions, kind)
}

func (f *planeFacts) isPaused() bool {
	return f.condition(clusterv1.PausedCondition).Status == metav1.ConditionTrue
}

// hasNoCluster reports whether no Cluster has the control plane.
func (f *planeFacts) hasNoCluster() bool {
	return f.condition(clusterv1.AvailableCondition).Message == controlplane.WithoutCluster(f.plane)
}

// overview returns the state of the control plane.
func (f *planeFacts) overview() *ControlPlane {
	status := f.plane.Status
	o := &ControlPlane{
		APIGroup: RunlevelControlPlaneKind.Group, Kind: RunlevelControlPlaneKind.Kind,
		Namespace: f.plane.Namespace, Name: f.plane.Name, UID: string(f.plane.UID), State: "Active",
		Strategy: fmt.Sprintf("RollingUpdate, maxSurge %d",
			ptr.Deref(f.plane.Spec.Rollout.Strategy.RollingUpdate.MaxSurge, 1)),
		Desired: int(ptr.Deref(f.plane.Spec.Replicas, 1)), Updated: int(ptr.Deref(status.UpToDateReplicas, 0)),
		Ready: int(ptr.Deref(status.AvailableReplicas, 0)), Waits: f.waits(), remedy: f.remedy(),
	}
	if f.isPaused() {
		o.State = "Paused"
	}
	for _, m := range f.machines {
		added := member{
			id: kinds.NewID(ClusterAPIKind, m.Namespace, m.Name), Membership: Membership{Set: o}, text: m.Name,
		}
		if c := meta.FindStatusCondition(m.Status.Conditions, clusterv1.MachineUpToDateCondition); c != nil {
			added.IsUpToDate = ptr.To(c.Status == metav1.ConditionTrue)
		}
		if m.Spec.FailureDomain != "" {
			added.text += ", " + m.Spec.FailureDomain
		}
		state, reasons := memberStateOf(m, f.now)
		added.text += ": " + state.withReasons(reasons)
		o.members = append(o.members, added)
	}
	return o
}

// waits returns why the control plane waits or is stopped, by its conditions.
func (f *planeFacts) waits() string {
	switch {
	case f.plane.DeletionTimestamp != nil && f.isPaused():
		return "it is being deleted, and paused: its machines stay until the pause ends"
	case f.plane.DeletionTimestamp != nil:
		deleting := joinLines(f.condition(clusterv1.DeletingCondition).Message, "; ")
		return "it is being deleted: " + cmp.Or(deleting, "not yet observed by the controller")
	case f.isPaused():
		return "it is paused, and changes nothing"
	case f.plane.Status.ObservedGeneration < f.plane.Generation:
		return "its last change is not yet observed by the controller"
	case f.hasNoCluster(): // its other conditions are no longer written
		return f.condition(clusterv1.AvailableCondition).Message
	}
	for _, kind := range []string{clusterv1.RollingOutCondition, clusterv1.ScalingUpCondition,
		clusterv1.ScalingDownCondition, clusterv1.RemediatingCondition} {
		if message := f.condition(kind).Message; message != "" {
			return joinLines(message, "; ")
		}
	}
	if available := f.condition(clusterv1.AvailableCondition); available.Status == metav1.ConditionFalse {
		return joinLines(cmp.Or(available.Message, available.Reason), "; ")
	}
	if upToDate := f.condition(clusterv1.MachinesUpToDateCondition); upToDate.Status == metav1.ConditionFalse {
		return joinLines(strings.ReplaceAll(upToDate.Message, ":\n  * ", ": "), "; ")
	}
	return ""
}

// explain returns the explanation of the control plane, without its conditions and events.
func (f *planeFacts) explain(ctx context.Context, g *gatherer) *diagnosis.Explanation {
	o := f.overview()
	e := o.explanation("available")
	o.addWaits(e)
	awaited := Query{Namespace: f.plane.Namespace}
	for _, m := range f.machines {
		isSettled := m.DeletionTimestamp == nil && !rolloutrules.IsUpdating(m) && !rolloutrules.IsMarked(m)
		if !isSettled || !rolloutrules.IsAvailable(m) {
			awaited.Names = append(awaited.Names, m.Name)
		}
	}
	if len(awaited.Names) > 0 {
		machines, err := g.clusterAPIMachines(ctx, awaited)
		if err != nil {
			e.Unknown = append(e.Unknown, errorLine(err))
		}
		for _, machine := range machines {
			addAwaited(e, machine.overview(), f.now)
		}
	}
	o.addMembers(e)
	return e
}

// object returns the name of the control plane for runlevel, with its namespace.
func (f *planeFacts) object() string {
	return fmt.Sprintf("runlevelcontrolplane/%s -n %s", f.plane.Name, f.plane.Namespace)
}

// remedy returns the actions of an administrator that resolve Waits, except for the holds of the machines.
func (f *planeFacts) remedy() []string {
	cluster := f.plane.Labels[clusterv1.ClusterNameLabel]
	switch {
	case metav1.HasAnnotation(f.plane.ObjectMeta, clusterv1.PausedAnnotation):
		return []string{"resume it:", fmt.Sprintf("kubectl annotate runlevelcontrolplane.%s %s -n %s %s-",
			RunlevelControlPlaneKind.Group, f.plane.Name, f.plane.Namespace, clusterv1.PausedAnnotation)}
	case f.isPaused() && cluster == "": // it was created after the pause began
		return []string{
			"set spec.paused of its Cluster to false; list the Clusters:",
			fmt.Sprintf("kubectl get cluster.%s -n %s", ClusterAPIKind.Group, f.plane.Namespace),
		}
	case f.isPaused():
		return []string{"resume it:",
			fmt.Sprintf("kubectl patch cluster.%s %s -n %s --type=merge -p '{\"spec\":{\"paused\":false}}'",
				ClusterAPIKind.Group, cluster, f.plane.Namespace)}
	case f.plane.DeletionTimestamp != nil, f.hasNoCluster(): // the wait names the action, and a preview fails
		return nil
	}
	return []string{"preview its next steps:", "runlevel machines plan " + f.object()}
}

// A memberState describes the state of a machine of a RunlevelControlPlane.
type memberState string

// The states.
const (
	memberReplaced    memberState = "replaced, not updated in place" // after its deletion
	memberDeleted     memberState = "being deleted"
	memberUpdating    memberState = "updated in place"
	memberHeld        memberState = "outdated, and the etcd quorum guard does not permit its update in place yet"
	memberOutdated    memberState = "outdated"
	memberIncomplete  memberState = "not updated completely"
	memberUnreported  memberState = "not reported to be up to date yet"
	memberUnavailable memberState = "up to date, and not available"
	memberUpToDate    memberState = "up to date"
)

// memberStateOf returns the state of a machine, and the reasons. Annotations of an earlier rollout may stay on an
// up-to-date machine.
func memberStateOf(m *clusterv1.Machine, now time.Time) (state memberState, reasons []string) {
	upToDate := findCondition(m.Status.Conditions, clusterv1.MachineUpToDateCondition)
	missing := strings.Split(joinLines(upToDate.Message, "\n"), "\n")
	replaced := m.Annotations[annotation.ReplacedBecause]
	held := m.Annotations[annotation.UpdateHeld]
	isOutdated := upToDate.Reason == clusterv1.MachineNotUpToDateReason
	switch {
	case m.DeletionTimestamp != nil && isOutdated && replaced != "":
		return memberReplaced, []string{replaced}
	case m.DeletionTimestamp != nil:
		return memberDeleted, nil
	case rolloutrules.IsUpdating(m):
		return memberUpdating, nil
	case isOutdated && (held != "" || rolloutrules.AwaitsPermission(m, now)):
		return memberHeld, append([]string{cmp.Or(held, "it has not answered yet")}, missing...)
	case isOutdated:
		return memberOutdated, missing
	case upToDate.Status == metav1.ConditionFalse:
		return memberIncomplete, missing
	case upToDate.Status != metav1.ConditionTrue:
		return memberUnreported, nil
	case !rolloutrules.IsAvailable(m):
		return memberUnavailable, nil
	}
	return memberUpToDate, nil
}

// withReasons returns a state with its reasons.
func (s memberState) withReasons(reasons []string) string {
	if len(reasons) == 0 {
		return string(s)
	}
	return string(s) + ": " + strings.Join(reasons, ", ")
}

// addReplacement adds how the control plane handles one of its machines. A nil control plane adds nothing.
func (f *planeFacts) addReplacement(e *diagnosis.Explanation, m *clusterv1.Machine) {
	if f == nil {
		return
	}
	plane, command := "RunlevelControlPlane "+f.plane.Name, "runlevel why "+f.object()
	switch state, reasons := memberStateOf(m, f.now); state {
	case memberReplaced:
		e.Add(plane+" replaces it, and does not update it in place: "+reasons[0], command)
	case memberDeleted:
		e.Add(plane+" has it, and replaces it if it wants as many machines", command)
	case memberUpdating:
		e.Add(plane + " updates it in place")
	case memberHeld:
		e.Add(plane+" waits for the etcd quorum guard to permit its update in place: "+reasons[0],
			append(reasons[1:], "read the report of the guard about the members of etcd:", guardCommand)...)
	case memberOutdated:
		text := plane + " updates it in place or replaces it, as it is outdated"
		if f.isPaused() {
			text = plane + " is paused, and leaves it outdated"
		}
		e.Add(text, append(reasons, f.remedy()...)...)
	default:
		e.Add(plane + " has it, and it is " + state.withReasons(reasons))
	}
}
