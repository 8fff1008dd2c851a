package pages

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/ui/live"
	"github.com/runlevel/runlevel/internal/ui/look"
)

// maxFailures limits the failures of a version.
const maxFailures = 10

// history returns the versions of a release, the newest first, with plans between those whose files are kept.
func (s *Site) history(ctx context.Context, namespace, name string, _ url.Values) (*Content, error) {
	release, err := s.Hub.Release(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	content := s.contentOf(namespace, name, "History of release "+name)
	if release.Record == nil || len(release.Record.History) == 0 {
		content.add("versions", "", h.P(g.Text("No version was applied yet.")))
		return content, nil
	}
	history := release.Record.History
	if len(keptVersions(history)) > 1 {
		content.add("compare", "Compare two versions", s.compareForm(release, history, "", ""))
	}
	content.add("versions", "Versions", s.versionTable(release, history))
	return content, nil
}

// isKept reports whether the cluster has the files of a version.
func isKept(entry record.HistoryEntry) bool { return entry.Files != nil && entry.Files.Digest != "" }

// keptVersions returns the versions whose files are kept, the newest first.
func keptVersions(history record.History) []record.HistoryEntry {
	var kept []record.HistoryEntry
	for _, entry := range history {
		if isKept(entry) {
			kept = append(kept, entry)
		}
	}
	return kept
}

// compareForm returns the form that chooses the two versions of a plan; by default, the last two. In an export, no
// server answers it.
func (s *Site) compareForm(release *live.Release, history record.History, base, target string) g.Node {
	if s.Find != nil {
		return nil
	}
	kept := keptVersions(history)
	if base == "" && len(kept) > 1 {
		base, target = strconv.Itoa(kept[1].Revision), strconv.Itoa(kept[0].Revision)
	}
	choose := func(id, title, chosen string) g.Node {
		return h.Label(g.Text(title), h.Select(h.ID(id), h.Name(id),
			g.Map(kept, func(entry record.HistoryEntry) g.Node {
				value := strconv.Itoa(entry.Revision)
				return h.Option(h.Value(value), g.If(value == chosen, h.Selected()), look.Text(versionText(entry)))
			})))
	}
	return h.Form(h.Method("get"), h.Action(s.releaseAddress(release.Namespace, release.Status.Release, "plan")),
		choose("from", "From", base), choose("to", "To", target), h.Button(h.Type("submit"), g.Text("Compare")))
}

// versionText names a version with its revision.
func versionText(entry record.HistoryEntry) string {
	return strings.TrimSuffix(fmt.Sprintf("revision %d: %s", entry.Revision, entry.Version), ": ")
}

// versionTable returns the versions, and how each apply ended.
func (s *Site) versionTable(release *live.Release, history record.History) g.Node {
	table := look.Table{Caption: "Versions, the newest first", Columns: []string{
		"Revision", "Version", "State", "Mode", "Started", "Took", "Source", "Plan", "Notes",
	}}
	for i, entry := range history {
		tone := look.Good
		if entry.State != record.Completed {
			tone = look.Waiting
		}
		table.IDs = append(table.IDs, "revision-"+strconv.Itoa(entry.Revision))
		table.Rows = append(table.Rows, []g.Node{
			g.Text(strconv.Itoa(entry.Revision)), look.Text(cmp.Or(entry.Version, "-")),
			look.State(tone, string(entry.State)), look.Text(cmp.Or(entry.Mode, "-")),
			g.Group{look.Age(release.Status.Time, entry.Started.Time), g.Text(" ago")}, look.Text(tookText(entry)),
			look.Text(cmp.Or(entry.Source, "-")), s.planLink(release, history[:i], entry),
			s.versionNotes(release, entry),
		})
	}
	return table.Node()
}

// tookText returns how long an apply took.
func tookText(entry record.HistoryEntry) string {
	switch {
	case entry.Completed != nil:
		return spanText(entry.Completed.Sub(entry.Started.Time))
	case entry.End != nil:
		return spanText(entry.End.Time.Sub(entry.Started.Time))
	default:
		return "-"
	}
}

// spanText returns a duration. The times of records have no fractions of seconds.
func spanText(took time.Duration) string {
	if took < time.Second {
		return "less than 1s"
	}
	return took.String()
}

// versionNotes returns how an apply ended, and the decisions of users about it.
func (s *Site) versionNotes(release *live.Release, entry record.HistoryEntry) g.Node {
	var notes g.Group
	note := func(format string, args ...any) {
		notes = append(notes, h.Li(look.Text(fmt.Sprintf(format, args...))))
	}
	if entry.Rollback != nil {
		note("%s", entry.Rollback)
	}
	if len(entry.Forced) > 0 {
		note("forced over %s", strings.Join(entry.Forced, ", "))
	}
	if entry.Verified {
		note("its signatures were verified")
	}
	for _, override := range entry.Hooks {
		note("the %s at %s", override, override.Time.UTC().Format(time.RFC3339))
	}
	for _, failed := range entry.FailedTests[:min(maxFailures, len(entry.FailedTests))] {
		note("test %s failed: %s", failed.ID, failed.Message)
	}
	if entry.End != nil {
		notes = append(notes, h.Li(look.Text("its apply ended without completing it: "+
			strings.TrimPrefix(entry.End.Reason+": ", ": ")+entry.End.Message), s.failures(release, entry.End)))
	}
	if len(notes) == 0 {
		return g.Text("-")
	}
	return h.Ul(notes)
}

// failures returns the first failures of an apply.
func (s *Site) failures(release *live.Release, end *record.End) g.Node {
	var items g.Group
	for _, failure := range end.Failures[:min(maxFailures, len(end.Failures))] {
		hook := ""
		if failure.Hook != "" {
			hook = failure.Hook + " hook of "
		}
		item := g.Group{look.Text(hook), s.objectLink(release, failure.ID), look.Text(" (" + failure.File + ")")}
		if !strings.Contains(end.Message, failure.Message) {
			item = append(item, look.Text(": "+failure.Message))
		}
		items = append(items, item)
	}
	return g.Group{look.Items(items...), look.More(len(end.Failures)-len(items)+end.More, "failure")}
}

// planLink returns the link to the plan of the update from a version to the next one whose files are kept, or why the
// files of the version are not kept.
func (s *Site) planLink(release *live.Release, newer record.History, entry record.HistoryEntry) g.Node {
	switch {
	case entry.Files == nil:
		return g.Text("no files: it was applied by an older version of runlevel")
	case !isKept(entry):
		return look.Text("no files: " + entry.Files.NotKept)
	}
	kept := keptVersions(newer)
	if len(kept) == 0 {
		return g.Text("-")
	}
	base, target := strconv.Itoa(entry.Revision), strconv.Itoa(kept[len(kept)-1].Revision)
	return look.Link{
		Text:    "to revision " + target,
		Address: s.releaseAddress(release.Namespace, release.Status.Release, "plan", "from", base, "to", target),
	}.Node()
}
