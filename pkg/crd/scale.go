package crd

import (
	"fmt"
	"math"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateScale looks at the fields that the scale subresource reads. The API server's
// own code for it can't be had without its storage.
func (v *version) validateScale(object map[string]any) field.ErrorList {
	if v.scale == nil {
		return nil
	}
	found := replicas(object, v.scale.SpecReplicasPath)
	found = append(found, replicas(object, v.scale.StatusReplicasPath)...)
	if v.scale.LabelSelectorPath != nil {
		path := strings.TrimPrefix(*v.scale.LabelSelectorPath, ".")
		if _, _, err := unstructured.NestedString(object, strings.Split(path, ".")...); err != nil {
			found = append(found, field.Invalid(field.NewPath(path), nil, "must be a string, because the scale subresource reads it"))
		}
	}
	return found
}

func replicas(object map[string]any, path string) field.ErrorList {
	path = strings.TrimPrefix(path, ".")
	count, _, err := unstructured.NestedInt64(object, strings.Split(path, ".")...)
	switch {
	case err != nil:
		return field.ErrorList{field.Invalid(field.NewPath(path), nil, "must be an integer, because the scale subresource reads it")}
	case count < 0:
		return field.ErrorList{field.Invalid(field.NewPath(path), count, "must not be negative")}
	case count > math.MaxInt32:
		return field.ErrorList{field.Invalid(field.NewPath(path), count, fmt.Sprintf("must be at most %d", math.MaxInt32))}
	default:
		return nil
	}
}
