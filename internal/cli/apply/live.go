package apply

import (
	"context"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/runlevel/runlevel/internal/cli/live"
	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/session/progress"
	"github.com/runlevel/runlevel/internal/session/state"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/payload"
)

// The intervals at which the live view requests the reasons of unready pods, and the pending deletes.
const (
	liveReadInterval = 10 * time.Second
	maxLiveDeletes   = 20 // per interval
)

// configure makes an apply report as often as the live view needs, if there is one.
func (r *reporter) configure(options *apply.Options) {
	if r.terminal != nil {
		options.AskWhy, options.FollowHooks, options.ReportStates = liveReadInterval, true, true
	}
}

// startView shows the apply on the terminal until stopView is called.
func (r *reporter) startView(ctx context.Context, c *cluster.Cluster, o *session.Outcome,
	manifests []*payload.Manifest) {
	plan := progress.IntentOf(o.Mode, manifests, o.Durations)
	plan.Title, plan.Began = string(o.Mode)+" of "+titleOf(o), r.now()
	view := live.Start(r.terminal, plan, r.now)
	for _, pendingDelete := range state.PendingDeletes(o.Deletes, r.now()) {
		if pendingDelete.Sent {
			view.Delete(pendingDelete.Object, pendingDelete.Message)
		}
	}
	klog.LogToStderr(false) // otherwise logs of libraries would be printed into the screen
	klog.SetOutput(view)
	ctx, stop := context.WithCancel(ctx)
	var following sync.WaitGroup
	following.Go(func() { followDeletes(ctx, c, view) })
	r.view, r.stopFollowing = view, func() {
		stop()
		following.Wait()
	}
}

// stopView ends the live view, if there is one.
func (r *reporter) stopView() {
	if r.view == nil {
		return
	}
	r.stopFollowing()
	r.view.Stop()
	r.view = nil
	klog.LogToStderr(true)
}

// isPersistent reports whether an event is printed as a line that stays above the live view.
func isPersistent(event apply.Event) bool {
	switch event.Type {
	case apply.Failing, apply.Warned, apply.Adopted, apply.Overruled, apply.Logged:
		return true
	default:
		return false
	}
}

// followDeletes reads the pending deletes that a live view shows, until the context ends.
func followDeletes(ctx context.Context, c *cluster.Cluster, view *live.View) {
	ticker := time.NewTicker(liveReadInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		pending := view.Pending()
		for _, id := range pending[:min(maxLiveDeletes, len(pending))] {
			if state := deleteNow(ctx, c, id); ctx.Err() == nil {
				view.Delete(id, state)
			}
		}
	}
}

// deleteNow returns the state of a pending delete as text; "" if the object does not exist.
func deleteNow(ctx context.Context, c *cluster.Cluster, id kinds.ID) string {
	seen := tombstone.Observe(ctx, c, id, "")
	if seen.State == tombstone.Absent {
		return ""
	}
	return seen.Describe(c.Now())
}
