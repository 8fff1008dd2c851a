package apply

import (
	"strings"
	"time"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
)

// A Wait is an object or a step that the run waits for.
type Wait struct {
	ID      kinds.ID      `json:"object"`
	Hook    string        `json:"hook,omitempty"` // stage of the object's lifecycle hook, if the hook waits
	File    string        `json:"file"`
	Node    string        `json:"node,omitempty"`
	For     string        `json:"for"`
	Since   time.Time     `json:"since"`         // server time
	Why     []string      `json:"why,omitempty"` // reasons of pods that do not become ready
	Reason  string        `json:"reason,omitempty"`
	Effect  reason.Effect `json:"effect,omitempty"`
	IsRetry bool          `json:"retrying,omitempty"` // the step has failed, and is tried again

	Line      int  `json:"-"` // line of the manifest in its file
	IsOfStep  bool `json:"-"` // the step itself waits, and is not done
	HasFailed bool `json:"-"` // the object has failed, and the run waits for it all the same: it may recover
}

// waitOf returns a wait of a step.
func waitOf(step object.StepID) Wait {
	return Wait{ID: step.ID, Hook: step.Hook, File: step.Path, Node: step.Node, Line: step.Line}
}

// StepID names the step.
func (w Wait) StepID() object.StepID {
	return object.StepID{ID: w.ID, Path: w.File, Line: w.Line, Node: w.Node, Hook: w.Hook}
}

// Name names the object or hook that waits.
func (w Wait) Name() string { return w.ID.OrHook(w.Hook) }

// Component returns the level and the component of the file, which Node names.
func (w Wait) Component() graph.Name {
	level, component, _ := strings.Cut(strings.TrimPrefix(w.Node, "level "), ", ")
	return graph.Name{Level: level, Component: component}
}
