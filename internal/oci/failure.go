package oci

import (
	"errors"
	"io/fs"
)

// A RewordedError is an error with another text.
type RewordedError struct {
	Text string
	Err  error
}

func (r *RewordedError) Error() string { return r.Text }
func (r *RewordedError) Unwrap() error { return r.Err }

// WithoutPath returns the cause of a path error: our messages name the path.
func WithoutPath(err error) error {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		return pathError.Err
	}
	return err
}
