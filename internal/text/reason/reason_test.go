package reason_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/runlevel/runlevel/internal/text/reason"
)

func TestReasonOfAnError(t *testing.T) {
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

func TestEffectOf(t *testing.T) {
	slow := &reason.Error{Reason: "ClusterOperatorUpdating", Message: "it is at 1.2.2", Effect: reason.None}
	if got := reason.EffectOf(fmt.Errorf("update to 1.2.3: %w", slow)); got != reason.None {
		t.Errorf("reason.EffectOf = %q, want %q", got, reason.None)
	}
	if got := reason.EffectOf(&reason.Error{Reason: "UpdatePayloadFailed", Err: slow}); got != "" {
		t.Errorf("an error without an effect has %q, want that of its cause", got)
	}
	if got := reason.EffectOf(errors.New("no such file")); got != "" {
		t.Errorf("an error without a reason has effect %q", got)
	}
}
