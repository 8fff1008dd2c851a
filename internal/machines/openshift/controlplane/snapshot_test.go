package controlplane

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	machinev1 "github.com/openshift/api/machine/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/replicas"
)

// judgeOne judges a set whose template has an infrastructure object, and one machine that has another one.
func judgeOne(t *testing.T, template, value string) *Snapshot {
	t.Helper()
	set, machine := &machinev1.ControlPlaneMachineSet{}, machinev1beta1.Machine{}
	for text, into := range map[string]any{
		fmt.Sprintf(`{metadata: {name: cluster, namespace: shop}, spec: {state: Active, replicas: 3, selector: {matchLabels: {role: master}}, template: {
			machineType: machines_v1beta1_machine_openshift_io, machines_v1beta1_machine_openshift_io: {
				metadata: {labels: {role: master}}, spec: {providerSpec: {value: %s}}}}}}`, template): set,
		fmt.Sprintf(
			`{metadata: {name: m-1, namespace: shop, labels: {role: master}}, spec: {providerSpec: {value: %s}}}`,
			value,
		): &machine,
	} {
		if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	return Judge(set, []machinev1beta1.Machine{machine}, nil, time.Now())
}

// TestJudgedMachine checks the changes and the failure domain of an outdated machine.
func TestJudgedMachine(t *testing.T) {
	judged := judgeOne(t,
		`{apiVersion: example.com/v1, kind: Host, failureDomains: [{rack: a, net: {vlan: 7}}, {rack: b, net: {vlan: 8}}], spec: {size: large, disks: [{size: 10}], note: new}}`,
		`{apiVersion: example.com/v1, kind: Host, spec: {rack: b, net: {vlan: 8}, size: small, disks: [{size: 5}]}}`)
	want := []Machine{{
		Name: "m-1", Index: 1, Owner: replicas.Orphan, Detail: "new", IsOutdated: true,
		FailureDomain: "net.vlan=8, rack=b",
		Changes: []string{
			`spec.disks[0].size is 5, wanted is 10`, `spec.note is not set, wanted is "new"`,
			`spec.size is "small", wanted is "large"`,
		}}}
	if diff := cmp.Diff(want, judged.Machines); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if judged.IsOfPlatform || judged.FailureDomain(0) != "net.vlan=7, rack=a" || judged.Reason != noReadyMachines {
		t.Errorf("got %+v, failure domain %s, want %s, net.vlan=7, rack=a", judged, judged.FailureDomain(0),
			noReadyMachines)
	}
}

// TestProviderSpecsOfOpenShift are those whose failure domains are not in the fields that are compared here.
func TestProviderSpecsOfOpenShift(t *testing.T) {
	const aws = `{apiVersion: machine.openshift.io/v1beta1, kind: AWSMachineProviderConfig, placement: {region: x}}`
	if judged := judgeOne(t, aws, aws); !judged.IsOfPlatform {
		t.Errorf("got %+v, want a provider spec of OpenShift", judged)
	}
}

// TestInfrastructureObjectIsMissing is for a Machine without providerSpec.value, which the API allows, while the
// template has failure domains: the Machine is outdated, and is not in a failure domain.
func TestInfrastructureObjectIsMissing(t *testing.T) {
	judged := judgeOne(t, `{apiVersion: example.com/v1, kind: Host, failureDomains: [{rack: a}]}`, `null`)
	if m := judged.Machines[0]; !m.IsOutdated || m.FailureDomain != "" || len(m.Changes) == 0 {
		t.Errorf("got %+v, want outdated, with changes, without a failure domain", m)
	}
}

// TestDetailOfADeletion is for a machine that has hooks of both stages: only that of the current stage holds it.
func TestDetailOfADeletion(t *testing.T) {
	const both, atTheEnd = `{preDrain: [{name: Quorum, owner: etcd}], preTerminate: [{name: Logs, owner: logs}]}`,
		`{preTerminate: [{name: Logs, owner: logs}]}`
	const node, drained = `nodeRef: {name: node-1}`, `conditions: [{type: Drained, status: "True"}]`
	const goes = "its node is drained, or its infrastructure deleted"
	for name, c := range map[string]struct{ annotation, hooks, status, want string }{
		"before the drain": {hooks: both, status: node, want: "held by the hook Quorum of etcd"},
		"before the drain, but not drained": {
			annotation: deletion.ExcludeNodeDraining,
			hooks:      both,
			status:     node,
			want:       goes,
		},
		"before the drain, without a node": {hooks: both, want: goes},
		"while it is drained":              {hooks: atTheEnd, status: node, want: goes},
		"after the drain": {
			hooks:  both,
			status: node + ", " + drained,
			want:   "held by the hook Logs of logs",
		},
		"after the hooks": {hooks: `{}`, status: node + ", " + drained, want: goes},
	} {
		m := &machinev1beta1.Machine{}
		text := fmt.Sprintf(`{metadata: {deletionTimestamp: "2026-01-02T03:04:05Z", annotations: {%q: ""}}, spec: {lifecycleHooks: %s}, status: {%s}}`, c.annotation, c.hooks, c.status)
		if err := yaml.UnmarshalStrict([]byte(text), m); err != nil {
			t.Fatal(err)
		}
		if got := detailOf(m); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestIndexAnnotation gives machines whose names end with the same number their own indexes.
func TestIndexAnnotation(t *testing.T) {
	second := &machinev1beta1.Machine{}
	SetIndex(second, 1)
	want := map[string]int{"rack1-0": 0, "rack2-0": 1, "rack3-0": 0}
	got := indexesOf(map[string]*machinev1beta1.Machine{"rack1-0": {}, "rack2-0": second, "rack3-0": {}})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
