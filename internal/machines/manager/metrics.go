package manager

import (
	"context"
	"slices"
	"time"

	machinev1 "github.com/openshift/api/machine/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1alpha1 "github.com/runlevel/runlevel/internal/machines/capi/controlplane/v1alpha1"
	"github.com/runlevel/runlevel/internal/machines/conditions"
	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/openshift/controlplane"
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// The metrics of the Machine API operator, with its names and labels. Counters are in the packages of the controllers;
// these metrics are computed from objects.
var (
	machineItems   = describe("mapi_machine_items", "How many Machines there are.")
	machineCreated = describe("mapi_machine_created_timestamp_seconds", "When a Machine was created, by its phase.",
		"name", "namespace", "spec_provider_id", "node", "api_version", "phase")
	machineSetItems = describe("mapi_machineset_items", "How many MachineSets there are.")
	machineSetMade  = describe("mapi_machineset_created_timestamp_seconds", "When a MachineSet was created.", "name",
		"namespace", "api_version")
	replicas      = describe("mapi_machine_set_status_replicas", "The replicas of a MachineSet.", "name", "namespace")
	replicasReady = describe("mapi_machine_set_status_replicas_ready",
		"The replicas of a MachineSet whose nodes are ready.", "name", "namespace")
	replicasAvail = describe("mapi_machine_set_status_replicas_available",
		"The replicas of a MachineSet whose nodes have been ready for long enough.", "name", "namespace")
	nodesCovered = describe("mapi_machinehealthcheck_nodes_covered",
		"How many machines a MachineHealthCheck covers.", "name", "namespace")
	shortCircuit = describe("mapi_machinehealthcheck_short_circuit",
		"1 while too many machines are unhealthy for a MachineHealthCheck to replace any.", "name", "namespace")
	checkUnhealthy = describe("runlevel_machinehealthcheck_not_healthy",
		"How many machines of a MachineHealthCheck are not healthy, by the API of the machines. Those that start or "+
			"are being deleted are among them.", "api", "name", "namespace")
	checkStopped = describe("runlevel_machinehealthcheck_remediation_stopped",
		"1 while a limit of a MachineHealthCheck keeps its machines from remediation, by the API of the machines.",
		"api", "name", "namespace")
	setDesired = describe("runlevel_controlplane_replicas_desired",
		"How many machines a ControlPlaneMachineSet or a RunlevelControlPlane is to have.", "kind", "name", "namespace")
	setReplicas = describe("runlevel_controlplane_replicas",
		"How many machines a ControlPlaneMachineSet or a RunlevelControlPlane has.", "kind", "name", "namespace")
	setUpdated = describe("runlevel_controlplane_replicas_updated",
		"How many machines of a ControlPlaneMachineSet or a RunlevelControlPlane are up to date and ready.", "kind",
		"name", "namespace")
	setReady = describe("runlevel_controlplane_replicas_ready",
		"How many machines of a ControlPlaneMachineSet or a RunlevelControlPlane are ready.", "kind", "name",
		"namespace")
	setUnavailable = describe("runlevel_controlplane_replicas_unavailable",
		"How many indexes of a ControlPlaneMachineSet or a RunlevelControlPlane have no ready machine.", "kind", "name",
		"namespace")
	setDegraded = describe("runlevel_controlplane_degraded",
		"1 while a problem stops a ControlPlaneMachineSet or a RunlevelControlPlane, which the reason names.", "kind",
		"name", "namespace", "state", "reason")
	setProgressing = describe("runlevel_controlplane_progressing",
		"1 while machines of a ControlPlaneMachineSet or a RunlevelControlPlane have still to be replaced.", "kind",
		"name", "namespace", "state", "strategy")
	collectorUp      = describe("mapi_mao_collector_up", "1 if objects of a kind could be counted.", "kind")
	deletionsWaiting = describe("runlevel_machine_deletions_waiting",
		"How many Machines that are being deleted wait, by stage of the deletion and reason.", "stage", "reason")
)

// collect sends the metrics of the machines in the cache; those of Cluster API and of RunlevelControlPlanes if the
// dialects have them. ctx is that of the controllers: a scrape has none.
func collect(ctx context.Context, cached client.Reader, dialects []Dialect, metrics chan<- prometheus.Metric) {
	// A kind that can't be listed is reported by collectorUp, and does not delay the scrape.
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var machines machinev1beta1.MachineList
	if list(ctx, cached, metrics, "mapi_machine_items", &machines) {
		collectMachines(metrics, machines.Items)
	}
	var sets machinev1beta1.MachineSetList
	if list(ctx, cached, metrics, "mapi_machineset_items", &sets) {
		collectSets(metrics, sets.Items)
	}
	var checks machinev1beta1.MachineHealthCheckList
	if list(ctx, cached, metrics, "mapi_machinehealthcheck_items", &checks) {
		collectChecks(metrics, checks.Items)
	}
	var controlPlanes machinev1.ControlPlaneMachineSetList
	if list(ctx, cached, metrics, "runlevel_controlplanemachineset_items", &controlPlanes) {
		collectControlPlanes(metrics, controlPlanes.Items)
	}
	var planes controlplanev1alpha1.RunlevelControlPlaneList
	if hasRunlevelControlPlanes(dialects) &&
		list(ctx, cached, metrics, "runlevel_runlevelcontrolplane_items", &planes) {
		collectRunlevelControlPlanes(metrics, planes.Items)
	}
	var clusterChecks clusterv1.MachineHealthCheckList
	if slices.Contains(dialects, ClusterAPI) &&
		list(ctx, cached, metrics, "runlevel_clusterapi_machinehealthcheck_items", &clusterChecks) {
		collectClusterChecks(metrics, clusterChecks.Items)
	}
}

func list(ctx context.Context, cached client.Reader, metrics chan<- prometheus.Metric, kind string,
	into client.ObjectList) bool {
	if err := cached.List(ctx, into, client.UnsafeDisableDeepCopy); err != nil {
		gauge(metrics, collectorUp, 0, kind)
		return false
	}
	gauge(metrics, collectorUp, 1, kind)
	return true
}

func gauge(metrics chan<- prometheus.Metric, description *prometheus.Desc, value float64, labels ...string) {
	if metric, err := prometheus.NewConstMetric(description, prometheus.GaugeValue, value, labels...); err == nil {
		metrics <- metric
	}
}

func collectMachines(metrics chan<- prometheus.Metric, machines []machinev1beta1.Machine) {
	type wait struct {
		stage  deletion.Stage
		reason string
	}
	waiting := map[wait]int{}
	for _, m := range machines {
		if !m.DeletionTimestamp.IsZero() {
			stage, reason := deletion.StageOpenShift(&m)
			waiting[wait{stage, reason}]++
		}
		if phase := ptr.Deref(m.Status.Phase, ""); phase != "" { // as upstream: no controller has seen the others
			gauge(metrics, machineCreated, float64(m.CreationTimestamp.Unix()), m.Name, m.Namespace,
				ptr.Deref(m.Spec.ProviderID, ""), ptr.Deref(m.Status.NodeRef, corev1.ObjectReference{}).Name,
				apiVersion, phase)
		}
	}
	gauge(metrics, machineItems, float64(len(machines)))
	for w, count := range waiting {
		gauge(metrics, deletionsWaiting, float64(count), string(w.stage), w.reason)
	}
}

var apiVersion = machinev1beta1.GroupVersion.String()

func collectSets(metrics chan<- prometheus.Metric, sets []machinev1beta1.MachineSet) {
	gauge(metrics, machineSetItems, float64(len(sets)))
	for _, s := range sets {
		gauge(metrics, machineSetMade, float64(s.CreationTimestamp.Unix()), s.Name, s.Namespace, apiVersion)
		gauge(metrics, replicas, float64(s.Status.Replicas), s.Name, s.Namespace)
		gauge(metrics, replicasReady, float64(s.Status.ReadyReplicas), s.Name, s.Namespace)
		gauge(metrics, replicasAvail, float64(s.Status.AvailableReplicas), s.Name, s.Namespace)
	}
}

func collectChecks(metrics chan<- prometheus.Metric, checks []machinev1beta1.MachineHealthCheck) {
	for _, check := range checks {
		gauge(metrics, nodesCovered, float64(ptr.Deref(check.Status.ExpectedMachines, 0)), check.Name, check.Namespace)
		isShort := conditions.Find(check.Status.Conditions,
			machinev1beta1.RemediationAllowedCondition).Status == corev1.ConditionFalse
		gauge(metrics, shortCircuit, oneIf(isShort), check.Name, check.Namespace)
		unhealthy := ptr.Deref(check.Status.ExpectedMachines, 0) - ptr.Deref(check.Status.CurrentHealthy, 0)
		gauge(metrics, checkUnhealthy, float64(unhealthy), machinev1beta1.GroupName, check.Name, check.Namespace)
		gauge(metrics, checkStopped, oneIf(isShort), machinev1beta1.GroupName, check.Name, check.Namespace)
	}
}

func collectClusterChecks(metrics chan<- prometheus.Metric, checks []clusterv1.MachineHealthCheck) {
	for _, check := range checks {
		unhealthy := ptr.Deref(check.Status.ExpectedMachines, 0) - ptr.Deref(check.Status.CurrentHealthy, 0)
		isStopped := meta.IsStatusConditionFalse(check.Status.Conditions,
			clusterv1.MachineHealthCheckRemediationAllowedCondition)
		gauge(metrics, checkUnhealthy, float64(unhealthy), clusterv1.GroupVersion.Group, check.Name, check.Namespace)
		gauge(metrics, checkStopped, oneIf(isStopped), clusterv1.GroupVersion.Group, check.Name, check.Namespace)
	}
}

func collectControlPlanes(metrics chan<- prometheus.Metric, sets []machinev1.ControlPlaneMachineSet) {
	for _, s := range sets {
		state := controlPlaneState{
			kind: "ControlPlaneMachineSet", name: s.Name, namespace: s.Namespace, state: string(s.Spec.State),
			strategy: string(s.Spec.Strategy.Type),
			desired:  ptr.Deref(s.Spec.Replicas, 0), replicas: s.Status.Replicas, updated: s.Status.UpdatedReplicas,
			ready:         s.Status.ReadyReplicas,
			unavailable:   s.Status.UnavailableReplicas,
			isProgressing: meta.IsStatusConditionTrue(s.Status.Conditions, controlplane.Progressing),
		}
		if degraded := meta.FindStatusCondition(s.Status.Conditions, controlplane.Degraded); degraded != nil &&
			degraded.Status == metav1.ConditionTrue {
			state.degraded = degraded.Reason
		}
		state.collect(metrics)
	}
}

func collectRunlevelControlPlanes(metrics chan<- prometheus.Metric,
	planes []controlplanev1alpha1.RunlevelControlPlane) {
	for _, p := range planes {
		state := controlPlaneState{
			kind: "RunlevelControlPlane", name: p.Name, namespace: p.Namespace, state: "Active",
			strategy: "RollingUpdate",
			desired:  ptr.Deref(p.Spec.Replicas, 1), replicas: ptr.Deref(p.Status.Replicas, 0),
			updated:       ptr.Deref(p.Status.UpToDateReplicas, 0),
			ready:         ptr.Deref(p.Status.AvailableReplicas, 0),
			isProgressing: meta.IsStatusConditionTrue(p.Status.Conditions, clusterv1.RollingOutCondition),
		}
		state.unavailable = max(state.desired-state.ready, 0)
		if meta.IsStatusConditionTrue(p.Status.Conditions, clusterv1.PausedCondition) {
			state.state = "Paused"
		}
		if available := meta.FindStatusCondition(p.Status.Conditions, clusterv1.AvailableCondition); available != nil &&
			available.Status == metav1.ConditionFalse {
			state.degraded = available.Reason
		}
		state.collect(metrics)
	}
}

// A controlPlaneState contains the values of the metrics of a ControlPlaneMachineSet or a RunlevelControlPlane.
type controlPlaneState struct {
	kind, name, namespace, state, strategy         string
	desired, replicas, updated, ready, unavailable int32
	degraded                                       string // the reason; empty if nothing stops it
	isProgressing                                  bool
}

func (s *controlPlaneState) collect(metrics chan<- prometheus.Metric) {
	for description, count := range map[*prometheus.Desc]int32{
		setDesired: s.desired, setReplicas: s.replicas, setUpdated: s.updated, setReady: s.ready,
		setUnavailable: s.unavailable,
	} {
		gauge(metrics, description, float64(count), s.kind, s.name, s.namespace)
	}
	gauge(metrics, setDegraded, oneIf(s.degraded != ""), s.kind, s.name, s.namespace, s.state, s.degraded)
	gauge(metrics, setProgressing, oneIf(s.isProgressing), s.kind, s.name, s.namespace, s.state, s.strategy)
}

func oneIf(current bool) float64 {
	if current {
		return 1
	}
	return 0
}
