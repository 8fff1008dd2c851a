package core

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// ContentOf returns what a delete of an object also deletes and no manifest restores; "" for most kinds.
func ContentOf(id kinds.ID) string {
	return map[schema.GroupKind]string{
		{Kind: "Namespace"}:             "all objects in it",
		{Kind: "PersistentVolume"}:      "the data on it",
		{Kind: "PersistentVolumeClaim"}: "the data behind it",
		kinds.CustomResourceDefinition:  "all objects of its kind",
	}[schema.GroupKind{Group: id.Group, Kind: id.Kind}]
}
