package manager_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apidiscovery "k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/scale"
)

// A scalingClient does the requests of the cluster autoscaler's provider clusterapi, one by one, and reads the fields
// that the provider reads. Its module is not built in: it requires those of all clouds.
type scalingClient struct {
	*scene
	group, version string // CAPI_GROUP and CAPI_VERSION
	objects        dynamic.Interface
	scales         scale.ScalesGetter
	// deleteMark is the annotation of a machine to delete first; bounds is the prefix of the annotations with bounds.
	deleteMark, bounds string
}

// newScalingClient finds the API as the provider does with the environment variables CAPI_GROUP and, for a group whose
// preferred version has no sets, CAPI_VERSION.
func (s *scene) newScalingClient(t *testing.T, group string) *scalingClient {
	t.Helper()
	discover, err := apidiscovery.NewDiscoveryClientForConfig(s.control.Config)
	s.must(err)
	groups, err := discover.ServerGroups()
	s.must(err)
	i := slices.IndexFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == group })
	if i < 0 {
		t.Fatalf("the group %s is not served", group)
	}
	objects, err := dynamic.NewForConfig(s.control.Config)
	s.must(err)
	scales, err := scale.NewForConfig(s.control.Config, s.RESTMapper(), dynamic.LegacyAPIPathResolverFunc,
		scale.NewDiscoveryScaleKindResolver(discover))
	s.must(err)
	version := groups.Groups[i].PreferredVersion.Version
	if group == machinev1beta1.GroupName {
		version = machinev1beta1.GroupVersion.Version // v1 has ControlPlaneMachineSets
	}
	return &scalingClient{
		scene: s.in(t), group: group, version: version, objects: objects, scales: scales,
		deleteMark: group + "/delete-machine", bounds: group + "/cluster-api-autoscaler-node-group-",
	}
}

func (c *scalingClient) resource(plural string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: c.group, Version: c.version, Resource: plural}
}

func (c *scalingClient) list(plural string, selector labels.Selector) []unstructured.Unstructured {
	c.t.Helper()
	list, err := c.objects.Resource(c.resource(plural)).Namespace(metav1.NamespaceDefault).List(c.t.Context(),
		metav1.ListOptions{LabelSelector: selector.String()})
	c.must(err)
	return list.Items
}

// A nodeGroup is a MachineSet or a MachineDeployment as the provider sees it.
type nodeGroup struct {
	*scalingClient
	plural, name string
}

func (g *nodeGroup) get() *unstructured.Unstructured {
	g.t.Helper()
	object, err := g.objects.Resource(g.resource(g.plural)).Namespace(metav1.NamespaceDefault).Get(g.t.Context(),
		g.name, metav1.GetOptions{})
	g.must(err)
	return object
}

// targetSize is the provider's TargetSize: an error if spec.replicas is not set.
func (g *nodeGroup) targetSize() (int64, error) {
	g.t.Helper()
	size, isSet, err := unstructured.NestedInt64(g.get().Object, "spec", "replicas")
	if err == nil && !isSet {
		err = fmt.Errorf("%s %s has no spec.replicas", g.plural, g.name)
	}
	return size, err
}

// limits are the provider's MinSize and MaxSize.
func (g *nodeGroup) limits() (least, most int) {
	g.t.Helper()
	annotations := g.get().GetAnnotations()
	least, err := strconv.Atoi(annotations[g.bounds+"min-size"])
	g.must(err)
	most, err = strconv.Atoi(annotations[g.bounds+"max-size"])
	g.must(err)
	return least, most
}

// setSize is the provider's SetSize, after it has read the size as Replicas does.
func (g *nodeGroup) setSize(size int32) {
	g.t.Helper()
	scales := g.scales.Scales(metav1.NamespaceDefault)
	_, err := scales.Get(g.t.Context(), g.resource(g.plural).GroupResource(), g.name, metav1.GetOptions{})
	g.must(err)
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, size)
	_, err = scales.Patch(g.t.Context(), g.resource(g.plural), g.name, types.MergePatchType, patch,
		metav1.PatchOptions{})
	g.must(err)
}

// machines are those that spec.selector selects, of the same cluster.
func (g *nodeGroup) machines() []unstructured.Unstructured {
	g.t.Helper()
	group := g.get()
	fields, _, err := unstructured.NestedMap(group.Object, "spec", "selector")
	g.must(err)
	selector := &metav1.LabelSelector{}
	g.must(runtime.DefaultUnstructuredConverter.FromUnstructured(fields, selector))
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	g.must(err)
	return slices.DeleteFunc(g.list("machines", parsed), func(m unstructured.Unstructured) bool {
		return clusterNameOf(&m) != clusterNameOf(group)
	})
}

func clusterNameOf(object *unstructured.Unstructured) string {
	name, _, _ := unstructured.NestedString(object.Object, "spec", "clusterName")
	return name
}

// instances is the provider's Nodes: the providerIDs of running machines; a machine being deleted, or has no
// node, has its state instead.
func (g *nodeGroup) instances() []string {
	g.t.Helper()
	var found []string
	for _, m := range g.machines() {
		_, hasNode, err := unstructured.NestedFieldNoCopy(m.Object, "status", "nodeRef")
		g.must(err)
		id, _, err := unstructured.NestedString(m.Object, "spec", "providerID")
		g.must(err)
		switch {
		case m.GetDeletionTimestamp() != nil:
			id = "deleting"
		case !hasNode:
			id = "pending"
		}
		found = append(found, id)
	}
	slices.Sort(found)
	return found
}

// awaitNodes waits until the group has so many nodes and no other machines, and returns the nodes, which the provider
// finds by their providerIDs.
func (g *nodeGroup) awaitNodes(count int) []corev1.Node {
	g.t.Helper()
	var found []corev1.Node
	g.await(func() string {
		var nodes corev1.NodeList
		if err := g.List(g.t.Context(), &nodes); err != nil {
			return err.Error() // the client looks the kind up when the first definitions are being served
		}
		ids := g.instances()
		found = slices.DeleteFunc(nodes.Items, func(n corev1.Node) bool {
			return !slices.Contains(ids, n.Spec.ProviderID)
		})
		return unless(len(ids) == count && len(found) == count, "%s %s has %d nodes, and the instances %v", g.plural,
			g.name, len(found), ids)
	})
	return found
}

// normalized is the end of a providerID, by which the provider compares them.
func normalized(providerID string) string { return providerID[strings.LastIndex(providerID, "/")+1:] }

// machineOf is the provider's search for the machine of a node: exactly one has its providerID.
func (c *scalingClient) machineOf(node *corev1.Node) *unstructured.Unstructured {
	c.t.Helper()
	machines := slices.DeleteFunc(c.list("machines", labels.Everything()), func(m unstructured.Unstructured) bool {
		id, _, _ := unstructured.NestedString(m.Object, "spec", "providerID")
		return normalized(id) != normalized(node.Spec.ProviderID)
	})
	if len(machines) != 1 {
		c.t.Fatalf("%d machines have the providerID of node %s", len(machines), node.Name)
	}
	return &machines[0]
}

// groupOf is the provider's NodeGroupForNode: the owner of the machine is a set, and the owner of that may be a
// deployment.
func (c *scalingClient) groupOf(node *corev1.Node) (plural, name string) {
	c.t.Helper()
	ownerOf := func(object *unstructured.Unstructured, kind string) string {
		for _, owner := range object.GetOwnerReferences() {
			if owner.Kind == kind {
				return owner.Name
			}
		}
		return ""
	}
	name = ownerOf(c.machineOf(node), "MachineSet")
	set := &nodeGroup{c, "machinesets", name}
	if deployment := ownerOf(set.get(), "MachineDeployment"); deployment != "" {
		return "machinedeployments", deployment
	}
	return "machinesets", name
}

// deleteNode is the provider's DeleteNodes: the machine is annotated by an update, and then the size is reduced.
func (g *nodeGroup) deleteNode(node *corev1.Node) {
	g.t.Helper()
	size, err := g.targetSize()
	g.must(err)
	machines := g.objects.Resource(g.resource("machines")).Namespace(metav1.NamespaceDefault)
	g.await(func() string {
		machine, err := machines.Get(g.t.Context(), g.machineOf(node).GetName(), metav1.GetOptions{})
		g.must(err)
		annotations := machine.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[g.deleteMark] = "2026-11-28 12:00:00 +0000 UTC"
		machine.SetAnnotations(annotations)
		_, err = machines.Update(g.t.Context(), machine, metav1.UpdateOptions{})
		return unless(err == nil, "%v", err)
	})
	g.setSize(int32(size) - 1)
}

// scaleOf returns the scale subresource, from which a HorizontalPodAutoscaler reads.
func (g *nodeGroup) scaleOf() (wanted, current int32, selector string) {
	g.t.Helper()
	found, err := g.scales.Scales(metav1.NamespaceDefault).Get(g.t.Context(), g.resource(g.plural).GroupResource(),
		g.name, metav1.GetOptions{})
	g.must(err)
	return found.Spec.Replicas, found.Status.Replicas, found.Status.Selector
}
