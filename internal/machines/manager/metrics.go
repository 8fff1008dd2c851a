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

	"github.com/runlevel/runlevel/internal/machines/conditions"
	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/openshift/controlplane"
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// The metrics of the Machine API operator, with its names and labels. Counters are in the packages of the controllers; these
// metrics are computed from objects.
var (
	machineItems     = describe("mapi_machine_items", "How many Machines there are.")
	machineCreated   = describe("mapi_machine_created_timestamp_seconds", "When a Machine was created, by its phase.", "name", "namespace", "spec_provider_id", "node", "api_version", "phase")
	machineSetItems  = describe("mapi_machineset_items", "How many MachineSets there are.")
	machineSetMade   = describe("mapi_machineset_created_timestamp_seconds", "When a MachineSet was created.", "name", "namespace", "api_version")
	replicas         = describe("mapi_machine_set_status_replicas", "The replicas of a MachineSet.", "name", "namespace")
	replicasReady    = describe("mapi_machine_set_status_replicas_ready", "The replicas of a MachineSet whose nodes are ready.", "name", "namespace")
	replicasAvail    = describe("mapi_machine_set_status_replicas_available", "The replicas of a MachineSet whose nodes have been ready for long enough.", "name", "namespace")
	nodesCovered     = describe("mapi_machinehealthcheck_nodes_covered", "How many machines a MachineHealthCheck covers.", "name", "namespace")
	shortCircuit     = describe("mapi_machinehealthcheck_short_circuit", "1 while too many machines are unhealthy for a MachineHealthCheck to replace any.", "name", "namespace")
	checkUnhealthy   = describe("runlevel_machinehealthcheck_not_healthy", "How many machines of a MachineHealthCheck are not healthy, by the API of the machines. Those that start or are being deleted are among them.", "api", "name", "namespace")
	checkStopped     = describe("runlevel_machinehealthcheck_remediation_stopped", "1 while a limit of a MachineHealthCheck keeps its machines from remediation, by the API of the machines.", "api", "name", "namespace")
	setDesired       = describe("runlevel_controlplanemachineset_replicas_desired", "How many machines a ControlPlaneMachineSet is to have.", "name", "namespace")
	setReplicas      = describe("runlevel_controlplanemachineset_replicas", "How many machines a ControlPlaneMachineSet has.", "name", "namespace")
	setUpdated       = describe("runlevel_controlplanemachineset_replicas_updated", "How many machines of a ControlPlaneMachineSet are up to date and ready.", "name", "namespace")
	setReady         = describe("runlevel_controlplanemachineset_replicas_ready", "How many machines of a ControlPlaneMachineSet are ready.", "name", "namespace")
	setUnavailable   = describe("runlevel_controlplanemachineset_replicas_unavailable", "How many indexes of a ControlPlaneMachineSet have no ready machine.", "name", "namespace")
	setDegraded      = describe("runlevel_controlplanemachineset_degraded", "1 while a problem stops a ControlPlaneMachineSet, which the reason names.", "name", "namespace", "state", "reason")
	setProgressing   = describe("runlevel_controlplanemachineset_progressing", "1 while machines of a ControlPlaneMachineSet have still to be replaced.", "name", "namespace", "state", "strategy")
	collectorUp      = describe("mapi_mao_collector_up", "1 if objects of a kind could be counted.", "kind")
	deletionsWaiting = describe("runlevel_machine_deletions_waiting", "How many Machines that are being deleted wait, by stage of the deletion and reason.", "stage", "reason")
)

// collect sends the metrics of the machines in the cache; those of Cluster API if the dialects have it. ctx is that of the controllers:
// a scrape has none.
func collect(ctx context.Context, cached client.Reader, dialects []MachineDialect, to chan<- prometheus.Metric) {
	// A kind that can't be listed is reported by collectorUp, and does not delay the scrape.
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var machines machinev1beta1.MachineList
	if list(ctx, cached, to, "mapi_machine_items", &machines) {
		collectMachines(to, machines.Items)
	}
	var sets machinev1beta1.MachineSetList
	if list(ctx, cached, to, "mapi_machineset_items", &sets) {
		collectSets(to, sets.Items)
	}
	var checks machinev1beta1.MachineHealthCheckList
	if list(ctx, cached, to, "mapi_machinehealthcheck_items", &checks) {
		collectChecks(to, checks.Items)
	}
	var controlPlanes machinev1.ControlPlaneMachineSetList
	if list(ctx, cached, to, "runlevel_controlplanemachineset_items", &controlPlanes) {
		collectControlPlanes(to, controlPlanes.Items)
	}
	var clusterChecks clusterv1.MachineHealthCheckList
	if slices.Contains(dialects, ClusterAPI) && list(ctx, cached, to, "runlevel_clusterapi_machinehealthcheck_items", &clusterChecks) {
		collectClusterChecks(to, clusterChecks.Items)
	}
}

func list(ctx context.Context, cached client.Reader, to chan<- prometheus.Metric, kind string, into client.ObjectList) bool {
	if err := cached.List(ctx, into, client.UnsafeDisableDeepCopy); err != nil {
		gauge(to, collectorUp, 0, kind)
		return false
	}
	gauge(to, collectorUp, 1, kind)
	return true
}

func gauge(to chan<- prometheus.Metric, of *prometheus.Desc, value float64, labels ...string) {
	if metric, err := prometheus.NewConstMetric(of, prometheus.GaugeValue, value, labels...); err == nil {
		to <- metric
	}
}

func collectMachines(to chan<- prometheus.Metric, machines []machinev1beta1.Machine) {
	type wait struct {
		stage  deletion.DeletionStage
		reason string
	}
	waiting := map[wait]int{}
	for _, m := range machines {
		if !m.DeletionTimestamp.IsZero() {
			stage, reason := deletion.StageOpenShift(&m)
			waiting[wait{stage, reason}]++
		}
		if phase := ptr.Deref(m.Status.Phase, ""); phase != "" { // as upstream: no controller has seen the others
			gauge(to, machineCreated, float64(m.CreationTimestamp.Unix()), m.Name, m.Namespace,
				ptr.Deref(m.Spec.ProviderID, ""), ptr.Deref(m.Status.NodeRef, corev1.ObjectReference{}).Name, apiVersion, phase)
		}
	}
	gauge(to, machineItems, float64(len(machines)))
	for of, count := range waiting {
		gauge(to, deletionsWaiting, float64(count), string(of.stage), of.reason)
	}
}

var apiVersion = machinev1beta1.GroupVersion.String()

func collectSets(to chan<- prometheus.Metric, sets []machinev1beta1.MachineSet) {
	gauge(to, machineSetItems, float64(len(sets)))
	for _, s := range sets {
		gauge(to, machineSetMade, float64(s.CreationTimestamp.Unix()), s.Name, s.Namespace, apiVersion)
		gauge(to, replicas, float64(s.Status.Replicas), s.Name, s.Namespace)
		gauge(to, replicasReady, float64(s.Status.ReadyReplicas), s.Name, s.Namespace)
		gauge(to, replicasAvail, float64(s.Status.AvailableReplicas), s.Name, s.Namespace)
	}
}

func collectChecks(to chan<- prometheus.Metric, checks []machinev1beta1.MachineHealthCheck) {
	for _, check := range checks {
		gauge(to, nodesCovered, float64(ptr.Deref(check.Status.ExpectedMachines, 0)), check.Name, check.Namespace)
		isShort := conditions.Find(check.Status.Conditions, machinev1beta1.RemediationAllowedCondition).Status == corev1.ConditionFalse
		gauge(to, shortCircuit, oneIf(isShort), check.Name, check.Namespace)
		unhealthy := ptr.Deref(check.Status.ExpectedMachines, 0) - ptr.Deref(check.Status.CurrentHealthy, 0)
		gauge(to, checkUnhealthy, float64(unhealthy), machinev1beta1.GroupName, check.Name, check.Namespace)
		gauge(to, checkStopped, oneIf(isShort), machinev1beta1.GroupName, check.Name, check.Namespace)
	}
}

func collectClusterChecks(to chan<- prometheus.Metric, checks []clusterv1.MachineHealthCheck) {
	for _, check := range checks {
		unhealthy := ptr.Deref(check.Status.ExpectedMachines, 0) - ptr.Deref(check.Status.CurrentHealthy, 0)
		isStopped := meta.IsStatusConditionFalse(check.Status.Conditions, clusterv1.MachineHealthCheckRemediationAllowedCondition)
		gauge(to, checkUnhealthy, float64(unhealthy), clusterv1.GroupVersion.Group, check.Name, check.Namespace)
		gauge(to, checkStopped, oneIf(isStopped), clusterv1.GroupVersion.Group, check.Name, check.Namespace)
	}
}

func collectControlPlanes(to chan<- prometheus.Metric, sets []machinev1.ControlPlaneMachineSet) {
	for _, s := range sets {
		gauge(to, setDesired, float64(ptr.Deref(s.Spec.Replicas, 0)), s.Name, s.Namespace)
		gauge(to, setReplicas, float64(s.Status.Replicas), s.Name, s.Namespace)
		gauge(to, setUpdated, float64(s.Status.UpdatedReplicas), s.Name, s.Namespace)
		gauge(to, setReady, float64(s.Status.ReadyReplicas), s.Name, s.Namespace)
		gauge(to, setUnavailable, float64(s.Status.UnavailableReplicas), s.Name, s.Namespace)
		state, reason := string(s.Spec.State), ""
		degraded := meta.FindStatusCondition(s.Status.Conditions, controlplane.Degraded)
		isDegraded := degraded != nil && degraded.Status == metav1.ConditionTrue
		if isDegraded {
			reason = degraded.Reason
		}
		gauge(to, setDegraded, oneIf(isDegraded), s.Name, s.Namespace, state, reason)
		isProgressing := meta.IsStatusConditionTrue(s.Status.Conditions, controlplane.Progressing)
		gauge(to, setProgressing, oneIf(isProgressing), s.Name, s.Namespace, state, string(s.Spec.Strategy.Type))
	}
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
