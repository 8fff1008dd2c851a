package source

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
)

// A phrase is an error whose text continues the name of the release, as in
// "x.zip is not a tar archive". The text of other errors follows a colon.
type phrase struct {
	subject string // another way to write the name of the release; "" for the ref itself
	text    string
}

func (p phrase) Error() string { return p.text }

// wrapError returns the error of the package for err.
func wrapError(ctx context.Context, ref string, err error) error {
	if stopped := ctx.Err(); stopped != nil {
		err = stopped
	}
	subject, joint := ref, ":"
	if strings.ContainsFunc(ref, unicode.IsControl) {
		subject = strconv.Quote(ref)
	}
	var known phrase
	if errors.As(err, &known) {
		joint = ""
		if known.subject != "" {
			subject = known.subject
		}
	}
	return &reason.Error{Reason: RetrievalFailed, Err: fmt.Errorf("%s%s %w", subject, joint, oneLine(err))}
}

// maxMessage bounds the text of an error: a registry may send any.
const maxMessage = 2000

// oneLine removes line breaks and terminal escapes from an error.
func oneLine(err error) error {
	unshown := func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }
	text := strings.Join(strings.FieldsFunc(err.Error(), unshown), " ")
	if text = printable.Truncate(text, maxMessage); text == err.Error() {
		return err
	}
	return &oci.RewordedError{Text: text, Err: err}
}

// quoteName returns a name of an archive in quotes, shortened and escaped.
func quoteName(name string) string {
	const enough = 100
	if len(name) > enough {
		return strconv.Quote(name[:enough]) + "…"
	}
	return strconv.Quote(name)
}
