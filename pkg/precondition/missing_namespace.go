package precondition

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// ForeignNamespace returns the namespace of objects whose manifests name none, if the release does not create it; ""
// otherwise.
func ForeignNamespace(p *payload.Payload) string {
	name := p.Options().Namespace
	isCreated := slices.ContainsFunc(p.Manifests, func(m *payload.Manifest) bool {
		return m.ID() == kinds.NewID(kinds.Namespace, "", name) && !m.IsTombstone()
	})
	if len(placedObjects(p)) == 0 || isCreated {
		return ""
	}
	return name
}

// placedObjects returns the manifests of objects that the release puts into the namespace.
func placedObjects(p *payload.Payload) []*payload.Manifest {
	return slices.DeleteFunc(slices.Clone(p.Placed), (*payload.Manifest).IsTombstone)
}

// missingNamespace returns the namespace of objects whose manifests name none, if the namespace does not exist and
// nothing creates it; "" for a user who may not read namespaces.
func (input Input) missingNamespace(ctx context.Context, c *cluster.Cluster) string {
	name := ForeignNamespace(input.Payload)
	if name == "" || input.CreateNamespace {
		return ""
	}
	if _, err := c.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return ""
	}
	return name
}

// judgeMissingNamespace implements MissingNamespace. An apply would wait for the namespace until its timeout.
func judgeMissingNamespace(f *Facts) []Finding {
	if f.MissingNamespace == "" {
		return nil
	}
	return []Finding{blocks("creating it", "namespace %s does not exist, and the release puts %s into it",
		f.MissingNamespace, printable.Count(len(placedObjects(f.Payload)), "object"))}
}
