package rolloutpreview

import (
	"context"
	"errors"
	"fmt"
	"strings"

	machinev1 "github.com/openshift/api/machine/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/machines/infra"
)

// This file has the preview of what replaces the machines of a control plane, and previews a ControlPlaneMachineSet. A
// set updates no machine in place: a machine stays, or a new one takes its place.

// ControlPlaneMachineSetKind is the kind of the sets of OpenShift's API.
var ControlPlaneMachineSetKind = machinev1.GroupVersion.WithKind("ControlPlaneMachineSet")

// A ControlPlanePreview is what a set, or a RunlevelControlPlane, does to the machines of a control plane.
type ControlPlanePreview struct {
	APIGroup  string `json:"apiGroup"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	State     string `json:"state"` // Inactive or Paused: the preview is of what it does once it is Active
	Strategy  string `json:"strategy"`
	// Unanswered is why it is not known whether a machine can be updated in place; the steps end before it then.
	Unanswered string `json:"unanswered,omitempty"`
	// Degraded is the reason why the set does nothing, and Message what an administrator has to do.
	Degraded string `json:"degraded,omitempty"`
	Message  string `json:"message,omitempty"`
	// that exist, in the order of their indexes, or the oldest first
	Machines []PreviewedMachine        `json:"machines"`
	Steps    []ControlPlanePreviewStep `json:"steps"`
	Totals   map[string]int            `json:"totals"`          // number of machines by action
	Waits    []string                  `json:"waits,omitempty"` // what it waits for in the end
	// IsStuck is true if the replacement does not end, for example because of a machine that is not ready.
	IsStuck bool `json:"isStuck,omitempty"`
}

// A PreviewedMachine is a machine of a control plane, and what becomes of it.
type PreviewedMachine struct {
	Name          string         `json:"name"`
	Index         *int           `json:"index,omitempty"` // of a set
	FailureDomain string         `json:"failureDomain,omitempty"`
	Outcome       MachineOutcome `json:"outcome"`
	// what is outdated: the fields of its providerSpec, for example
	Changes   []string `json:"changes,omitempty"`
	Extension string   `json:"extension,omitempty"` // that has answered whether it can be updated in place
	Reasons   []string `json:"reasons,omitempty"`   // why it is not updated in place
}

// A MachineOutcome is what becomes of a machine.
type MachineOutcome string

// The outcomes.
const (
	Stays        MachineOutcome = "Stays"
	IsReplaced   MachineOutcome = "Replaced"
	IsUpdated    MachineOutcome = "UpdatedInPlace"
	IsDeleted    MachineOutcome = "Deleted"      // there is one too many
	IsGoing      MachineOutcome = "Deleting"     // before the preview
	DeleteByHand MachineOutcome = "DeleteByHand" // it is replaced once an administrator deletes it
	IsOutdated   MachineOutcome = "Outdated"     // and the set does not come to replace it
)

// A ControlPlanePreviewStep is an action on one machine. The steps of a round are done at the same time.
type ControlPlanePreviewStep struct {
	Round         int           `json:"round"`
	Action        PreviewAction `json:"action"`
	Machine       string        `json:"machine"`         // "new 1" and so on for a created one
	Index         *int          `json:"index,omitempty"` // of a set
	FailureDomain string        `json:"failureDomain,omitempty"`
	Reason        string        `json:"reason"`
}

// ReadControlPlaneMachineSet reads the ControlPlaneMachineSet of a name from a file. Errors name the document and the
// field.
func ReadControlPlaneMachineSet(file string, text []byte, name string) (*machinev1.ControlPlaneMachineSet, error) {
	set, _, err := readControlPlane[machinev1.ControlPlaneMachineSet](file, text, ControlPlaneMachineSetKind, name)
	return set, err
}

// A ControlPlaneQuery is the input of PreviewControlPlane.
type ControlPlaneQuery struct {
	Namespace, Name string
	Wanted          *machinev1.ControlPlaneMachineSet // nil for the set as it is on the cluster
}

// PreviewControlPlane returns what a ControlPlaneMachineSet does to the existing machines.
func PreviewControlPlane(ctx context.Context, c *cluster.Cluster, q ControlPlaneQuery) (*ControlPlanePreview, error) {
	set, err := readControlPlaneMachineSet(ctx, c, q)
	if err != nil {
		return nil, err
	}
	machines, err := listOf[machinev1beta1.Machine](ctx, c, machinev1beta1.GroupVersion.WithKind("Machine"),
		q.Namespace)
	if err != nil {
		return nil, err
	}
	nodes, err := listOf[corev1.Node](ctx, c, corev1.SchemeGroupVersion.WithKind("Node"), "")
	if err != nil {
		return nil, err
	}
	p := &ControlPlanePreview{
		APIGroup: ControlPlaneMachineSetKind.Group, Kind: ControlPlaneMachineSetKind.Kind, Namespace: q.Namespace,
		Name:  q.Name,
		State: string(set.Spec.State), Strategy: string(set.Spec.Strategy.Type),
		Machines: []PreviewedMachine{}, Steps: []ControlPlanePreviewStep{}, Totals: map[string]int{},
	}
	s := &controlPlaneSimulation{set: set.DeepCopy(), preview: p, now: c.Now()}
	s.refusal = func(m *machinev1beta1.Machine) string { return infrastructureRefusal(ctx, c, m) }
	s.set.Spec.State = machinev1.ControlPlaneMachineSetStateActive
	for _, m := range machines {
		s.machines = append(s.machines, *m)
	}
	for _, node := range nodes {
		s.nodes = append(s.nodes, *node)
	}
	return p, s.run()
}

// infrastructureRefusal returns why the API server would refuse the infrastructure of a new machine, for example
// because a failure domain sets a field that the kind does not have. It is empty if that is not known, without the
// right to create the infrastructure for example.
func infrastructureRefusal(ctx context.Context, c *cluster.Cluster, m *machinev1beta1.Machine) string {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(m.Spec.ProviderSpec.Value.Raw); err != nil {
		return ""
	}
	in, err := c.Find(ctx, object.GroupVersionKind())
	if err != nil {
		return ""
	}
	object.SetNamespace(m.Namespace)
	object.SetName(m.Name)
	strict := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
	_, err = c.In(in, m.Namespace).Create(ctx, object, strict)
	if !apierrors.IsInvalid(err) && !infra.IsUnknownField(err) {
		return ""
	}
	return object.GetKind() + " is refused: " + infra.RefusedFields(err)
}

// readControlPlaneMachineSet returns the set to preview: that of the cluster with the wanted spec, or a new one.
func readControlPlaneMachineSet(ctx context.Context, c *cluster.Cluster,
	q ControlPlaneQuery) (*machinev1.ControlPlaneMachineSet, error) {
	live, isNew, err := readLive[machinev1.ControlPlaneMachineSet](ctx, c, ControlPlaneMachineSetKind,
		types.NamespacedName{Namespace: q.Namespace, Name: q.Name}, q.Wanted == nil)
	switch {
	case err != nil:
		return nil, err
	case live.DeletionTimestamp != nil:
		return nil, fmt.Errorf("ControlPlaneMachineSet %s/%s is being deleted: its machines stay", q.Namespace, q.Name)
	case q.Wanted == nil:
		return live, nil
	}
	set := q.Wanted.DeepCopy()
	set.Namespace, set.UID = q.Namespace, live.UID
	if isNew {
		set.UID = "new" // it owns no machine yet
	}
	setSpecDefaults(&set.Spec, live.Spec)
	return set, nil
}

// readLive reads what replaces the machines of a control plane. It returns an empty object if that does not exist, and
// need not.
func readLive[T any](ctx context.Context, c *cluster.Cluster, kind schema.GroupVersionKind, key types.NamespacedName,
	mustExist bool) (live *T, isNew bool, err error) {
	in, err := c.Find(ctx, kind)
	if errors.Is(err, cluster.ErrNotServed) {
		return nil, false, fmt.Errorf("the cluster serves no %ss of %s: install the machine controller "+
			"(docs/machines.md)", kind.Kind, kind.GroupVersion())
	}
	live = new(T)
	if err == nil {
		object, failure := c.In(in, key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
		if err = failure; err == nil {
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, live)
		}
	}
	switch isNew = apierrors.IsNotFound(err); {
	case isNew && mustExist:
		return nil, true, fmt.Errorf("there is no %s %s in namespace %s: name its namespace with -n, or a file with "+
			"it with -f", kind.Kind, key.Name, key.Namespace)
	case err != nil && !isNew:
		return nil, false, fmt.Errorf("read %s %s: %w", kind.Kind, key, err)
	}
	return live, isNew, nil
}

// setSpecDefaults sets the fields of a spec that are left out, as the API server does; the state stays as it is on the
// cluster.
func setSpecDefaults(spec *machinev1.ControlPlaneMachineSetSpec, live machinev1.ControlPlaneMachineSetSpec) {
	if spec.Replicas == nil {
		spec.Replicas = ptr.To[int32](3)
	}
	if spec.Strategy.Type == "" {
		spec.Strategy.Type = machinev1.RollingUpdate
	}
	if spec.State == "" {
		spec.State = live.State
	}
	if spec.State == "" {
		spec.State = machinev1.ControlPlaneMachineSetStateInactive
	}
}

// Lines returns the preview as text.
func (p *ControlPlanePreview) Lines() []string {
	head := fmt.Sprintf("%s %s/%s: %s, %s", p.Kind, p.Namespace, p.Name, p.State, p.Strategy)
	if p.State != string(machinev1.ControlPlaneMachineSetStateActive) {
		head += "; this is what it does once it is Active"
	}
	lines := []string{head}
	for _, m := range p.Machines {
		lines = append(lines, m.lines()...)
	}
	switch {
	case len(p.Steps) > 0:
		lines = append(append(lines, ""), p.stepLines()...)
	case p.Degraded == "" && p.Unanswered == "":
		lines = append(lines, "no machine is created or deleted")
	}
	if p.Degraded != "" {
		lines = append(lines, fmt.Sprintf("Degraded (%s): %s", p.Degraded, p.Message),
			"it creates and deletes no machine until that is solved")
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

// stepLines returns the steps as text, and their number.
func (p *ControlPlanePreview) stepLines() []string {
	words := map[PreviewAction]string{
		CreateMachine: "create",
		DeleteMachine: "delete",
		UpdateInPlace: "update in place",
	}
	updated, width := p.Totals[string(UpdateInPlace)], len("create")
	if updated > 0 {
		width = len("update in place")
	}
	var lines []string
	for _, s := range p.Steps {
		why := strings.TrimPrefix(place(s.Index, s.FailureDomain)+": "+s.Reason, ": ")
		lines = append(lines, fmt.Sprintf("%3d  %-*s  %s  (%s)", s.Round, width, words[s.Action], s.Machine, why))
	}
	total := fmt.Sprintf("created: %d, deleted: %d", p.Totals[string(CreateMachine)], p.Totals[string(DeleteMachine)])
	if updated > 0 {
		total = fmt.Sprintf("updated in place: %d, %s", updated, total)
	}
	return append(lines, total)
}

// outcomes are the outcomes in words.
var outcomes = map[MachineOutcome]string{
	Stays: "stays as it is", IsReplaced: "is replaced", IsGoing: "is being deleted",
	DeleteByHand: "is replaced once it is deleted by hand",
	IsOutdated:   "is outdated, and not replaced", IsUpdated: "is updated in place", IsDeleted: "is deleted",
}

func (m *PreviewedMachine) lines() []string {
	at := place(m.Index, m.FailureDomain)
	if at != "" {
		at = ", " + at
	}
	lines := []string{fmt.Sprintf("machine %s%s: %s", m.Name, at, outcomes[m.Outcome])}
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

// place returns an index and a failure domain in words; empty if there is neither.
func place(index *int, domain string) string {
	switch {
	case index == nil:
		return domain
	case domain == "":
		return fmt.Sprintf("index %d", *index)
	}
	return fmt.Sprintf("index %d, %s", *index, domain)
}

// ControlPlaneKindOf returns the kind of a name as kubectl accepts it, of those that PreviewControlPlane and
// PreviewRunlevelControlPlane preview; nil for others.
func ControlPlaneKindOf(name string) *schema.GroupVersionKind {
	name, _, _ = strings.Cut(strings.ToLower(name), ".")
	switch name {
	case "controlplanemachineset", "controlplanemachinesets":
		return &ControlPlaneMachineSetKind
	case "runlevelcontrolplane", "runlevelcontrolplanes", "rcp":
		return &RunlevelControlPlaneKind
	}
	return nil
}
