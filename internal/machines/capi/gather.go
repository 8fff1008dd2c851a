package capi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/contract"
	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/patch"
)

// referencedObject is the observed state of an object that the Machine refers to.
type referencedObject struct {
	object  *contract.Object // nil if there is none
	isGone  bool
	problem error // the reason why the object could not be read
}

// gatherReferences reads infrastructure and bootstrap config, and makes the Machine their owner.
func (m *machineScope) gatherReferences(ctx context.Context) error {
	m.infrastructure = m.r.readReference(ctx, m.m, m.m.Spec.InfrastructureRef)
	if m.m.Spec.Bootstrap.ConfigRef.IsDefined() {
		m.bootstrap = m.r.readReference(ctx, m.m, m.m.Spec.Bootstrap.ConfigRef)
	} else {
		m.bootstrap.isGone = true
	}
	return errors.Join(m.infrastructure.problem, m.bootstrap.problem)
}

// readReference reads an object that a Machine refers to, and makes the Machine its owner.
func (r *Reconciler) readReference(ctx context.Context, m *clusterv1.Machine, ref contract.Reference) referencedObject {
	if !isOfMachine(ref) {
		if !m.DeletionTimestamp.IsZero() {
			return referencedObject{isGone: true}
		}
		return referencedObject{problem: fmt.Errorf("%s of %s is not a kind of infrastructure or bootstrap config: "+
			"refer to an object that is deleted with the Machine", ref.Kind, ref.APIGroup)}
	}
	object, err := r.references.Get(ctx, ref, m.Namespace)
	switch {
	case apierrors.IsNotFound(err):
		// Its kind is watched nevertheless: the object may be created later.
		if served, err := r.references.Served(ctx, ref.GroupKind()); err == nil {
			err = r.watcher.Watch(served.GroupVersionKind, machineOf)
			return referencedObject{isGone: err == nil, problem: err}
		}
		return referencedObject{isGone: true}
	case err != nil:
		return referencedObject{problem: err}
	}
	if err := errors.Join(r.watcher.Watch(object.Served.GroupVersionKind, machineOf),
		r.claim(ctx, m, object)); err != nil {
		return referencedObject{problem: err}
	}
	return referencedObject{object: object}
}

// isOfMachine reports whether a reference names a kind whose objects belong to one Machine. Objects of other kinds must
// not be deleted on behalf of an account that may only create and delete Machines.
func isOfMachine(ref contract.Reference) bool {
	return ref.APIGroup != clusterv1.GroupVersion.Group && !strings.HasPrefix(ref.APIGroup, "controlplane.") &&
		!strings.HasSuffix(ref.Kind, clusterv1.TemplateSuffix)
}

// claim makes the Machine the controller of an object. The owner of the Machine created the object too, and owns it
// until then.
func (r *Reconciler) claim(ctx context.Context, m *clusterv1.Machine, object *contract.Object) error {
	wanted := *metav1.NewControllerRef(m, clusterv1.GroupVersion.WithKind("Machine"))
	maker := metav1.GetControllerOf(m)
	var owners []metav1.OwnerReference
	for _, owner := range object.GetOwnerReferences() {
		switch {
		case owner.UID == wanted.UID, maker != nil && owner.UID == maker.UID:
		case ptr.Deref(owner.Controller, false):
			return fmt.Errorf("%s belongs to %s %s, but a Machine needs its own object: refer to another object, or "+
				"remove that owner",
				object, owner.Kind, owner.Name)
		default:
			owners = append(owners, owner)
		}
	}
	owners = append(owners, wanted)
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	if slices.ContainsFunc(object.GetOwnerReferences(), func(o metav1.OwnerReference) bool {
		return equality.Semantic.DeepEqual(o, wanted)
	}) &&
		len(owners) == len(object.GetOwnerReferences()) && labels[clusterv1.ClusterNameLabel] == m.Spec.ClusterName {
		return nil
	}
	base := object.DeepCopy()
	labels[clusterv1.ClusterNameLabel] = m.Spec.ClusterName
	object.SetLabels(labels)
	object.SetOwnerReferences(owners)
	if err := patch.WithLock(ctx, r.client, object.Unstructured, base); err != nil {
		return fmt.Errorf("make the Machine the owner of %s: %w", object, err)
	}
	return nil
}

// writeSpec copies the fields of the infrastructure and of the bootstrap config into the Machine.
func (m *machineScope) writeSpec(ctx context.Context) error {
	base := m.m.DeepCopy()
	m.copyBootstrap()
	m.copyInfrastructure()
	return m.r.patch(ctx, m.m, base, "copy the fields of the infrastructure into the Machine")
}

func (m *machineState) copyBootstrap() {
	config, created := m.bootstrap.object, &m.status.Initialization.BootstrapDataSecretCreated
	if config == nil {
		return
	}
	switch {
	case m.m.Spec.Bootstrap.DataSecretName != nil:
		*created = ptr.To(true)
	case config.IsDataSecretCreated() && config.DataSecretName() != "" && config.GetDeletionTimestamp() == nil:
		m.m.Spec.Bootstrap.DataSecretName, *created = ptr.To(config.DataSecretName()), ptr.To(true)
	}
}

func (m *machineState) copyInfrastructure() {
	object, provisioned := m.infrastructure.object, &m.status.Initialization.InfrastructureProvisioned
	if object == nil || object.GetDeletionTimestamp() != nil ||
		!object.IsProvisioned() && !ptr.Deref(*provisioned, false) ||
		object.ProviderID() == "" {
		return
	}
	m.m.Spec.ProviderID, *provisioned = object.ProviderID(), ptr.To(true)
	if addresses := object.Addresses(); len(addresses) > 0 {
		m.status.Addresses = addresses
	}
	if domain := object.FailureDomain(); domain != "" {
		m.status.FailureDomain = domain
	}
}

func same(a, b any) bool { return equality.Semantic.DeepEqual(a, b) }

// A machineNode is the Node of a Machine, as one reconciliation knows it.
type machineNode struct {
	// object is the Node with the Machine's providerID as the cache has it, or nil; a deletion reads it from the API
	// server.
	object              *corev1.Node
	isGone              bool   // there is no Node that the deletion of the Machine drains and deletes
	isDeletionRequested bool   // whether this reconciliation requested the deletion
	refusal             string // the reason why that failed
	problem             error  // the reason why the Node could not be looked for
	owner               string // the API group of another Machine that owns the Node, if this is the problem
}

// openshiftGroup is the group of the other API.
const openshiftGroup = "machine.openshift.io"

// gatherNode finds the Node with the Machine's providerID, sets the Machine's metadata and taints on it, and links it.
func (m *machineScope) gatherNode(ctx context.Context) error {
	m.node.problem = m.findNode(ctx)
	if m.node.problem != nil || m.node.object == nil {
		return m.node.problem
	}
	err := m.patchNode(ctx)
	if apierrors.IsConflict(err) { // a Machine of the other API may have been linked meanwhile
		switch {
		case m.status.NodeRef.Name != "":
		case m.m.DeletionTimestamp.IsZero():
			m.node.object = nil // the Node is not linked yet, so the Machine is not available
		default:
			m.node.problem = err // the deletion must not continue as if there were no Node
		}
		return err
	}
	if m.status.NodeRef.Name == "" {
		m.status.NodeRef.Name = m.node.object.Name
		m.r.record(m.m, corev1.EventTypeNormal, "SuccessfulSetNodeRef", m.node.object.Name)
	}
	m.status.NodeInfo = &m.node.object.Status.NodeInfo
	return err
}

// patchNode sets the Machine's labels, annotations and taints on the Node.
func (m *machineScope) patchNode(ctx context.Context) error {
	before := m.node.object.DeepCopy()
	updateNode(m.node.object, m.m)
	if same(before, m.node.object) {
		return nil
	}
	if err := patch.WithLock(ctx, m.r.client, m.node.object, before); err != nil {
		return fmt.Errorf("patch Node %s with the metadata and taints of the Machine: %w", m.node.object.Name, err)
	}
	return nil
}

// findNode finds the Node with the providerID.
func (m *machineScope) findNode(ctx context.Context) error {
	id := providerID(m.m, m.infrastructure.object)
	if id == "" {
		return nil
	}
	var nodes corev1.NodeList
	if err := m.r.client.List(ctx, &nodes, client.MatchingFields{nodesByProviderID: id}); err != nil {
		return fmt.Errorf("list the Nodes with providerID %s: %w", id, err)
	}
	switch len(nodes.Items) {
	case 0:
		return nil
	case 1:
	default:
		return fmt.Errorf("%d Nodes have the providerID %s: delete those that are not the Machine's", len(nodes.Items),
			id)
	}
	node := &nodes.Items[0]
	if owner, ok := node.Annotations[deletion.OpenShiftMachineAnnotation]; ok {
		m.node.owner = openshiftGroup
		return fmt.Errorf("the Node %s belongs to Machine %s of machine.openshift.io, and a Node has one Machine: "+
			"delete one of both, "+
			"and the annotation %s of the Node if that was the other one", node.Name, owner,
			deletion.OpenShiftMachineAnnotation)
	}
	if err := m.checkOwner(ctx, node); err != nil {
		return err
	}
	m.node.object = node
	return nil
}

// checkOwner returns an error if a Node belongs to another Machine that still exists.
func (m *machineScope) checkOwner(ctx context.Context, node *corev1.Node) error {
	owner, isOther := m.otherOwner(node)
	if !isOther {
		return nil
	}
	err := m.r.server.Get(ctx, owner, &clusterv1.Machine{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("get Machine %s, whose Node %s is: %w", owner, node.Name, err)
	}
	m.node.owner = clusterv1.GroupVersion.Group
	return fmt.Errorf("the Node %s belongs to Machine %s, and a Node has one Machine: delete one of both", node.Name,
		owner)
}

// otherOwner returns the Machine that a Node's annotations name, and whether it is another Machine.
func (m *machineScope) otherOwner(node *corev1.Node) (client.ObjectKey, bool) {
	owner := client.ObjectKey{
		Namespace: node.Annotations[clusterv1.ClusterNamespaceAnnotation],
		Name:      node.Annotations[clusterv1.MachineAnnotation],
	}
	return owner, owner.Namespace != "" && owner.Name != "" && owner != client.ObjectKeyFromObject(m.m)
}

// providerID returns the ID of the Machine's instance. The infrastructure may have it before the Machine, even before
// it is provisioned.
func providerID(m *clusterv1.Machine, infrastructure *contract.Object) string {
	if infrastructure == nil || m.DeletionTimestamp.IsZero() && !infrastructure.IsProvisioned() {
		return m.Spec.ProviderID
	}
	return cmp.Or(m.Spec.ProviderID, infrastructure.ProviderID())
}

// updateNode sets the labels, annotations and taints of a Machine on its Node, and removes those that the Machine no
// longer has. Annotations of the Node record which were set.
func updateNode(node *corev1.Node, m *clusterv1.Machine) {
	labels, annotations := labelsForNode(m), annotationsForNode(m)
	node.Labels = replaceKeys(node.Labels, node.Annotations[clusterv1.LabelsFromMachineAnnotation], labels)
	noted := slices.DeleteFunc(slices.Sorted(maps.Keys(annotations)), func(key string) bool {
		return slices.Contains(linkAnnotations, key)
	})
	before := strings.Join(append(strings.Split(node.Annotations[clusterv1.AnnotationsFromMachineAnnotation], ","),
		linkAnnotations...), ",")
	node.Annotations = replaceKeys(node.Annotations, before, annotations)
	node.Annotations[clusterv1.LabelsFromMachineAnnotation] = strings.Join(slices.Sorted(maps.Keys(labels)), ",")
	node.Annotations[clusterv1.AnnotationsFromMachineAnnotation] = strings.Join(noted, ",")
	updateTaints(node, m.Spec.Taints)
}

// linkAnnotations are the annotations of a Node that identify its Machine.
var linkAnnotations = []string{
	clusterv1.ClusterNameAnnotation, clusterv1.ClusterNamespaceAnnotation, clusterv1.MachineAnnotation,
	clusterv1.OwnerKindAnnotation, clusterv1.OwnerNameAnnotation,
}

// replaceKeys returns a map without the keys that were set before, and with those that are wanted now.
func replaceKeys(all map[string]string, before string, wanted map[string]string) map[string]string {
	all = maps.Clone(all)
	for key := range strings.SplitSeq(before, ",") {
		delete(all, key)
	}
	return labels.Merge(all, wanted)
}

// labelsForNode returns the labels of a Machine that are synced to its Node, by their domains.
func labelsForNode(m *clusterv1.Machine) map[string]string {
	labels := map[string]string{}
	for key, value := range m.Labels {
		domain, _, _ := strings.Cut(key, "/")
		if domain == clusterv1.NodeRoleLabelPrefix || isOfDomain(domain, clusterv1.NodeRestrictionLabelDomain) ||
			isOfDomain(domain, clusterv1.ManagedNodeLabelDomain) {
			labels[key] = value
		}
	}
	return labels
}

// annotationsForNode returns the annotations of a Machine that are synced to its Node, and those that identify the
// Machine.
func annotationsForNode(m *clusterv1.Machine) map[string]string {
	annotations := map[string]string{
		clusterv1.ClusterNameAnnotation: m.Spec.ClusterName, clusterv1.ClusterNamespaceAnnotation: m.Namespace,
		clusterv1.MachineAnnotation: m.Name,
	}
	if owner := metav1.GetControllerOf(m); owner != nil {
		annotations[clusterv1.OwnerKindAnnotation], annotations[clusterv1.OwnerNameAnnotation] = owner.Kind, owner.Name
	}
	for key, value := range m.Annotations {
		domain, _, _ := strings.Cut(key, "/")
		if isOfDomain(domain, clusterv1.ManagedNodeAnnotationDomain) {
			annotations[key] = value
		}
	}
	return annotations
}

func isOfDomain(name, domain string) bool {
	return name == domain || strings.HasSuffix(name, "."+domain)
}

// updateTaints sets the taints of a Machine on its Node. Taints with the propagation Always are restored, and removed
// when the Machine no longer has them: an annotation of the Node records which were set. The others are set once, on a
// Node without that annotation.
func updateTaints(node *corev1.Node, wanted []clusterv1.MachineTaint) {
	noted, isInitialized := node.Annotations[clusterv1.TaintsFromMachineAnnotation]
	var wantedIDs, always []string
	for _, taint := range wanted {
		id := taintID(taint.Key, taint.Effect)
		wantedIDs = append(wantedIDs, id)
		if taint.Propagation == clusterv1.MachineTaintPropagationAlways {
			always = append(always, id)
		} else if isInitialized {
			continue
		}
		setTaint(node, corev1.Taint{Key: taint.Key, Value: taint.Value, Effect: taint.Effect})
	}
	before := strings.Split(noted, ",")
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		id := taintID(t.Key, t.Effect)
		return t.MatchTaint(&clusterv1.NodeUninitializedTaint) ||
			slices.Contains(before, id) && !slices.Contains(wantedIDs, id)
	})
	slices.Sort(always)
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, clusterv1.TaintsFromMachineAnnotation, strings.Join(always, ","))
}

// taintID identifies a taint in the annotation of a Node: a Node has one taint of each key and effect.
func taintID(key string, effect corev1.TaintEffect) string { return key + ":" + string(effect) }

// setTaint sets a taint on a Node, with its value.
func setTaint(node *corev1.Node, taint corev1.Taint) {
	i := slices.IndexFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) })
	switch {
	case i < 0:
		node.Spec.Taints = append(node.Spec.Taints, taint)
	case node.Spec.Taints[i].Value != taint.Value:
		node.Spec.Taints[i] = taint
	}
}
