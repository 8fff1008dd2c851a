package operator

import (
	"bytes"
	"io/fs"

	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/release/signature"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/payload"
)

// unreadParts are the parts of a release that this operator does not know, and a newer one may know.
type unreadParts struct {
	leftOut  payload.Problems // manifests that are left out, and settings that have no effect
	ignored  payload.Problems // annotations that have no effect
	isPolicy bool             // a manifest that is left out may demand signatures of the next release
}

// unreadOf returns the unread parts of a release, by its problems.
func unreadOf(files fs.FS, problems []payload.Problem) (unread unreadParts) {
	isRead := map[string]bool{}
	for _, p := range problems {
		switch {
		case p.IsNewer:
			unread.leftOut = append(unread.leftOut, p)
			if isRead[p.File] {
				continue
			}
			isRead[p.File] = true
			text, err := fs.ReadFile(files, p.File)
			unread.isPolicy = unread.isPolicy || err != nil || bytes.Contains(text, []byte(signature.ConfigAnnotation))
		case p.Cause == payload.UnknownAnnotation:
			unread.ignored = append(unread.ignored, p)
		}
	}
	return unread
}

// lines returns a line for each unread part, and for each flag in the file of the operator's flags that has no effect.
func (u unreadParts) lines(flags []string) (lines []string) {
	for _, p := range u.leftOut {
		lines = append(lines, "left out: "+p.String())
	}
	for _, p := range u.ignored {
		lines = append(lines, p.String())
	}
	for _, name := range flags {
		lines = append(lines, "unknown flag "+name+" of the operator has no effect; a newer operator may know it")
	}
	return lines
}

// err returns why the release is not complete; nil if no manifest is left out.
func (u unreadParts) err() error {
	if len(u.leftOut) == 0 {
		return nil
	}
	message := printable.Count(len(u.leftOut), "part") + " left out, which the operator of the release, or another " +
		"newer one, has to apply"
	return &reason.Error{Reason: record.ReasonLeftOut, Message: message, Err: u.leftOut}
}
