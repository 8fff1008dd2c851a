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

// isApplied reports whether the last complete apply had the same files: the API server has accepted them, and the
// objects are what an apply has made of them.
func (input Input) isApplied() bool {
	newest := input.Record.Newest()
	return newest != nil && newest.State == record.Completed && newest.Hash == input.Payload.Hash
}

// readDefinitions compares the definitions of the payload with those on the cluster. A definition that can't be read
// is judged by its dry run.
func (f *Facts) readDefinitions(ctx, advisory context.Context, c *cluster.Cluster, places []place) {
	var definitions []*payload.Manifest
	for _, place := range places {
		m := place.manifest
		if place.isServed && m.ID().GroupKind() == kinds.CustomResourceDefinition && !m.IsTombstone() &&
			!m.IsCreateOnly() {
			definitions = append(definitions, m)
		}
	}
	lacking, narrowed := make([][]string, len(definitions)), make([]*NarrowedDefinition, len(definitions))
	concurrently(len(definitions), func(i int) {
		m := definitions[i]
		if live, err := c.Get(ctx, m.ID()); err == nil && live.GetDeletionTimestamp() == nil {
			lacking[i] = lackingVersions(live, m.Object())
			narrowed[i] = narrow(m, live.Object, lacking[i])
		}
	})
	for i, m := range definitions {
		for _, version := range lacking[i] {
			f.Stored = append(f.Stored, StoredVersion{m, version})
		}
		if narrowed[i] != nil {
			narrowed[i].validate(advisory, c)
			f.Narrowed = append(f.Narrowed, *narrowed[i])
		}
	}
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
