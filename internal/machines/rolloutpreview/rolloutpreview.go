// Package rolloutpreview says what a change of a MachineDeployment of Cluster API would do to its machines: which are updated in
// place, which are replaced and why, and in which order. It changes nothing: it reads the cluster, asks extensions whether they can
// do the change, and plays the rollout by the rules that the controllers follow (packages rolloutplan and rolloutrules).
//
// In the play, machines that are made become available, and updates and deletions come to their end. What the order depends on
// beyond that, such as drains that take their time, is not foreseen.
//
// Preview is the call to start from.
package rolloutpreview

import (
	"context"
	"fmt"
	"time"

	"github.com/runlevel/runlevel/internal/cluster"
)

// A RolloutPreview is what would be done.
type RolloutPreview struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Unanswered says why it is not known whether machines can be updated in place; there are no steps then.
	Unanswered string         `json:"unanswered,omitempty"`
	Sets       []SetDecision  `json:"machineSets"` // those whose machines are outdated, the oldest first
	Steps      []PreviewStep  `json:"steps"`
	Totals     map[string]int `json:"totals"` // how many machines there are of each action
	// IsStuck says that the rollout does not end: a machine that is not available keeps it from going on, say.
	IsStuck bool `json:"isStuck,omitempty"`
}

// A SetDecision says what becomes of the machines of an outdated MachineSet.
type SetDecision struct {
	MachineSet string   `json:"machineSet"`
	Machines   int      `json:"machines"`
	Changes    []string `json:"changes"` // what of its template is outdated
	InPlace    bool     `json:"inPlace"`
	Extension  string   `json:"extension,omitempty"` // that was asked
	Reasons    []string `json:"reasons,omitempty"`   // why machines are not updated in place
}

// A PreviewAction is what is done to a machine.
type PreviewAction string

// What is done to machines.
const (
	UpdateInPlace PreviewAction = "UpdateInPlace"
	CreateMachine PreviewAction = "Create"
	DeleteMachine PreviewAction = "Delete"
)

// A PreviewStep is done to one machine. Steps of one round may be done at the same time.
type PreviewStep struct {
	Round   int           `json:"round"`
	Action  PreviewAction `json:"action"`
	Machine string        `json:"machine"` // "new 1" and so on for one that is yet to be made
	Reason  string        `json:"reason,omitempty"`
}

// A PreviewQuery says what is asked.
type PreviewQuery struct {
	Namespace string
	Wanted    *WantedObjects
	// URL and CA are of an extension that is asked instead of those of the cluster's ExtensionConfigs; the URL may be empty.
	URL string
	CA  []byte
}

// Preview says what the wanted MachineDeployment would do to the machines that are there.
func Preview(ctx context.Context, c *cluster.Cluster, q PreviewQuery) (*RolloutPreview, error) {
	f, err := gather(ctx, c, q)
	if err != nil {
		return nil, err
	}
	p := &RolloutPreview{Namespace: q.Namespace, Name: q.Wanted.deployment.Name, Sets: []SetDecision{}, Steps: []PreviewStep{}, Totals: map[string]int{}}
	p.decide(ctx, c, f, q)
	if p.Unanswered == "" {
		simulate(f, p)
	}
	return p, nil
}

// Lines are the preview for people.
func (p *RolloutPreview) Lines() []string {
	lines := []string{fmt.Sprintf("MachineDeployment %s/%s", p.Namespace, p.Name)}
	for _, d := range p.Sets {
		lines = append(lines, d.lines(p.Unanswered != "")...)
	}
	switch {
	case len(p.Sets) == 0 && len(p.Steps) == 0:
		return append(lines, "no machine is updated or replaced: what changes reaches the machines that are there")
	case p.Unanswered != "":
		return append(lines, "not asked: "+p.Unanswered)
	}
	lines = append(lines, "")
	words := map[PreviewAction]string{UpdateInPlace: "update in place", CreateMachine: "create", DeleteMachine: "delete"}
	for _, s := range p.Steps {
		lines = append(lines, fmt.Sprintf("%3d  %-15s  %s  (%s)", s.Round, words[s.Action], s.Machine, s.Reason))
	}
	lines = append(lines, fmt.Sprintf("updated in place: %d, created: %d, deleted: %d",
		p.Totals[string(UpdateInPlace)], p.Totals[string(CreateMachine)], p.Totals[string(DeleteMachine)]))
	if p.IsStuck {
		lines = append(lines, "the rollout stops there: see which machines are not available, with \"runlevel machines\"")
	}
	return lines
}

// lines tell of the machines of one set.
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

// callTimeout bounds what extensions are waited for altogether.
const callTimeout = time.Minute
