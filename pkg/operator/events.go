package operator

import (
	"context"
	"maps"
	"sync"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/keep"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/status"
)

// An announcer writes events about the ClusterVersion, the same one not again and again.
type announcer struct {
	cluster *cluster.Cluster

	mu   sync.Mutex
	uid  types.UID
	told map[cluster.ObjectEvent]time.Time
}

func newAnnouncer(c *cluster.Cluster) *announcer {
	return &announcer{cluster: c, told: map[cluster.ObjectEvent]time.Time{}}
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
func (a *announcer) announce(ctx context.Context, acceptance status.Acceptance) {
	for _, news := range status.Announce(acceptance) {
		a.write(ctx, news)
	}
}

// write writes an event, unless the same one was written just now.
func (a *announcer) write(ctx context.Context, news status.Event) {
	a.mu.Lock()
	event := cluster.ObjectEvent{
		ID:  kinds.ID{Group: kinds.ClusterVersion.Group, Kind: kinds.ClusterVersion.Kind, Name: theClusterVersion.Name},
		UID: a.uid, Reason: news.Reason, IsWarning: news.IsWarning, Message: news.Message,
	}
	maps.DeleteFunc(a.told, func(_ cluster.ObjectEvent, at time.Time) bool { return time.Since(at) > repeats })
	_, isRepeated := a.told[event]
	if !isRepeated {
		a.told[event] = time.Now()
	}
	a.mu.Unlock()
	if isRepeated {
		return
	}
	if err := a.cluster.RecordEvent(ctx, event); err != nil {
		ctrl.LoggerFrom(ctx).Info("event not written", "reason", err.Error())
	}
}

// kept logs what was repaired, and has the status computed anew.
func (a *applier) kept(event keep.Event) {
	log := ctrl.Log.WithName("keep")
	if event.Object != nil {
		log = log.WithValues("object", event.Object.String())
	}
	log.Info(string(event.Type), "action", string(event.Action), "message", event.Message)
	a.monitor.kept(event)
	a.notify()
}
