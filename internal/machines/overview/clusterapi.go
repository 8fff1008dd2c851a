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
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/cluster/diagnosis"
	"github.com/runlevel/runlevel/internal/machines/capi/drainrules"
	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/drain"
	"github.com/runlevel/runlevel/internal/machines/typedread"
)

// This file is about Machines of Cluster API. Their condition Deleting has the stage of the deletion and its
// reason. Only hooks and pods are read here, because the condition lists only a part.

// clusterAPIMachine contains the facts about a Machine of Cluster API.
type clusterAPIMachine struct {
	machineFacts
	machine *clusterv1.Machine
	// deployment is the MachineDeployment of an outdated machine; nil if it was not read, or does not exist.
	deployment *clusterv1.MachineDeployment
	checks     []*clusterv1.MachineHealthCheck // those that select the unhealthy machine
	// plane is the RunlevelControlPlane of the machine; nil if it was not read, or does not exist.
	plane *planeFacts
}

func newClusterAPIMachine(m *clusterv1.Machine, nodes *nodeList) *clusterAPIMachine {
	return &clusterAPIMachine{
		machine: m, machineFacts: machineFacts{group: ClusterAPIKind.Group, object: m, nodes: nodes},
	}
}

// clusterAPIMachines lists Machines of Cluster API, and the pods of nodes that are being drained. Nodes of other
// clusters are not listed.
func (g *gatherer) clusterAPIMachines(ctx context.Context, q Query) ([]*clusterAPIMachine, error) {
	machines, err := listObjects[clusterv1.Machine](ctx, g, ClusterAPIKind, q)
	var facts []*clusterAPIMachine
	for _, m := range machines {
		f := newClusterAPIMachine(m, g.listNodes(ctx))
		if node := f.node(); node != nil && f.stage() == deletion.Draining {
			f.readRuledPods(ctx, g, node)
		}
		if f.isUnhealthy() {
			f.readHealthChecks(ctx, g)
		}
		facts = append(facts, f)
	}
	return facts, err
}

func clusterAPIKind(kind string) schema.GroupKind {
	return schema.GroupKind{Group: ClusterAPIKind.Group, Kind: kind}
}

// readRuledPods lists the pods of the machine's node by its drain rules.
func (cm *clusterAPIMachine) readRuledPods(ctx context.Context, g *gatherer, node *corev1.Node) {
	rules, err := cm.drainRules(ctx, g)
	if err != nil {
		cm.unknown = append(cm.unknown, errorLine(err))
		cm.pods = &nodePods{isUnknown: true}
		return
	}
	cm.readPods(ctx, g, node, rules)
}

// drainRules returns the rules by which the controller drains the machine's node.
func (cm *clusterAPIMachine) drainRules(ctx context.Context, g *gatherer) (drain.PodRules, error) {
	q := Query{Namespace: cm.machine.Namespace}
	listed, err := listObjects[clusterv1.MachineDrainRule](ctx, g, clusterAPIKind("MachineDrainRule"), q)
	if err != nil && !errors.Is(err, ErrNotServed) {
		return nil, err
	}
	rules := make([]clusterv1.MachineDrainRule, len(listed))
	for i := range listed {
		rules[i] = *listed[i]
	}
	cluster := &clusterv1.Cluster{}
	if len(rules) > 0 { // they may select Clusters
		q.Names = []string{cm.machine.Spec.ClusterName}
		clusters, err := listObjects[clusterv1.Cluster](ctx, g, clusterAPIKind("Cluster"), q)
		if err != nil {
			return nil, err
		}
		if len(clusters) > 0 {
			cluster = clusters[0]
		}
	}
	return drainrules.PodRules(g.cluster.Client, cm.machine, cluster, rules)
}

// node returns the Node of the machine; nil if it does not exist, is not known, or another host has joined under its
// name.
func (cm *clusterAPIMachine) node() *corev1.Node {
	node := cm.nodes.byName[cm.machine.Status.NodeRef.Name]
	if node == nil || deletion.OwnershipClusterAPI(node, cm.machine) != deletion.OwnNode {
		return nil
	}
	return node
}

func (cm *clusterAPIMachine) condition(kind string) metav1.Condition {
	return findCondition(cm.machine.Status.Conditions, kind)
}

// stage returns the stage of the deletion; "" if its controller reports none.
func (cm *clusterAPIMachine) stage() deletion.Stage {
	switch {
	case !cm.isDeleting():
		return ""
	case !slices.Contains(cm.machine.Finalizers, clusterv1.MachineFinalizer):
		return deletion.Completed
	}
	return deletion.StageClusterAPI(cm.machine)
}

// overview returns the state of the machine.
func (cm *clusterAPIMachine) overview() Machine {
	m := Machine{
		APIGroup: ClusterAPIKind.Group, Namespace: cm.machine.Namespace, Name: cm.machine.Name,
		UID: string(cm.machine.UID), Node: cm.machine.Status.NodeRef.Name,
		Phase: cmp.Or(cm.machine.Status.Phase, string(clusterv1.MachinePhasePending)),
		Since: cm.machine.CreationTimestamp.Time, ProviderID: cm.machine.Spec.ProviderID, Unknown: cm.unknown,
	}
	if updated := cm.machine.Status.LastUpdated; !updated.IsZero() { // the last change of the phase
		m.Since = updated.Time
	}
	if cm.isDeleting() {
		m.Phase, m.Since = string(clusterv1.MachinePhaseDeleting), cm.machine.DeletionTimestamp.Time
		m.Stage = cm.stage()
		m.Holds = cm.deletionHolds(m.Stage)
	} else {
		m.Holds = append(cm.startHolds(m), cm.remediationHolds()...)
	}
	if m.Stage == deletion.BeforeDrain || m.Stage == deletion.Draining || m.Stage == deletion.DetachingVolumes {
		m.Later = cm.hookHolds(PreTerminateHook, nil)
	}
	for i := range m.Holds {
		m.Holds[i].remedy = cm.remedy(&m.Holds[i])
	}
	return m
}

// startHolds returns the holds of a machine unless it is being deleted.
func (cm *clusterAPIMachine) startHolds(m Machine) []Hold {
	reported := func(kind HoldType, condition string) []Hold {
		c := cm.condition(condition)
		return []Hold{{Type: kind, Message: cmp.Or(c.Message, c.Reason), Since: &m.Since}}
	}
	switch clusterv1.MachinePhase(m.Phase) {
	case clusterv1.MachinePhaseRunning:
		return nil
	case clusterv1.MachinePhaseProvisioned:
		return []Hold{cm.nodeHold(m.ProviderID, m.Since)}
	case clusterv1.MachinePhaseUpdating:
		return reported(Update, clusterv1.MachineUpdatingCondition)
	case clusterv1.MachinePhasePending, clusterv1.MachinePhaseProvisioning:
		if cm.condition(clusterv1.MachineBootstrapConfigReadyCondition).Status == metav1.ConditionFalse {
			return reported(Bootstrap, clusterv1.MachineBootstrapConfigReadyCondition)
		}
		return reported(Infrastructure, clusterv1.MachineInfrastructureReadyCondition)
	}
	return reported(Failure, clusterv1.MachineReadyCondition)
}

// deletionHolds returns the holds of a deletion.
func (cm *clusterAPIMachine) deletionHolds(stage deletion.Stage) []Hold {
	deleting := cm.condition(clusterv1.MachineDeletingCondition)
	since := &deleting.LastTransitionTime.Time
	if deleting.LastTransitionTime.IsZero() || cm.machine.DeletionTimestamp.After(*since) {
		since = &cm.machine.DeletionTimestamp.Time
	}
	startOr := func(start metav1.Time) *time.Time {
		if start.IsZero() {
			return since
		}
		return &start.Time
	}
	progress := cm.machine.Status.Deletion
	if progress == nil {
		progress = &clusterv1.MachineDeletionStatus{}
	}
	hold := Hold{Type: Controller, Message: cmp.Or(deleting.Message, "observe the deletion"), Since: since}
	switch stage {
	case deletion.BeforeDrain:
		return cm.hookHolds(PreDrainHook, startOr(progress.WaitForPreDrainHookStartTime))
	case deletion.BeforeTerminate:
		return cm.hookHolds(PreTerminateHook, startOr(progress.WaitForPreTerminateHookStartTime))
	case deletion.Draining:
		return cm.drainHolds(deleting.Message, startOr(progress.NodeDrainStartTime))
	case deletion.DetachingVolumes:
		hold.Type, hold.Since = Volume, startOr(progress.WaitForNodeVolumeDetachStartTime)
	case deletion.Terminating:
		hold.Type = Infrastructure
	case deletion.RemovingConfig:
		hold.Type = Bootstrap
	case deletion.RemovingNode:
		hold.Message = cmp.Or(deleting.Message, "delete node "+cm.machine.Status.NodeRef.Name)
	case deletion.Completed:
		others := cm.finalizerHolds(clusterv1.MachineFinalizer)
		if len(others) == len(cm.machine.Finalizers) {
			return others
		}
		return append(controllerHold("remove its finalizer"), others...)
	}
	return []Hold{hold}
}

// drainHolds returns the pods that hold the drain, or the message of the machine if they can't be listed.
func (cm *clusterAPIMachine) drainHolds(message string, since *time.Time) []Hold {
	if cm.pods == nil || cm.pods.isUnknown {
		return []Hold{{Type: Pod, Message: strings.Join(strings.Fields(message), " "), Since: since}}
	}
	holds := cm.podHolds(since)
	for i := range holds {
		if toleration := holds[i].Toleration; toleration != "" {
			holds[i].Message += fmt.Sprintf(", and tolerates the cordon (toleration %s)", toleration)
		}
	}
	return holds
}

// hookHolds returns the hooks of a type, in the order of their annotations.
func (cm *clusterAPIMachine) hookHolds(kind HoldType, since *time.Time) []Hold {
	prefix := clusterv1.PreDrainDeleteHookAnnotationPrefix
	if kind == PreTerminateHook {
		prefix = clusterv1.PreTerminateDeleteHookAnnotationPrefix
	}
	var holds []Hold
	for _, key := range deletion.HooksClusterAPI(cm.machine, prefix) {
		name := strings.TrimPrefix(key, prefix+"/") // a key without the slash holds the machine as well
		holds = append(holds, cm.hookHold(kind, name, cm.machine.Annotations[key], key, since))
	}
	return holds
}

// explain returns the explanation of the machine, without its conditions and events.
func (cm *clusterAPIMachine) explain(now time.Time) *diagnosis.Explanation {
	m := cm.overview()
	e := m.explanation("", now)
	cm.addRollout(e)
	cm.plane.addReplacement(e, cm.machine)
	m.addLater(e)
	return e
}

// remedy returns the remedy of a hold for an administrator.
func (cm *clusterAPIMachine) remedy(h *Hold) []string {
	switch h.Type {
	case PreDrainHook, PreTerminateHook:
		return h.hookRemedy(cm.command("annotate", " "+h.key+"-"))
	case Pod:
		return cm.podRemedy(h, cm.command("annotate", " "+clusterv1.ExcludeNodeDrainingAnnotation+"="))
	case Infrastructure, Bootstrap:
		return []string{"see its conditions below, and those of the object:", cm.command("describe", "")}
	case Update:
		return cm.updateRemedy()
	case Remediation:
		return cm.remediationRemedy()
	case Volume:
		return []string{
			"volumes are detached once their pods are deleted; list the attached volumes:",
			"kubectl get volumeattachments -o custom-columns=NAME:.metadata.name,NODE:.spec.nodeName",
		}
	}
	return h.commonRemedy()
}

// podRemedy returns the remedy of a pod. Pods are listed again for each eviction, so pods that tolerate the cordon hold
// the drain for as long as others replace them.
func (cm *clusterAPIMachine) podRemedy(h *Hold, skip string) []string {
	if hold := drain.PodHold(h.Name); h.Toleration == "" || hold != drain.ToBeEvicted && hold != drain.Ending {
		return h.podRemedy(skip)
	}
	return []string{
		"after each eviction, another pod may be scheduled to the node; skip such pods by a MachineDrainRule with " +
			"the behavior Skip, or remove the toleration from their workload",
		"or continue without draining:", skip,
	}
}

// guardCommand prints the report of the etcd quorum guard.
const guardCommand = "kubectl get clusteroperator etcd-quorum-guard -o yaml"

// updateRemedy returns the remedy of an update in place, which ends only when its extension is done.
func (cm *clusterAPIMachine) updateRemedy() []string {
	updating := cm.condition(clusterv1.MachineUpdatingCondition)
	switch {
	case strings.Contains(updating.Message, ": draining Node "):
		return []string{
			"its node is drained first, as the extension requests in its settings; continue without draining:",
			cm.command("annotate", " "+clusterv1.ExcludeNodeDrainingAnnotation+"="),
		}
	case strings.Contains(updating.Message, ": waiting for the etcd quorum guard "):
		return []string{
			"its extension is not called while etcd needs its member because another one is missing; if that one " +
				"does not come back, delete its machine; read the report of the guard:",
			guardCommand,
		}
	}
	remedy := []string{
		"its extension is called until it reports that it is done; list the extensions, and whether they are " +
			"discovered:",
		"kubectl get extensionconfigs -o custom-columns='NAME:.metadata.name," +
			"DISCOVERED:.status.conditions[?(@.type==\"Discovered\")].message'",
	}
	if updating.Reason == clusterv1.MachineInPlaceUpdateFailedReason {
		remedy = append(remedy, "once the cause is removed, the update continues within a minute; or delete the "+
			"machine, "+
			"and its owner creates another one:", cm.command("delete", ""))
	}
	return remedy
}

// readDeployment reads the MachineDeployment of an outdated machine. The rollout is decided for all
// machines of a MachineDeployment together, so the conditions of the MachineDeployment are shown for such a Machine.
func (cm *clusterAPIMachine) readDeployment(ctx context.Context, g *gatherer) {
	name := cm.machine.Labels[clusterv1.MachineDeploymentNameLabel]
	upToDate := cm.condition(clusterv1.MachineUpToDateCondition)
	if name == "" || upToDate.Reason != clusterv1.MachineNotUpToDateReason {
		return
	}
	kind, namespace := clusterAPIKind("MachineDeployment").WithVersion(""), cm.machine.Namespace
	deployment, err := typedread.Get[clusterv1.MachineDeployment](ctx, g.cluster, kind, namespace, name)
	switch {
	case err == nil:
		cm.deployment = deployment
	case !errors.Is(err, ErrNotServed) && !apierrors.IsNotFound(err):
		action := "get MachineDeployment " + namespace + "/" + name
		cm.unknown = append(cm.unknown, errorLine(typedread.RequestError(action, err)))
	}
}

// addRollout adds a message about an outdated machine: which fields of its MachineDeployment's template
// differ, why machines are replaced rather than updated in place, and what blocks the rollout.
func (cm *clusterAPIMachine) addRollout(e *diagnosis.Explanation) {
	if cm.deployment == nil {
		return
	}
	var details []string
	for _, kind := range []string{clusterv1.RollingOutCondition, clusterv1.ScalingUpCondition} {
		reported := meta.FindStatusCondition(cm.deployment.Status.Conditions, kind)
		if reported != nil && reported.Message != "" {
			details = append(details, strings.Split(reported.Message, "\n")...)
		}
	}
	if len(details) > 0 {
		e.Add("it is not up to date; its MachineDeployment "+cm.deployment.Name+" reports:", details...)
	}
}
