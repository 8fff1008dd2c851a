// Package reason is the one vocabulary of failure: an error that carries a
// CamelCase reason, such as UpdatePayloadIntegrity, beside its sentence.
//
// People read the sentence; conditions, events and -o json carry the reason, which
// stays the same when the sentence is improved. The reasons themselves are
// constants of the package that gives them.
//
// An error may also have an Effect on an update. The applier decides
// how to act on it.
//
// Start with Of: it finds the reason of any error, as EffectOf does its effect.
package reason

import (
	"context"
	"errors"
)

// An Effect is the effect of a failure on an update, in the words of the cluster-version
// operator.
type Effect string

// The effects. A failure without an effect fails the update at once, as Fail does.
const (
	None              Effect = "None"              // the update continues: the failure is transient
	Report            Effect = "Report"            // the update continues, and the failure is reported
	FailAfterInterval Effect = "FailAfterInterval" // it fails if the failure lasts
	Fail              Effect = "Fail"              // it fails at once
)

// An Error is a failure with a reason.
type Error struct {
	Reason  string // CamelCase, as in a condition
	Message string // a sentence in lower case; empty for that of Err
	Err     error  // the cause, if any
	Effect  Effect // effect on an update; empty for the default of failures
}

func (e *Error) Error() string {
	switch {
	case e.Err == nil:
		return e.Message
	case e.Message == "":
		return e.Err.Error()
	default:
		return e.Message + ": " + e.Err.Error()
	}
}

func (e *Error) Unwrap() error { return e.Err }

// Of returns the reason of the outermost Error in err, and "" when it has none.
func Of(err error) string {
	var failure *Error
	if errors.As(err, &failure) {
		return failure.Reason
	}
	return ""
}

// EffectOf returns the effect of the outermost Error in err, and "" when it has none.
func EffectOf(err error) Effect {
	var failure *Error
	if errors.As(err, &failure) {
		return failure.Effect
	}
	return ""
}

// ErrInterrupted is the cause of a context that a user has canceled, by a signal for example, and the error of a
// function that this interrupts. It wraps context.Canceled.
var ErrInterrupted error = interrupted{}

type interrupted struct{}

func (interrupted) Error() string { return "interrupted" }
func (interrupted) Unwrap() error { return context.Canceled }
