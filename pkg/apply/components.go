package apply

import (
	"maps"
	"slices"
	"time"

	"github.com/runlevel/runlevel/pkg/apply/object"
)

// components are the components of levels, by names such as "level 50, web". A node of the graph may hold several
// levels of one component each, and dependencies may split a component into several nodes. Users know levels and
// components, so the events Began and Ended are about those. A part is one node's share of a component.
type components struct {
	events *emitter
	all    map[string]*component
	took   map[string]time.Duration // keyed by completed component
}

// A component is the progress of one component of a level.
type component struct {
	left, running int // parts
	began         time.Time
	isRunning     bool          // Began was reported
	outcome       object.Action // the worst outcome of its parts; "" if none failed or was interrupted
}

func newComponents(o *order, events *emitter) *components {
	c := &components{events: events, all: map[string]*component{}, took: map[string]time.Duration{}}
	for _, steps := range o.nodes {
		for _, end := range o.partEnds(steps) {
			name := o.componentOf(steps[end-1])
			if c.all[name] == nil {
				c.all[name] = &component{}
			}
			c.all[name].left++
		}
	}
	return c
}

// states returns the state of each component that has begun, at times of this machine's clock.
func (c *components) states() []ComponentState {
	var all []ComponentState
	for _, name := range slices.Sorted(maps.Keys(c.all)) {
		if component := c.all[name]; !component.began.IsZero() {
			isDone := !component.isRunning && component.left <= 0 && component.outcome == ""
			all = append(all, ComponentState{
				Name:      name,
				Began:     component.began,
				IsRunning: component.isRunning,
				IsDone:    isDone,
			})
		}
	}
	return all
}

// begin notes that a part begins, and reports the first one of a component.
func (c *components) begin(name string) {
	if name == "" {
		return
	}
	component := c.all[name]
	component.running++
	if component.began.IsZero() {
		component.began = time.Now()
	}
	if !component.isRunning {
		component.isRunning, component.outcome = true, ""
		c.events.emit(Event{Type: Began, Node: name})
	}
}

// end notes the outcome of a part, "" if it is done, and reports the end of its component with its last part.
func (c *components) end(name string, outcome object.Action) {
	if name == "" {
		return
	}
	component := c.all[name]
	component.running--
	component.left--
	if component.outcome != object.Failed && outcome != "" {
		component.outcome = outcome
	}
	if component.running > 0 || component.left > 0 && component.outcome == "" {
		return
	}
	component.isRunning = false
	took := time.Since(component.began)
	if component.outcome == "" {
		c.took[name] = took
	}
	c.events.emit(Event{
		Type:    Ended,
		Node:    name,
		Action:  component.outcome,
		Seconds: took.Round(time.Millisecond).Seconds(),
	})
}
