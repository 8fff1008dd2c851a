package rolloutpreview

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/machines/capi/controlplane"
	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	"github.com/runlevel/runlevel/internal/machines/runtimehook"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// A planeSimulation simulates the rollout of a RunlevelControlPlane, step by step: the controller decides the next one,
// and when it waits, machines that start become available, and deletions and updates in place end. Remediations are not
// simulated.
type planeSimulation struct {
	cluster  *cluster.Cluster
	wanted   *WantedControlPlane
	judged   *controlplane.Snapshot
	hooks    *runtimehook.InPlaceHooks
	preview  *ControlPlanePreview
	machines []controlplane.Machine
	asked    map[string]runtimehook.Decision // of machines, by name
	made     int
}

// run adds to the preview what becomes of each machine, and the steps. It ends when the controller waits, and nothing
// ends.
func (s *planeSimulation) run(ctx context.Context, q ExtensionQuery) {
	existing := slices.Clone(s.machines)
	var unregistered error
	if s.hooks, unregistered = hooksOf(ctx, s.cluster, q); unregistered != nil {
		unregistered = printable.Error(unregistered)
	}
	for _, m := range s.machines {
		if m.IsUpdating && m.IsTriggered && !m.IsDeleting {
			s.addStep(UpdateInPlace, m, "it has begun")
		}
	}
	wanted, surge := s.judged.Limits()
	for range 10 * (len(existing) + wanted + surge) { // steps are far fewer
		step := s.judged.NextStep(s.machines)
		s.preview.Waits = step.Waits
		if step.Action == "" {
			if s.settle() {
				continue
			}
			break
		}
		if err := s.execute(ctx, step, unregistered); err != nil {
			s.preview.Unanswered = printable.Error(err).Error()
			break
		}
	}
	s.conclude(existing)
}

// execute does a step of the controller. It fails if it is not known whether a machine can be updated in place.
func (s *planeSimulation) execute(ctx context.Context, step controlplane.Step, unregistered error) error {
	if step.Action == controlplane.CreateMachine {
		s.create()
		return nil
	}
	at := slices.IndexFunc(s.machines, func(m controlplane.Machine) bool { return m.Name == step.Machine })
	m := &s.machines[at]
	action, reason := DeleteMachine, s.whyDeleted(*m)
	if step.Action != controlplane.DeleteMachine {
		decision, err := s.ask(ctx, m.Name, unregistered)
		if err != nil {
			return err
		}
		s.asked[m.Name] = decision
		if decision.CanUpdate {
			action, reason = UpdateInPlace, "by extension "+decision.Extension
		} else {
			reason = "it can't be updated in place"
		}
	}
	s.addStep(action, *m, reason)
	if action == UpdateInPlace {
		m.IsUpdating, m.IsTriggered, m.Outdated, m.Problem = true, true, nil, "in-place update in progress"
		return nil
	}
	m.IsDeleting, m.IsUpdating = true, false
	m.IsHeld = s.isHeld(m.Name)
	return nil
}

// ask asks the extension whether a machine can be updated in place, unless that is ruled out before.
func (s *planeSimulation) ask(ctx context.Context, name string, unregistered error) (runtimehook.Decision, error) {
	m := s.member(name)
	if reason := s.judged.RuledOut(m); reason != "" {
		return runtimehook.Decision{Reasons: []string{reason}}, nil
	}
	if unregistered != nil {
		return runtimehook.Decision{}, unregistered
	}
	objects := s.judged.Objects(m)
	template := s.wanted.plane.Spec.MachineTemplate.Spec
	infrastructure, err := s.wanted.updated(ctx, s.cluster, objects.Infrastructure, template.InfrastructureRef)
	if err != nil {
		return runtimehook.Decision{}, err
	}
	bootstrap, err := s.wanted.updated(ctx, s.cluster, objects.Bootstrap, template.Bootstrap.ConfigRef)
	if err != nil {
		return runtimehook.Decision{}, err
	}
	return s.hooks.CanUpdateMachine(ctx, s.judged.Request(m, infrastructure, bootstrap))
}

// member returns the Machine of a name; nil for a simulated one.
func (s *planeSimulation) member(name string) *clusterv1.Machine {
	for _, m := range s.judged.Members() {
		if m.Name == name {
			return m
		}
	}
	return nil
}

// isHeld reports whether a hook holds the deletion of a machine, so that its replacement is created at once.
func (s *planeSimulation) isHeld(name string) bool {
	m := s.member(name)
	if m == nil {
		return false
	}
	deleted := m.DeepCopy()
	deleted.DeletionTimestamp = &metav1.Time{}
	return rolloutrules.IsHeld(deleted)
}

// create creates a machine, which has still to start.
func (s *planeSimulation) create() {
	wanted, _ := s.judged.Limits()
	reason, staying := "one more than wanted, before an outdated one goes (maxSurge)", 0
	for _, m := range s.machines {
		if !m.IsDeleting {
			staying++
		}
	}
	if staying < wanted {
		reason = fmt.Sprintf("there are %d of %d machines", staying, wanted)
	}
	s.made++
	m := controlplane.Machine{
		Name: fmt.Sprintf("new %d", s.made), FailureDomain: s.judged.FailureDomain(s.machines),
		Created: s.cluster.Now(), Problem: "it has no Node yet", IsBroken: true,
	}
	s.machines = append(s.machines, m)
	s.addStep(CreateMachine, m, reason)
}

// whyDeleted returns why the controller deletes a machine without asking an extension.
func (s *planeSimulation) whyDeleted(m controlplane.Machine) string {
	switch {
	case !m.IsOutdated() && m.IsChosen:
		return "there is one machine too many, and it is annotated with " + clusterv1.DeleteMachineAnnotation
	case !m.IsOutdated():
		return "there is one machine too many"
	case !m.HasNode:
		return "it is outdated, and has never joined"
	case m.IsChosen:
		return "it is outdated, and annotated with " + clusterv1.DeleteMachineAnnotation
	case m.IsReplaced:
		return "it is outdated, and not to be updated in place: spec.rollout.after has passed, or it is unhealthy"
	case m.IsBroken:
		return "it is outdated, and not ready"
	}
	return "it is outdated, and enough machines are up to date"
}

func (s *planeSimulation) addStep(action PreviewAction, m controlplane.Machine, reason string) {
	s.preview.Steps = append(s.preview.Steps, ControlPlanePreviewStep{
		Round: len(s.preview.Steps) + 1, Action: action, Machine: m.Name, FailureDomain: m.FailureDomain,
		Reason: reason,
	})
	s.preview.Totals[string(action)]++
}

// settle ends deletions and updates in place, and has machines that start become available.
func (s *planeSimulation) settle() (isChanged bool) {
	before := len(s.machines)
	s.machines = slices.DeleteFunc(s.machines, func(m controlplane.Machine) bool { return m.IsDeleting })
	isChanged = len(s.machines) < before
	for i := range s.machines {
		m := &s.machines[i]
		if m.IsUpdating || !m.HasNode || m.Problem != "" && !m.IsBroken {
			m.IsUpdating, m.IsTriggered, m.HasNode, m.IsBroken, m.Problem = false, false, true, false, ""
			isChanged = true
		}
	}
	return isChanged
}

// conclude completes the preview: what becomes of the existing machines, and whether the rollout ends.
func (s *planeSimulation) conclude(existing []controlplane.Machine) {
	p := s.preview
	isDone := func(action PreviewAction, name string) bool {
		return slices.ContainsFunc(p.Steps, func(step ControlPlanePreviewStep) bool {
			return step.Action == action && step.Machine == name
		})
	}
	for _, m := range existing {
		asked := s.asked[m.Name]
		previewed := PreviewedMachine{
			Name: m.Name, FailureDomain: m.FailureDomain, Outcome: Stays, Changes: m.Outdated,
			Extension: asked.Extension, Reasons: asked.Reasons,
		}
		switch {
		case m.IsDeleting:
			previewed.Outcome = IsGoing
		case isDone(DeleteMachine, m.Name) && m.IsOutdated():
			previewed.Outcome = IsReplaced
		case isDone(DeleteMachine, m.Name):
			previewed.Outcome = IsDeleted
		case isDone(UpdateInPlace, m.Name), m.IsUpdating:
			previewed.Outcome = IsUpdated
		case m.IsOutdated():
			previewed.Outcome = IsOutdated
		}
		p.Machines = append(p.Machines, previewed)
	}
	wanted, _ := s.judged.Limits()
	isUpToDate := !slices.ContainsFunc(s.machines, func(m controlplane.Machine) bool {
		return m.IsOutdated() || m.IsDeleting || m.Problem != ""
	})
	p.IsStuck = p.Unanswered == "" && (len(s.machines) != wanted || !isUpToDate)
	if p.Unanswered != "" {
		p.Waits = nil
	}
	for i := range p.Waits {
		p.Waits[i] = strings.TrimSpace(printable.Line(p.Waits[i]))
	}
}
