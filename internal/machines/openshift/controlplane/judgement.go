package controlplane

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	machinev1 "github.com/openshift/api/machine/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// A SetJudgement is what the controller concludes from a set and its machines: what it would do next, or what stops it.
// Views and previews are made of it, so that they differ from the controller in nothing.
type SetJudgement struct {
	Machines []JudgedMachine // in the order of their indexes; of an index, the older one first
	// Reason and Message are those of the condition Degraded; empty if nothing stops the controller.
	Reason, Message string
	Adopt, Delete   []string
	Create          []int // the indexes of new machines
	Waits           []string
	// IsOfPlatform is true if the template has a provider spec of OpenShift, whose fields and failure domains only
	// OpenShift's controller knows: whether machines are outdated is not known.
	IsOfPlatform bool
	of           *Snapshot
}

// A JudgedMachine is a machine of a set.
type JudgedMachine struct {
	Name       string
	Index      int
	IsReady    bool
	IsOutdated bool // its providerSpec is not the one that its index is to have
	IsDeleting bool
	// Changes are the fields of its providerSpec that differ.
	Changes []string
	// FailureDomain has the fields of the failure domain that it is in; empty if there is none.
	FailureDomain string
}

// IsUpToDate reports whether the set counts a machine as updated.
func (m JudgedMachine) IsUpToDate() bool { return m.IsReady && !m.IsOutdated && !m.IsDeleting }

// Judge returns what the controller concludes from a set, the Machines of its namespace, and the nodes of the cluster.
func Judge(set *machinev1.ControlPlaneMachineSet, machines []machinev1beta1.Machine, nodes []corev1.Node,
	now time.Time) *SetJudgement {
	c := observe(set, machines, nodes, now)
	judged := &SetJudgement{
		Reason: c.problem.Reason, Message: c.problem.Message, of: c,
		Adopt: c.adopt, Delete: c.plan.Delete, Create: c.plan.Create, Waits: c.plan.Waits,
	}
	if c.template != nil {
		version, _ := c.template.value["apiVersion"].(string)
		judged.IsOfPlatform = strings.HasPrefix(version, machinev1beta1.GroupName+"/")
	}
	for _, slot := range c.slots {
		for _, m := range slot.Machines {
			value := valueOf(c.machines[m.Name])
			of := JudgedMachine{
				Name: m.Name, Index: m.Index, IsReady: m.IsReady, IsOutdated: m.IsOutdated, IsDeleting: m.IsDeleting,
				FailureDomain: c.template.describe(c.template.domainOf(value)),
			}
			if m.IsOutdated {
				of.Changes = changesOf(value, c.template.wanted(c.domain(m.Index)))
			}
			judged.Machines = append(judged.Machines, of)
		}
	}
	return judged
}

// FailureDomain returns the fields of the failure domain that the machines of an index are to be in; empty if there is
// none.
func (j *SetJudgement) FailureDomain(index int) string {
	return j.of.template.describe(j.of.domain(index))
}

// Adopted returns a machine as it is once the set owns it.
func (j *SetJudgement) Adopted(machine *machinev1beta1.Machine) *machinev1beta1.Machine {
	return j.of.adopted(machine)
}

// NewMachine returns the machine that the set would create for an index.
func (j *SetJudgement) NewMachine(index int, suffix string) (*machinev1beta1.Machine, error) {
	return j.of.newMachine(index, suffix)
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

// mostOfValue is how much of the value of a field is shown.
const mostOfValue = 60

// valueText returns a value of a field as JSON, in a few words.
func valueText(value any) string {
	if value == nil {
		return "not set"
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return printable.Truncate(string(text), mostOfValue)
}

// describe returns the fields of the failure domain of a number.
func (t *machineTemplate) describe(domain int) string {
	if domain == none {
		return ""
	}
	return strings.Join(fieldsOf("", t.domains[domain]), ", ")
}

// fieldsOf returns the fields below a path with their values.
func fieldsOf(path string, of map[string]any) []string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		switch value := of[name].(type) {
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
