package controlplane

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	machinev1 "github.com/openshift/api/machine/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// A failureDomain contains the fields that it sets in the spec of the infrastructure object of a machine.
type failureDomain map[string]any

// ownDomains is the field of providerSpec.value that has failure domains which spec.template's failureDomains can't
// express. It is in the template only, not in the machines.
const ownDomains = "failureDomains"

// A machineTemplate describes the machines of a set.
type machineTemplate struct {
	value   map[string]any // the infrastructure object, without a failure domain
	domains []failureDomain
}

// readTemplate returns the template of a set with its failure domains: those of a platform, or those of the provider.
func readTemplate(template *machinev1.OpenShiftMachineV1Beta1MachineTemplate) (*machineTemplate, error) {
	if template.Spec.ProviderSpec.Value == nil {
		return nil, errors.New("spec.template has no providerSpec.value: write the infrastructure object of a machine")
	}
	t := &machineTemplate{}
	if err := json.Unmarshal(template.Spec.ProviderSpec.Value.Raw, &t.value); err != nil {
		return nil, fmt.Errorf("providerSpec.value of spec.template is not an object: %w", err)
	}
	own, _, err := unstructured.NestedSlice(t.value, ownDomains)
	if err != nil {
		return nil, fmt.Errorf("providerSpec.value of spec.template: %w", err)
	}
	delete(t.value, ownDomains)
	listed, err := platformDomains(template.FailureDomains)
	if err != nil {
		return nil, err
	}
	if len(own) > 0 && len(listed) > 0 {
		return nil, errors.New("spec.template has failureDomains of a platform, and of the provider in " +
			"providerSpec.value: remove one of them")
	}
	for _, entry := range append(listed, own...) {
		fields, ok := entry.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("failure domain %v of spec.template is not an object: write the fields of the "+
				"infrastructure object that it sets", entry)
		}
		t.domains = append(t.domains, fields)
	}
	return t, nil
}

// platformDomains returns the failure domains of a platform. Those that only have a name set the field failureDomain.
func platformDomains(failureDomains *machinev1.FailureDomains) ([]any, error) {
	if failureDomains == nil || failureDomains.Platform == "" {
		return nil, nil
	}
	platforms, err := runtime.DefaultUnstructuredConverter.ToUnstructured(failureDomains)
	if err != nil {
		return nil, fmt.Errorf("read the failure domains of spec.template: %w", err)
	}
	list, _, err := unstructured.NestedSlice(platforms, strings.ToLower(string(failureDomains.Platform)))
	if err != nil {
		return nil, fmt.Errorf("read the failure domains of spec.template: %w", err)
	}
	if failureDomains.Platform == configv1.VSpherePlatformType ||
		failureDomains.Platform == configv1.NutanixPlatformType {
		for i, entry := range list {
			list[i] = map[string]any{"failureDomain": entry.(map[string]any)["name"]}
		}
	}
	return list, nil
}

// in returns the infrastructure object of a machine in a failure domain. A nil domain sets nothing; a nil object gets
// the domain's fields.
func (d failureDomain) in(value map[string]any) map[string]any {
	merged := runtime.DeepCopyJSON(value)
	if len(d) > 0 {
		merged = mergeFields(merged, map[string]any{"spec": map[string]any(d)})
	}
	return merged
}

func mergeFields(into, fields map[string]any) map[string]any {
	if into == nil {
		into = map[string]any{}
	}
	for name, value := range fields {
		if inner, ok := value.(map[string]any); ok {
			below, _ := into[name].(map[string]any)
			value = mergeFields(below, inner)
		}
		into[name] = runtime.DeepCopyJSONValue(value)
	}
	return into
}

// none means that a machine is in no failure domain.
const noDomain = -1

// domainOf returns the number of the failure domain that an infrastructure object is in, or none.
func (t *machineTemplate) domainOf(value map[string]any) int {
	return slices.IndexFunc(t.domains, func(d failureDomain) bool { return reflect.DeepEqual(d.in(value), value) })
}

// wanted returns the infrastructure object of a machine in the failure domain of a number.
func (t *machineTemplate) wanted(domain int) map[string]any {
	if domain == noDomain {
		return failureDomain(nil).in(t.value)
	}
	return t.domains[domain].in(t.value)
}

// A placement is the failure domain of the machine that has an index.
type placement struct {
	domain int
	// isLeaving is true if the machines of the index are all being deleted: another index keeps its domain before it.
	isLeaving bool
}

// spread assigns one of a number of failure domains to each index. The numbers of machines of two domains differ by one
// at most. An index keeps its domain if the balance allows it; otherwise it gets the domain with the fewest machines,
// the first in the list among equals.
func spread(indexes []int, current map[int]placement, domains int) map[int]int {
	assigned, counts := map[int]int{}, make([]int, domains)
	if domains == 0 {
		return assigned
	}
	least, larger := len(indexes)/domains, len(indexes)%domains
	for _, isLeaving := range []bool{false, true} {
		for _, index := range indexes {
			p, ok := current[index]
			if !ok || p.domain == noDomain || p.isLeaving != isLeaving || counts[p.domain] > least ||
				counts[p.domain] == least && larger == 0 {
				continue
			}
			if counts[p.domain] == least {
				larger--
			}
			assigned[index] = p.domain
			counts[p.domain]++
		}
	}
	for _, index := range indexes {
		if _, ok := assigned[index]; !ok {
			assigned[index] = slices.Index(counts, slices.Min(counts))
			counts[assigned[index]]++
		}
	}
	return assigned
}

// changesOf returns how the infrastructure object of a machine differs from the wanted one, a line for each field.
func changesOf(value, wanted map[string]any) []string {
	var changes []string
	for _, change := range fields.Diff(value, wanted) {
		changes = append(changes,
			fmt.Sprintf("%s is %s, wanted is %s", change.Path, valueText(change.Old), valueText(change.New)))
	}
	return changes
}

// maxOfValue limits the bytes shown of the value of a field.
const maxOfValue = 60

// valueText returns a value of a field as JSON, in a few words.
func valueText(value any) string {
	if value == nil {
		return "not set"
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return printable.Truncate(string(text), maxOfValue)
}

// describe returns the fields of the failure domain of a number.
func (t *machineTemplate) describe(domain int) string {
	if domain == noDomain {
		return ""
	}
	return strings.Join(fieldsOf("", t.domains[domain]), ", ")
}

// fieldsOf returns the fields below a path with their values.
func fieldsOf(path string, values map[string]any) []string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch value := values[name].(type) {
		case map[string]any:
			lines = append(lines, fieldsOf(path+name+".", value)...)
		case string:
			lines = append(lines, path+name+"="+value)
		default:
			lines = append(lines, path+name+"="+valueText(value))
		}
	}
	return lines
}
