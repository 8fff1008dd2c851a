package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/record"
	"github.com/runlevel/runlevel/pkg/rollout"
)

// Only what was kept in place is taken again: an apply that was cut off tells what it has done.
func TestALockThatCouldNotBeRenewedIsTakenAgain(t *testing.T) {
	lost := fmt.Errorf("release %q: %w: it could not be renewed", "shop", record.ErrLost)
	noAnswer := fmt.Errorf("release %q: get leases: %w", "shop", &url.Error{Op: "Get", URL: "https://x", Err: io.EOF})
	noStore := fmt.Errorf("release %q: get leases: %w", "shop", apierrors.NewInternalError(errors.New("etcdserver: no leader")))
	ended, end := context.WithCancel(t.Context())
	end()
	for name, c := range map[string]struct {
		ctx    context.Context
		isKept bool
		report *apply.Report
		err    error
		want   bool
	}{
		"nobody has answered":             {t.Context(), true, &apply.Report{}, lost, true},
		"nobody answers, again":           {t.Context(), true, nil, noAnswer, true},
		"it answers, and has no store":    {t.Context(), true, nil, noStore, true},
		"it answers, and says no":         {t.Context(), true, nil, apierrors.NewForbidden(schema.GroupResource{}, "", nil), false},
		"an apply that meets no answer":   {t.Context(), true, &apply.Report{}, noAnswer, false},
		"nothing was kept in place":       {t.Context(), false, &apply.Report{}, lost, false},
		"nobody has answered, and Ctrl-C": {ended, true, nil, lost, false},
		"something else":                  {t.Context(), true, nil, errors.New("no"), false},
		"it ended as it should":           {t.Context(), true, &apply.Report{}, nil, false},
	} {
		told := &teller{isKept: c.isKept}
		if got := told.mayKeepOn(c.ctx, &rollout.Outcome{Report: c.report, Err: c.err}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// What somebody else has begun to apply meanwhile is not overwritten.
func TestOnlyWhatWasAppliedLastIsAppliedAgain(t *testing.T) {
	begun := 0
	asked := rollout.Options{Apply: apply.Options{Mode: graph.Update}, Begins: func(*rollout.Outcome) error { begun++; return nil }}
	options := onlyAgain(asked)
	if options.Apply.Mode != "" {
		t.Errorf("what was asked for the first time only is done again: %s", options.Apply.Mode)
	}
	if err := options.Begins(&rollout.Outcome{Release: "shop", Mode: graph.Update, IsSame: true}); err != nil || begun != 1 {
		t.Error(err, begun)
	}
	if err := options.Begins(&rollout.Outcome{Release: "shop", Mode: graph.Update}); err == nil || begun != 1 {
		t.Error(err, begun)
	}
}
