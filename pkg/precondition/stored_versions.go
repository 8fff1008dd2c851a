package precondition

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A StoredVersion is a version that a definition of the payload lacks, and in which the cluster may have stored
// objects.
type StoredVersion struct {
	Manifest *payload.Manifest
	Version  string
}

// storedVersions finds the versions that the definitions of the payload lack. It does not read definitions if the last
// complete apply had the same files, since the API server has accepted them. A definition that can't be read is judged
// by its dry run.
func (input Input) storedVersions(ctx context.Context, c *cluster.Cluster, places []place) []StoredVersion {
	newest := input.Record.Newest()
	if newest != nil && newest.State == record.Completed && newest.Hash == input.Payload.Hash {
		return nil
	}
	var definitions []*payload.Manifest
	for _, place := range places {
		m := place.manifest
		if place.isServed && m.ID().GroupKind() == kinds.CustomResourceDefinition && !m.IsTombstone() &&
			!m.IsCreateOnly() {
			definitions = append(definitions, m)
		}
	}
	lacking := make([][]string, len(definitions))
	concurrently(len(definitions), func(i int) {
		if live, err := c.Get(ctx, definitions[i].ID()); err == nil && live.GetDeletionTimestamp() == nil {
			lacking[i] = lackingVersions(live, definitions[i].Object())
		}
	})
	var found []StoredVersion
	for i, m := range definitions {
		for _, version := range lacking[i] {
			found = append(found, StoredVersion{m, version})
		}
	}
	return found
}

// lackingVersions returns the versions in status.storedVersions of a definition that another definition of the same
// kind does not have.
func lackingVersions(live, wanted *unstructured.Unstructured) []string {
	stored, _, _ := unstructured.NestedStringSlice(live.Object, "status", "storedVersions")
	versions, _, _ := unstructured.NestedSlice(wanted.Object, "spec", "versions")
	return slices.DeleteFunc(stored, func(name string) bool {
		return slices.ContainsFunc(versions, func(item any) bool {
			version, _ := item.(map[string]any)
			return version["name"] == name
		})
	})
}

// judgeStored implements StoredVersions: one finding for each definition.
func judgeStored(f *Facts) []Finding {
	var findings []Finding
	for _, alike := range grouped(f.Stored, func(s StoredVersion) *payload.Manifest { return s.Manifest }) {
		var lacking []string
		for _, stored := range alike {
			lacking = append(lacking, printable.Line(stored.Version))
		}
		m, versions := alike[0].Manifest, printable.Few(lacking, len(lacking))
		findings = append(findings, blocks(
			"keeping "+versions+" in its versions, or rewriting its objects in another version, and taking "+
				versions+" out of its status.storedVersions",
			"%s: %s lacks %s, in which the cluster may have stored objects: the API server refuses it",
			files([]*payload.Manifest{m}), m.ID(), versions).withFile(m))
	}
	return findings
}
