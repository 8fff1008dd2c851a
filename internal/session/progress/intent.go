package progress

import (
	"time"

	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// An Intent is what an apply is to do.
type Intent struct {
	Title   string
	Planned *apply.RunState // before it has begun
	Began   time.Time       // by the clock of the events
	// InOrder is true if a level waits until the level before it is ready, as in an update.
	InOrder bool
	// Before is how long the last apply took, and Nodes how long each node took that took a while. Both are empty if
	// they are not known.
	Before time.Duration
	Nodes  map[string]time.Duration
}

// IntentOf returns the intent to apply manifests in a mode, with the durations of the last apply.
func IntentOf(mode graph.Mode, manifests []*payload.Manifest, before record.Durations) Intent {
	intent := Intent{
		Planned: apply.Planned(manifests),
		InOrder: mode == graph.Update,
		Before:  inSeconds(before.All),
		Nodes:   map[string]time.Duration{},
	}
	for name, took := range before.Nodes {
		intent.Nodes[name] = inSeconds(took)
	}
	return intent
}

func inSeconds(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }
