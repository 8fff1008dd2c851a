// Package rolloutpreview returns what a change of a MachineDeployment of Cluster API would do to its machines: which
// are updated in place, which are replaced and why, and in which order; and the same of a RunlevelControlPlane, and of
// a ControlPlaneMachineSet of OpenShift's API. It changes nothing: it reads the cluster, asks extensions whether they
// can do the change, and simulates the rollout by the rules of the controllers (packages rolloutplan and rolloutrules,
// and Judge of both packages controlplane).
//
// In the simulation, created machines become available, and updates and deletions are completed. Other influences on
// the order, such as the duration of drains, are not simulated.
//
// Preview, PreviewControlPlane and PreviewRunlevelControlPlane are the calls to start from.
package rolloutpreview

import (
	"context"
	"fmt"
	"time"

	"github.com/runlevel/runlevel/internal/cluster"
)

// A RolloutPreview is the steps of a rollout.
type RolloutPreview struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Unanswered is why it is not known whether machines can be updated in place; there are no steps then.
	Unanswered string         `json:"unanswered,omitempty"`
	Sets       []SetDecision  `json:"machineSets"` // with outdated machines, the oldest first
	Steps      []PreviewStep  `json:"steps"`
	Totals     map[string]int `json:"totals"` // number of machines by action
	// IsStuck is true if the rollout does not end, for example because of a machine that is not available.
	IsStuck bool `json:"isStuck,omitempty"`
}

// A SetDecision is whether the machines of an outdated MachineSet are updated in place or replaced.
type SetDecision struct {
	MachineSet string   `json:"machineSet"`
	Machines   int      `json:"machines"`
	Changes    []string `json:"changes"` // outdated fields of its template
	InPlace    bool     `json:"inPlace"`
	Extension  string   `json:"extension,omitempty"` // that answered
	Reasons    []string `json:"reasons,omitempty"`   // why machines are not updated in place
}

// A PreviewAction is an action on a machine.
type PreviewAction string

// The actions.
const (
	UpdateInPlace PreviewAction = "UpdateInPlace"
	CreateMachine PreviewAction = "Create"
	DeleteMachine PreviewAction = "Delete"
)

// A PreviewStep is an action on one machine. The steps of a round may be done at the same time.
type PreviewStep struct {
	Round   int           `json:"round"`
	Action  PreviewAction `json:"action"`
	Machine string        `json:"machine"` // "new 1" and so on for a created one
	Reason  string        `json:"reason,omitempty"`
}

// A PreviewQuery is the input of Preview.
type PreviewQuery struct {
	Namespace string
	Wanted    *WantedObjects
	Extension ExtensionQuery
}

// An ExtensionQuery names an extension that is called instead of those of the cluster's ExtensionConfigs. The URL may
// be empty.
type ExtensionQuery struct {
	URL string
	CA  []byte
}

// Preview returns what the wanted MachineDeployment would do to the existing machines.
func Preview(ctx context.Context, c *cluster.Cluster, q PreviewQuery) (*RolloutPreview, error) {
	f, err := gather(ctx, c, q)
	if err != nil {
		return nil, err
	}
	p := &RolloutPreview{
		Namespace: q.Namespace,
		Name:      q.Wanted.deployment.Name,
		Sets:      []SetDecision{},
		Steps:     []PreviewStep{},
		Totals:    map[string]int{},
	}
	p.decide(ctx, c, f, q)
	if p.Unanswered == "" {
		simulate(f, p)
	}
	return p, nil
}

// Lines returns the preview as text.
func (p *RolloutPreview) Lines() []string {
	lines := []string{fmt.Sprintf("MachineDeployment %s/%s", p.Namespace, p.Name)}
	for _, d := range p.Sets {
		lines = append(lines, d.lines(p.Unanswered != "")...)
	}
	switch {
	case len(p.Sets) == 0 && len(p.Steps) == 0:
		return append(lines, "no machine is updated or replaced: the changed fields are updated on the existing "+
			"machines")
	case p.Unanswered != "":
		return append(lines, "not asked: "+p.Unanswered)
	}
	lines = append(lines, "")
	words := map[PreviewAction]string{
		UpdateInPlace: "update in place",
		CreateMachine: "create",
		DeleteMachine: "delete",
	}
	for _, s := range p.Steps {
		lines = append(lines, fmt.Sprintf("%3d  %-15s  %s  (%s)", s.Round, words[s.Action], s.Machine, s.Reason))
	}
	lines = append(lines, fmt.Sprintf("updated in place: %d, created: %d, deleted: %d",
		p.Totals[string(UpdateInPlace)], p.Totals[string(CreateMachine)], p.Totals[string(DeleteMachine)]))
	if p.IsStuck {
		lines = append(lines, "the rollout stops there: see which machines are not available, with \"runlevel "+
			"machines\"")
	}
	return lines
}

// lines returns the decision for the machines of one set as text.
func (d *SetDecision) lines(isUnknown bool) []string {
	lines := []string{fmt.Sprintf("MachineSet %s, machines: %d", d.MachineSet, d.Machines)}
	for _, change := range d.Changes {
		lines = append(lines, "  changes: "+change)
	}
	switch {
	case isUnknown:
	case d.InPlace:
		lines = append(lines, "  updated in place by extension "+d.Extension)
	default:
		for _, reason := range d.Reasons {
			lines = append(lines, "  replaced: "+reason)
		}
	}
	return lines
}

// callTimeout limits all calls of extensions together.
const callTimeout = time.Minute
