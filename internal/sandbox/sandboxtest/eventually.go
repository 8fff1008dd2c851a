package sandboxtest

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// pollInterval is the interval at which the functions of this file poll.
const pollInterval = 50 * time.Millisecond

// Eventually polls until isWanted returns true. At the timeout, the test fails with the text, which describes the
// condition.
func Eventually(t testing.TB, what string, isWanted func(context.Context) bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), pollInterval, patience, true,
		func(ctx context.Context) (bool, error) { return isWanted(ctx), nil })
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// EventuallySucceeds polls until try returns no error. At the timeout, the test fails with the last error.
func EventuallySucceeds(t testing.TB, try func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), pollInterval, patience, true,
		func(ctx context.Context) (bool, error) {
			last = try(ctx)
			return last == nil, nil
		})
	if err != nil {
		t.Fatalf("%v: %v", err, last)
	}
}
