// Package objectmeta reads from the metadata of a live object what Runlevel needs to know: the release of the
// object, our entry in managedFields, the controller of the object, and whether it is being deleted.
//
// It reads no object's body, sends no request, and changes nothing.
//
// Start with Of.
package objectmeta

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"time"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// ReleaseLabel is the label with the release of an object.
const ReleaseLabel = "runlevel.dev/release"

// TestLabel is the label with the release of a test. A test does not have ReleaseLabel, since no apply keeps it.
const TestLabel = "runlevel.dev/test-of"

// VersionAnnotation is the annotation that has the version of the release, on some of its objects.
const VersionAnnotation = "runlevel.dev/release-version"

// UninstalledAnnotation is the annotation of an object that an uninstall has kept, with the time of the uninstall.
const UninstalledAnnotation = "runlevel.dev/uninstalled"

// LiveMetadata is the metadata of a live object.
type LiveMetadata struct {
	ID              kinds.ID
	Resource        cluster.Resource
	UID             types.UID
	ResourceVersion string
	Generation      int64
	Release         string     // the value of ReleaseLabel
	IsApplied       bool       // we have applied or made the object: a label alone may have been copied
	HasOthers       bool       // other managers have set fields of the object: see IsOfOthers
	Entry           ApplyEntry // ours in managedFields
	Controller      string     // kind and name of the controlling owner, if there is one
	Terminating     bool
	Created         time.Time // server time

	object metav1.Object
}

// An ApplyEntry is our entry in managedFields for applies.
type ApplyEntry struct {
	Since  time.Time // time of our last apply that changed anything, in whole seconds
	Fields string    // JSON, in any order
}

// Same reports whether two entries record the same apply, and have the same fields.
func (e ApplyEntry) Same(other ApplyEntry) bool {
	return e.Since.Equal(other.Since) && (e.Fields == other.Fields || e.SortedFields() == other.SortedFields())
}

// SortedFields returns the fields as JSON with sorted keys.
func (e ApplyEntry) SortedFields() string {
	var fields any
	if json.Unmarshal([]byte(e.Fields), &fields) != nil {
		return e.Fields
	}
	sorted, err := json.Marshal(fields)
	if err != nil {
		return e.Fields
	}
	return string(sorted)
}

// Containers returns the objects with which an object is deleted: its Namespace and its
// CustomResourceDefinition. If the object has neither, no object has the returned name.
func Containers(id kinds.ID, resource cluster.Resource) []kinds.ID {
	definition := kinds.CustomResourceDefinition
	return []kinds.ID{
		{Kind: kinds.Namespace.Kind, Name: id.Namespace},
		{Group: definition.Group, Kind: definition.Kind, Name: resource.GroupResource().String()},
	}
}

// Of returns the metadata of an object.
func Of(resource cluster.Resource, object metav1.Object) LiveMetadata {
	m := LiveMetadata{
		ID: resource.IDOf(object), Resource: resource, UID: object.GetUID(),
		ResourceVersion: object.GetResourceVersion(), Generation: object.GetGeneration(),
		Release: object.GetLabels()[ReleaseLabel], Terminating: object.GetDeletionTimestamp() != nil,
		Created: object.GetCreationTimestamp().Time,
		object:  object,
	}
	for _, entry := range object.GetManagedFields() {
		m.HasOthers = m.HasOthers || IsOfOthers(entry)
		if entry.Manager != cluster.FieldManager || entry.Subresource != "" {
			continue
		}
		m.IsApplied = true
		if entry.Operation == metav1.ManagedFieldsOperationApply {
			m.Entry = applyEntryOf(entry)
		}
	}
	if controller := metav1.GetControllerOf(object); controller != nil {
		m.Controller = controller.Kind + " " + controller.Name
	}
	return m
}

// ownManagers are our field managers, and those of Kubernetes' own components.
var ownManagers = []string{
	cluster.FieldManager, deploymenthook.FieldManager,
	"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "cloud-controller-manager",
	"clusterrole-aggregation-controller",
}

// IsOfOthers reports whether an entry in managedFields is neither of us, nor of a component of Kubernetes, nor of a
// subresource such as status or scale.
func IsOfOthers(entry metav1.ManagedFieldsEntry) bool {
	return entry.Subresource == "" && !slices.Contains(ownManagers, entry.Manager)
}

// applyEntryOf reads our entry, which may have neither a time nor fields.
func applyEntryOf(entry metav1.ManagedFieldsEntry) ApplyEntry {
	var ours ApplyEntry
	if entry.Time != nil {
		ours.Since = entry.Time.Time
	}
	if entry.FieldsV1 != nil {
		ours.Fields = unique.Make(string(entry.FieldsV1.GetRawBytes())).Value() // most objects of a kind have the same
	}
	return ours
}

// IsOf reports whether the object is one of a release: it has the release's label, we have applied it, and no
// controller that may have copied the label controls it.
func (m LiveMetadata) IsOf(release string) bool {
	return m.Release == release && m.IsApplied && m.Controller == ""
}

// OtherOwner returns the release that owns the object, if it is not the given release.
func (m LiveMetadata) OtherOwner(release string) (string, bool) {
	if m.Release == "" || m.Release == release || !m.IsOf(m.Release) {
		return "", false
	}
	return m.Release, true
}

// WasKept reports whether an uninstall of its release has kept the object, and no apply has changed it since.
func (m LiveMetadata) WasKept() bool {
	uninstalled, err := time.Parse(time.RFC3339, m.object.GetAnnotations()[UninstalledAnnotation])
	return err == nil && !m.Entry.Since.After(uninstalled)
}

// IsNeverApplied reports whether we have never applied the object. We may have created it nevertheless.
func (m LiveMetadata) IsNeverApplied() bool { return m.Entry == ApplyEntry{} }

// Object returns the object from which the metadata were read; nil if there is none. It must not be changed.
func (m LiveMetadata) Object() metav1.Object { return m.object }

// Trim releases the memory of metadata that are not needed later when there are many objects: of managedFields, only
// the entries of an object that we have never applied are kept, and those that own the number of replicas.
func (m *LiveMetadata) Trim() {
	object := m.object
	var entries []metav1.ManagedFieldsEntry
	for _, entry := range object.GetManagedFields() {
		if m.IsNeverApplied() || entry.FieldsV1 != nil &&
			bytes.Contains(entry.FieldsV1.GetRawBytes(), []byte(`"f:replicas"`)) {
			entries = append(entries, entry)
		}
	}
	m.object = &metav1.ObjectMeta{
		Name: object.GetName(), Namespace: object.GetNamespace(), UID: object.GetUID(),
		ResourceVersion: object.GetResourceVersion(), Generation: object.GetGeneration(),
		CreationTimestamp: object.GetCreationTimestamp(), DeletionTimestamp: object.GetDeletionTimestamp(),
		Labels: object.GetLabels(), Annotations: object.GetAnnotations(), Finalizers: object.GetFinalizers(),
		OwnerReferences: object.GetOwnerReferences(),
		ManagedFields:   entries,
	}
}

// HasMetadataOf reports whether the object has all labels, annotations, finalizers and owners of a manifest.
func (m LiveMetadata) HasMetadataOf(manifest metav1.Object) bool {
	return isWithin(manifest.GetLabels(), m.object.GetLabels()) &&
		isWithin(manifest.GetAnnotations(), m.object.GetAnnotations()) &&
		areWithin(manifest.GetFinalizers(), m.object.GetFinalizers()) &&
		areWithin(manifest.GetOwnerReferences(), m.object.GetOwnerReferences())
}

func isWithin(wanted, live map[string]string) bool {
	for key, value := range wanted {
		if current, found := live[key]; !found || current != value {
			return false
		}
	}
	return true
}

func areWithin[T any](wanted, live []T) bool {
	return !slices.ContainsFunc(wanted, func(item T) bool {
		return !slices.ContainsFunc(live, func(other T) bool { return reflect.DeepEqual(item, other) })
	})
}
