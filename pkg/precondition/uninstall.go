package precondition

import (
	"github.com/runlevel/runlevel/internal/text/printable"
)

// judgeUninstall is BeingUninstalled: a part of the release is deleted, and an apply would create it again.
func judgeUninstall(f *Facts) []Finding {
	uninstall := f.Record.Uninstall
	if uninstall == nil {
		return nil
	}
	release := printable.Line(f.Record.Release)
	finding := blocks(`running "runlevel uninstall `+release+`" to its end`, "release %s is %s", release, uninstall)
	return []Finding{finding.withSince(uninstall.Since.Time)}
}
