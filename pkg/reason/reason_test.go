package reason_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/runlevel/runlevel/pkg/reason"
)

func TestOf(t *testing.T) {
	cause := errors.New("no such file")
	failure := &reason.Error{Reason: "UpdatePayloadRetrievalFailed", Message: "open the release", Err: cause}
	wrapped := fmt.Errorf("update to 1.2.3: %w", failure)

	if got := reason.Of(wrapped); got != "UpdatePayloadRetrievalFailed" {
		t.Errorf("reason.Of = %q", got)
	}
	if want := "update to 1.2.3: open the release: no such file"; wrapped.Error() != want {
		t.Errorf("message is %q, want %q", wrapped, want)
	}
	if !errors.Is(wrapped, cause) {
		t.Error("the cause is lost")
	}
	if got := reason.Of(cause); got != "" {
		t.Errorf("an error without a reason has reason %q", got)
	}
}
