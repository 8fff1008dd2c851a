// Package reason is the one vocabulary of failure: an error that carries a
// CamelCase reason, such as UpdatePayloadIntegrity, beside its sentence.
//
// People read the sentence; conditions, events and -o json carry the reason, which
// stays the same when the sentence is improved. The reasons themselves are
// constants of the package that gives them.
//
// Of is the call to start from: it finds the reason of any error.
package reason

import "errors"

// An Error is a failure with a reason.
type Error struct {
	Reason  string // CamelCase, as in a condition
	Message string // a sentence in lower case; empty for that of Err
	Err     error  // what caused it, if anything did
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
