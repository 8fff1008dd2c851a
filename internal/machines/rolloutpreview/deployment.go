package rolloutpreview

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	"github.com/runlevel/runlevel/internal/machines/typedread"
)

// A DeploymentPreview is the preview of a MachineDeployment.
type DeploymentPreview struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Unanswered is the problem because of which the extensions have not decided whether machines can be updated in
	// place. The preview has no steps then.
	Unanswered string        `json:"unanswered,omitempty"`
	Sets       []SetDecision `json:"machineSets"` // sets with outdated machines, the oldest first
	Rollout
	// IsStuck is true if the rollout does not end, for example because of an unavailable machine.
	IsStuck bool `json:"isStuck,omitempty"`
}

// A SetDecision records whether the machines of an outdated MachineSet are updated in place or replaced.
type SetDecision struct {
	MachineSet string   `json:"machineSet"`
	Machines   int      `json:"machines"`
	Changes    []string `json:"changes"` // outdated fields of its template
	InPlace    bool     `json:"inPlace"`
	Extension  string   `json:"extension,omitempty"` // the extension that has answered
	Reasons    []string `json:"reasons,omitempty"`   // the reasons against an update in place
}

// previewDeployment returns how the wanted MachineDeployment changes the existing machines.
func previewDeployment(ctx context.Context, c *cluster.Cluster, q Query) (*DeploymentPreview, error) {
	f, err := gather(ctx, c, q)
	if err != nil {
		return nil, err
	}
	p := &DeploymentPreview{Namespace: q.Namespace, Name: q.Name, Sets: []SetDecision{}, Rollout: newRollout()}
	p.decide(ctx, c, f, q.Extension)
	if p.Unanswered == "" {
		simulate(f, p)
	}
	return p, nil
}

// IsComplete implements Preview.
func (p *DeploymentPreview) IsComplete() bool { return p.Unanswered == "" && !p.IsStuck }

// Lines implements Preview.
func (p *DeploymentPreview) Lines() []string {
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
	lines = append(append(lines, ""), p.lines(true)...)
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

// facts are the input of the preview of a MachineDeployment.
type facts struct {
	now        time.Time
	deployment *clusterv1.MachineDeployment // the deployment with the wanted spec
	current    *clusterv1.MachineSet        // nil if it does not exist yet
	old        []*clusterv1.MachineSet      // the oldest first
	machines   map[types.UID][]*clusterv1.Machine
	templates  map[clusterv1.ContractVersionedObjectReference]*unstructured.Unstructured // nil for a deleted template
}

// gather reads the MachineDeployment, its MachineSets, their Machines and the templates.
func gather(ctx context.Context, c *cluster.Cluster, q Query) (*facts, error) {
	live, _, err := readLive[clusterv1.MachineDeployment](ctx, c, q)
	if err != nil {
		return nil, err
	}
	f := &facts{now: c.Now(), machines: map[types.UID][]*clusterv1.Machine{}}
	f.deployment = q.Wanted.object.(*clusterv1.MachineDeployment)
	if q.Wanted.isUnsized { // the controller sets the replicas that a manifest omits
		last := int(ptr.Deref(live.Spec.Replicas, 0))
		replicas, invalid := rolloutrules.UnsetReplicas(f.deployment.Annotations, last)
		if invalid != "" {
			return nil, fmt.Errorf("MachineDeployment %s in %s: %s", q.Name, q.Wanted.templates.file, invalid)
		}
		f.deployment.Spec.Replicas = replicas
	}
	namespace := typedread.Query{Namespace: q.Namespace}
	sets, err := typedread.List[clusterv1.MachineSet](ctx, c, clusterv1.GroupVersion.WithKind("MachineSet"), namespace)
	if err != nil {
		return nil, err
	}
	f.addSets(sets, live.UID)
	machines, err := typedread.List[clusterv1.Machine](ctx, c, machineKind, namespace)
	if err != nil {
		return nil, err
	}
	for _, m := range machines {
		if owner := metav1.GetControllerOfNoCopy(m); owner != nil {
			f.machines[owner.UID] = append(f.machines[owner.UID], m)
		}
	}
	return f, f.readTemplates(ctx, c, q)
}

var machineKind = clusterv1.GroupVersion.WithKind("Machine")

// addSets adds the sets that a deployment controls.
func (f *facts) addSets(sets []*clusterv1.MachineSet, owner types.UID) {
	for _, set := range sets {
		if controller := metav1.GetControllerOfNoCopy(set); controller != nil && controller.UID == owner {
			f.old = append(f.old, set)
		}
	}
	rolloutrules.SortSets(f.old)
	f.current = rolloutrules.Current(f.deployment, f.old, f.now)
	f.old = slices.DeleteFunc(f.old, func(set *clusterv1.MachineSet) bool { return set == f.current })
}

// refsOf returns the references of a machine template to other templates.
func refsOf(spec clusterv1.MachineSpec) []clusterv1.ContractVersionedObjectReference {
	refs := []clusterv1.ContractVersionedObjectReference{spec.InfrastructureRef}
	if spec.Bootstrap.ConfigRef.IsDefined() {
		refs = append(refs, spec.Bootstrap.ConfigRef)
	}
	return refs
}

// readTemplates reads the templates of the sets and of the wanted deployment.
func (f *facts) readTemplates(ctx context.Context, c *cluster.Cluster, q Query) error {
	f.templates = map[clusterv1.ContractVersionedObjectReference]*unstructured.Unstructured{}
	for _, set := range f.old {
		for _, ref := range refsOf(set.Spec.Template.Spec) {
			template, err := readReferenced(ctx, c, ref, q.Namespace)
			if err != nil {
				return err
			}
			f.templates[ref] = template
		}
	}
	for _, ref := range refsOf(f.deployment.Spec.Template.Spec) {
		template, err := q.Wanted.templates.find(ctx, c, ref, q.Namespace)
		if err != nil {
			return err
		}
		f.templates[ref] = template
	}
	return nil
}
