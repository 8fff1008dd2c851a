package pages

import (
	"slices"
	"time"

	"github.com/runlevel/runlevel/internal/session/state"
	"github.com/runlevel/runlevel/internal/ui/live"
	"github.com/runlevel/runlevel/internal/ui/look"
)

// Status returns the page of a release from its status alone: without the graph of its files, and without links to
// other pages.
func Status(namespace string, status *state.Status) look.Page {
	alone := &Site{Find: func(string) string { return "" }}
	v := releaseView{Release: &live.Release{Namespace: namespace, Status: status}, site: alone}
	sections := v.sections(nil)
	if status.State == "" && status.Uninstall == nil && status.Lost == nil {
		sections = slices.DeleteFunc(sections, func(s look.Section) bool { // there is no record to read them from
			return s.ID == "history" || s.ID == "gate" && len(status.Gates) == 0
		})
	}
	return look.Page{
		Title: "Release " + status.Release, Note: "State of " + status.Time.UTC().Format(time.RFC3339),
		Sections: sections,
	}
}
