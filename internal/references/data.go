package references

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// DataLossAnnotation has the reason why a manifest may take data with it. It is for a tombstone, or a changed object.
const DataLossAnnotation = "runlevel.dev/loses-data"

// maxClaimPods limits the pods of a StatefulSet whose claims are named.
const maxClaimPods = 100

// Data are the objects of a release that may hold data, by kind: claims, custom resources, and others. The claims
// include those that StatefulSets make.
type Data map[schema.GroupKind][]kinds.ID

// DataOf returns the objects of manifests.
func DataOf[M Referrer](manifests []M) Data {
	d := Data{}
	for _, m := range manifests {
		switch {
		case m.IsTombstone():
		case m.ID().GroupKind() == kinds.StatefulSet:
			d.Add(ClaimsOf(m.Object())...)
		default:
			d.Add(m.ID())
		}
	}
	return d
}

// Add adds objects.
func (d Data) Add(ids ...kinds.ID) {
	for _, id := range ids {
		d[id.GroupKind()] = append(d[id.GroupKind()], id)
	}
}

// HasClaim reports whether the data have a claim.
func (d Data) HasClaim(id kinds.ID) bool { return slices.Contains(d[kinds.PersistentVolumeClaim], id) }

// ClaimsOf returns the claims of the pods of a StatefulSet, those of its first pods if it has many.
func ClaimsOf(statefulSet *unstructured.Unstructured) (claims []kinds.ID) {
	replicas, isSet, _ := unstructured.NestedInt64(statefulSet.Object, "spec", "replicas")
	if !isSet {
		replicas = 1
	}
	first, _, _ := unstructured.NestedInt64(statefulSet.Object, "spec", "ordinals", "start")
	templates, _, _ := unstructured.NestedFieldNoCopy(statefulSet.Object, "spec", "volumeClaimTemplates")
	items, _ := templates.([]any)
	for _, item := range items {
		template, _ := item.(map[string]any)
		name, _, _ := unstructured.NestedString(template, "metadata", "name")
		for i := range min(replicas, maxClaimPods) {
			claims = append(claims, kinds.NewID(kinds.PersistentVolumeClaim, statefulSet.GetNamespace(),
				fmt.Sprintf("%s-%s-%d", name, statefulSet.GetName(), first+i)))
		}
	}
	return claims
}

// LostWith returns the objects with data that are deleted when an object changes, and the field that causes it. after
// is nil if the object is deleted, or recreated; then the field is nil unless it is one of the object before. A volume
// and a claim are returned themselves. So is a definition, before its known objects: users may have made others.
func (d Data) LostWith(before, after *unstructured.Unstructured) (lost []kinds.ID, field []string) {
	id := kinds.IDOf(before)
	switch kind := id.GroupKind(); {
	case kind == kinds.StatefulSet:
		return lostClaims(before, after)
	case after != nil:
	case kind == kinds.Namespace:
		for _, claim := range d[kinds.PersistentVolumeClaim] {
			if claim.Namespace == id.Name {
				lost = append(lost, claim)
			}
		}
	case kind == kinds.CustomResourceDefinition:
		lost = append([]kinds.ID{id}, d[kinds.DefinedBy(before)]...)
	case kind == kinds.PersistentVolumeClaim || kind == kinds.PersistentVolume:
		lost = []kinds.ID{id}
	}
	return lost, nil
}

// lostClaims returns the claims that Kubernetes deletes when a StatefulSet is deleted, or has fewer pods.
func lostClaims(before, after *unstructured.Unstructured) (lost []kinds.ID, field []string) {
	claims, path := ClaimsOf(before), []string{"spec", "persistentVolumeClaimRetentionPolicy", "whenDeleted"}
	if after != nil {
		path[len(path)-1] = "whenScaled"
		if _, isSet, _ := unstructured.NestedInt64(after.Object, "spec", "replicas"); !isSet {
			return nil, nil // others may scale it
		}
		kept := ClaimsOf(after)
		claims = slices.DeleteFunc(claims, func(id kinds.ID) bool { return slices.Contains(kept, id) })
		before = after
	}
	if policy, _, _ := unstructured.NestedString(before.Object, path...); policy != "Delete" || len(claims) == 0 {
		return nil, nil
	}
	return claims, path
}
