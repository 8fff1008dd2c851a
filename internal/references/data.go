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

// Data are the objects of a release or a cluster that may hold data.
type Data struct {
	claims map[string][]kinds.ID           // by namespace
	ofKind map[schema.GroupKind][]kinds.ID // custom resources, and other objects
}

// DataOf returns the objects of manifests.
func DataOf[M Referrer](manifests []M) Data {
	d := Data{claims: map[string][]kinds.ID{}, ofKind: map[schema.GroupKind][]kinds.ID{}}
	for _, m := range manifests {
		if !m.IsTombstone() {
			d.Add(m.Object())
		}
	}
	return d
}

// Add adds an object: one that holds data, or a StatefulSet, which has claims.
func (d Data) Add(object *unstructured.Unstructured) {
	if object.GroupVersionKind().GroupKind() != kinds.StatefulSet {
		d.AddID(kinds.IDOf(object))
		return
	}
	for _, claim := range ClaimsOf(object) {
		d.AddID(claim)
	}
}

// AddID adds an object by its ID.
func (d Data) AddID(id kinds.ID) {
	if kind := id.GroupKind(); kind == kinds.PersistentVolumeClaim {
		d.claims[id.Namespace] = append(d.claims[id.Namespace], id)
	} else {
		d.ofKind[kind] = append(d.ofKind[kind], id)
	}
}

// HasClaim reports whether the data have a claim.
func (d Data) HasClaim(id kinds.ID) bool { return slices.Contains(d.claims[id.Namespace], id) }

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
	kind := before.GroupVersionKind().GroupKind()
	id := kinds.NewID(kind, before.GetNamespace(), before.GetName())
	isDeleted := after == nil
	switch {
	case kind == kinds.StatefulSet:
		return lostClaims(before, after)
	case !isDeleted:
		return nil, nil
	case kind == kinds.Namespace:
		return d.claims[id.Name], nil
	case kind == kinds.CustomResourceDefinition:
		return append([]kinds.ID{id}, d.ofKind[kinds.DefinedBy(before)]...), nil
	case kind == kinds.PersistentVolumeClaim || kind == kinds.PersistentVolume:
		return []kinds.ID{id}, nil
	default:
		return nil, nil
	}
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
