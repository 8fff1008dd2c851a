package rolloutpreview

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
)

// facts are the input of the preview.
type facts struct {
	now        time.Time
	deployment *clusterv1.MachineDeployment // with the wanted spec
	current    *clusterv1.MachineSet        // nil if it does not exist yet
	old        []*clusterv1.MachineSet      // the oldest first
	machines   map[types.UID][]*clusterv1.Machine
	templates  map[clusterv1.ContractVersionedObjectReference]*unstructured.Unstructured // nil for a deleted template
}

// gather reads the MachineDeployment, its MachineSets, their Machines and the templates.
func gather(ctx context.Context, c *cluster.Cluster, q PreviewQuery) (*facts, error) {
	name := q.Wanted.deployment.Name
	in, err := c.Find(ctx, clusterv1.GroupVersion.WithKind("MachineDeployment"))
	if errors.Is(err, cluster.ErrNotServed) {
		return nil, fmt.Errorf("the cluster serves no MachineDeployments of %s: install them "+
			"(docs/machines-cluster-api.md)", clusterv1.GroupVersion)
	}
	var live *unstructured.Unstructured
	if err == nil {
		live, err = c.In(in, q.Namespace).Get(ctx, name, metav1.GetOptions{})
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no MachineDeployment %s in namespace %s", name, q.Namespace)
	case err != nil:
		return nil, fmt.Errorf("read MachineDeployment %s/%s: %w", q.Namespace, name, err)
	}
	if err := q.Wanted.setUnsetReplicas(live); err != nil {
		return nil, err
	}
	sets, err := listOf[clusterv1.MachineSet](ctx, c, clusterv1.GroupVersion.WithKind("MachineSet"), q.Namespace)
	if err != nil {
		return nil, err
	}
	machines, err := listOf[clusterv1.Machine](ctx, c, clusterv1.GroupVersion.WithKind("Machine"), q.Namespace)
	if err != nil {
		return nil, err
	}
	f := &facts{now: c.Now(), deployment: q.Wanted.deployment, machines: map[types.UID][]*clusterv1.Machine{}}
	f.takeSets(sets, live.GetUID())
	for _, m := range machines {
		if owner := metav1.GetControllerOfNoCopy(m); owner != nil {
			f.machines[owner.UID] = append(f.machines[owner.UID], m)
		}
	}
	return f, f.takeTemplates(ctx, c, q)
}

// listOf lists the objects of a kind, in a namespace unless that is empty.
func listOf[T any](ctx context.Context, c *cluster.Cluster, kind schema.GroupVersionKind,
	namespace string) ([]*T, error) {
	in, err := c.Find(ctx, kind)
	if err != nil {
		return nil, fmt.Errorf("list %ss: %w", kind.Kind, err)
	}
	list, err := c.In(in, namespace).List(ctx, metav1.ListOptions{})
	if err != nil && namespace != "" {
		return nil, fmt.Errorf("list %ss in namespace %s: %w", kind.Kind, namespace, err)
	}
	if err != nil {
		return nil, fmt.Errorf("list %ss: %w", kind.Kind, err)
	}
	var found []*T
	for _, item := range list.Items {
		object := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, object); err != nil {
			return nil, fmt.Errorf("read %s %s: %w", kind.Kind, item.GetName(), err)
		}
		found = append(found, object)
	}
	return found, nil
}

// takeSets selects the sets that a deployment controls.
func (f *facts) takeSets(sets []*clusterv1.MachineSet, owner types.UID) {
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

// takeTemplates reads the templates. A template of the file must not differ from an existing one.
func (f *facts) takeTemplates(ctx context.Context, c *cluster.Cluster, q PreviewQuery) error {
	f.templates = map[clusterv1.ContractVersionedObjectReference]*unstructured.Unstructured{}
	for _, set := range f.old {
		for _, ref := range refsOf(set.Spec.Template.Spec) {
			found, err := readTemplate(ctx, c, ref, q.Namespace)
			if f.templates[ref] = found; err != nil {
				return err
			}
		}
	}
	for _, ref := range refsOf(f.deployment.Spec.Template.Spec) {
		found, err := q.Wanted.templates.find(ctx, c, ref, q.Namespace)
		if f.templates[ref] = found; err != nil {
			return err
		}
	}
	return nil
}

// find returns a template of the file or the cluster. One that is in both must not differ.
func (w wantedTemplates) find(ctx context.Context, c *cluster.Cluster, ref clusterv1.ContractVersionedObjectReference,
	namespace string) (*unstructured.Unstructured, error) {
	found, err := readTemplate(ctx, c, ref, namespace)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(w.objects, func(t *unstructured.Unstructured) bool {
		return t.GetName() == ref.Name && t.GroupVersionKind().GroupKind() == ref.GroupKind()
	})
	switch {
	case found == nil && at < 0 && w.file == "":
		return nil, fmt.Errorf("%s %s is not on the cluster: create it", ref.Kind, ref.Name)
	case found == nil && at < 0:
		return nil, fmt.Errorf("%s %s is neither in %s nor on the cluster: add it to %s", ref.Kind, ref.Name, w.file,
			w.file)
	case found != nil && at >= 0 && !equality.Semantic.DeepEqual(found.Object["spec"], w.objects[at].Object["spec"]):
		return nil, fmt.Errorf("%s %s is on the cluster with another spec than in %s: give the changed template "+
			"another name", ref.Kind, ref.Name, w.file)
	case found == nil:
		return w.objects[at], nil
	}
	return found, nil
}

// readTemplate returns a template of the cluster, or nil if there is none.
func readTemplate(ctx context.Context, c *cluster.Cluster, ref clusterv1.ContractVersionedObjectReference,
	namespace string) (*unstructured.Unstructured, error) {
	in, err := c.FindKind(ctx, schema.GroupKind{Group: ref.APIGroup, Kind: ref.Kind})
	if err != nil {
		return nil, fmt.Errorf("read %s %s: %w", ref.Kind, ref.Name, err)
	}
	found, err := c.In(in, namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s %s: %w", ref.Kind, ref.Name, err)
	}
	return found, nil
}
