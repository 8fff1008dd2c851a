package cli

import (
	"context"
	"os"
	"time"

	"golang.org/x/term"
	"k8s.io/klog/v2"

	"github.com/runlevel/runlevel/internal/live"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/rollout"
	"github.com/runlevel/runlevel/pkg/tombstone"
)

// How often the live view hears of what is waited for: often of what a watch has seen anyway,
// and no more often than others of what costs requests.
const (
	liveWaits   = time.Second
	liveAsks    = 10 * time.Second
	liveDeletes = 20 // at a time that are looked at again
)

// terminalOf is the terminal that a live view may have; nil if there is none, or one that can
// only do lines, or has no size, as where a program has made it for nobody to see. Logs that
// somebody has asked for are lines, too.
func terminalOf(streams Streams) *os.File {
	file, isFile := streams.Err.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) || klog.V(1).Enabled() {
		return nil
	}
	if kind := os.Getenv("TERM"); kind == "dumb" || kind == "" && os.PathSeparator == '/' {
		return nil
	}
	if width, height, err := term.GetSize(int(file.Fd())); err != nil || width == 0 || height == 0 {
		return nil
	}
	return file
}

// look makes an apply tell as much as a live view shows, if there is one.
func (t *teller) look(options *apply.Options) {
	if t.terminal != nil {
		options.TellWaits, options.AskWhy = liveWaits, liveAsks
	}
}

// show begins to show what is about to be done, on the terminal, until hide is called.
func (t *teller) show(ctx context.Context, c *cluster.Cluster, o *rollout.Outcome, manifests []*payload.Manifest) {
	plan := live.Plan{
		Title: string(o.Mode) + " of " + titleOf(o), Began: t.now(), InOrder: o.Mode == graph.Update,
		Earlier: inSeconds(o.Earlier.All), Nodes: map[string]time.Duration{},
	}
	for _, m := range manifests {
		name := graph.ParseName(m.File())
		plan.Items = append(plan.Items, live.Item{Level: name.Level, Component: name.Component, File: m.Path, ID: m.ID()})
	}
	for name, took := range o.Earlier.Nodes {
		plan.Nodes[name] = inSeconds(took)
	}
	view := live.Start(t.terminal, plan, t.now)
	for _, one := range pendingDeletes(o.Deletes, t.now()) {
		if one.Sent {
			view.Delete(one.Object, one.State)
		}
	}
	klog.LogToStderr(false) // else what libraries log would be in the midst of the screen
	klog.SetOutput(view)
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		followDeletes(ctx, c, view)
	}()
	t.view, t.looksAway = view, func() {
		stop()
		<-ended
	}
}

func inSeconds(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// hide ends the live view, if there is one.
func (t *teller) hide() {
	if t.view == nil {
		return
	}
	t.looksAway()
	t.view.Stop()
	t.view = nil
	klog.LogToStderr(true)
}

// stays says whether an event is told in a line that stays above the live view.
func stays(event apply.Event) bool {
	switch event.Type {
	case apply.Failing, apply.Warned, apply.Adopted, apply.Overruled:
		return true
	default:
		return false
	}
}

// followDeletes looks at the pending deletes that a live view shows, until the context ends.
func followDeletes(ctx context.Context, c *cluster.Cluster, view *live.View) {
	ticker := time.NewTicker(liveAsks)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		pending := view.Pending()
		for _, id := range pending[:min(liveDeletes, len(pending))] {
			if state := deleteNow(ctx, c, id); ctx.Err() == nil {
				view.Delete(id, state)
			}
		}
	}
}

// deleteNow says how a pending delete stands; "" if it is over.
func deleteNow(ctx context.Context, c *cluster.Cluster, id kinds.ID) string {
	seen := tombstone.Observe(ctx, c, id, "")
	if seen.State == tombstone.Absent {
		return ""
	}
	return seen.Describe(c.Now())
}
