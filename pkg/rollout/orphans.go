package rollout

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/pkg/inventory"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
)

// An Orphan is an object that an earlier payload of the release applied, and that this one
// neither has nor deletes.
type Orphan struct {
	ID         kinds.ID
	APIVersion string
	inventory.Head
}

// Tombstone is the manifest that would delete it.
func (o Orphan) Tombstone() string {
	var text strings.Builder
	fmt.Fprintf(&text, "apiVersion: %s\nkind: %s\nmetadata:\n", o.APIVersion, o.ID.Kind)
	if o.ID.Namespace != "" {
		fmt.Fprintf(&text, "  namespace: %s\n", o.ID.Namespace)
	}
	fmt.Fprintf(&text, "  name: %s\n  annotations:\n    %s: \"true\"\n", o.ID.Name, payload.DeleteAnnotation)
	return text.String()
}

// orphans are the objects that were ours before, are there still, and are in the payload
// no more. What goes along with a Namespace or a definition that the payload deletes is
// none.
func (r *rollout) orphans(ctx context.Context) []Orphan {
	inPayload, deleted := map[kinds.ID]bool{}, map[kinds.ID]bool{}
	for _, manifest := range r.payload.Manifests {
		inPayload[manifest.ID()] = true
		if manifest.IsTombstone() {
			deleted[manifest.ID()] = true
		}
	}
	var orphans []Orphan
	for _, head := range r.before.Of(r.payload.Name) {
		namespace := kinds.ID{Kind: kinds.Namespace.Kind, Name: head.ID.Namespace}
		definition := kinds.ID{Group: kinds.CustomResourceDefinition.Group, Kind: kinds.CustomResourceDefinition.Kind, Name: head.Resource.Resource + "." + head.Resource.Group}
		if inPayload[head.ID] || head.Terminating || deleted[namespace] || deleted[definition] {
			continue
		}
		now, err := r.cluster.Head(ctx, head.Resource, head.ID.Namespace, head.ID.Name)
		if err != nil || now.UID != head.UID || now.DeletionTimestamp != nil {
			continue
		}
		orphans = append(orphans, Orphan{ID: head.ID, APIVersion: head.Resource.GroupVersion().String(), Head: head})
	}
	return slices.Clip(orphans)
}
