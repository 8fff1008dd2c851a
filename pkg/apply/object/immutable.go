package object

import (
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// howServersSayFixed are the words with which API servers refuse to change a field that
// is set for good. There is no reason for it in what they answer.
var howServersSayFixed = []string{
	"immutable", "may not change once set", "cannot change roleRef", "may not be changed", "cannot be changed",
	"updates to statefulset spec for fields other than", "pod updates may not change fields other than",
	"updates to provisioner are forbidden", "updates to parameters are forbidden",
}

// immutableFields are those that a server refused to change; none if it refused for
// something else.
func immutableFields(err error) []string {
	if !apierrors.IsInvalid(err) {
		return nil
	}
	details := status(err).Details
	if details == nil {
		return nil
	}
	var fixed []string
	for _, cause := range details.Causes {
		isFixed := slices.ContainsFunc(howServersSayFixed, func(words string) bool { return strings.Contains(cause.Message, words) })
		if !isFixed {
			return nil // making it anew would not mend that
		}
		if !slices.Contains(fixed, cause.Field) {
			fixed = append(fixed, cause.Field)
		}
	}
	return fixed
}

// cannotChange says which fields stand in the way.
func cannotChange(fixed []string) string {
	if len(fixed) == 1 {
		return fixed[0] + " can't be changed"
	}
	return strings.Join(fixed, ", ") + " can't be changed"
}

// wayOut is what to do about fields that can't be changed.
func wayOut(kind schema.GroupKind) string {
	if isPrecious(kind) {
		return "keep the fields as they were, or give the object another name"
	}
	return "keep the fields as they were, give the object another name and this one a tombstone, or allow to delete it and make it anew with the annotation " +
		RecreateAnnotation + `: "true"`
}

// isPrecious says of kinds whose objects hold others, or data, that would be lost.
func isPrecious(kind schema.GroupKind) bool {
	return IsFoundation(kind) || kind == schema.GroupKind{Kind: "PersistentVolumeClaim"}
}
