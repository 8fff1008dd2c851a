package tombstone

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// removers describe which controllers remove Kubernetes' own finalizers, and when.
var removers = map[string]string{
	metav1.FinalizerDeleteDependents: "the garbage collector removes it when all objects that " +
		"this one owns are deleted",
	metav1.FinalizerOrphanDependents: "the garbage collector removes it when nothing is owned by the object any more",
	"kubernetes.io/pvc-protection": "the controller manager removes it when no Pod uses " +
		"the claim",
	"kubernetes.io/pv-protection":      "the controller manager removes it when no claim is bound to the volume",
	"batch.kubernetes.io/job-tracking": "the Job controller removes it when it has counted the Pod",
	"service.kubernetes.io/load-balancer-cleanup": "the cloud's controller removes it when the load " +
		"balancer is deleted",
	"snapshot.storage.kubernetes.io/pvc-as-source-protection": "the snapshot controller removes it when no " +
		"snapshot is made of the claim",
}

// FinalizerRemover returns which controller removes a finalizer, and when.
func FinalizerRemover(finalizer string) string {
	if remover := removers[finalizer]; remover != "" {
		return remover
	}
	return "its controller removes it"
}

// IsForeignFinalizer reports whether a finalizer is not one of Kubernetes' own. Its controller may have been
// uninstalled.
func IsForeignFinalizer(finalizer string) bool { return removers[finalizer] == "" }

// FinalizerSetters returns the field managers that have set the finalizers of an object, by finalizer.
func FinalizerSetters(object metav1.Object) map[string]string {
	setters := map[string]string{}
	for _, entry := range object.GetManagedFields() {
		if entry.FieldsV1 == nil {
			continue
		}
		for _, finalizer := range object.GetFinalizers() {
			if strings.Contains(entry.FieldsV1.GetRawString(), fmt.Sprintf(`"v:\"%s\""`, finalizer)) {
				setters[finalizer] = printable.Line(entry.Manager)
			}
		}
	}
	return setters
}
