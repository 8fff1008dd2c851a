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

// An announcer writes events about the ClusterVersion, the same one not again and again.
type announcer struct {
	cluster *cluster.Cluster
	told    *cache.Expiring // what was written just now

	mu  sync.Mutex
	uid types.UID
}

func newAnnouncer(c *cluster.Cluster) *announcer {
	return &announcer{cluster: c, told: cache.NewExpiring()}
}

// about makes a ClusterVersion the one that events are about.
func (a *announcer) about(version *configv1.ClusterVersion) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.uid = version.UID
}

// repeats is how often the same event is written again.
const repeats = 10 * time.Minute

// announce writes how far a release is on its way to being applied.
func (a *announcer) announce(ctx context.Context, acceptance clusterversion.Acceptance) {
	for _, news := range clusterversion.Announce(acceptance) {
		a.write(ctx, news)
	}
}

// write writes an event, unless the same one was written just now.
func (a *announcer) write(ctx context.Context, news clusterversion.Event) {
	a.mu.Lock()
	event := cluster.ObjectEvent{
		ID:  kinds.ID{Group: kinds.ClusterVersion.Group, Kind: kinds.ClusterVersion.Kind, Name: theClusterVersion.Name},
		UID: a.uid, Reason: news.Reason, IsWarning: news.IsWarning, Message: news.Message,
	}
	a.mu.Unlock()
	if _, isRepeated := a.told.Get(event); isRepeated {
		return
	}
	a.told.Set(event, nil, repeats)
	if err := a.cluster.RecordEvent(ctx, event); err != nil {
		ctrl.LoggerFrom(ctx).Info("event not written", "reason", err.Error())
	}
}

// kept logs what was repaired, and has the status computed again.
func (a *applier) kept(event keep.Event) {
	log := ctrl.Log.WithName("keep")
	if event.Object != nil {
		log = log.WithValues("object", event.Object.String())
	}
	log.Info(string(event.Type), "action", string(event.Action), "message", event.Message)
	a.monitor.kept(event)
	a.notify()
}
