package controlplane

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	machinev1 "github.com/openshift/api/machine/v1"
	"sigs.k8s.io/yaml"
)

func TestSpreadAmongFailureDomains(t *testing.T) {
	build := func(domain int) placement { return placement{domain: domain} }
	leaving := func(domain int) placement { return placement{domain: domain, isLeaving: true} }
	for name, test := range map[string]struct {
		indexes []int
		current map[int]placement
		domains int
		want    map[int]int
	}{
		"no domains":                  {[]int{0, 1, 2}, nil, 0, map[int]int{}},
		"no machines":                 {[]int{0, 1, 2}, nil, 3, map[int]int{0: 0, 1: 1, 2: 2}},
		"fewer domains than machines": {[]int{0, 1, 2}, nil, 2, map[int]int{0: 0, 1: 1, 2: 0}},
		"five machines":               {[]int{0, 1, 2, 3, 4}, nil, 3, map[int]int{0: 0, 1: 1, 2: 2, 3: 0, 4: 1}},
		"machines stay where they are": {[]int{0, 1, 2}, map[int]placement{0: build(2), 1: build(0), 2: build(1)}, 3,
			map[int]int{0: 2, 1: 0, 2: 1}},
		"other weights are balanced": {[]int{0, 1, 2, 3, 4}, map[int]placement{
			0: build(0),
			1: build(1),
			2: build(1),
			3: build(2),
			4: build(2),
		}, 3, map[int]int{0: 0, 1: 1, 2: 1, 3: 2, 4: 2}},
		"two domains more than needed": {[]int{0, 1, 2}, map[int]placement{0: build(4), 1: build(3), 2: build(1)}, 5,
			map[int]int{0: 4, 1: 3, 2: 1}},
		"domains are added": {[]int{0, 1, 2}, map[int]placement{0: build(0), 1: build(0), 2: build(0)}, 3,
			map[int]int{0: 0, 1: 1, 2: 2}},
		"a domain is removed": {[]int{0, 1, 2}, map[int]placement{0: build(0), 1: build(noDomain), 2: build(1)}, 2,
			map[int]int{0: 0, 1: 0, 2: 1}},
		"a machine in a domain too far": {[]int{0, 1, 2}, map[int]placement{0: build(1), 1: build(0), 2: build(0)}, 3,
			map[int]int{0: 1, 1: 0, 2: 2}},
		"one that leaves is moved": {[]int{0, 1, 2}, map[int]placement{0: leaving(0), 1: build(0), 2: build(2)}, 3,
			map[int]int{0: 1, 1: 0, 2: 2}},
		"one that leaves is replaced": {[]int{0, 1, 2}, map[int]placement{0: build(0), 1: leaving(1), 2: build(2)}, 3,
			map[int]int{0: 0, 1: 1, 2: 2}},
		"indexes that begin with three": {[]int{3, 4, 5}, map[int]placement{4: build(0)}, 3,
			map[int]int{3: 1, 4: 0, 5: 2}},
	} {
		if diff := cmp.Diff(test.want, spread(test.indexes, test.current, test.domains)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestFailureDomainsAreMergedIntoTheInfrastructure has a template for each way to write failure domains.
func TestFailureDomainsAreMergedIntoTheInfrastructure(t *testing.T) {
	for name, test := range map[string]struct{ template, want string }{
		"AWS": {`{platform: AWS, aws: [{placement: {availabilityZone: a}, subnet: {type: ID, id: s}}]}`,
			`{size: 2, placement: {tenancy: one, availabilityZone: a}, subnet: {type: ID, id: s}}`},
		"Azure": {`{platform: Azure, azure: [{zone: "1", subnet: s}]}`,
			`{size: 2, placement: {tenancy: one}, zone: "1", subnet: s}`},
		"GCP": {`{platform: GCP, gcp: [{zone: a}]}`, `{size: 2, placement: {tenancy: one}, zone: a}`},
		"OpenStack": {`{platform: OpenStack, openstack: [{availabilityZone: a, rootVolume: {volumeType: fast}}]}`,
			`{size: 2, placement: {tenancy: one}, availabilityZone: a, rootVolume: {volumeType: fast}}`},
		"vSphere": {`{platform: VSphere, vsphere: [{name: a}]}`,
			`{size: 2, placement: {tenancy: one}, failureDomain: a}`},
		"Nutanix": {`{platform: Nutanix, nutanix: [{name: a}]}`,
			`{size: 2, placement: {tenancy: one}, failureDomain: a}`},
	} {
		template := readYAML(t, `{failureDomains: `+test.template+
			`, spec: {providerSpec: {value: {kind: K, spec: {size: 2, placement: {tenancy: one}}}}}}`)
		checkMerged(t, name, template, test.want)
	}
	own := readYAML(t,
		`{spec: {providerSpec: {value: {kind: K, failureDomains: [{rack: {row: 1}, size: 3}], spec: {size: 2}}}}}`)
	checkMerged(t, "of the provider", own, `{size: 3, rack: {row: 1}}`)
	both := readYAML(t,
		`{failureDomains: {platform: GCP, gcp: [{zone: a}]}, spec: {providerSpec: {value: {kind: K, failureDomains: [{zone: b}]}}}}`)
	if _, err := readTemplate(both); err == nil || !strings.Contains(err.Error(), "remove one of them") {
		t.Errorf("domains of both kinds: got error %v, want one that advises to remove one", err)
	}
}

func readYAML(t *testing.T, text string) *machinev1.OpenShiftMachineV1Beta1MachineTemplate {
	t.Helper()
	template := &machinev1.OpenShiftMachineV1Beta1MachineTemplate{}
	if err := yaml.Unmarshal([]byte(text), template); err != nil {
		t.Fatal(err)
	}
	return template
}

func checkMerged(t *testing.T, name string, template *machinev1.OpenShiftMachineV1Beta1MachineTemplate, wanted string) {
	t.Helper()
	read, err := readTemplate(template)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	machine := read.wanted(0)
	got, _ := yaml.Marshal(machine["spec"])
	var want any
	if err := yaml.Unmarshal([]byte(wanted), &want); err != nil {
		t.Fatal(err)
	}
	normal, _ := yaml.Marshal(want)
	if diff := cmp.Diff(string(normal), string(got)); diff != "" || len(machine) != 2 {
		t.Errorf("%s: %v (-want +got):\n%s", name, machine, diff)
	}
	if read.domainOf(machine) != 0 || read.domainOf(read.wanted(noDomain)) != noDomain {
		t.Errorf("%s: got another domain than 0 for its machine", name)
	}
}
