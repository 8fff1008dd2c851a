package session

import (
	"context"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/inventory"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// annotatedKinds are the kinds of which one object of the first level and one of the last have the version of the
// release, in the annotation objectmeta.VersionAnnotation: a copy for the case that the record and the Lease are lost.
// Two show how far an update is, and cost two writes. The earlier kinds are taken first. An annotation does not change
// what runs.
var annotatedKinds = []schema.GroupKind{
	kinds.ConfigMap, kinds.ServiceAccount, kinds.Role, kinds.RoleBinding, kinds.ClusterRole, kinds.ClusterRoleBinding,
	kinds.Service, kinds.Namespace, kinds.CustomResourceDefinition,
}

// workloadKinds are marked where a release has nothing else: their controllers copy annotations. That of a Job would
// run it again.
var workloadKinds = []schema.GroupKind{kinds.DaemonSet, kinds.StatefulSet, kinds.Deployment}

// withVersionAnnotations returns a release in which one object of the first level and one of the last have the
// annotation of its version. The rest is as the release has it, and so is its hash.
func withVersionAnnotations(release *payload.Payload) *payload.Payload {
	if release.Version == "" {
		return release
	}
	chosen := chooseAnnotated(release, annotatedKinds)
	if len(chosen) == 0 {
		chosen = chooseAnnotated(release, workloadKinds)
	}
	with := *release
	with.Manifests = slices.Clone(release.Manifests)
	levels := slices.SortedFunc(maps.Keys(chosen), graph.CompareLevels)
	for i, level := range levels {
		if i == 0 || i == len(levels)-1 {
			index := chosen[level]
			with.Manifests[index] = with.Manifests[index].WithAnnotation(objectmeta.VersionAnnotation, release.Version)
		}
	}
	return &with
}

// chooseAnnotated returns the place of one manifest of each level that may have the version.
func chooseAnnotated(release *payload.Payload, candidates []schema.GroupKind) map[string]int {
	chosen := map[string]int{}
	rank := func(m *payload.Manifest) int { return slices.Index(candidates, m.GroupVersionKind().GroupKind()) }
	for i, m := range release.Manifests {
		if rank(m) < 0 || m.IsTombstone() || m.IsCreateOnly() {
			continue
		}
		level := graph.ParseName(m.File()).Level
		if known, isKnown := chosen[level]; !isKnown || rank(m) < rank(release.Manifests[known]) {
			chosen[level] = i
		}
	}
	return chosen
}

// newestAnnotated returns the newest version that objects of a release have, as an update that was applied: completely,
// if none has another version, as orphans do. It is nil if none has a version.
func newestAnnotated(objects []objectmeta.LiveMetadata) *record.HistoryEntry {
	var newest *record.HistoryEntry
	versions := map[string]bool{}
	for _, object := range objects {
		version, applied := object.Object().GetAnnotations()[objectmeta.VersionAnnotation],
			metav1.NewTime(object.Entry.Since)
		if version == "" {
			continue
		}
		versions[version] = true
		switch {
		case newest == nil || compareVersions(version, newest.Version) > 0:
			newest = &record.HistoryEntry{
				State:     record.Completed,
				Version:   version,
				Mode:      string(graph.Update),
				Started:   applied,
				Completed: &applied,
			}
		case version == newest.Version && newest.Completed.Before(&applied):
			newest.Started, newest.Completed = applied, &applied
		}
	}
	if len(versions) > 1 {
		newest.State, newest.Completed = record.Partial, nil
	}
	return newest
}

// compareVersions orders versions. Those that are none come first.
func compareVersions(a, b string) int {
	before, errBefore := version.ParseSemantic(a)
	_, errAfter := version.ParseSemantic(b)
	switch {
	case errBefore != nil && errAfter == nil:
		return -1
	case errBefore == nil && errAfter != nil:
		return 1
	case errBefore == nil:
		if order, _ := before.Compare(b); order != 0 {
			return order
		}
	}
	return strings.Compare(a, b)
}

// recoverHistory takes the newest version of a release whose record is lost from its objects, and returns whether they
// have one.
func recoverHistory(known *record.Record, before *inventory.Inventory) bool {
	if known.Newest() != nil {
		return false
	}
	newest := newestAnnotated(unrecorded(before, known.Release))
	if newest != nil {
		known.History = record.History{*newest}
	}
	return newest != nil
}

// unrecorded returns the objects that show that a release was applied, if it has no record: not those that an uninstall
// has kept.
func unrecorded(live *inventory.Inventory, release string) []objectmeta.LiveMetadata {
	return slices.DeleteFunc(live.Of(release), objectmeta.LiveMetadata.WasKept)
}

// A LostRelease is a release that has objects on a cluster. Its record is lost, if it is not in another namespace.
type LostRelease struct {
	Name    string
	Objects int                  // number of objects of the annotated kinds
	Newest  *record.HistoryEntry // newest version in the annotations of the objects; nil if they have none
}

// FindLost returns the releases that have objects on a cluster, in the order of their names. It looks at those kinds
// which have the version of a release, and knows nothing of records. Objects that an uninstall has kept do not count.
func FindLost(ctx context.Context, c *cluster.Cluster) ([]LostRelease, error) {
	live, err := inventory.Take(ctx, c, inventory.Everywhere(slices.Concat(annotatedKinds, workloadKinds)), nil)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for id := range live.IDs() {
		head, _ := live.Find(id)
		names[head.Release] = true
	}
	var found []LostRelease
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if objects := unrecorded(live, name); len(objects) > 0 {
			found = append(found, LostRelease{Name: name, Objects: len(objects), Newest: newestAnnotated(objects)})
		}
	}
	return found, nil
}
