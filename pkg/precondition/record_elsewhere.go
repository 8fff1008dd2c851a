package precondition

import (
	"context"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// elsewhere returns the namespaces that have a record of the release, if the requested namespace has none. For a user
// who may not list ConfigMaps of all namespaces, it returns none.
func (input Input) elsewhere(ctx context.Context, c *cluster.Cluster) ([]string, error) {
	if input.Record.Newest() != nil && !input.IsRecovered {
		return nil, nil
	}
	found, err := record.Namespaces(ctx, c.Client, input.Record.Release)
	if apierrors.IsForbidden(err) {
		return nil, nil
	}
	return slices.DeleteFunc(found, func(namespace string) bool { return namespace == input.Namespace }), err
}

// judgeElsewhere implements RecordElsewhere: without the record, applied versions, pending
// deletes and the holder of the lock are not known.
func judgeElsewhere(f *Facts) []Finding {
	if len(f.Elsewhere) == 0 {
		return nil
	}
	namespaces := printable.Line(strings.Join(f.Elsewhere, ", "))
	return []Finding{blocks("keeping the record in namespace "+printable.Line(f.Elsewhere[0])+
		", or deleting that one", "the record of release %s is in namespace %s, and here is none",
		printable.Line(f.Record.Release), namespaces)}
}
