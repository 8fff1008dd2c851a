package pages

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/session/progress"
	"github.com/runlevel/runlevel/internal/session/state"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/ui/live"
	"github.com/runlevel/runlevel/internal/ui/look"
)

// A releaseView is the first page on a release.
type releaseView struct {
	*live.Release
	site   *Site
	events []state.Event // the latest
	// events on the objects that other clients change again and again
	contested map[kinds.ID]state.Event
	refused   error // why the user may not read the ClusterVersion
}

// release returns the first page on a release: the facts for a person on call, in the order of their urgency.
func (s *Site) release(ctx context.Context, namespace, name string, query url.Values) (*Content, error) {
	read, err := s.Hub.Release(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	status := *read.Status
	status.Objects = s.withoutLogs(ctx, metav1.NamespaceAll, status.Objects)
	var refused error
	if status.ClusterVersion != nil || len(status.Operators) > 0 {
		if err := s.mayReadVersion(ctx); err != nil {
			status.ClusterVersion, status.Operators, status.Events = nil, nil, nil
			refused = err
		}
	}
	shown := *read
	shown.Status = &status
	v := releaseView{
		Release: &shown, site: s, events: status.Events, contested: s.contentions(ctx, read.Status.Repairs),
		refused: refused,
	}
	if len(v.events) == 0 {
		v.events, _ = s.eventsOn(ctx, kinds.NewID(kinds.ConfigMap, namespace, lock.Name(name)), "") // optional
	}
	content := s.contentOf(namespace, name, "Release "+name)
	content.Trail, content.Sections = s.releaseTrail(), v.sections(query)
	content.State = v.announcement()
	return content, nil
}

// sections returns the sections that have something to say.
func (v releaseView) sections(query url.Values) []look.Section {
	all := []look.Section{
		v.outage(), v.summary(), v.attention(), v.site.graphSection(v.Release, query), v.deletes(),
		v.drift(), v.repairs(), v.gates(), v.operators(), v.hooks(), v.tests(), v.version(), v.latestEvents(),
		v.history(), v.unknown(),
	}
	return slices.DeleteFunc(all, func(section look.Section) bool { return section.Body == nil })
}

// outage returns that the cluster does not respond.
func (v releaseView) outage() look.Section {
	if v.Status.Unreachable == "" {
		return look.Section{}
	}
	return look.Section{ID: "outage", Body: g.Group{look.Notice(look.Bad, h.Role("alert"), h.P(
		g.Text("The cluster does not respond, and is retried. This page shows the state of "),
		look.Age(v.Status.Time, v.Status.Time), g.Text(" ago: "), look.Text(v.Status.Unreachable)),
	)}}
}

// summary returns the state of the release, the process that applies it, and its progress.
func (v releaseView) summary() look.Section {
	title := strings.TrimLeft(strings.TrimPrefix(v.Status.Title(), "release "+v.Status.Release), ": ")
	body := g.Group{h.P(look.State(v.state())), v.messages(v.Status.Messages)}
	if len(v.Status.Unknown) > 0 {
		body = append(body, h.P(h.A(h.Href("#unknown"),
			g.Text(printable.Count(len(v.Status.Unknown), "fact")+" could not be read"))))
	}
	p := cmp.Or(v.Progress, v.Status.Progress)
	if end := v.end(); p == nil && end != nil {
		body = append(body, h.P(g.Text("It ended: "), look.Prose(v.Status.Time, end.Message)))
	}
	if p != nil && p.Total > 0 {
		body = append(body, v.progress(p))
	}
	if p != nil && p.Failed > 0 && v.Status.History != nil && !v.isHeld() {
		body = append(body, h.P(g.Text("To apply the release again, after its manifests are fixed: "),
			command(v.Namespace, "apply", cmp.Or(v.Status.History.Source, "SOURCE"), "--name", v.Status.Release)))
	}
	return look.Section{ID: "summary", Title: title, Body: body}
}

// end returns how the last apply ended if it did not complete.
func (v releaseView) end() *record.End {
	if v.Status.History == nil || v.Status.Uninstall != nil {
		return nil
	}
	return v.Status.History.End
}

// state returns the state in a word, with its tone.
func (v releaseView) state() (look.Tone, string) {
	if v.Status.State == "" && v.Status.Lost == nil {
		return look.Unknown, "Not applied"
	}
	word := v.Status.Word()
	return releaseTone(word, v.Status.Progress != nil), string(word)
}

// announcement returns the state for an announcement: without the percentage, which changes often.
func (v releaseView) announcement() string {
	_, word := v.state()
	text := strings.TrimSpace("Release "+v.Status.Release+" "+printable.Line(v.Status.Version)) + ": " + word
	if p := v.Status.Progress; p != nil && p.Failed > 0 {
		text += ", " + printable.Count(p.Failed, "object") + " failed"
	}
	return text
}

// isHeld reports whether a process applies the release, or keeps it in place.
func (v releaseView) isHeld() bool { return v.Status.Lock != nil && !v.Status.Lock.Expired }

// progress returns how much is done, in total and for each level.
func (v releaseView) progress(p *progress.Progress) g.Node {
	text := fmt.Sprintf("%d of %s applied and ready", p.Done, printable.Count(p.Total, "object"))
	for _, count := range []struct {
		number int
		what   string
	}{{p.Waiting, "waiting"}, {p.Failed, "failed"}, {p.StateCounts.Left(), "not applied yet"}} {
		if count.number > 0 {
			text += fmt.Sprintf(", %d %s", count.number, count.what)
		}
	}
	if p.Left > 0 {
		text += ", about " + p.Left.Round(time.Second).String() + " left"
	}
	if v.Status.LastSeconds > 0 {
		text += fmt.Sprintf("; the last %s took %s", printable.Line(v.Status.Mode),
			time.Duration(v.Status.LastSeconds*float64(time.Second)).Round(time.Second))
	}
	return look.Progress("Progress of the release", p.Done, p.Total, text)
}

// maxNamed limits the names in a line.
const maxNamed = 5

// hooks returns the lifecycle hooks of Deployments that have not succeeded.
func (v releaseView) hooks() look.Section {
	if len(v.Status.Hooks) == 0 {
		return look.Section{}
	}
	var items g.Group
	for _, hook := range v.Status.Hooks[:min(maxItems, len(v.Status.Hooks))] {
		items = append(items, h.Li(look.Prose(v.Status.Time,
			hook.Sentence("the "+hook.Object.OrHook(string(hook.Hook)), v.Status.Time))))
	}
	return look.Section{ID: "hooks", Title: "Lifecycle hooks",
		Body: g.Group{h.Ul(items), look.More(len(v.Status.Hooks)-len(items), "hook")}}
}

// tests returns the failed tests of the newest version.
func (v releaseView) tests() look.Section {
	if v.Status.History == nil || len(v.Status.History.FailedTests) == 0 {
		return look.Section{}
	}
	return look.Section{ID: "tests", Title: "Failed tests", Body: g.Group{
		tableOf("Failed tests", []string{"Test", "Reason", "Message"}, v.Status.History.FailedTests,
			func(failed record.ObjectFailure) (string, []g.Node) {
				return objectID("test", failed.ID), []g.Node{
					v.link(failed.ID), look.Text(failed.Reason), look.Lines(failed.Message),
				}
			}),
		h.P(g.Text("To run them again: "), v.command("test")),
	}}
}

// history returns the newest entry of the history.
func (v releaseView) history() look.Section {
	entry := v.Status.History
	all := look.Link{Text: "All versions", Address: v.site.releaseAddress(v.Namespace, v.Status.Release, "history")}
	if entry == nil {
		return look.Section{ID: "history", Title: "History", Body: g.Group{h.P(g.Text("No version was applied yet."))}}
	}
	return look.Section{ID: "history", Title: "Newest version", Body: g.Group{
		v.site.versionTable(v.Release, record.History{*entry}), g.If(all.Address != "", h.P(all.Node())),
	}}
}

// unknown returns what could not be read.
func (v releaseView) unknown() look.Section {
	if len(v.Status.Unknown) == 0 {
		return look.Section{}
	}
	return look.Section{ID: "unknown", Title: "Not known", Body: g.Group{
		h.P(g.Text("These facts could not be read, so the page may lack problems:")),
		look.List(v.Status.Unknown[:min(maxRows, len(v.Status.Unknown))]),
	}}
}
