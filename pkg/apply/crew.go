package apply

import (
	"context"
	"sync"
)

// A crew does nodes of the graph, as many at a time as may write: each that is at work costs as
// much memory as the deepest call of it. Who waits for something passes its turn, so that nodes
// which wait hold up no others, however many they are.
type crew struct {
	todo chan int
	do   func(ctx context.Context, node int)
}

// hire adds somebody who does what there is to do, until there is no more.
func (c *crew) hire(ctx context.Context) {
	go func() {
		for node := range c.todo {
			t := &turn{pass: func() { c.hire(ctx) }}
			c.do(context.WithValue(ctx, turnKey{}, t), node)
			if t.hasPassed() {
				return // somebody else is there instead
			}
		}
	}()
}

// A turn is somebody's at work.
type turn struct {
	pass func()

	mu       sync.Mutex
	isPassed bool
}

type turnKey struct{}

// passTurn lets somebody else begin, since who does it with this context is going to wait.
func passTurn(ctx context.Context) {
	if t, isAtWork := ctx.Value(turnKey{}).(*turn); isAtWork && !t.setPassed() {
		t.pass()
	}
}

func (t *turn) setPassed() (before bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before, t.isPassed = t.isPassed, true
	return before
}

func (t *turn) hasPassed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.isPassed
}
