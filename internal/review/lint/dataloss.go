package lint

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

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
			r.at(m, "it is deleted, and %s of %s is Delete, so that Kubernetes deletes %s: %s",
				strings.Join(field, "."), old.place(), with, todo)
		case m.groupKind() == kinds.Namespace:
			r.field(m, annotation(payload.DeleteAnnotation), "it is deleted, and with it %s: %s", with, todo)
		default:
			content := kinds.DataLostOnDelete(m.groupKind())
			if m.groupKind() == kinds.CustomResourceDefinition {
				content += ", also those of users"
			}
			r.field(m, annotation(payload.DeleteAnnotation), "it is deleted, and %s: %s", content, todo)
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
		switch isRecreated := m.IsRecreated() && len(refused(old, m)) > 0; {
		case m.groupKind() != kinds.StatefulSet || m.IsCreateOnly():
		case isRecreated:
			report(old, m, nil)
		default:
			report(old, m, m.Object())
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

// protections are the fields that keep data when an object is deleted or scaled, with their defaults.
var protections = map[schema.GroupKind]map[string]string{
	kinds.PersistentVolume: {"spec.persistentVolumeReclaimPolicy": "Retain"},
	kinds.StorageClass:     {"reclaimPolicy": "Delete"},
	kinds.StatefulSet: {
		"spec.persistentVolumeClaimRetentionPolicy.whenDeleted": "Retain",
		"spec.persistentVolumeClaimRetentionPolicy.whenScaled":  "Retain",
	},
	{Group: "snapshot.storage.k8s.io", Kind: "VolumeSnapshotClass"}:   {"deletionPolicy": ""},
	{Group: "snapshot.storage.k8s.io", Kind: "VolumeSnapshotContent"}: {"spec.deletionPolicy": ""},
}

// backupName matches the names of CronJobs that make backups.
var backupName = regexp.MustCompile(`(?i)back-?up|snapshot|(^|-)dump`)

func (m *manifest) isBackup() bool {
	return m.kind.Kind == "CronJob" && backupName.MatchString(m.id.Name)
}

// checkDataUnprotected looks for changes after which data is not kept, or not backed up.
func checkDataUnprotected(s *subject, r *reporter) {
	s.pairs(func(old, m *manifest) {
		for field, fallback := range protections[m.groupKind()] {
			path := strings.Split(field, ".")
			isFixed := m.groupKind() == kinds.StorageClass && !m.IsRecreated() // the API server refuses the change
			had, has := cmp.Or(old.text(path...), fallback), cmp.Or(m.text(path...), fallback)
			if had == "Retain" && has == "Delete" && !isFixed {
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
		reportLessAllowed(old, m, r)
		var lost []crdchange.Field
		why := "the schema no longer has them"
		if change := crdchange.Compare(old.Object().Object, m.Object().Object); change != nil {
			lost = change.RemovedFields
		}
		stored, wasStored := m.storedVersion(), old.storedVersion()
		isConverted := old.text(strategy...) == "Webhook"
		for _, name := range m.servedVersions() {
			isNew := name == wasStored && name != stored || isConverted
			if isNew && m.text(strategy...) != "Webhook" {
				if between := crdchange.Compare(onlyVersion(m, name), onlyVersion(m, stored)); between != nil {
					lost = append(lost, between.RemovedFields...)
					why = "they are stored as " + stored + ", and nothing converts them any more"
				}
			}
		}
		var names, minor []string
		for _, field := range lost {
			switch {
			case slices.Contains(names, field.Path) || slices.Contains(minor, field.Path): // of another version
			case strings.HasPrefix(field.Path, "status"): // controllers write it again
			case isDeep(field) || strings.Contains(strings.ToLower(old.describedAs(field)), "deprecated"):
				minor = append(minor, field.Path)
			default:
				names = append(names, field.Path)
			}
		}
		report := r.field
		if len(names) == 0 {
			names, report = minor, r.note
		}
		if len(names) > 0 {
			report(m, []string{"spec", "versions"}, "objects lose %s when they are next written, as %s (it was in "+
				"%s): keep it in the schema, or convert the objects first", printable.Few(names, 5), why,
				old.place())
		}
	})
}

// isDeep reports whether a field is of an embedded type of Kubernetes, most often.
func isDeep(field crdchange.Field) bool { return strings.Count(field.Path, ".") > 3 }

// reportLessAllowed reports fields that existing objects may lack or have with another value, and requests that a
// definition no longer allows.
func reportLessAllowed(old, m *manifest, r *reporter) {
	var why []string
	add := func(field crdchange.Field, how string) {
		text := field.Path + " is " + how
		if !isDeep(field) && strings.HasPrefix(field.Path, "spec.") && !slices.Contains(why, text) {
			why = append(why, text)
		}
	}
	if change := crdchange.Compare(old.Object().Object, m.Object().Object); change != nil {
		for _, field := range change.RequiredFields {
			add(field, "required now")
		}
		for _, field := range change.NarrowedFields {
			if !strings.HasPrefix(field.How, "one of a list") { // the program has allowed no others, most often
				add(field.Field, field.How)
			}
		}
	}
	if len(why) > 0 {
		r.field(m, []string{"spec", "versions"}, "%s, and the objects in clusters may be as %s allows, so the API "+
			"server refuses their next change: allow both, or add a version with a conversion",
			printable.Few(why, 3), old.place())
	}
	for _, name := range m.servedVersions() {
		for _, part := range []string{"status", "scale"} {
			if path := []string{"subresources", part}; fieldAt(old.versions()[name], path) != nil &&
				fieldAt(m.versions()[name], path) == nil {
				r.field(m, []string{"spec", "versions"}, "%s no longer has the subresource %s of %s, and requests to "+
					"it fail: keep it while a program uses it", name, part, old.place())
			}
		}
	}
}

// describedAs returns the description of a field of a definition.
func (m *manifest) describedAs(field crdchange.Field) string {
	schema := fieldAt(m.versions()[field.Version], []string{"schema", "openAPIV3Schema"})
	for _, key := range strings.Split(strings.ReplaceAll(field.Path, "[*]", ".[*]"), ".") {
		switch key {
		case "[*]":
			schema = fieldAt(schema, []string{"items"})
		case "*":
			schema = fieldAt(schema, []string{"additionalProperties"})
		default:
			schema = fieldAt(schema, []string{"properties", key})
		}
	}
	text, _ := fieldAt(schema, []string{"description"}).(string)
	return text
}

// strategy is the field of a definition that chooses the conversion between its versions.
var strategy = []string{"spec", "conversion", "strategy"}

// storedVersion returns the name of the version in which a definition stores objects.
func (m *manifest) storedVersion() string {
	for name, version := range m.versions() {
		if version["storage"] == true {
			return name
		}
	}
	return ""
}

// onlyVersion returns a definition with the schema of one version.
func onlyVersion(m *manifest, name string) map[string]any {
	return map[string]any{"spec": map[string]any{"versions": []any{map[string]any{
		"name": "any", "schema": m.versions()[name]["schema"],
	}}}}
}

// checkClaimShared looks for claims of one node that get another writer.
func checkClaimShared(s *subject, r *reporter) {
	each(s, kinds.PersistentVolumeClaim, func(m *manifest, claim *corev1.PersistentVolumeClaim) {
		isOfOneNode := slices.Equal(claim.Spec.AccessModes, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce})
		if !isOfOneNode || len(s.usesOf(m)) == 0 {
			return
		}
		before, now := s.previous.writersOf(m), s.writersOf(m)
		for id, writer := range now {
			old, wasWriter := before[id]
			isKnown := writer.count < 2 || writer.by.groupKind() == kinds.Deployment // see volume-in-use
			if len(before) == 0 || old.count > 1 || wasWriter && isKnown || !wasWriter && len(now) < 2 ||
				writer.isBound || !s.shareCluster(m, writer.by) {
				continue
			}
			r.field(writer.by, writer.field, "another pod of the payload has %s (%s), which is ReadWriteOnce: on "+
				"another node the pod waits for the volume, and on the same node both write the same files: use a "+
				"ReadWriteMany claim, or one writer", m.id, m.place())
		}
	})
}

// A writer is a workload that writes to a claim.
type writer struct {
	by      *manifest
	field   []string
	count   int64 // pods
	isBound bool  // its pods choose the node by other pods
}

// writersOf returns the workloads that write to a claim all the time.
func (ix *index) writersOf(claim *manifest) map[kinds.ID]writer {
	found := map[kinds.ID]writer{}
	for _, pods := range ix.pods()[claim.id.Namespace] {
		if !slices.Contains(rolledOut, pods.by.kind.Kind) {
			continue
		}
		for _, p := range pods.places() {
			if p.data == claim.id.String() && !p.isRead {
				affinity := pods.typed().Affinity
				found[pods.by.id] = writer{pods.by, p.field, pods.by.number(1, "spec", "replicas"),
					affinity != nil && affinity.PodAffinity != nil}
			}
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
