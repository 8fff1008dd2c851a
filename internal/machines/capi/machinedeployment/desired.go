package machinedeployment

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/annotation"
	"github.com/runlevel/runlevel/internal/machines/capi/machinedeployment/rolloutplan"
	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
)

// ownAnnotations are the annotations of a deployment that its sets do not get.
var ownAnnotations = []string{
	corev1.LastAppliedConfigAnnotation, clusterv1.RevisionAnnotation, historyAnnotation,
	clusterv1.DesiredReplicasAnnotation, clusterv1.MaxReplicasAnnotation, "cluster.x-k8s.io/conversion-data",
}

// desired returns the desired state of a set, by the deployment and the plan. Fields of the template that need new
// machines are the set's own.
func (s *snapshot) desired(set *clusterv1.MachineSet, step rolloutplan.SetStep, revision map[string]string,
	isClosed bool) *clusterv1.MachineSet {
	spec := s.deployment.Spec.DeepCopy()
	unique := map[string]string{
		clusterv1.MachineDeploymentUniqueLabel: set.Labels[clusterv1.MachineDeploymentUniqueLabel],
	}
	desired := &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.deployment.Namespace, Name: set.Name, UID: set.UID, Finalizers: set.Finalizers,
		OwnerReferences: []metav1.OwnerReference{controllerOf(s.deployment)},
		Labels:          labels.Merge(spec.Template.Labels, unique),
		Annotations:     s.annotations(step, revision, isClosed),
	}}
	desired.Labels[clusterv1.MachineDeploymentNameLabel] = s.deployment.Name
	desired.Spec = clusterv1.MachineSetSpec{
		ClusterName: spec.ClusterName, Replicas: ptr.To(int32(step.To)), Selector: spec.Selector,
		MachineNaming: spec.MachineNaming,
	}
	desired.Spec.Selector.MatchLabels = labels.Merge(spec.Selector.MatchLabels, unique)
	desired.Spec.Deletion.Order = spec.Deletion.Order
	desired.Spec.Template.Labels = labels.Merge(spec.Template.Labels, unique)
	desired.Spec.Template.Annotations = spec.Template.Annotations
	desired.Spec.Template.Spec = *set.Spec.Template.Spec.DeepCopy()
	rolloutrules.SetMutable(&desired.Spec.Template.Spec, &spec.Template.Spec)
	// maps of strings
	desired.Annotations[annotation.AppliedDeployment], _ = hashOf(desired.Labels, desired.Annotations,
		desired.Spec.Template.ObjectMeta)
	return desired
}

// annotations returns the annotations of a set. A closed set does not replace machines that are deleted.
func (s *snapshot) annotations(step rolloutplan.SetStep, revision map[string]string, isClosed bool) map[string]string {
	annotations := labels.Merge(s.deployment.Annotations, nil)
	for _, key := range ownAnnotations {
		delete(annotations, key)
	}
	maps.Copy(annotations, revision)
	wanted := s.spec()
	annotations[clusterv1.DesiredReplicasAnnotation] = strconv.Itoa(wanted.Replicas)
	annotations[clusterv1.MaxReplicasAnnotation] = strconv.Itoa(wanted.Replicas + wanted.MaxSurge)
	annotations[clusterv1.DisableMachineCreateAnnotation] = strconv.FormatBool(isClosed)
	for key, value := range map[string]string{
		clusterv1.MachineSetMoveMachinesToMachineSetAnnotation:       step.MoveTo,
		clusterv1.MachineSetReceiveMachinesFromMachineSetsAnnotation: strings.Join(step.ReceiveFrom, ","),
		clusterv1.AcknowledgedMoveAnnotation:                         strings.Join(step.Acknowledged, ","),
	} {
		if value != "" {
			annotations[key] = value
		}
	}
	return annotations
}

// isAsDesired reports whether a set needs no apply. Labels and annotations of other managers are ignored.
func isAsDesired(set, desired *clusterv1.MachineSet) bool {
	spec, wanted := set.Spec, desired.Spec
	for _, pair := range [][2]map[string]string{
		{desired.Labels, set.Labels}, {desired.Annotations, set.Annotations},
		{wanted.Template.Labels, spec.Template.Labels}, {wanted.Template.Annotations, spec.Template.Annotations},
	} {
		if !labels.Set(pair[0]).AsSelectorPreValidated().Matches(labels.Set(pair[1])) {
			return false
		}
	}
	spec.Template.ObjectMeta = wanted.Template.ObjectMeta
	return equality.Semantic.DeepEqual(wanted, spec)
}

// hashOf returns a hash of values, as the value of a label.
func hashOf(values ...any) (string, error) {
	hash := fnv.New32a()
	if err := json.NewEncoder(hash).Encode(values); err != nil { // maps are written with their keys in order
		return "", fmt.Errorf("hash the template: %w", err)
	}
	return strconv.FormatUint(uint64(hash.Sum32()), 10), nil
}

func controllerOf(deployment *clusterv1.MachineDeployment) metav1.OwnerReference {
	return *metav1.NewControllerRef(deployment, clusterv1.GroupVersion.WithKind("MachineDeployment"))
}

// isCleanable reports whether a set is no longer needed: it has no machines, and no replicas.
func isCleanable(set *clusterv1.MachineSet, machines []*clusterv1.Machine) bool {
	return set.DeletionTimestamp == nil && len(machines) == 0 && ptr.Deref(set.Spec.Replicas, 1) == 0 &&
		ptr.Deref(set.Status.Replicas, 1) == 0 && set.Status.ObservedGeneration >= set.Generation
}

// obsolete returns the sets to delete once the deployment is complete. They are kept until then, so that a restored
// template finds its set.
func (s *snapshot) obsolete() []*clusterv1.MachineSet {
	current := s.current()
	if s.invalid != "" || current == nil || len(s.rollout.changes) > 0 {
		return nil
	}
	state, machines := s.stateOf(current), len(s.owned())
	if wanted := int(*s.deployment.Spec.Replicas); state.UpToDate != wanted || machines != wanted {
		return nil
	}
	return slices.DeleteFunc(s.old(current), func(set *clusterv1.MachineSet) bool {
		return !isCleanable(set, s.machines[set.UID])
	})
}
