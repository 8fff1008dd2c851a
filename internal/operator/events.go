package operator

import (
	"context"
	"sync"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/operator/clusterversion"
	"github.com/runlevel/runlevel/internal/session/keep"
)

// An announcer writes events about the ClusterVersion, and skips recent duplicates.
type announcer struct {
	cluster *cluster.Cluster
	recent  *cache.Expiring // the events that were written recently

	mu  sync.Mutex
	uid types.UID
}

func newAnnouncer(c *cluster.Cluster) *announcer {
	return &announcer{cluster: c, recent: cache.NewExpiring()}
}

// setClusterVersion sets the ClusterVersion that events are about.
func (a *announcer) setClusterVersion(version *configv1.ClusterVersion) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.uid = version.UID
}

// repeats is the time until the same event is written again.
const repeats = 10 * time.Minute

// announce writes the events of an acceptance.
func (a *announcer) announce(ctx context.Context, acceptance clusterversion.Acceptance) {
	for _, news := range clusterversion.Announce(acceptance) {
		a.write(ctx, news)
	}
}

// write writes an event, unless the same one was written just now.
func (a *announcer) write(ctx context.Context, news clusterversion.Event) {
	a.mu.Lock()
	event := cluster.ObjectEvent{
		ID:  kinds.NewID(kinds.ClusterVersion, "", clusterVersionMeta.Name),
		UID: a.uid, Reason: news.Reason, IsWarning: news.IsWarning, Message: news.Message,
	}
	a.mu.Unlock()
	if _, isRepeated := a.recent.Get(event); isRepeated {
		return
	}
	a.recent.Set(event, nil, repeats)
	if err := cluster.RecordEvent(ctx, a.cluster, event); err != nil {
		ctrl.LoggerFrom(ctx).Info("event not written", "reason", err.Error())
	}
}

// kept logs an event of keeping the release in place, and has the status computed again.
func (a *applier) kept(event keep.Event) {
	log := ctrl.Log.WithName("keep")
	if event.Object != nil {
		log = log.WithValues("object", event.Object.String())
	}
	log.Info(string(event.Type), "action", string(event.Action), "message", event.Message)
	a.monitor.kept(event)
	a.notify()
}
