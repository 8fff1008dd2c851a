package state_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/runlevel/runlevel/internal/session/state"
)

var errEnded = errors.New("the test has ended")

// TestListClustersNamesTheFailed lists clusters of which one can't be reached, one ends with the request, and one has a
// login program that never ends.
func TestListClustersNamesTheFailed(t *testing.T) {
	never := make(chan struct{})
	defer close(never)
	listed := state.ListClusters(t.Context(), []state.ClusterSource{
		{Name: "c", Connect: func(context.Context) (*state.Reader, error) { <-never; return nil, errEnded }},
		{Name: "b", Connect: func(ctx context.Context) (*state.Reader, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}},
		{Name: "a", Connect: func(context.Context) (*state.Reader, error) {
			return nil, errors.Join(errors.New("refused"), errors.New("here\x1b"))
		}},
	}, 50*time.Millisecond)
	var got []string
	for _, cluster := range listed {
		got = append(got, cluster.Cluster+": "+cluster.Error)
	}
	const want = "a: refused; here\\x1b\nb: not read within 50ms\nc: not read within 50ms"
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}

// TestListClustersEndsWhenInterrupted lists more clusters than are read at the same time, none of which responds.
func TestListClustersEndsWhenInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancelCause(t.Context())
	defer interrupt(nil)
	never := make(chan struct{})
	defer close(never)
	sources := make([]state.ClusterSource, 200)
	for i := range sources {
		sources[i].Connect = func(context.Context) (*state.Reader, error) {
			interrupt(errors.New("interrupted"))
			<-never
			return nil, errEnded
		}
	}
	for _, cluster := range state.ListClusters(ctx, sources, time.Hour) {
		if cluster.Error != "interrupted" {
			t.Fatalf("got error %q", cluster.Error)
		}
	}
}
