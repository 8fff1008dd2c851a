package pages

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/session/state"
	"github.com/runlevel/runlevel/internal/session/why"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/ui/live"
	"github.com/runlevel/runlevel/internal/ui/look"
	"github.com/runlevel/runlevel/pkg/graph"
)

// maxOnPage limits the objects on a page.
const maxOnPage = 100

// objects returns the objects of a release, by state, kind, component and words of a search: the worst first.
func (s *Site) objects(ctx context.Context, namespace, name string, query url.Values) (*Content, error) {
	release, err := s.Hub.Release(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	content := s.contentOf(namespace, name, "Objects of release "+name)
	list, err := release.Objects()
	if err != nil {
		content.add("objects", "", messages(release.Status.Time, release.Status.Messages), h.P(look.Text(err.Error())))
		return content, nil
	}
	all := rowsOf(release, list)
	shown := slices.DeleteFunc(slices.Clone(all), func(row objectRow) bool { return !row.fits(query) })
	filters := make([]filter, len(objectFilters))
	for i, field := range objectFilters {
		filters[i].name = field
		for _, row := range all {
			filters[i].values = append(filters[i].values, row.value(field))
		}
	}
	content.Sections = append(content.Sections,
		s.filterSection(s.releaseAddress(namespace, name, "objects"), query, filters...))
	content.add("objects", "", s.objectTable(release, shown, len(all), query)...)
	notes := slices.Clone(list.Unknown)
	if list.Missing > 0 {
		notes = append(notes, fmt.Sprintf("the names of %s, deleted since the release was applied",
			printable.Count(list.Missing, "object")))
	}
	if len(notes) > 0 {
		content.add("unknown", "Not known", look.List(notes))
	}
	return content, nil
}

// An objectRow is an object in the table.
type objectRow struct {
	state.Object
	place graph.Name // level and component; empty if the files of the release are not known
	rank  int        // the worst first
}

// rowsOf returns the rows of all objects. The status of the release has those that are not in their wanted state, the
// worst first; the others follow, by kind and name.
func rowsOf(release *live.Release, list *state.ObjectList) []objectRow {
	places, ranks := map[kinds.ID]graph.Name{}, map[kinds.ID]int{}
	if release.Payload != nil {
		for _, m := range release.Payload.Manifests {
			places[m.ID()] = graph.ParseName(m.File())
		}
	}
	bad := len(release.Status.Objects)
	for i, answer := range release.Status.Objects {
		ranks[answer.Object] = i - bad
	}
	var rows []objectRow
	for _, object := range list.Objects {
		row := objectRow{Object: object, place: places[object.Object], rank: ranks[object.Object]}
		if row.rank == 0 && object.State != why.Ready {
			row.rank = -bad - 1
		}
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(a, b objectRow) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), kinds.Compare(a.Object.Object, b.Object.Object))
	})
	return rows
}

// objectFilters are the columns that a query may have a value of.
var objectFilters = []string{"kind", "state", "level", "component"}

// value returns the value of one of the objectFilters.
func (r objectRow) value(field string) string {
	switch field {
	case "kind":
		return r.Object.Object.GroupKind().String()
	case "state":
		return r.State.Text()
	case "level":
		return r.place.Level
	default:
		return r.place.Component
	}
}

// fits reports whether the filters of a query let a row through.
func (r objectRow) fits(query url.Values) bool {
	id := r.Object.Object
	return hasWords(query, id.GroupKind().String(), id.Namespace, id.Name, r.Message) &&
		!slices.ContainsFunc(objectFilters, func(field string) bool {
			wanted := query.Get(field)
			return wanted != "" && wanted != r.value(field)
		})
}

// objectTable returns the rows of one page, their number, and links to the pages beside it.
func (s *Site) objectTable(release *live.Release, rows []objectRow, total int, query url.Values) []g.Node {
	if len(rows) == 0 && total > 0 {
		all := s.releaseAddress(release.Namespace, release.Status.Release, "objects")
		return []g.Node{noMatch(total, "object", all)}
	}
	pages := max(1, (len(rows)+maxOnPage-1)/maxOnPage)
	page, _ := strconv.Atoi(query.Get("page"))
	page = min(max(page, 1), pages)
	first := (page - 1) * maxOnPage
	table := look.Table{
		Caption: "Objects",
		Columns: []string{"Kind", "Namespace", "Name", "State", "Why", "Level", "Component", "Age"},
	}
	now := release.Status.Time
	for _, row := range rows[first:min(first+maxOnPage, len(rows))] {
		id, age := row.Object.Object, g.Node(g.Text("-"))
		if row.Created != nil {
			age = look.Age(now, *row.Created)
		}
		name := look.Link{Text: printable.Line(id.Name), Address: s.objectAddress(release, id)}
		table.Rows = append(table.Rows, []g.Node{
			look.Text(id.GroupKind().String()), look.Text(cmp.Or(id.Namespace, "-")), name.Node(),
			look.State(objectTones[row.State], row.State.Text()), look.Prose(now, row.Message),
			look.Text(row.place.Level), look.Text(row.place.Component), age,
		})
		table.IDs = append(table.IDs, objectID("object", id))
	}
	count := fmt.Sprintf("%s of %d", printable.Count(len(rows), "object"), total)
	if len(rows) == total {
		count = printable.Count(total, "object")
	}
	if pages > 1 {
		count += fmt.Sprintf(", page %d of %d", page, pages)
	}
	return []g.Node{h.P(g.Text(count)), g.If(total > 0, table.Node()), s.pageLinks(release, page, pages, query)}
}

// pageLinks returns links to the pages before and after a page; nil if there is only one.
func (s *Site) pageLinks(release *live.Release, page, pages int, query url.Values) g.Node {
	var links g.Group
	for _, other := range []struct {
		text   string
		number int
	}{{"First page", 1}, {"Previous page", page - 1}, {"Next page", page + 1}, {"Last page", pages}} {
		if other.number < 1 || other.number > pages || other.number == page {
			continue
		}
		var pairs []string
		for _, name := range append([]string{"q"}, objectFilters...) {
			pairs = append(pairs, name, query.Get(name))
		}
		pairs = append(pairs, "page", strconv.Itoa(other.number))
		address := s.releaseAddress(release.Namespace, release.Status.Release, "objects", pairs...)
		links = append(links, h.Li(look.Link{Text: other.text, Address: address}.Node()))
	}
	if len(links) == 0 {
		return nil
	}
	return h.Nav(h.Aria("label", "Pages of the table"), h.Ul(links))
}
