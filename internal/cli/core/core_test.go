package core_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/text/reason"
)

// TestErrorTextOfInterruption checks the text of errors after a user has interrupted a command.
func TestErrorTextOfInterruption(t *testing.T) {
	for _, test := range []struct {
		err  error
		want string
	}{
		{reason.ErrInterrupted, "interrupted"},
		{context.Canceled, "interrupted"},
		{fmt.Errorf("%w: 1 object not ready", reason.ErrInterrupted), "interrupted: 1 object not ready"},
		{fmt.Errorf("get Namespace shop: %w", reason.ErrInterrupted), "get Namespace shop: interrupted"},
		{fmt.Errorf("get Namespace shop: %w", context.Canceled), "interrupted: get Namespace shop: context canceled"},
		{errors.New("a file with the name context canceled"), "a file with the name context canceled"},
	} {
		if got := core.ErrorText(test.err); got != test.want {
			t.Errorf("%v is printed as %q, want %q", test.err, got, test.want)
		}
	}
}
