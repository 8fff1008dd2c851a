package precondition

import (
	"github.com/runlevel/runlevel/internal/text/printable"
)

// judgeUninstall is BeingUninstalled: a part of the release is gone, and who uninstalls it does not expect it back.
func judgeUninstall(f *Facts) []CheckFinding {
	uninstall := f.Record.Uninstall
	if uninstall == nil {
		return nil
	}
	release := printable.Line(f.Record.Release)
	finding := blocks(`"runlevel uninstall `+release+`", which finishes that`, "release %s is %s", release, uninstall)
	return []CheckFinding{finding.since(uninstall.Since.Time)}
}
