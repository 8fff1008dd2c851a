package pages

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/session/state"
	"github.com/runlevel/runlevel/internal/ui/live"
	"github.com/runlevel/runlevel/internal/ui/look"
)

// releaseStates are the states of releases, the worst first, with their tones.
var releaseStates = []struct {
	state state.ReleaseState
	tone  look.Tone
}{
	{state.ReleaseLost, look.Bad},
	{state.ReleaseIncomplete, look.Bad},
	{state.ReleaseDegraded, look.Bad},
	{state.ReleaseFailedTests, look.Bad},
	{state.ReleaseUninstalling, look.Deleted},
	{state.ReleaseUnknown, look.Unknown},
	{state.ReleaseApplying, look.Active},
	{state.ReleaseComplete, look.Good},
}

// releaseRank returns the place of a state in releaseStates.
func releaseRank(wanted state.ReleaseState) int {
	for i, known := range releaseStates {
		if known.state == wanted {
			return i
		}
	}
	return 0
}

// releaseTone returns the tone of a state. Without progress, a release is incomplete because its apply did not wait.
func releaseTone(word state.ReleaseState, hasProgress bool) look.Tone {
	if word == state.ReleaseIncomplete && !hasProgress {
		return look.Waiting
	}
	return releaseStates[releaseRank(word)].tone
}

// releases returns the page of all releases, the worst first.
func (s *Site) releases(ctx context.Context, query url.Values) (*Content, error) {
	all, unread := s.Hub.Releases(ctx)
	if len(all) == 0 && unread != nil {
		return nil, unread
	}
	var shown []state.ListedRelease
	for _, release := range all {
		release.Namespace = cmp.Or(release.Namespace, s.Hub.Namespace, session.DefaultNamespace) // a lost one has none
		switch err := s.mayRead(ctx, release.Namespace, release.Release); {
		case err == nil:
			shown = append(shown, release)
		case !errors.Is(err, ErrForbidden):
			return nil, err
		}
	}
	slices.SortStableFunc(shown, func(a, b state.ListedRelease) int {
		return cmp.Or(cmp.Compare(releaseRank(a.State), releaseRank(b.State)),
			cmp.Compare(min(len(b.Problems), 1), min(len(a.Problems), 1)), cmp.Compare(a.Release, b.Release),
			cmp.Compare(a.Namespace, b.Namespace))
	})
	page := look.Page{Title: "Releases", Menu: s.clusterMenu(ctx)}
	if len(shown) > 1 {
		states := filter{name: "state"}
		for _, release := range shown {
			states.values = append(states.values, string(release.State))
		}
		page.Sections = append(page.Sections, s.filterSection(s.address("/"), query, states))
	}
	body := g.Group{s.releaseTable(shown, query)}
	if hidden := len(all) - len(shown); hidden > 0 {
		body = append(body, h.P(g.Text("Some releases are not listed: you are not allowed to get the ConfigMaps that "+
			"are their records.")))
	}
	if unread != nil {
		body = append(body, look.Notice(look.Unknown, h.P(g.Text("Not all releases could be read: "),
			look.Lines(unread.Error()))))
	}
	page.Sections = append(page.Sections, look.Section{ID: "releases", Body: body})
	return &Content{Page: page, Topic: live.Topic{Kind: live.OfReleases}}, nil
}

// isChosen reports whether a release has the state and all words of a query.
func isChosen(release state.ListedRelease, query url.Values) bool {
	texts := append([]string{release.Release, release.Namespace, release.Version, string(release.State),
		string(release.KeptBy)}, release.Problems...)
	return hasWords(query, texts...) &&
		(query.Get("state") == "" || query.Get("state") == string(release.State))
}

// releaseTable returns the table of the chosen releases.
func (s *Site) releaseTable(all []state.ListedRelease, query url.Values) g.Node {
	if len(all) == 0 {
		return g.Group{
			h.P(g.Text("No release has been applied to this cluster yet, or you may not read its record. A " +
				"release is a folder of manifests or an image. Check it, then apply it:")),
			h.Ul(h.Li(look.Command("runlevel lint ./manifests")), h.Li(look.Command("runlevel apply ./manifests"))),
		}
	}
	table := look.Table{
		Caption: "Releases of this cluster, the worst first",
		Columns: []string{"Release", "Namespace", "Version", "State", "Age", "Kept by", "Deletes", "Problems"},
	}
	for _, release := range all {
		if isChosen(release, query) {
			table.Rows = append(table.Rows, s.releaseRow(release))
			table.IDs = append(table.IDs, look.ID("release", release.Namespace, release.Release))
		}
	}
	if len(table.Rows) == 0 {
		return noMatch(len(all), "release", s.address("/"))
	}
	return table.Node()
}

func (s *Site) releaseRow(release state.ListedRelease) []g.Node {
	word := g.Group{look.State(releaseTone(release.State, release.Percent != nil), string(release.State))}
	if release.State == state.ReleaseApplying && release.Percent != nil {
		word = append(word, look.Progress("Progress of release "+release.Release, *release.Percent, 100,
			fmt.Sprintf("%d%%", *release.Percent)))
	}
	now, age := s.Hub.Cluster.Now(), g.Node(g.Text("-"))
	if release.Since != nil {
		age = look.Age(now, *release.Since)
	}
	problems := g.Group{g.Text("-")}
	if count := len(release.Problems); count > 0 {
		problems = g.Group{look.Prose(now, release.Problems[0]), look.More(count-1, "problem")}
	}
	for _, what := range release.Unknown[:min(maxNamed, len(release.Unknown))] {
		problems = append(problems, h.P(g.Text("Not known: "), look.Text(what)))
	}
	return []g.Node{
		look.Link{Text: release.Release,
			Address: s.releaseAddress(release.Namespace, release.Release, "")}.Node(),
		look.Text(release.Namespace), look.Text(cmp.Or(release.Version, "-")), word, age,
		g.Text(string(release.KeptBy)), g.Text(strconv.Itoa(release.Deletes)), problems,
	}
}
