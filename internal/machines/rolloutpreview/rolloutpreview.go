// Package rolloutpreview previews how a MachineDeployment of Cluster API, a RunlevelControlPlane or a
// ControlPlaneMachineSet of OpenShift's API changes its machines: which are updated in place, which are replaced and
// why, and in which order. It changes nothing: it reads the cluster, asks extensions whether they can do the change,
// and simulates the rollout by the rules of the controllers (packages rolloutplan and rolloutrules, and Judge of both
// packages controlplane).
//
// In the simulation, created machines become available, and updates and deletions are completed. Other influences on
// the order, such as the duration of drains, are not simulated.
//
// Start with Make. Read reads the wanted object from a file.
package rolloutpreview

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	machinev1 "github.com/openshift/api/machine/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/machines/capi/controlplane/v1alpha1"
)

// The kinds that have a preview.
var (
	DeploymentKind             = clusterv1.GroupVersion.WithKind("MachineDeployment")
	RunlevelControlPlaneKind   = v1alpha1.GroupVersion.WithKind("RunlevelControlPlane")
	ControlPlaneMachineSetKind = machinev1.GroupVersion.WithKind("ControlPlaneMachineSet")
)

// KindOf returns the kind of a name that kubectl accepts; nil if the kind has no preview.
func KindOf(name string) *schema.GroupVersionKind {
	name, _, _ = strings.Cut(strings.ToLower(name), ".")
	switch name {
	case "controlplanemachineset", "controlplanemachinesets":
		return &ControlPlaneMachineSetKind
	case "runlevelcontrolplane", "runlevelcontrolplanes", "rcp":
		return &RunlevelControlPlaneKind
	}
	if strings.HasPrefix(name, "machinedeployment") {
		return &DeploymentKind
	}
	return nil
}

// A Query is the input of a preview.
type Query struct {
	Kind            schema.GroupVersionKind
	Namespace, Name string
	Wanted          *Wanted // nil for the object of the cluster; required for a MachineDeployment
	Extension       ExtensionQuery
}

// An ExtensionQuery names an extension to call instead of those of the cluster's ExtensionConfigs. The URL may
// be empty.
type ExtensionQuery struct {
	URL string
	CA  []byte
}

// A Preview is the result: a DeploymentPreview, or a ControlPlanePreview.
type Preview interface {
	// Lines returns the preview as text.
	Lines() []string
	// IsComplete reports whether all is known, and the rollout ends.
	IsComplete() bool
}

// Make returns how an object changes the existing machines.
func Make(ctx context.Context, c *cluster.Cluster, q Query) (Preview, error) {
	switch q.Kind {
	case ControlPlaneMachineSetKind:
		return previewSet(ctx, c, q)
	case RunlevelControlPlaneKind:
		return previewPlane(ctx, c, q)
	}
	return previewDeployment(ctx, c, q)
}

// callTimeout limits all calls of extensions together.
const callTimeout = time.Minute

// An Action is an action on a machine.
type Action string

// The actions.
const (
	UpdateInPlace Action = "UpdateInPlace"
	CreateMachine Action = "Create"
	DeleteMachine Action = "Delete"
)

// actionTexts are the actions as text.
var actionTexts = map[Action]string{
	UpdateInPlace: "update in place", CreateMachine: "create", DeleteMachine: "delete",
}

// A Step is an action on one machine. The steps of a round can be done at the same time.
type Step struct {
	Round         int    `json:"round"`
	Action        Action `json:"action"`
	Machine       string `json:"machine"`         // "new 1" and so on for a created one
	Index         *int   `json:"index,omitempty"` // index in a ControlPlaneMachineSet
	FailureDomain string `json:"failureDomain,omitempty"`
	Reason        string `json:"reason"`
}

// A Rollout contains the steps of a simulation.
type Rollout struct {
	Steps  []Step         `json:"steps"`
	Totals map[string]int `json:"totals"` // number of machines by action
}

func newRollout() Rollout { return Rollout{Steps: []Step{}, Totals: map[string]int{}} }

func (r *Rollout) add(step Step) {
	r.Steps = append(r.Steps, step)
	r.Totals[string(step.Action)]++
}

// has reports whether a step does an action on a machine.
func (r *Rollout) has(action Action, machine string) bool {
	return slices.ContainsFunc(r.Steps, func(step Step) bool {
		return step.Action == action && step.Machine == machine
	})
}

// lines returns the steps and the totals as text. Rollouts of machines that can't be updated in place omit the updates.
func (r *Rollout) lines(canUpdate bool) []string {
	width, updates := len(actionTexts[CreateMachine]), ""
	if canUpdate {
		width = len(actionTexts[UpdateInPlace])
		updates = fmt.Sprintf("updated in place: %d, ", r.Totals[string(UpdateInPlace)])
	}
	var lines []string
	for _, step := range r.Steps {
		reason := strings.TrimPrefix(position(step.Index, step.FailureDomain)+": "+step.Reason, ": ")
		action := actionTexts[step.Action]
		lines = append(lines, fmt.Sprintf("%3d  %-*s  %s  (%s)", step.Round, width, action, step.Machine, reason))
	}
	return append(lines, fmt.Sprintf("%screated: %d, deleted: %d",
		updates, r.Totals[string(CreateMachine)], r.Totals[string(DeleteMachine)]))
}

// position returns an index and a failure domain as text; "" if both are absent.
func position(index *int, domain string) string {
	switch {
	case index == nil:
		return domain
	case domain == "":
		return fmt.Sprintf("index %d", *index)
	}
	return fmt.Sprintf("index %d, %s", *index, domain)
}

// roundsPerMachine bounds the rounds of a simulation. A rollout has far fewer.
const roundsPerMachine = 10
