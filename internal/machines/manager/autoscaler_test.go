package manager_test

import (
	"slices"
	"strings"
	"testing"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/machines/manager"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// TestClusterAutoscaler has the node groups of both APIs scaled by the requests of the cluster autoscaler's provider.
func TestClusterAutoscaler(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	s := newScene(t)
	s.manage(manager.OpenShift, manager.ClusterAPI)
	s.makeCluster()
	for _, c := range s.scalableGroups() {
		c.object.SetAnnotations(map[string]string{
			c.group + "/cluster-api-autoscaler-node-group-min-size": "1",
			c.group + "/cluster-api-autoscaler-node-group-max-size": "3",
		})
		s.must(s.Create(t.Context(), c.object))
		t.Run(c.plural+"."+c.group, func(t *testing.T) {
			g := &nodeGroup{s.newScalingClient(t, c.group), c.plural, c.object.GetName()}
			g.scaleByProvider()
		})
	}
}

// TestHorizontalPodAutoscaler has Kubernetes' own controller scale each kind to the bounds of a
// HorizontalPodAutoscaler, for which it needs no metrics.
func TestHorizontalPodAutoscaler(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.manage(manager.OpenShift, manager.ClusterAPI)
	s.makeCluster()
	for _, c := range s.scalableGroups() {
		s.must(s.Create(t.Context(), c.object)) // each group has one machine, the default
		t.Run(c.plural+"."+c.group, func(t *testing.T) {
			t.Parallel() // an autoscaler looks every 15 seconds
			g := &nodeGroup{s.newScalingClient(t, c.group), c.plural, c.object.GetName()}
			g.awaitNodes(1)
			scaler := g.newPodAutoscaler(2, 3)
			g.must(g.Create(t.Context(), scaler))
			g.awaitNodes(2)
			g.awaitUnmeasured(scaler)
			g.must(g.Patch(t.Context(), scaler,
				client.RawPatch(types.MergePatchType, []byte(`{"spec":{"minReplicas":1,"maxReplicas":1}}`))))
			g.awaitNodes(1)
		})
	}
}

// newPodAutoscaler returns a HorizontalPodAutoscaler of a group, by a metric that no API serves.
func (g *nodeGroup) newPodAutoscaler(least, most int32) *autoscalingv2.HorizontalPodAutoscaler {
	g.t.Helper()
	scaler := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: g.metaOf(g.name + "-" + g.plural)}
	scaler.Spec = autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{
			APIVersion: g.group + "/" + g.version,
			Kind:       g.get().GetKind(),
			Name:       g.name,
		},
		MinReplicas: &least, MaxReplicas: most,
		Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ExternalMetricSourceType,
			External: &autoscalingv2.ExternalMetricSource{
				Metric: autoscalingv2.MetricIdentifier{Name: "jobs_waiting"},
				Target: autoscalingv2.MetricTarget{
					Type:         autoscalingv2.AverageValueMetricType,
					AverageValue: resource.NewQuantity(10, resource.DecimalSI),
				},
			}}},
	}
	return scaler
}

// awaitUnmeasured waits until the autoscaler has found the two machines of the group, and reports that its metric is
// missing.
func (g *nodeGroup) awaitUnmeasured(scaler *autoscalingv2.HorizontalPodAutoscaler) {
	g.t.Helper()
	g.await(func() string {
		g.must(g.Get(g.t.Context(), client.ObjectKeyFromObject(scaler), scaler))
		lacksMetric := slices.ContainsFunc(scaler.Status.Conditions,
			func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool {
				return c.Type == autoscalingv2.ScalingActive && c.Reason == "FailedGetExternalMetric"
			})
		return unless(lacksMetric && scaler.Status.CurrentReplicas == 2, "the autoscaler of %s reports %+v", g.name,
			scaler.Status)
	})
}

// A scalableGroup is an object that can be scaled.
type scalableGroup struct {
	object        client.Object
	group, plural string
}

// scalableGroups returns one of each kind, without a size, and makes the templates of their machines.
func (s *scene) scalableGroups() []scalableGroup {
	s.t.Helper()
	openshift, clusterAPI := machinev1beta1.GroupName, clusterv1.GroupVersion.Group
	for _, template := range []client.Object{
		&v1alpha1.KwokMachineTemplate{ObjectMeta: s.metaOf("small")},
		&v1alpha1.KwokConfigTemplate{ObjectMeta: s.metaOf("plain")},
	} {
		s.must(s.Create(s.t.Context(), template))
	}
	set := &machinev1beta1.MachineSet{ObjectMeta: s.metaOf("rack")}
	set.Spec.Selector.MatchLabels = map[string]string{"group": "rack"}
	set.Spec.Template.Labels, set.Spec.Template.Spec.ProviderSpec = set.Spec.Selector.MatchLabels, simulatedSpec(0)
	clusterSet := &clusterv1.MachineSet{ObjectMeta: s.metaOf("pool")}
	clusterSet.Spec.Selector.MatchLabels = map[string]string{"group": "pool"}
	clusterSet.Spec.Template.Labels, clusterSet.Spec.Template.Spec = clusterSet.Spec.Selector.MatchLabels,
		machinetest.MachineSpec()
	deployment := &clusterv1.MachineDeployment{ObjectMeta: s.metaOf("web")}
	deployment.Spec.Selector.MatchLabels = map[string]string{"group": "web"}
	deployment.Spec.Template.Labels, deployment.Spec.Template.Spec = deployment.Spec.Selector.MatchLabels,
		machinetest.MachineSpec()
	clusterSet.Spec.ClusterName, clusterSet.Spec.Template.Spec.ClusterName = clusterName, clusterName
	deployment.Spec.ClusterName, deployment.Spec.Template.Spec.ClusterName = clusterName, clusterName
	return []scalableGroup{{set, openshift, "machinesets"}, {clusterSet, clusterAPI, "machinesets"},
		{deployment, clusterAPI, "machinedeployments"}}
}

func (s *scene) metaOf(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}
}

// scaleByProvider scales a group without spec.replicas up from its least size, deletes one of its nodes, and scales the
// group to zero.
func (g *nodeGroup) scaleByProvider() {
	g.t.Helper()
	g.awaitNodes(1)
	if size, err := g.targetSize(); size != 1 || err != nil {
		g.t.Errorf("the target size is %d (%v), want the least size, 1", size, err)
	}
	if least, most := g.limits(); least != 1 || most != 3 {
		g.t.Errorf("the size is from %d to %d, want 1 to 3", least, most)
	}
	g.setSize(3)
	before := g.awaitNodes(3)
	for _, node := range before {
		if plural, name := g.groupOf(&node); plural != g.plural || name != g.name {
			g.t.Errorf("node %s is of %s %s, want %s %s", node.Name, plural, name, g.plural, g.name)
		}
	}
	g.await(func() string {
		wanted, current, selector := g.scaleOf()
		return unless(wanted == 3 && current == 3 && selector == "group="+g.name, "the scale is %d of %d, of %q",
			current, wanted, selector)
	})
	deleted := lastByName(before)
	g.deleteNode(deleted)
	after := g.awaitNodes(2)
	for _, node := range before {
		isLeft := slices.ContainsFunc(after, func(n corev1.Node) bool { return n.UID == node.UID })
		if isLeft != (node.Name != deleted.Name) {
			g.t.Errorf("node %s exists: %t; want only %s deleted", node.Name, isLeft, deleted.Name)
		}
	}
	g.setSize(0)
	g.awaitNodes(0)
	if remaining := g.list("machines", labels.SelectorFromSet(labels.Set{"group": g.name})); len(remaining) > 0 {
		g.t.Errorf("%d machines remain", len(remaining))
	}
}

// lastByName returns a node that would not be deleted without the annotation: of machines of one rank, the first by
// name is.
func lastByName(nodes []corev1.Node) *corev1.Node {
	last := slices.MaxFunc(nodes, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	return &last
}
