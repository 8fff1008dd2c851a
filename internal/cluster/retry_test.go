package cluster_test

import (
	"context"
	"errors"
	"testing"

	"k8s.io/client-go/util/retry"

	"github.com/runlevel/runlevel/internal/cluster"
)

// TestARetryThatIsInterruptedHasFailed asserts that an interrupted write is not reported as a success.
func TestARetryThatIsInterruptedHasFailed(t *testing.T) {
	if err := cluster.RetryOnConflict(retry.DefaultRetry, func() error {
		return context.Canceled
	}); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v, want %v", err, context.Canceled)
	}
	if err := cluster.RetryOnConflict(retry.DefaultRetry, func() error { return nil }); err != nil {
		t.Error(err)
	}
}
