package manager_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	machinev1 "github.com/openshift/api/machine/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"github.com/prometheus/client_golang/prometheus"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	controlplanev1alpha1 "github.com/runlevel/runlevel/internal/machines/capi/controlplane/v1alpha1"
	"github.com/runlevel/runlevel/internal/machines/manager"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

// TestMetricsOfSetsAndHealthChecks reads the metrics of a stopped set, and of health checks of both APIs.
func TestMetricsOfSetsAndHealthChecks(t *testing.T) {
	t.Parallel()
	own := machinetest.New(sandbox.Options{Nodes: sandbox.NoNodes}) // no controller writes its statuses
	t.Cleanup(func() { _ = own.Sandbox(t).Stop() })
	s := own.NewFixture(t)
	add := func(object client.Object, spec, status string) {
		t.Helper()
		s.Must(yaml.UnmarshalStrict([]byte(spec), object))
		object.SetNamespace(s.Namespace)
		s.MustCreate(object)
		s.MustPatchStatus(object, `{"status":%s}`, status)
	}
	const since = `"lastTransitionTime":"2026-01-02T03:05:00Z","message":"m"`
	add(&machinev1.ControlPlaneMachineSet{},
		`{metadata: {name: cluster}, spec: {state: Active, replicas: 3, selector: {matchLabels: {machine.openshift.io/cluster-api-machine-role: master}}, template: {
		machineType: machines_v1beta1_machine_openshift_io, machines_v1beta1_machine_openshift_io: {
			metadata: {labels: {machine.openshift.io/cluster-api-cluster: shop, machine.openshift.io/cluster-api-machine-role: master, machine.openshift.io/cluster-api-machine-type: master}},
			spec: {providerSpec: {value: {apiVersion: infrastructure.runlevel.dev/v1alpha1, kind: KwokMachine}}}}}}}`,
		`{"replicas":4,"readyReplicas":3,"updatedReplicas":1,"unavailableReplicas":1,"conditions":[{"type":"Degraded","status":"True","reason":"FailedReplacement",`+since+`},{"type":"Progressing","status":"False","reason":"OperatorDegraded",`+since+`}]}`)
	add(&machinev1beta1.MachineHealthCheck{}, `{metadata: {name: web}, spec: {selector: {matchLabels: {role: web}}}}`,
		`{"expectedMachines":5,"currentHealthy":2,"conditions":[{"type":"RemediationAllowed","status":"False","severity":"Warning","reason":"TooManyUnhealthy",`+since+`}]}`)
	add(&clusterv1.MachineHealthCheck{},
		`{metadata: {name: web}, spec: {clusterName: shop, selector: {matchLabels: {role: web}}, checks: {nodeStartupTimeoutSeconds: 600}}}`,
		`{"expectedMachines":5,"currentHealthy":4,"conditions":[{"type":"RemediationAllowed","status":"True","reason":"RemediationAllowed",`+since+`}]}`)
	add(&controlplanev1alpha1.RunlevelControlPlane{},
		`{metadata: {name: plane}, spec: {replicas: 3, version: v1.36.0, machineTemplate: {spec: {
		infrastructureRef: {apiGroup: infrastructure.runlevel.dev, kind: KwokMachineTemplate, name: small}, bootstrap: {dataSecretName: none}}}}}`,
		`{"replicas":3,"availableReplicas":1,"upToDateReplicas":2,"conditions":[{"type":"Available","status":"False","reason":"NotAvailable",`+since+`},{"type":"RollingOut","status":"True","reason":"RollingOut",`+since+`}]}`)
	served := collectMetrics(t, own.Client(t), manager.OpenShift, manager.ClusterAPI)
	for _, line := range []string{
		`runlevel_controlplane_replicas_desired{kind=ControlPlaneMachineSet,name=cluster} 3`,
		`runlevel_controlplane_replicas{kind=ControlPlaneMachineSet,name=cluster} 4`,
		`runlevel_controlplane_replicas_updated{kind=ControlPlaneMachineSet,name=cluster} 1`,
		`runlevel_controlplane_replicas_ready{kind=ControlPlaneMachineSet,name=cluster} 3`,
		`runlevel_controlplane_replicas_unavailable{kind=ControlPlaneMachineSet,name=cluster} 1`,
		`runlevel_controlplane_degraded{kind=ControlPlaneMachineSet,name=cluster,reason=FailedReplacement,state=Active} 1`,
		`runlevel_controlplane_progressing{kind=ControlPlaneMachineSet,name=cluster,state=Active,strategy=RollingUpdate} 0`,
		`runlevel_controlplane_replicas_desired{kind=RunlevelControlPlane,name=plane} 3`,
		`runlevel_controlplane_replicas_updated{kind=RunlevelControlPlane,name=plane} 2`,
		`runlevel_controlplane_replicas_unavailable{kind=RunlevelControlPlane,name=plane} 2`,
		`runlevel_controlplane_degraded{kind=RunlevelControlPlane,name=plane,reason=NotAvailable,state=Active} 1`,
		`runlevel_controlplane_progressing{kind=RunlevelControlPlane,name=plane,state=Active,strategy=RollingUpdate} 1`,
		`runlevel_machinehealthcheck_not_healthy{api=machine.openshift.io,name=web} 3`,
		`runlevel_machinehealthcheck_remediation_stopped{api=machine.openshift.io,name=web} 1`,
		`runlevel_machinehealthcheck_not_healthy{api=cluster.x-k8s.io,name=web} 1`,
		`runlevel_machinehealthcheck_remediation_stopped{api=cluster.x-k8s.io,name=web} 0`,
	} {
		if !slices.Contains(served, line) {
			t.Errorf("%s is not among:\n%s", line, strings.Join(served, "\n"))
		}
	}
	for _, line := range collectMetrics(t, own.Client(t), manager.OpenShift) {
		if strings.Contains(line, "cluster.x-k8s.io") || strings.Contains(line, "kind=RunlevelControlPlane") {
			t.Errorf("without its dialect: %s", line)
		}
	}
}

// collectMetrics returns the metrics that are computed from objects, without namespaces.
func collectMetrics(t *testing.T, reader client.Reader, dialects ...manager.Dialect) []string {
	t.Helper()
	metrics := make(chan prometheus.Metric, 1000)
	manager.Collect(t.Context(), reader, dialects, metrics)
	close(metrics)
	registry := prometheus.NewRegistry()
	registry.MustRegister(staticCollector{metrics})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				if label.GetName() != "namespace" {
					labels = append(labels, label.GetName()+"="+label.GetValue())
				}
			}
			lines = append(lines, fmt.Sprintf("%s{%s} %v", family.GetName(), strings.Join(labels, ","),
				metric.GetGauge().GetValue()))
		}
	}
	return lines
}

// staticCollector collects given metrics, once.
type staticCollector struct{ metrics <-chan prometheus.Metric }

func (staticCollector) Describe(chan<- *prometheus.Desc) {}

func (s staticCollector) Collect(metrics chan<- prometheus.Metric) {
	for metric := range s.metrics {
		metrics <- metric
	}
}
