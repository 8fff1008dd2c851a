package rolloutpreview

import (
	"context"
	"fmt"
	"slices"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/machines/capi/controlplane"
	"github.com/runlevel/runlevel/internal/machines/capi/controlplane/v1alpha1"
	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	"github.com/runlevel/runlevel/internal/machines/contract"
	"github.com/runlevel/runlevel/internal/machines/runtimehook"
	"github.com/runlevel/runlevel/internal/machines/typedread"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// previewPlane returns how a RunlevelControlPlane changes the existing machines.
func previewPlane(ctx context.Context, c *cluster.Cluster, q Query) (*ControlPlanePreview, error) {
	plane, err := readPlane(ctx, c, q)
	if err != nil {
		return nil, err
	}
	namespace := typedread.Query{Namespace: q.Namespace}
	clusters, err := typedread.List[clusterv1.Cluster](ctx, c, clusterv1.GroupVersion.WithKind("Cluster"), namespace)
	if err != nil {
		return nil, err
	}
	machines, err := typedread.List[clusterv1.Machine](ctx, c, machineKind, namespace)
	if err != nil {
		return nil, err
	}
	snapshot, err := controlplane.Judge(plane, clusters, machines, c.Now())
	if err != nil {
		return nil, fmt.Errorf("RunlevelControlPlane %s: %w", q.Name, err)
	}
	for _, m := range snapshot.Members() {
		objects, err := readMachineObjects(ctx, c, m)
		if err != nil {
			return nil, err
		}
		snapshot.SetObjects(m, objects)
	}
	_, surge := snapshot.Limits()
	state := "Active"
	if snapshot.IsPaused() {
		state = "Paused"
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	s := &planeSimulation{
		cluster: c, template: plane.Spec.MachineTemplate.Spec, snapshot: snapshot, machines: snapshot.Machines(),
		preview: newControlPlanePreview(q, state, fmt.Sprintf("RollingUpdate, maxSurge %d", surge)),
		answers: map[string]runtimehook.Decision{},
	}
	if q.Wanted != nil {
		s.templates = q.Wanted.templates
	}
	s.run(ctx, q.Extension)
	return s.preview, nil
}

// readPlane returns the control plane of the cluster with the wanted spec, or a new control plane.
func readPlane(ctx context.Context, c *cluster.Cluster, q Query) (*v1alpha1.RunlevelControlPlane, error) {
	live, isNew, err := readLive[v1alpha1.RunlevelControlPlane](ctx, c, q)
	switch {
	case err != nil:
		return nil, err
	case live.DeletionTimestamp != nil:
		return nil, fmt.Errorf("RunlevelControlPlane %s/%s is being deleted, and its machines with it",
			q.Namespace, q.Name)
	case q.Wanted == nil:
		return live, nil
	}
	plane := q.Wanted.object.(*v1alpha1.RunlevelControlPlane).DeepCopy()
	plane.Namespace, plane.UID, plane.Status = q.Namespace, live.UID, live.Status
	if isNew {
		plane.UID = "new" // it owns no machine yet
	}
	return plane, nil
}

// readMachineObjects reads the objects to which a machine refers.
func readMachineObjects(ctx context.Context, c *cluster.Cluster,
	m *clusterv1.Machine) (objects controlplane.MachineObjects, err error) {
	if objects.Infrastructure, err = readMachineObject(ctx, c, m.Spec.InfrastructureRef, m.Namespace); err == nil {
		objects.Bootstrap, err = readMachineObject(ctx, c, m.Spec.Bootstrap.ConfigRef, m.Namespace)
	}
	return objects, err
}

func readMachineObject(ctx context.Context, c *cluster.Cluster, ref clusterv1.ContractVersionedObjectReference,
	namespace string) (*contract.Object, error) {
	if !ref.IsDefined() {
		return nil, nil
	}
	object, err := readReferenced(ctx, c, ref, namespace)
	if object == nil || err != nil {
		return nil, err
	}
	return &contract.Object{Unstructured: object}, nil
}

// A planeSimulation simulates the rollout of a RunlevelControlPlane, step by step: the controller decides the next
// step. When it waits, machines that start become available, and deletions and updates in place end. Remediations are
// not simulated.
type planeSimulation struct {
	cluster   *cluster.Cluster
	template  v1alpha1.ControlPlaneMachineTemplateSpec
	templates templates
	snapshot  *controlplane.Snapshot
	hooks     *runtimehook.InPlaceHooks
	preview   *ControlPlanePreview
	machines  []controlplane.Machine
	answers   map[string]runtimehook.Decision // the answers by the name of the machine
	created   int                             // number of created machines
}

// run adds the steps to the preview, and the outcome of each machine. It ends when the controller waits, and nothing
// changes.
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
	wanted, surge := s.snapshot.Limits()
	for range roundsPerMachine * (len(existing) + wanted + surge) {
		step := s.snapshot.NextStep(s.machines)
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
	i := slices.IndexFunc(s.machines, func(m controlplane.Machine) bool { return m.Name == step.Machine })
	m := &s.machines[i]
	action, reason := DeleteMachine, planeDeletionReason(*m)
	if step.Action != controlplane.DeleteMachine {
		decision, err := s.ask(ctx, m.Name, unregistered)
		if err != nil {
			return err
		}
		s.answers[m.Name] = decision
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

// ask asks the extension whether a machine can be updated in place, unless the controller rules that out.
func (s *planeSimulation) ask(ctx context.Context, name string, unregistered error) (runtimehook.Decision, error) {
	m := s.member(name)
	if reason := s.snapshot.RuledOut(m); reason != "" {
		return runtimehook.Decision{Reasons: []string{reason}}, nil
	}
	if unregistered != nil {
		return runtimehook.Decision{}, unregistered
	}
	objects := s.snapshot.Objects(m)
	infrastructure, err := s.updatedObject(ctx, objects.Infrastructure, s.template.InfrastructureRef)
	if err != nil {
		return runtimehook.Decision{}, err
	}
	bootstrap, err := s.updatedObject(ctx, objects.Bootstrap, s.template.Bootstrap.ConfigRef)
	if err != nil {
		return runtimehook.Decision{}, err
	}
	return s.hooks.CanUpdateMachine(ctx, s.snapshot.Request(m, infrastructure, bootstrap))
}

// updatedObject returns an object of a machine after an update in place: the object has the changes from its own
// template to the wanted one, and fields of others stay. Defaults of the API server for new fields are missing. A dry
// run of the controller's apply would have the defaults, but also fields that only the earlier template has, because
// the controller must first own them.
func (s *planeSimulation) updatedObject(ctx context.Context, object *contract.Object,
	ref clusterv1.ContractVersionedObjectReference) (*unstructured.Unstructured, error) {
	if object == nil {
		return nil, nil
	}
	wanted, err := s.templates.find(ctx, s.cluster, ref, object.GetNamespace())
	if err != nil {
		return nil, err
	}
	earlierRef := ref
	earlierRef.Name = object.GetAnnotations()[clusterv1.TemplateClonedFromNameAnnotation]
	var earlier *unstructured.Unstructured
	if earlierRef.Name != "" {
		if earlier, err = readReferenced(ctx, s.cluster, earlierRef, object.GetNamespace()); err != nil {
			return nil, err
		}
	}
	spec, err := merge(templateSpec(earlier), templateSpec(wanted), object.Object["spec"])
	if err != nil {
		return nil, fmt.Errorf("apply %s %s to %s: %w", ref.Kind, ref.Name, object, err)
	}
	updated := object.DeepCopy()
	updated.Object["spec"] = spec
	return updated, nil
}

// templateSpec returns the spec of the objects of a template; it is empty if the template was deleted.
func templateSpec(template *unstructured.Unstructured) map[string]any {
	if template == nil {
		return map[string]any{}
	}
	spec, _, _ := unstructured.NestedMap(template.Object, "spec", "template", "spec")
	return spec
}

// merge returns a current value with the changes from an earlier to a wanted one.
func merge(earlier, wanted, current any) (value any, err error) {
	var texts [3][]byte
	if current == nil {
		current = map[string]any{}
	}
	for i, v := range []any{earlier, wanted, current} {
		if texts[i], err = json.Marshal(v); err != nil {
			return nil, err
		}
	}
	change, err := jsonmergepatch.CreateThreeWayJSONMergePatch(texts[0], texts[1], texts[2])
	if err != nil {
		return nil, err
	}
	text, err := jsonpatch.MergePatch(texts[2], change)
	if err == nil {
		err = json.Unmarshal(text, &value)
	}
	return value, err
}

// member returns the Machine of a name; nil for a simulated machine.
func (s *planeSimulation) member(name string) *clusterv1.Machine {
	for _, m := range s.snapshot.Members() {
		if m.Name == name {
			return m
		}
	}
	return nil
}

// isHeld reports whether a hook holds the deletion of a machine. Its replacement is created at once then.
func (s *planeSimulation) isHeld(name string) bool {
	m := s.member(name)
	if m == nil {
		return false
	}
	deleted := m.DeepCopy()
	deleted.DeletionTimestamp = &metav1.Time{}
	return rolloutrules.IsHeld(deleted)
}

// create creates a machine that has not started yet.
func (s *planeSimulation) create() {
	wanted, _ := s.snapshot.Limits()
	reason, staying := "one more than wanted, before an outdated one is deleted (maxSurge)", 0
	for _, m := range s.machines {
		if !m.IsDeleting {
			staying++
		}
	}
	if staying < wanted {
		reason = fmt.Sprintf("there are %d of %d machines", staying, wanted)
	}
	s.created++
	m := controlplane.Machine{
		Name: fmt.Sprintf("new %d", s.created), FailureDomain: s.snapshot.FailureDomain(s.machines),
		Created: s.cluster.Now(), Problem: "it has no Node yet", IsBroken: true,
	}
	s.machines = append(s.machines, m)
	s.addStep(CreateMachine, m, reason)
}

// planeDeletionReason returns why the controller deletes a machine without a call of an extension.
func planeDeletionReason(m controlplane.Machine) string {
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

func (s *planeSimulation) addStep(action Action, m controlplane.Machine, reason string) {
	s.preview.add(Step{
		Round: len(s.preview.Steps) + 1, Action: action, Machine: m.Name,
		FailureDomain: m.FailureDomain, Reason: reason,
	})
}

// settle ends deletions and updates in place, and sets machines that start available.
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

// conclude completes the preview: the outcome of each existing machine, and whether the rollout ends.
func (s *planeSimulation) conclude(existing []controlplane.Machine) {
	p := s.preview
	for _, m := range existing {
		answer, outcome := s.answers[m.Name], Stays
		switch {
		case m.IsDeleting:
			outcome = IsDeleting
		case p.has(DeleteMachine, m.Name) && m.IsOutdated():
			outcome = IsReplaced
		case p.has(DeleteMachine, m.Name):
			outcome = IsDeleted
		case p.has(UpdateInPlace, m.Name), m.IsUpdating:
			outcome = IsUpdated
		case m.IsOutdated():
			outcome = IsOutdated
		}
		p.Machines = append(p.Machines, PreviewedMachine{
			Name: m.Name, FailureDomain: m.FailureDomain, Outcome: outcome, Changes: m.Outdated,
			Extension: answer.Extension, Reasons: answer.Reasons,
		})
	}
	wanted, _ := s.snapshot.Limits()
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
