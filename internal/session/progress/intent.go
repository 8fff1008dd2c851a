package progress

import (
	"time"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// An Intent is the list of manifests to apply.
type Intent struct {
	Title string
	Items []Item    // in the order of the release
	Began time.Time // by the clock of the events
	// InOrder is true if a level waits until the level before it is ready, as in an update.
	InOrder bool
	// Before is how long the last apply took, and Nodes how long each node took that took a while. Both are
	// empty if that is not known.
	Before time.Duration
	Nodes  map[string]time.Duration
}

// IntentOf returns the manifests to apply in a mode, with the durations of the last apply.
func IntentOf(mode graph.Mode, manifests []*payload.Manifest, before record.Durations) Intent {
	intent := Intent{InOrder: mode == graph.Update, Before: inSeconds(before.All), Nodes: map[string]time.Duration{}}
	for _, m := range manifests {
		name := graph.ParseName(m.File())
		intent.Items = append(intent.Items, Item{Level: name.Level, Component: name.Component, File: m.Path, ID: m.ID()})
	}
	for name, took := range before.Nodes {
		intent.Nodes[name] = inSeconds(took)
	}
	return intent
}

func inSeconds(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// An Item is a manifest that is to be applied.
type Item struct {
	Level, Component string // both empty, if its file names neither
	File             string
	ID               kinds.ID
}
