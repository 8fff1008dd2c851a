package snapshot

import (
	"cmp"
	"encoding/base64"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// masked is the value that each key of a Secret has in a snapshot.
const masked = "masked"

// clean returns an object as another cluster can create it: without what belongs to this cluster, and without the
// values of Secrets.
func clean(object *unstructured.Unstructured) *unstructured.Unstructured {
	cleaned := object.DeepCopy()
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "generation", "selfLink",
		"deletionTimestamp", "ownerReferences"} {
		unstructured.RemoveNestedField(cleaned.Object, "metadata", field)
	}
	if cleaned.GetKind() != "Secret" {
		cleaned.Object = fields.Mask(cleaned.Object) // an object may hold Secrets, and the hooks of a Deployment values
	}
	cleanAnnotations(cleaned)
	switch cleaned.GetKind() {
	case "Secret":
		mask(cleaned)
	case "Service":
		if address, _, _ := unstructured.NestedString(cleaned.Object, "spec",
			"clusterIP"); address != corev1.ClusterIPNone {
			remove(cleaned, "clusterIP", "clusterIPs")
		}
	case "PersistentVolumeClaim":
		unstructured.RemoveNestedField(cleaned.Object, "spec", "volumeName")
	case "Pod":
		unstructured.RemoveNestedField(cleaned.Object, "spec", "nodeName")
	case kinds.Job.Kind:
		cleanJob(cleaned)
	}
	return cleaned
}

// ofVolumes are the beginnings of the annotations by which a claim knows its volume.
var ofVolumes = []string{"pv.kubernetes.io/", "volume.kubernetes.io/", "volume.beta.kubernetes.io/storage-provisioner"}

// cleanAnnotations removes copies of the object by tools, and the annotations by which a claim knows its volume. Of a
// Secret, tools may have copied the values to any annotation.
func cleanAnnotations(object *unstructured.Unstructured) {
	annotations := object.GetAnnotations()
	maps.DeleteFunc(annotations, func(key, _ string) bool {
		isOfVolume := slices.ContainsFunc(ofVolumes, func(begin string) bool { return strings.HasPrefix(key, begin) })
		return key == corev1.LastAppliedConfigAnnotation || object.GetKind() == "Secret" && !fields.IsShown(key) ||
			object.GetKind() == "PersistentVolumeClaim" && isOfVolume
	})
	object.SetAnnotations(annotations)
}

// remove removes fields below spec.
func remove(object *unstructured.Unstructured, names ...string) {
	for _, field := range names {
		unstructured.RemoveNestedField(object.Object, "spec", field)
	}
}

// mask replaces the values of a Secret, and keeps its keys. A Secret for pulling images has to hold JSON.
func mask(secret *unstructured.Unstructured) {
	data, _, _ := unstructured.NestedMap(secret.Object, "data")
	for key := range data {
		value := masked
		if key == corev1.DockerConfigJsonKey || key == corev1.DockerConfigKey {
			value = "{}"
		}
		data[key] = base64.StdEncoding.EncodeToString([]byte(value))
	}
	if len(data) > 0 {
		_ = unstructured.SetNestedMap(secret.Object, data, "data")
	}
	if kind, _, _ := unstructured.NestedString(secret.Object,
		"type"); kind == string(corev1.SecretTypeServiceAccountToken) {
		secret.Object["type"] = string(corev1.SecretTypeOpaque) // its ServiceAccount has another UID elsewhere
	}
}

// cleanJob removes the UID that the API server adds to the selector and the labels of a Job.
func cleanJob(job *unstructured.Unstructured) {
	if isManual, _, _ := unstructured.NestedBool(job.Object, "spec", "manualSelector"); isManual {
		return
	}
	unstructured.RemoveNestedField(job.Object, "spec", "selector")
	for _, label := range []string{"batch.kubernetes.io/controller-uid", "controller-uid",
		"batch.kubernetes.io/job-name", "job-name"} {
		unstructured.RemoveNestedField(job.Object, "spec", "template", "metadata", "labels", label)
	}
}

// inOrder orders objects so that they can be created one after the other.
func inOrder(a, b *unstructured.Unstructured) int {
	return cmp.Or(
		cmp.Compare(stageOf(b), stageOf(a)),
		cmp.Compare(a.GetKind(), b.GetKind()), cmp.Compare(a.GetNamespace(), b.GetNamespace()),
		cmp.Compare(a.GetName(), b.GetName()),
	)
}

// stageOf returns the stage of deletion of an object, whose reverse is the order of creation. Webhooks are created
// last: they would refuse custom resources while their pods do not run.
func stageOf(object *unstructured.Unstructured) kinds.Stage {
	stage := kinds.StageOf(object.GroupVersionKind().GroupKind())
	if stage == kinds.CallStage {
		return kinds.PolicyStage
	}
	return stage
}
