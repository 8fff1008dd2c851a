package precondition

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/lock"
	"github.com/runlevel/runlevel/pkg/printable"
)

// elsewhere returns the namespaces that have a record of the release, if the one that was asked for
// has none. A user who may not list them all is not told.
func (q GatherInput) elsewhere(ctx context.Context, c *cluster.Cluster) ([]string, error) {
	if q.Record.Newest() != nil {
		return nil, nil
	}
	records, err := c.Client.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{LabelSelector: lock.Label + "=" + q.Record.Release})
	if apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for records of release %s: %w", q.Record.Release, err)
	}
	var found []string
	for _, one := range records.Items {
		if one.Namespace != q.Namespace && one.Name == lock.Name(q.Record.Release) {
			found = append(found, one.Namespace)
		}
	}
	slices.Sort(found)
	return found, nil
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
