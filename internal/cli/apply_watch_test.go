package cli

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/record"
	"github.com/runlevel/runlevel/pkg/rollout"
)

func TestALockThatCouldNotBeRenewedIsTakenAgain(t *testing.T) {
	lost := fmt.Errorf("release %q: %w: it could not be renewed", "shop", record.ErrLost)
	ended, end := context.WithCancel(t.Context())
	end()
	for name, c := range map[string]struct {
		ctx  context.Context
		err  error
		want bool
	}{
		"nobody has answered":   {t.Context(), lost, true},
		"Ctrl-C came as well":   {ended, lost, false},
		"something else":        {t.Context(), errors.New("no"), false},
		"it ended as it should": {t.Context(), nil, false},
	} {
		if got := wasAway(c.ctx, c.err); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// What somebody else has begun to apply meanwhile is not overwritten.
func TestOnlyWhatWasAppliedLastIsAppliedAgain(t *testing.T) {
	begun := 0
	options := onlyAgain(rollout.Options{Begins: func(*rollout.Outcome) error { begun++; return nil }})
	if err := options.Begins(&rollout.Outcome{Release: "shop", Mode: graph.Reconcile}); err != nil || begun != 1 {
		t.Error(err, begun)
	}
	if err := options.Begins(&rollout.Outcome{Release: "shop", Mode: graph.Update}); err == nil || begun != 1 {
		t.Error(err, begun)
	}
}
