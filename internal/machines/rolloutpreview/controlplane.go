package rolloutpreview

import (
	"fmt"
)

// A ControlPlanePreview is the preview of a ControlPlaneMachineSet, or of a RunlevelControlPlane.
type ControlPlanePreview struct {
	APIGroup  string `json:"apiGroup"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	State     string `json:"state"` // the preview of an Inactive or Paused control plane shows its rollout once Active
	Strategy  string `json:"strategy"`
	// Unanswered is the problem because of which the extensions have not decided whether a machine can be updated in
	// place. The steps end before that machine.
	Unanswered string `json:"unanswered,omitempty"`
	// Degraded is the reason why the set does nothing, and Message the remedy for an administrator.
	Degraded string `json:"degraded,omitempty"`
	Message  string `json:"message,omitempty"`
	// existing machines in the order of their indexes, or the oldest first
	Machines []PreviewedMachine `json:"machines"`
	Rollout
	Waits []string `json:"waits,omitempty"` // the conditions that the last step waits for
	// IsStuck is true if the replacement does not end, for example because of an unready machine.
	IsStuck bool `json:"isStuck,omitempty"`
}

func newControlPlanePreview(q Query, state, strategy string) *ControlPlanePreview {
	return &ControlPlanePreview{
		APIGroup: q.Kind.Group, Kind: q.Kind.Kind, Namespace: q.Namespace, Name: q.Name,
		State: state, Strategy: strategy, Machines: []PreviewedMachine{}, Rollout: newRollout(),
	}
}

// A PreviewedMachine is a machine of a control plane, and its outcome.
type PreviewedMachine struct {
	Name          string         `json:"name"`
	Index         *int           `json:"index,omitempty"` // index in a ControlPlaneMachineSet
	FailureDomain string         `json:"failureDomain,omitempty"`
	Outcome       MachineOutcome `json:"outcome"`
	Changes       []string       `json:"changes,omitempty"`   // outdated fields, for example of its providerSpec
	Extension     string         `json:"extension,omitempty"` // the extension that has answered
	Reasons       []string       `json:"reasons,omitempty"`   // the reasons against an update in place
}

// A MachineOutcome is the result of a rollout for a machine.
type MachineOutcome string

// The outcomes.
const (
	Stays        MachineOutcome = "Stays"
	IsReplaced   MachineOutcome = "Replaced"
	IsUpdated    MachineOutcome = "UpdatedInPlace"
	IsDeleted    MachineOutcome = "Deleted"      // it is one too many
	IsDeleting   MachineOutcome = "Deleting"     // since before the preview
	DeleteByHand MachineOutcome = "DeleteByHand" // it is replaced once an administrator deletes it
	IsOutdated   MachineOutcome = "Outdated"     // and the rollout ends before it is replaced
)

// outcomeTexts are the outcomes as text.
var outcomeTexts = map[MachineOutcome]string{
	Stays: "stays as it is", IsReplaced: "is replaced", IsDeleting: "is being deleted",
	DeleteByHand: "is replaced once it is deleted by hand", IsOutdated: "is outdated, and not replaced",
	IsUpdated: "is updated in place", IsDeleted: "is deleted",
}

// IsComplete implements Preview.
func (p *ControlPlanePreview) IsComplete() bool {
	return p.Degraded == "" && p.Unanswered == "" && !p.IsStuck
}

// Lines implements Preview.
func (p *ControlPlanePreview) Lines() []string {
	head := fmt.Sprintf("%s %s/%s: %s, %s", p.Kind, p.Namespace, p.Name, p.State, p.Strategy)
	if p.State != "Active" {
		head += "; the preview shows its rollout once it is Active"
	}
	lines := []string{head}
	for _, m := range p.Machines {
		lines = append(lines, m.lines()...)
	}
	switch {
	case len(p.Steps) > 0:
		lines = append(append(lines, ""), p.lines(p.Totals[string(UpdateInPlace)] > 0)...)
	case p.Degraded == "" && p.Unanswered == "":
		lines = append(lines, "no machine is created or deleted")
	}
	if p.Degraded != "" {
		lines = append(lines, fmt.Sprintf("Degraded (%s): %s", p.Degraded, p.Message),
			"it creates and deletes no machine until this is solved")
	}
	if p.Unanswered != "" {
		lines = append(lines, "not asked: "+p.Unanswered)
	}
	if p.IsStuck {
		lines = append(lines, "the replacement stops there")
	}
	for _, wait := range p.Waits {
		lines = append(lines, "it waits: "+wait)
	}
	return lines
}

func (m *PreviewedMachine) lines() []string {
	name := m.Name
	if text := position(m.Index, m.FailureDomain); text != "" {
		name += ", " + text
	}
	lines := []string{fmt.Sprintf("machine %s: %s", name, outcomeTexts[m.Outcome])}
	for _, change := range m.Changes {
		lines = append(lines, "  changes: "+change)
	}
	if m.Outcome == IsUpdated && m.Extension != "" {
		lines = append(lines, "  by extension "+m.Extension)
	}
	for _, reason := range m.Reasons {
		lines = append(lines, "  not in place: "+reason)
	}
	return lines
}
