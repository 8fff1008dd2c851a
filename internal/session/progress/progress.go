// Package progress returns how far an apply is: levels and components, what runs, what waits for what since when, what
// has failed, which deletes are pending, and how long it may still take.
//
// Of makes a Progress, which is a plain value, of the state of an apply, be it of this process or by the record of
// another one; a Model is the state of a live view. The package uses neither a clock nor a cluster. The estimate of the
// remaining time is in estimate.go.
package progress

import (
	"time"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/apply"
)

// A Progress is how far an apply is.
type Progress struct {
	Title    string        `json:"title"`
	Began    time.Time     `json:"began"`
	Now      time.Time     `json:"now"`
	Left     time.Duration `json:"left,omitempty"` // an estimate; 0 if there is none
	Levels   []Level       `json:"levels"`
	Waits    []apply.Wait  `json:"waits,omitempty"` // the longest first
	Failures []apply.Event `json:"failures,omitempty"`
	Deletes  []Deleting    `json:"deletes,omitempty"`
	Recent   []apply.Event `json:"recent,omitempty"` // the latest last
	StateCounts
}

// StateCounts are how many objects are in which state.
type StateCounts struct {
	Total   int `json:"total"`
	Done    int `json:"done,omitempty"`    // applied, and ready as far as is known
	Waiting int `json:"waiting,omitempty"` // applied, and not ready
	Failed  int `json:"failed,omitempty"`
}

// Add returns the sum of counts.
func (c StateCounts) Add(other StateCounts) StateCounts {
	return StateCounts{c.Total + other.Total, c.Done + other.Done, c.Waiting + other.Waiting, c.Failed + other.Failed}
}

// Left returns how many objects were not applied yet.
func (c StateCounts) Left() int { return c.Total - c.Done - c.Waiting - c.Failed }

// A Level is the components of a release that have the same number.
type Level struct {
	Name       string      `json:"name,omitempty"` // empty for files without a level
	Components []Component `json:"components"`
	StateCounts
}

// IsBegun reports whether anything of a level was done.
func (l Level) IsBegun() bool {
	for _, c := range l.Components {
		if !c.Began.IsZero() || c.Done+c.Waiting+c.Failed > 0 {
			return true
		}
	}
	return false
}

// IsDone reports whether nothing of a level is left to do, or to wait for.
func (l Level) IsDone() bool { return l.Done == l.Total && len(l.Running()) == 0 }

// Running returns the components of a level that run, or have objects that are waited for.
func (l Level) Running() []string {
	var names []string
	for _, c := range l.Components {
		if c.IsRunning || c.Waiting > 0 {
			names = append(names, c.Name)
		}
	}
	return names
}

// A Component is a node of the graph: the manifests of a component in one level.
type Component struct {
	Name      string        `json:"name,omitempty"`
	Node      string        `json:"node,omitempty"` // its name in events
	IsRunning bool          `json:"running,omitempty"`
	IsOver    bool          `json:"-"`
	Began     time.Time     `json:"began,omitzero"`
	Before    time.Duration `json:"before,omitempty"` // how long it took the last time; 0 if unknown
	StateCounts
}

// A Deleting is an object whose delete is pending.
type Deleting struct {
	Object  kinds.ID `json:"object"`
	Message string   `json:"message"`
}
