package rolloutpreview

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	"github.com/runlevel/runlevel/internal/machines/runtimehook"
	"github.com/runlevel/runlevel/internal/machines/typedread"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// An extensionReader is a client.Reader of ExtensionConfigs and of the labels of namespaces.
type extensionReader struct {
	configs []*runtimev1.ExtensionConfig
	cluster *cluster.Cluster
}

// List implements client.Reader for ExtensionConfigs.
func (r extensionReader) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	configs, ok := list.(*runtimev1.ExtensionConfigList)
	if !ok {
		return fmt.Errorf("%T is not read here", list)
	}
	for _, config := range r.configs {
		configs.Items = append(configs.Items, *config.DeepCopy())
	}
	return nil
}

// Get implements client.Reader for the metadata of namespaces.
func (r extensionReader) Get(ctx context.Context, key client.ObjectKey, object client.Object,
	_ ...client.GetOption) error {
	namespace, err := r.cluster.Client.CoreV1().Namespaces().Get(ctx, key.Name, metav1.GetOptions{})
	if err == nil {
		object.SetLabels(namespace.Labels)
	}
	return err
}

// decide decides for each outdated set whether its machines are updated in place. If an extension does not answer,
// nothing is decided, as in a rollout; Unanswered has the reason.
func (p *DeploymentPreview) decide(ctx context.Context, c *cluster.Cluster, f *facts, q ExtensionQuery) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	hooks, err := hooksOf(ctx, c, q)
	if err != nil {
		p.Unanswered = printable.Error(err).Error()
	}
	for _, set := range f.old {
		if len(f.machines[set.UID]) == 0 {
			continue
		}
		d := SetDecision{
			MachineSet: set.Name, Machines: len(f.machines[set.UID]),
			Changes: rolloutrules.Differences(set.Spec.Template.Spec, f.deployment.Spec.Template.Spec),
		}
		if p.Unanswered == "" {
			if err := d.ask(ctx, hooks, f, set); err != nil {
				p.Unanswered = printable.Error(err).Error()
			}
		}
		p.Sets = append(p.Sets, d)
	}
	if len(p.Sets) == 0 {
		p.Unanswered = "" // no extension is needed
	}
}

// hooksOf returns the hooks of the extensions that are asked.
func hooksOf(ctx context.Context, c *cluster.Cluster, q ExtensionQuery) (*runtimehook.InPlaceHooks, error) {
	configs, err := extensionsOf(ctx, c, q)
	reader := extensionReader{configs, c}
	return runtimehook.NewInPlaceHooks(reader, reader), err
}

// extensionsOf returns the ExtensionConfigs of the cluster, or one with the URL of the query.
func extensionsOf(ctx context.Context, c *cluster.Cluster, q ExtensionQuery) ([]*runtimev1.ExtensionConfig, error) {
	if q.URL != "" {
		config := &runtimev1.ExtensionConfig{ObjectMeta: metav1.ObjectMeta{Name: "extension"}}
		config.Spec.ClientConfig = runtimev1.ClientConfig{URL: q.URL, CABundle: q.CA}
		handlers, err := new(runtimehook.Client).Discover(ctx, config)
		config.Status.Handlers = handlers
		config.Status.Conditions = []metav1.Condition{{
			Type:   runtimev1.ExtensionConfigDiscoveredCondition,
			Status: metav1.ConditionTrue,
		}}
		return []*runtimev1.ExtensionConfig{config}, err
	}
	kind := runtimev1.GroupVersion.WithKind("ExtensionConfig")
	configs, err := typedread.List[runtimev1.ExtensionConfig](ctx, c, kind, typedread.Query{})
	if errors.Is(err, cluster.ErrNotServed) {
		return nil, nil
	}
	return configs, err
}

// ask calls the extension for one set, unless an update in place is ruled out before.
func (d *SetDecision) ask(ctx context.Context, hooks *runtimehook.InPlaceHooks, f *facts,
	set *clusterv1.MachineSet) error {
	if reason := f.ruledOut(set); reason != "" {
		d.Reasons = []string{reason}
		return nil
	}
	wanted := cmp.Or(f.current,
		&clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace,
			Name:      f.deployment.Name + "-new",
		}}).DeepCopy()
	wanted.Spec.ClusterName, wanted.Spec.Template.Spec = f.deployment.Spec.ClusterName, f.deployment.Spec.Template.Spec
	decision, err := hooks.CanUpdateMachineSet(ctx,
		&hooksv1.CanUpdateMachineSetRequest{Current: f.sideOf(set), Desired: f.sideOf(wanted)})
	d.InPlace, d.Extension, d.Reasons = decision.CanUpdate, decision.Extension, decision.Reasons
	return err
}

// ruledOut returns why the machines of a set are replaced without a call of an extension; "" if it must be called.
func (f *facts) ruledOut(set *clusterv1.MachineSet) string {
	switch {
	case set.DeletionTimestamp != nil:
		return "MachineSet " + set.Name + " is being deleted"
	case rolloutrules.IsOnDelete(&f.deployment.Spec):
		return "the strategy is OnDelete"
	}
	for _, ref := range refsOf(set.Spec.Template.Spec) {
		if f.templates[ref] == nil {
			return fmt.Sprintf("%s %s, the template of MachineSet %s, was deleted", ref.Kind, ref.Name, set.Name)
		}
	}
	return rolloutrules.ReplacementReason(f.deployment, set, f.now)
}

// sideOf returns a set and its templates for a request to an extension.
func (f *facts) sideOf(set *clusterv1.MachineSet) hooksv1.CanUpdateMachineSetRequestObjects {
	spec := set.Spec.Template.Spec
	return runtimehook.NewMachineSetObjects(set, f.templates[spec.InfrastructureRef],
		f.templates[spec.Bootstrap.ConfigRef])
}
