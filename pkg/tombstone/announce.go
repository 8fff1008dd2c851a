package tombstone

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/kinds"
)

// What is told of a delete, as the reason of an event of Kubernetes.
type What string

// What there is to tell.
const (
	Requested        What = "DeleteRequested"
	StillTerminating What = "StillTerminating"
	Gone             What = "Deleted"
	BackAgain        What = "Reappeared"
)

// News are of an object that is to go, or has gone.
type News struct {
	ID      kinds.ID
	UID     types.UID
	What    What
	Message string
}

// Announce writes an event of Kubernetes. It can't be written where the object's namespace
// goes, too.
func (n News) Announce(ctx context.Context, c *cluster.Cluster) error {
	isWarning := n.What == StillTerminating || n.What == BackAgain
	return c.Announce(ctx, cluster.News{ID: n.ID, UID: n.UID, Reason: string(n.What), IsWarning: isWarning, Message: n.Message})
}
