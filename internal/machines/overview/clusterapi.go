package overview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/cluster/diagnosis"
	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/drain"
)

// This file is about Machines of Cluster API. Their condition Deleting names the stage of the deletion and what it
// waits for; only hooks and pods, of which the condition lists a part, are read here.

// clusterAPIFacts are the facts about a Machine of Cluster API.
type clusterAPIFacts struct {
	machine *clusterv1.Machine
	nodes   *nodeList
	pods    *nodePods // nil if the pods of the node were not read
	// deployment is the MachineDeployment of a machine that is not up to date; nil if it was not read, or does not
	// exist.
	deployment *clusterv1.MachineDeployment
	checks     []*clusterv1.MachineHealthCheck // that select an unhealthy machine
	// the RunlevelControlPlane of the machine; nil if it was not read, or does not exist
	plane   *planeFacts
	unknown []string
}

// clusterAPIMachines lists Machines of Cluster API, and the pods of nodes that are being drained. Nodes of other
// clusters are not listed.
func (g *machineGatherer) clusterAPIMachines(ctx context.Context, q MachineQuery) ([]*clusterAPIFacts, error) {
	machines, err := objectsOf[clusterv1.Machine](ctx, g, ClusterAPIKind, q)
	var facts []*clusterAPIFacts
	for _, m := range machines {
		g.listNodes(ctx)
		f := &clusterAPIFacts{machine: m, nodes: &g.nodes}
		if node := f.node(); node != nil && f.stage() == deletion.Draining {
			f.pods = g.ruledPodsOf(ctx, node, f)
		}
		if f.isUnhealthy() {
			g.askHealthChecks(ctx, f)
		}
		facts = append(facts, f)
	}
	return facts, err
}

func (f *clusterAPIFacts) isDeleting() bool { return f.machine.DeletionTimestamp != nil }

// node is the Node of the machine; nil if it does not exist, is not known, or another host has joined under its name.
func (f *clusterAPIFacts) node() *corev1.Node {
	node := f.nodes.byName[f.machine.Status.NodeRef.Name]
	if node == nil || deletion.OwnershipClusterAPI(node, f.machine) != deletion.OwnNode {
		return nil
	}
	return node
}

func (f *clusterAPIFacts) condition(kind string) metav1.Condition {
	return conditionOf(f.machine.Status.Conditions, kind)
}

// conditionOf returns the condition of a type; an empty one if there is none.
func conditionOf(conditions []metav1.Condition, kind string) metav1.Condition {
	return ptr.Deref(meta.FindStatusCondition(conditions, kind), metav1.Condition{})
}

// stage is the stage of the deletion; "" if its controller reports none.
func (f *clusterAPIFacts) stage() deletion.Stage {
	switch {
	case !f.isDeleting():
		return ""
	case !slices.Contains(f.machine.Finalizers, clusterv1.MachineFinalizer):
		return deletion.Completed
	}
	return deletion.StageClusterAPI(f.machine)
}

// judge returns the state of the machine, and what holds it.
func (f *clusterAPIFacts) judge() MachineOverview {
	m := MachineOverview{
		APIGroup: ClusterAPIKind.Group, Namespace: f.machine.Namespace, Name: f.machine.Name,
		UID:   string(f.machine.UID),
		Node:  f.machine.Status.NodeRef.Name,
		Phase: cmp.Or(f.machine.Status.Phase, string(clusterv1.MachinePhasePending)),
		Since: f.machine.CreationTimestamp.Time, ProviderID: f.machine.Spec.ProviderID, Unknown: f.unknown,
	}
	if updated := f.machine.Status.LastUpdated; !updated.IsZero() { // the last change of the phase
		m.Since = updated.Time
	}
	if !f.isDeleting() {
		m.Holds = append(f.startHolds(m), f.remediationHolds()...)
		return m
	}
	m.Phase, m.Since, m.Stage = string(clusterv1.MachinePhaseDeleting), f.machine.DeletionTimestamp.Time, f.stage()
	m.Holds = f.deletionHolds(m.Stage)
	if m.Stage == deletion.BeforeDrain || m.Stage == deletion.Draining || m.Stage == deletion.DetachingVolumes {
		m.Later = f.hooks(PreTerminateHook, nil)
	}
	return m
}

// startHolds is what a machine that is not being deleted waits for.
func (f *clusterAPIFacts) startHolds(m MachineOverview) []MachineHold {
	reported := func(of MachineHoldType, condition string) []MachineHold {
		c := f.condition(condition)
		return []MachineHold{{Type: of, Message: cmp.Or(c.Message, c.Reason), Since: &m.Since}}
	}
	switch clusterv1.MachinePhase(m.Phase) {
	case clusterv1.MachinePhaseRunning:
		return nil
	case clusterv1.MachinePhaseProvisioned:
		return []MachineHold{f.nodes.hold(f.machine, ClusterAPIKind.Group, m.ProviderID, m.Since)}
	case clusterv1.MachinePhaseUpdating:
		return reported(Update, clusterv1.MachineUpdatingCondition)
	case clusterv1.MachinePhasePending, clusterv1.MachinePhaseProvisioning:
		if f.condition(clusterv1.MachineBootstrapConfigReadyCondition).Status == metav1.ConditionFalse {
			return reported(Bootstrap, clusterv1.MachineBootstrapConfigReadyCondition)
		}
		return reported(Infrastructure, clusterv1.MachineInfrastructureReadyCondition)
	}
	return reported(Failure, clusterv1.MachineReadyCondition)
}

// deletionHolds is what holds a deletion now.
func (f *clusterAPIFacts) deletionHolds(stage deletion.Stage) []MachineHold {
	deleting := f.condition(clusterv1.MachineDeletingCondition)
	since := &deleting.LastTransitionTime.Time
	if deleting.LastTransitionTime.IsZero() || f.machine.DeletionTimestamp.After(*since) {
		since = &f.machine.DeletionTimestamp.Time
	}
	began := func(start metav1.Time) *time.Time {
		if start.IsZero() {
			return since
		}
		return &start.Time
	}
	progress := f.machine.Status.Deletion
	if progress == nil {
		progress = &clusterv1.MachineDeletionStatus{}
	}
	hold := MachineHold{Type: Controller, Message: cmp.Or(deleting.Message, "notice the deletion"), Since: since}
	switch stage {
	case deletion.BeforeDrain:
		return f.hooks(PreDrainHook, began(progress.WaitForPreDrainHookStartTime))
	case deletion.BeforeTerminate:
		return f.hooks(PreTerminateHook, began(progress.WaitForPreTerminateHookStartTime))
	case deletion.Draining:
		return f.drainHolds(deleting.Message, began(progress.NodeDrainStartTime))
	case deletion.DetachingVolumes:
		hold.Type, hold.Since = Volume, began(progress.WaitForNodeVolumeDetachStartTime)
	case deletion.Terminating:
		hold.Type = Infrastructure
	case deletion.RemovingConfig:
		hold.Type = Bootstrap
	case deletion.RemovingNode:
		hold.Message = cmp.Or(deleting.Message, "delete node "+f.machine.Status.NodeRef.Name)
	case deletion.Completed:
		others := finalizersOf(f.machine, clusterv1.MachineFinalizer)
		if len(others) == len(f.machine.Finalizers) {
			return others
		}
		return append(controllerHold("remove its finalizer"), others...)
	}
	return []MachineHold{hold}
}

// drainHolds are the pods that hold the drain, or the message of the machine if they can't be listed.
func (f *clusterAPIFacts) drainHolds(message string, since *time.Time) []MachineHold {
	if f.pods == nil || f.pods.isUnknown {
		return []MachineHold{{Type: Pod, Message: strings.Join(strings.Fields(message), " "), Since: since}}
	}
	holds := podHolds(f.pods.left, since)
	for i := range holds {
		if toleration := holds[i].Toleration; toleration != "" {
			holds[i].Message += fmt.Sprintf(", and tolerates the cordon (toleration %s)", toleration)
		}
	}
	return holds
}

// podRemedy returns how to remove a pod from the node. Pods are listed again for each eviction, so pods that tolerate
// the cordon hold the drain for as long as others replace them.
func (f *clusterAPIFacts) podRemedy(h *MachineHold, skip string) []string {
	if hold := drain.PodHold(h.Name); h.Toleration == "" || hold != drain.ToBeEvicted && hold != drain.Ending {
		return h.podRemedy(skip)
	}
	return []string{
		"each time that it is evicted, another pod may be scheduled to the node; let the drain skip such pods by a " +
			"MachineDrainRule with the " +
			"behavior Skip, or remove the toleration from their workload",
		"or go on without draining:", skip,
	}
}

// hooks are the hooks of a stage, in the order of their annotations.
func (f *clusterAPIFacts) hooks(of MachineHoldType, since *time.Time) []MachineHold {
	prefix := clusterv1.PreDrainDeleteHookAnnotationPrefix
	if of == PreTerminateHook {
		prefix = clusterv1.PreTerminateDeleteHookAnnotationPrefix
	}
	var holds []MachineHold
	for _, key := range deletion.HooksClusterAPI(f.machine, prefix) {
		name := strings.TrimPrefix(key, prefix+"/") // a key without the slash holds the machine as well
		holds = append(holds, MachineHold{
			Type:    of,
			Name:    name,
			Owner:   f.machine.Annotations[key],
			Message: hookMessage(f.machine, of, name),
			Since:   since,
			key:     key,
		})
	}
	return holds
}

// explain returns the explanation of the machine.
func (f *clusterAPIFacts) explain(events []corev1.Event, now time.Time) *MachineExplanation {
	m := &MachineExplanation{MachineOverview: f.judge()}
	m.addHolds("", f.remedy, now)
	m.Statements = append(m.Statements, f.rollout()...)
	m.addReplacing(f.plane.replacing(f.machine, now))
	m.addDetails(f.machine.Status.Conditions, events, now)
	return m
}

// guardCommand shows what the etcd quorum guard reports.
const guardCommand = "kubectl get clusteroperator etcd-quorum-guard -o yaml"

// updateRemedy returns what to do about an update in place, which ends only when its extension is done.
func (f *clusterAPIFacts) updateRemedy(command func(verb, rest string) string) []string {
	remedy := []string{"its extension is called until it reports that it is done; see which extensions there are, " +
		"and whether they are discovered:",
		"kubectl get extensionconfigs -o " +
			"custom-columns='NAME:.metadata.name,DISCOVERED:.status.conditions[?(@.type==\"Discovered\")].message'"}
	updating := f.condition(clusterv1.MachineUpdatingCondition)
	switch {
	case strings.Contains(updating.Message, ": draining Node "):
		remedy = []string{
			"its node is drained before, since the extension's settings ask for that; go on without draining:",
			command("annotate", " "+clusterv1.ExcludeNodeDrainingAnnotation+"="),
		}
	case strings.Contains(updating.Message, ": waiting for the etcd quorum guard "):
		remedy = []string{
			"its extension is not called while a member of etcd would be missed; if that does not come back, delete " +
				"its machine; see what the guard reports:",
			guardCommand,
		}
	case updating.Reason == clusterv1.MachineInPlaceUpdateFailedReason:
		remedy = append(remedy,
			"once the cause is removed, it goes on within a minute; or give up the machine, and its owner makes "+
				"another one:",
			command("delete", ""))
	}
	return remedy
}

// remedy returns what to do about a hold.
func (f *clusterAPIFacts) remedy(h *MachineHold) []string {
	command := func(verb, rest string) string { return commandOn(f.machine, ClusterAPIKind.Group, verb, rest) }
	switch h.Type {
	case PreDrainHook, PreTerminateHook:
		return h.hookRemedy(command("annotate", " "+h.key+"-"))
	case Pod:
		return f.podRemedy(h, command("annotate", " "+clusterv1.ExcludeNodeDrainingAnnotation+"="))
	case Infrastructure, Bootstrap:
		return []string{"see its conditions below, and those of the object:", command("describe", "")}
	case Update:
		return f.updateRemedy(command)
	case Remediation:
		return f.remediationRemedy(command)
	case Volume:
		return []string{
			"volumes are detached once their pods are gone; see which are attached:",
			"kubectl get volumeattachments -o custom-columns=NAME:.metadata.name,NODE:.spec.nodeName",
		}
	}
	return h.commonRemedy()
}

// deploymentKind is the kind of what rolls out Machines of Cluster API. The rollout is decided for all machines of a
// MachineDeployment together, so its conditions are shown for a Machine that is not up to date.
var deploymentKind = schema.GroupKind{Group: ClusterAPIKind.Group, Kind: "MachineDeployment"}

// askDeployment reads the MachineDeployment of a machine that is not up to date.
func (g *machineGatherer) askDeployment(ctx context.Context, f *clusterAPIFacts) {
	name := f.machine.Labels[clusterv1.MachineDeploymentNameLabel]
	if name == "" || f.condition(clusterv1.MachineUpToDateCondition).Reason != clusterv1.MachineNotUpToDateReason {
		return
	}
	in, err := g.cluster.FindKind(ctx, deploymentKind)
	deployment, object := &clusterv1.MachineDeployment{}, &unstructured.Unstructured{}
	if err == nil {
		object, err = g.cluster.In(in, f.machine.Namespace).Get(ctx, name, metav1.GetOptions{})
	}
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, deployment)
	}
	switch {
	case err == nil:
		f.deployment = deployment
	case !errors.Is(err, ErrNotServed) && !apierrors.IsNotFound(err):
		f.unknown = append(f.unknown, inLine(requestError("get MachineDeployment "+f.machine.Namespace+"/"+name, err)))
	}
}

// rollout returns statements about a machine that is not up to date: which fields of its MachineDeployment's template
// differ, why machines are replaced rather than updated in place, and what blocks the rollout.
func (f *clusterAPIFacts) rollout() []diagnosis.Message {
	if f.deployment == nil {
		return nil
	}
	statement := diagnosis.Message{Text: "it is not up to date; its MachineDeployment " + f.deployment.Name +
		" reports:"}
	for _, kind := range []string{clusterv1.RollingOutCondition, clusterv1.ScalingUpCondition} {
		if reported := meta.FindStatusCondition(f.deployment.Status.Conditions, kind); reported != nil &&
			reported.Message != "" {
			statement.Details = append(statement.Details, strings.Split(reported.Message, "\n")...)
		}
	}
	if len(statement.Details) == 0 {
		return nil
	}
	return []diagnosis.Message{statement}
}
