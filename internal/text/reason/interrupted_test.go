package reason_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/runlevel/runlevel/internal/text/reason"
)

func TestAnInterruptionIsACancellation(t *testing.T) {
	if err := fmt.Errorf("read: %w", reason.ErrInterrupted); !errors.Is(err, context.Canceled) {
		t.Error("an interruption does not count as one")
	}
}
