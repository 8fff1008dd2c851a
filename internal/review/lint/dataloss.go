package lint

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/runlevel/runlevel/internal/objects/crdchange"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/references"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// dataRules are about changes that take data with them, or leave data where no program finds or can read them.
func dataRules() []Rule {
	return []Rule{
		{"data-deleted", Error, needsPrevious, checkDataDeleted},
		{"data-left-behind", Warning, needsPrevious, checkDataLeftBehind},
		{"data-unreadable", Warning, needsPrevious, checkDataUnreadable},
		{"data-unprotected", Warning, needsPrevious, checkDataUnprotected},
		{"fields-lost", Warning, needsPrevious, checkFieldsLost},
		{"claim-shared", Warning, needsPrevious, checkClaimShared},
		{"owner-of-one-cluster", Warning, nothing, checkOwnerOfOneCluster},
	}
}

func checkDataDeleted(s *subject, r *reporter) {
	const todo = "keep that, or give the reason in the annotation " + references.DataLossAnnotation
	report := func(old, m *manifest, after *unstructured.Unstructured) {
		lost, field := s.data().LostWith(old.Object(), after)
		if len(lost) == 0 || m.annotations[references.DataLossAnnotation] != "" {
			return
		}
		names := make([]string, len(lost))
		for i, id := range lost {
			names[i] = id.String()
		}
		switch with := printable.Few(names, 3); {
		case after != nil:
			r.field(m, []string{"spec", "replicas"}, "it has fewer pods than in %s, and %s is Delete, so that "+
				"Kubernetes deletes %s: %s", old.place(), strings.Join(field, "."), with, todo)
		case field != nil:
			r.at(m, "%s is deleted, and %s of %s is Delete, so that Kubernetes deletes %s: %s", m.id.Name,
				strings.Join(field, "."), old.place(), with, todo)
		case m.groupKind() == kinds.Namespace:
			r.field(m, annotation(payload.DeleteAnnotation), "%s is deleted, and with it %s: %s", m.id.Name, with,
				todo)
		default:
			content := kinds.DataLostOnDelete(m.groupKind())
			if m.groupKind() == kinds.CustomResourceDefinition {
				content += ", also those of users"
			}
			r.field(m, annotation(payload.DeleteAnnotation), "%s is deleted, and %s: %s", m.id.Name, content, todo)
		}
	}
	for _, t := range s.tombstones {
		switch old := s.deletedBy(t); {
		case old != nil:
			report(old, t, nil)
		case s.data().HasClaim(t.id) && len(s.previous.byID[t.id]) == 0: // a StatefulSet has made it
			report(t, t, nil)
		}
	}
	s.pairs(func(old, m *manifest) {
		after := m.Object()
		if m.IsRecreated() && len(refused(old, m)) > 0 {
			after = nil
		}
		if m.groupKind() == kinds.StatefulSet && !m.IsCreateOnly() {
			report(old, m, after)
		}
	})
}

// deletedBy returns the object of the previous payload that a tombstone deletes; nil if there is none.
func (s *subject) deletedBy(t *manifest) *manifest {
	before := s.previous.byID[t.id]
	i := slices.IndexFunc(before, func(old *manifest) bool { return !old.isTombstone && s.shareCluster(old, t) })
	if i < 0 || len(tombstonesOf(before)) > 0 || s.isCreatedToo(t) {
		return nil
	}
	return before[i]
}

// protections are the fields that keep data when an object is deleted or scaled, with the value Retain.
var protections = map[schema.GroupKind][]string{
	kinds.PersistentVolume: {"spec.persistentVolumeReclaimPolicy"},
	kinds.StatefulSet: {
		"spec.persistentVolumeClaimRetentionPolicy.whenDeleted", "spec.persistentVolumeClaimRetentionPolicy.whenScaled",
	},
	{Group: "snapshot.storage.k8s.io", Kind: "VolumeSnapshotClass"}:   {"deletionPolicy"},
	{Group: "snapshot.storage.k8s.io", Kind: "VolumeSnapshotContent"}: {"spec.deletionPolicy"},
}

// backupName matches the names of CronJobs that make backups.
var backupName = regexp.MustCompile(`(?i)back-?up|snapshot|(^|-)dump`)

func (m *manifest) isBackup() bool {
	return m.kind.Kind == "CronJob" && backupName.MatchString(m.id.Name)
}

// checkDataUnprotected looks for changes after which data is not kept, or not backed up.
func checkDataUnprotected(s *subject, r *reporter) {
	s.pairs(func(old, m *manifest) {
		for _, field := range protections[m.groupKind()] {
			path := strings.Split(field, ".")
			if m.text(path...) == "Delete" && old.text(path...) != "Delete" {
				r.field(m, path, "%s was Retain in %s: from now on data is deleted with its object: keep Retain", field,
					old.place())
			}
		}
		if old.IsCreateOnly() && !m.IsCreateOnly() {
			r.at(m, "%s is create-only, and this is not: what each cluster has made of it is overwritten: keep "+
				"%s", old.place(), payload.CreateOnlyAnnotation)
		}
	})
	for _, t := range s.tombstones {
		old := s.deletedBy(t)
		switch {
		case old == nil:
		case old.isBackup() && !slices.ContainsFunc(s.inside[t.id.Namespace], func(m *manifest) bool {
			return m.isBackup() && !m.isTombstone
		}):
			r.field(t, annotation(payload.DeleteAnnotation), "no other CronJob of the payload makes backups in %s: "+
				"keep it until one does", t.id.Namespace)
		case old.IsCreateOnly() && t.groupKind() == kinds.Secret:
			r.field(t, annotation(payload.DeleteAnnotation), "%s is create-only, so that each cluster may have its "+
				"own values, which are lost: keep it if anything was encrypted with them", old.place())
		}
	}
}

// checkFieldsLost looks for fields that a definition no longer has, or that the version in which objects are stored
// from now on does not have.
func checkFieldsLost(s *subject, r *reporter) {
	s.pairs(func(old, m *manifest) {
		if m.groupKind() != kinds.CustomResourceDefinition || m.IsCreateOnly() {
			return
		}
		change := changeOf(old.Object().Object, m.Object().Object)
		reportLessAllowed(old, m, change, r)
		lost, why := change.RemovedFields, "the schema no longer has them"
		if isConverted := m.text(strategy...) == "Webhook"; change.Storage != nil && !isConverted {
			stored := changeOf(onlyVersion(m, change.Storage.Old), onlyVersion(m, change.Storage.New)).RemovedFields
			if lost = append(lost, stored...); len(stored) > 0 {
				why = "they are stored as " + change.Storage.New + ", and nothing converts them"
			}
		} else if served := m.servedVersions(); !isConverted && old.text(strategy...) == "Webhook" && len(served) > 1 {
			r.field(m, strategy[:2], "a webhook converts objects between %s in %s, and nothing does any more, so "+
				"programs do not find the fields of their version: keep it", strings.Join(served, ", "), old.place())
		}
		names, minor := sets.New[string](), sets.New[string]()
		for _, field := range lost {
			switch {
			case strings.HasPrefix(field.Path, "status"): // controllers write it again
			case isDeep(field) || field.IsDeprecated:
				minor.Insert(field.Path)
			default:
				names.Insert(field.Path)
			}
		}
		report := r.field
		if len(names) == 0 {
			names, report = minor, r.note
		}
		if len(names) > 0 {
			report(m, versions, "objects lose %s when they are next written, as %s (it was in %s): keep it in the "+
				"schema, or convert the objects first", printable.Few(sets.List(names), 5), why, old.place())
		}
	})
}

// versions is the field of a definition with its versions.
var versions = []string{"spec", "versions"}

// changeOf compares two definitions.
func changeOf(old, next map[string]any) crdchange.Change {
	if change := crdchange.Compare(old, next); change != nil {
		return *change
	}
	return crdchange.Change{}
}

// isDeep reports whether a field is of an embedded type of Kubernetes, most often.
func isDeep(field crdchange.Field) bool { return strings.Count(field.Path, ".") > 3 }

// reportLessAllowed reports fields that existing objects may lack or have with another value, and requests that a
// definition no longer allows.
func reportLessAllowed(old, m *manifest, change crdchange.Change, r *reporter) {
	why := sets.New[string]()
	add := func(field crdchange.Field, how string) {
		if !isDeep(field) && strings.HasPrefix(field.Path, "spec.") {
			why.Insert(field.Path + " is " + how)
		}
	}
	for _, field := range change.RequiredFields {
		add(field, "required now")
	}
	for _, field := range change.NarrowedFields {
		if !strings.HasPrefix(field.How, "one of a list") { // the program has allowed no others, most often
			add(field.Field, field.How)
		}
	}
	if len(why) > 0 {
		r.field(m, versions, "%s, and the objects in clusters may be as %s allows, so the API server refuses their "+
			"next change: allow both, or add a version with a conversion", printable.Few(sets.List(why), 3),
			old.place())
	}
	for _, name := range m.servedVersions() {
		for _, part := range []string{"status", "scale"} {
			path := []string{"subresources", part}
			if fieldAt(old.versions()[name], path) != nil && fieldAt(m.versions()[name], path) == nil {
				r.field(m, versions, "%s no longer has the subresource %s of %s, and requests to it fail: keep it "+
					"while a program uses it", name, part, old.place())
			}
		}
	}
}

// strategy is the field of a definition that chooses the conversion between its versions.
var strategy = []string{"spec", "conversion", "strategy"}

// onlyVersion returns a definition with the schema of one version.
func onlyVersion(m *manifest, name string) map[string]any {
	return map[string]any{"spec": map[string]any{"versions": []any{map[string]any{
		"name": "any", "schema": m.versions()[name]["schema"],
	}}}}
}

// checkClaimShared looks for claims of one node that get another writer.
func checkClaimShared(s *subject, r *reporter) {
	each(s, kinds.PersistentVolumeClaim, func(m *manifest, claim *corev1.PersistentVolumeClaim) {
		before, now := s.previous.writersOf(m), s.writersOf(m)
		isOfOneNode := slices.Equal(claim.Spec.AccessModes, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce})
		if !isOfOneNode || len(before) == 0 || len(now) < 2 {
			return
		}
		for _, pods := range now {
			isNew := !slices.ContainsFunc(before, func(old podSet) bool { return old.by.id == pods.by.id })
			isOne := s.previousOf(pods.by) == nil || pods.by.number(1, "spec", "replicas") < 2 // else volume-in-use
			if isNew && isOne && s.shareCluster(m, pods.by) {
				pods.field(r, "volumes", "another pod of the payload has %s (%s), which is ReadWriteOnce: on another "+
					"node the pod waits for the volume, and on the same node both write the same files: use a "+
					"ReadWriteMany claim, or one writer", m.id, m.place())
			}
		}
	})
}

// writersOf returns the pods that write to a claim all the time, without those that choose the node by other pods.
func (ix *index) writersOf(claim *manifest) (found []podSet) {
	for _, pods := range ix.pods()[claim.id.Namespace] {
		isWriter := slices.ContainsFunc(pods.places(), func(p place) bool { return p.claim == claim.id && !p.isRead })
		if isWriter && pods.restarts() && pods.typed().Affinity == nil {
			found = append(found, pods)
		}
	}
	return found
}

// checkOwnerOfOneCluster looks for owners, whose UIDs a manifest can't know.
func checkOwnerOfOneCluster(s *subject, r *reporter) {
	for _, m := range s.normal {
		for i, owner := range m.Object().GetOwnerReferences() {
			if owner.UID != "" {
				r.field(m, []string{"metadata", "ownerReferences", strconv.Itoa(i)},
					"no other cluster has a %s %s with this UID, and Kubernetes deletes an object whose owner does "+
						"not exist: drop ownerReferences",
					owner.Kind, owner.Name)
			}
		}
	}
}
