package precondition

import (
	"context"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// elsewhere returns the namespaces that have a record of the release, if the one that was asked for
// has none. A user who may not list them all is not told.
func (q GatherInput) elsewhere(ctx context.Context, c *cluster.Cluster) ([]string, error) {
	if q.Record.Newest() != nil && !q.IsRecovered {
		return nil, nil
	}
	found, err := record.Namespaces(ctx, c.Client, q.Record.Release)
	return slices.DeleteFunc(found, func(namespace string) bool { return namespace == q.Namespace }), err
}

// judgeElsewhere is RecordElsewhere: in another namespace nothing is known of what was applied, of
// deletes that are pending and of who holds the lock.
func judgeElsewhere(f *Facts) []CheckFinding {
	if len(f.Elsewhere) == 0 {
		return nil
	}
	where := printable.Line(strings.Join(f.Elsewhere, ", "))
	return []CheckFinding{blocks("keeping the record in namespace "+printable.Line(f.Elsewhere[0])+", or by deleting that one", "the record of release %s is in namespace %s, and here is none",
		printable.Line(f.Record.Release), where)}
}
