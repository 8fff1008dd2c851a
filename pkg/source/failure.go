package source

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"unicode"

	"github.com/runlevel/runlevel/pkg/reason"
)

// A verdict is an error whose text goes on where the name of the release ends, as in
// "x.zip is no tar archive". Others stand behind a colon.
type verdict struct {
	subject string // how to write that name, if not as it was given
	text    string
	err     error
}

func (v verdict) Error() string { return v.text }
func (v verdict) Unwrap() error { return v.err }

// failure is how err leaves the package.
func failure(ctx context.Context, ref string, err error) error {
	if stopped := ctx.Err(); stopped != nil {
		err = stopped
	}
	subject, joint := ref, ":"
	if strings.ContainsFunc(ref, unicode.IsControl) {
		subject = strconv.Quote(ref)
	}
	var says verdict
	if errors.As(err, &says) {
		joint = ""
		if says.subject != "" {
			subject = says.subject
		}
	}
	return &reason.Error{Reason: RetrievalFailed, Err: fmt.Errorf("%s%s %w", subject, joint, oneLine(err))}
}

// cleaned is an error under a better text.
type cleaned struct {
	text string
	err  error
}

func (c *cleaned) Error() string { return c.text }
func (c *cleaned) Unwrap() error { return c.err }

// maxMessage is how much of an error is shown: a registry may say what it likes.
const maxMessage = 2000

// oneLine takes out of an error what would break its line or do things to a terminal.
func oneLine(err error) error {
	unshown := func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }
	text := strings.Join(strings.FieldsFunc(err.Error(), unshown), " ")
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "") + "…"
	}
	if text == err.Error() {
		return err
	}
	return &cleaned{text: text, err: err}
}

// shown is a name out of an archive as it's safe to show.
func shown(name string) string {
	const enough = 100
	if len(name) > enough {
		return strconv.Quote(name[:enough]) + "…"
	}
	return strconv.Quote(name)
}

// innermost is what went wrong with a path, without the path: our messages have it.
func innermost(err error) error {
	var of *fs.PathError
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}
