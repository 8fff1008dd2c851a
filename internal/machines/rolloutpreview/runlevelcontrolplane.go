package rolloutpreview

import (
	"context"
	"fmt"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/machines/capi/controlplane"
	"github.com/runlevel/runlevel/internal/machines/capi/controlplane/v1alpha1"
	"github.com/runlevel/runlevel/internal/machines/contract"
	"github.com/runlevel/runlevel/internal/machines/runtimehook"
)

// RunlevelControlPlaneKind is the kind of control planes of Cluster API.
var RunlevelControlPlaneKind = v1alpha1.GroupVersion.WithKind("RunlevelControlPlane")

// A WantedControlPlane is a RunlevelControlPlane as it is to be, and new templates for it.
type WantedControlPlane struct {
	plane     *v1alpha1.RunlevelControlPlane
	templates wantedTemplates
}

// Namespace is the namespace of the control plane; empty if the file has none.
func (w *WantedControlPlane) Namespace() string { return w.plane.Namespace }

// ReadRunlevelControlPlane reads the RunlevelControlPlane of a name, and templates, from a file. Errors name the
// document and the field.
func ReadRunlevelControlPlane(file string, text []byte, name string) (*WantedControlPlane, error) {
	plane, templates, err := readControlPlane[v1alpha1.RunlevelControlPlane](file, text, RunlevelControlPlaneKind, name)
	return &WantedControlPlane{plane, templates}, err
}

// A RunlevelControlPlaneQuery is the input of PreviewRunlevelControlPlane.
type RunlevelControlPlaneQuery struct {
	Namespace, Name string
	Wanted          *WantedControlPlane // nil for the control plane as it is on the cluster
	Extension       ExtensionQuery
}

// PreviewRunlevelControlPlane returns what a RunlevelControlPlane does to the existing machines.
func PreviewRunlevelControlPlane(ctx context.Context, c *cluster.Cluster,
	q RunlevelControlPlaneQuery) (*ControlPlanePreview, error) {
	wanted, err := readRunlevelControlPlane(ctx, c, q)
	if err != nil {
		return nil, err
	}
	plane := wanted.plane
	clusters, err := listOf[clusterv1.Cluster](ctx, c, clusterv1.GroupVersion.WithKind("Cluster"), q.Namespace)
	if err != nil {
		return nil, err
	}
	machines, err := listOf[clusterv1.Machine](ctx, c, clusterv1.GroupVersion.WithKind("Machine"), q.Namespace)
	if err != nil {
		return nil, err
	}
	judged, err := controlplane.Judge(plane, clusters, machines, c.Now())
	if err != nil {
		return nil, fmt.Errorf("RunlevelControlPlane %s: %w", q.Name, err)
	}
	for _, m := range judged.Members() {
		objects, err := objectsOf(ctx, c, m)
		if err != nil {
			return nil, err
		}
		judged.SetObjects(m, objects)
	}
	_, surge := judged.Limits()
	p := &ControlPlanePreview{
		APIGroup: RunlevelControlPlaneKind.Group, Kind: RunlevelControlPlaneKind.Kind, Namespace: q.Namespace,
		Name:  q.Name,
		State: "Active", Strategy: fmt.Sprintf("RollingUpdate, maxSurge %d", surge),
		Machines: []PreviewedMachine{}, Steps: []ControlPlanePreviewStep{}, Totals: map[string]int{},
	}
	if judged.IsPaused() {
		p.State = "Paused"
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	s := &planeSimulation{
		cluster:  c,
		wanted:   wanted,
		judged:   judged,
		preview:  p,
		machines: judged.Machines(),
		asked:    map[string]runtimehook.Decision{},
	}
	s.run(ctx, q.Extension)
	return p, nil
}

// readRunlevelControlPlane returns the control plane to preview: that of the cluster with the wanted spec, or a new
// one.
func readRunlevelControlPlane(ctx context.Context, c *cluster.Cluster,
	q RunlevelControlPlaneQuery) (*WantedControlPlane, error) {
	live, isNew, err := readLive[v1alpha1.RunlevelControlPlane](ctx, c, RunlevelControlPlaneKind,
		types.NamespacedName{Namespace: q.Namespace, Name: q.Name}, q.Wanted == nil)
	switch {
	case err != nil:
		return nil, err
	case live.DeletionTimestamp != nil:
		return nil, fmt.Errorf("RunlevelControlPlane %s/%s is being deleted, and its machines with it", q.Namespace,
			q.Name)
	case q.Wanted == nil:
		return &WantedControlPlane{plane: live}, nil
	}
	plane := q.Wanted.plane.DeepCopy()
	plane.Namespace, plane.UID, plane.Status = q.Namespace, live.UID, live.Status
	if isNew {
		plane.UID = "new" // it owns no machine yet
	}
	return &WantedControlPlane{plane, q.Wanted.templates}, nil
}

// objectsOf reads the objects to which a machine refers.
func objectsOf(ctx context.Context, c *cluster.Cluster,
	m *clusterv1.Machine) (objects controlplane.MachineObjects, err error) {
	if objects.Infrastructure, err = objectOf(ctx, c, m.Spec.InfrastructureRef, m.Namespace); err == nil {
		objects.Bootstrap, err = objectOf(ctx, c, m.Spec.Bootstrap.ConfigRef, m.Namespace)
	}
	return objects, err
}

func objectOf(ctx context.Context, c *cluster.Cluster, ref clusterv1.ContractVersionedObjectReference,
	namespace string) (*contract.Object, error) {
	if !ref.IsDefined() {
		return nil, nil
	}
	object, err := readTemplate(ctx, c, ref, namespace)
	if object == nil || err != nil {
		return nil, err
	}
	return &contract.Object{Unstructured: object}, nil
}

// updated returns an object of a machine as an update in place would make it: the changes from the template that it was
// made of to the wanted one are applied to it, and fields of others stay. Defaults of the API server for new fields are
// missing: a dry run of the controller's apply has them, but keeps fields that only the earlier template had, until the
// controller has taken these over by a write.
func (w *WantedControlPlane) updated(ctx context.Context, c *cluster.Cluster, object *contract.Object,
	ref clusterv1.ContractVersionedObjectReference) (*unstructured.Unstructured, error) {
	if object == nil {
		return nil, nil
	}
	wanted, err := w.templates.find(ctx, c, ref, object.GetNamespace())
	if err != nil {
		return nil, err
	}
	made := ref
	made.Name = object.GetAnnotations()[clusterv1.TemplateClonedFromNameAnnotation]
	var earlier *unstructured.Unstructured
	if made.Name != "" {
		if earlier, err = readTemplate(ctx, c, made, object.GetNamespace()); err != nil {
			return nil, err
		}
	}
	spec, err := merged(templateSpec(earlier), templateSpec(wanted), object.Object["spec"])
	if err != nil {
		return nil, fmt.Errorf("apply %s %s to %s: %w", ref.Kind, ref.Name, object, err)
	}
	updated := object.DeepCopy()
	updated.Object["spec"] = spec
	return updated, nil
}

// templateSpec returns the spec of the objects that are made of a template; it is empty if the template is gone.
func templateSpec(template *unstructured.Unstructured) map[string]any {
	if template == nil {
		return map[string]any{}
	}
	spec, _, _ := unstructured.NestedMap(template.Object, "spec", "template", "spec")
	return spec
}

// merged returns a current value with the changes from an earlier to a wanted one.
func merged(earlier, wanted, current any) (value any, err error) {
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
