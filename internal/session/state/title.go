package state

import (
	"cmp"
	"fmt"

	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/graph"
)

// Title returns the version of the release and its progress in a line.
func (s *Status) Title() string {
	title := "release " + s.Release
	switch {
	case s.Lost != nil:
		title = "release " + s.Lost.Title()
	case s.Uninstall != nil:
		title += named(s.Version) + ": " + s.Uninstall.String()
	case s.State == "":
		title += ": not applied"
	case s.State == record.Completed && s.Progress != nil && s.Lock != nil && !s.Lock.Expired:
		title += named(s.Version) + ": completed, re-applying" + s.percentText()
	case s.State == record.Completed && s.Progress != nil:
		title += named(s.Version) + ": completed, last re-apply not finished" + s.percentText()
	case s.State == record.Completed && s.Done:
		title += s.versionText() + ": complete"
	case s.State == record.Completed && len(s.failedTests()) > 0 && len(s.Objects)+s.Missing == 0:
		title += s.versionText() + ": complete, and " + printable.Count(len(s.failedTests()), "test") + " failed"
	case s.State == record.Completed && s.NotKept != nil && len(s.Objects)+s.Missing == 0 && s.isHealthy():
		title += s.versionText() + ": complete, and not kept in place"
	case s.State == record.Completed && s.requestedVersion() != "":
		title += s.versionText() + ": complete, and another version is requested"
	case s.State == record.Completed && len(s.Objects)+s.Missing == 0 && s.isHealthy():
		title += s.versionText() + ": complete (some checks unavailable)"
	case s.State == record.Completed:
		title += s.versionText() + ": complete, with problems"
	default:
		title += ": " + cmp.Or(s.Mode, "update") + s.versionRange() + s.percentText()
	}
	return printable.Line(title)
}

// requestedVersion returns the version or image that the ClusterVersion requests, if it is another one.
func (s *Status) requestedVersion() string {
	if s.ClusterVersion == nil {
		return ""
	}
	return s.ClusterVersion.Requested
}

// versionText returns the version, and the previous one.
func (s *Status) versionText() string {
	if s.Version == "" || s.Previous == "" || s.Previous == s.Version {
		return named(s.Version)
	}
	return " " + s.Version + ", after " + s.Previous
}

// versionRange returns the versions that an update leads from and to.
func (s *Status) versionRange() string {
	switch {
	case s.Version == "":
		return ""
	case s.Mode == string(graph.Install):
		return " of " + s.Version
	case s.Previous == "" || s.Previous == s.Version:
		return " to " + s.Version
	default:
		return " from " + s.Previous + " to " + s.Version
	}
}

// percentText returns how much is done.
func (s *Status) percentText() string {
	if s.Percent == nil {
		return ", not complete"
	}
	return fmt.Sprintf(", %d%% done", *s.Percent)
}
