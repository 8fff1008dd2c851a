package pages

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/session/progress"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/ui/live"
	"github.com/runlevel/runlevel/internal/ui/look"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/graph/draw"
)

const (
	// maxComponents limits the rows of a level: the worst come first.
	maxComponents = 50
	// maxFinished is the number of components up to which the page also has the rows of levels that are done.
	maxFinished = 300
	// maxWaits limits the reasons in a row.
	maxWaits = 3
)

// graphSection returns the graph of a release as a picture, and the same as a table: for narrow pages, for the
// keyboard, and for screen readers.
func (s *Site) graphSection(r *live.Release, query url.Values) look.Section {
	view := &graphView{site: s, release: r, waits: waitsOf(r), parts: partsOf(r.Status.Objects)}
	section := look.Section{ID: "graph", Title: "Graph"}
	switch {
	case r.Graph != nil && len(r.Nodes) == len(r.Graph.Nodes):
		view.draw(query)
		view.addNodes()
		section.Body = append(section.Body, g.Raw(view.picture.Embedded()), view.toggle())
	default:
		if r.Unread != "" && (r.Status.State != "" || r.Status.Progress != nil) {
			section.Body = append(section.Body, look.Notice(look.Unknown, look.Text(
				"The files of the release cannot be read, so the graph is not known: "+r.Unread)))
		}
		view.addLevels()
	}
	if section.Body == nil && view.rows == nil {
		return look.Section{ID: "graph"}
	}
	section.Body = append(section.Body, view.table()...)
	return section
}

// A graphView is the graph of a release in a page.
type graphView struct {
	site    *Site
	release *live.Release
	waits   map[kinds.ID]string
	picture draw.Picture
	parts   releaseParts
	rows    []*graphRow
}

// A graphRow is a component of a level.
type graphRow struct {
	level, component string
	state            draw.State
	nodes            []int // empty without the files of the release
}

// stateOf returns a state in the words of a page.
func stateOf(node live.NodeState) draw.State {
	state := draw.State{Tone: look.Unknown, Word: "unknown", Done: node.Done, Total: node.Total}
	switch node.Phase {
	case live.Done:
		state.Tone, state.Word = look.Good, "done"
	case live.Running:
		state.Tone, state.Word = look.Active, "running"
	case live.Waits:
		state.Tone, state.Word = look.Waiting, "waiting"
	case live.Failed:
		state.Tone, state.Word = look.Bad, "failed"
	case live.Blocked:
		state.Tone, state.Word = look.Later, "later"
	}
	return state
}

// draw makes the picture.
func (v *graphView) draw(query url.Values) {
	v.picture = draw.Picture{
		Graph: v.release.Graph, Mode: graph.Mode(v.release.Status.Mode),
		Link:     func(node int) string { return v.addressOf(node) },
		Unfolded: query.Get("graph") == "all",
		Unfold:   v.site.releaseAddress(v.release.Namespace, v.release.Status.Release, "", "graph", "all"),
	}
	for _, node := range v.release.Nodes {
		state := stateOf(node)
		switch {
		case v.release.Status.Uninstall != nil && node.Phase == live.Done:
			state.Word = "deleted"
		case v.release.Status.Progress == nil && node.Phase == live.Failed:
			state.Word = "missing"
		}
		v.picture.States = append(v.picture.States, state)
	}
}

// toggle returns the link that folds or unfolds the picture, if there are many nodes.
func (v *graphView) toggle() g.Node {
	link := look.Link{Text: "Show all nodes", Address: v.picture.Unfold}
	if v.picture.Unfolded {
		link.Text = "Fold finished levels"
		link.Address = v.site.releaseAddress(v.release.Namespace, v.release.Status.Release, "")
	}
	nodes := 0
	for _, node := range v.release.Graph.Nodes {
		nodes += min(len(node.Tasks), 1)
	}
	return g.If(nodes > draw.MaxUnfolded && link.Address != "", h.P(h.Class("unfold"), link.Node()))
}

// addressOf returns the address of the objects of nodes of a component.
func (v *graphView) addressOf(nodes ...int) string {
	if len(nodes) == 0 {
		return v.objects()
	}
	level, component := v.picture.Names(nodes[0])
	task := v.release.Graph.Tasks[v.release.Graph.Nodes[nodes[0]].Tasks[0]]
	name := graph.ParseName(task.File())
	if name.Level != level { // of several levels
		name.Level = ""
	}
	if name.Component != component && !graph.IsBarrier(task) { // of several components
		name.Component = ""
	}
	return v.objects("level", name.Level, "component", name.Component)
}

func (v *graphView) objects(filters ...string) string {
	return v.site.releaseAddress(v.release.Namespace, v.release.Status.Release, "objects", filters...)
}

// addNodes adds a row for each component of a level, which may have several nodes, in the order of the files.
func (v *graphView) addNodes() {
	home, tasks := map[[2]string]*graphRow{}, map[*graphRow]int{}
	for i, node := range v.release.Graph.Nodes {
		if len(node.Tasks) == 0 {
			continue
		}
		level, component := v.picture.Names(i)
		row := home[[2]string{level, component}]
		if row == nil {
			row = &graphRow{level: level, component: component, state: v.picture.States[i]}
			home[[2]string{level, component}], tasks[row] = row, node.Tasks[0]
			v.rows = append(v.rows, row)
		} else {
			row.state = sum(row.state, v.picture.States[i])
			tasks[row] = min(tasks[row], node.Tasks[0])
		}
		row.nodes = append(row.nodes, i)
	}
	slices.SortFunc(v.rows, func(a, b *graphRow) int { return cmp.Compare(tasks[a], tasks[b]) })
}

// sum returns the state of two nodes: the more urgent tone, and all manifests.
func sum(a, b draw.State) draw.State {
	isPartly := a.Tone == look.Good && b.Tone == look.Later || a.Tone == look.Later && b.Tone == look.Good
	if draw.CompareUrgency(b.Tone, a.Tone) < 0 {
		a.Tone, a.Word = b.Tone, b.Word
	}
	if isPartly {
		a.Word = "partly done"
	}
	a.Done += b.Done
	a.Total += b.Total
	return a
}

// addLevels adds the rows of the progress, without the files of the release.
func (v *graphView) addLevels() {
	if v.release.Status.Progress == nil {
		return
	}
	for _, level := range v.release.Status.Progress.Levels {
		for _, c := range level.Components {
			v.rows = append(v.rows, &graphRow{level: cmp.Or(level.Name, "-"), component: c.Name,
				state: stateOf(nodeOf(c))})
		}
	}
}

func nodeOf(c progress.Component) live.NodeState {
	node := live.NodeState{Phase: live.Blocked, Total: c.Total, Done: c.Done, Waiting: c.Waiting, Failed: c.Failed}
	switch {
	case c.Failed > 0:
		node.Phase = live.Failed
	case c.Done == c.Total:
		node.Phase = live.Done
	case c.Waiting > 0:
		node.Phase = live.Waits
	case c.IsRunning || c.Done > 0:
		node.Phase = live.Running
	}
	return node
}

// waitsOf returns what objects wait for, or why they have failed.
func waitsOf(r *live.Release) map[kinds.ID]string {
	waits := map[kinds.ID]string{}
	for _, answer := range r.Status.Objects {
		text := answer.For
		if text == "" && len(answer.Messages) > 0 {
			text = answer.Messages[0].Text
		}
		if text != "" && !answer.Done {
			waits[answer.Object] = text
		}
	}
	for _, id := range r.Status.MissingObjects {
		waits[id] = deletedSince
	}
	if r.Status.Progress != nil {
		for _, wait := range r.Status.Progress.Waits {
			waits[wait.ID] = wait.For
		}
	}
	return waits
}

// A levelView is a level in the table.
type levelView struct {
	name       string
	components []*graphRow
	state      draw.State // of all components
}

// levels returns the rows by level.
func (v *graphView) levels() []levelView {
	var levels []levelView
	for _, row := range v.rows {
		if last := len(levels) - 1; last >= 0 && levels[last].name == row.level {
			levels[last].components = append(levels[last].components, row)
			levels[last].state = sum(levels[last].state, row.state)
		} else {
			levels = append(levels, levelView{row.level, []*graphRow{row}, row.state})
		}
	}
	return levels
}

// table returns the levels. Neighbours that are done, or that come later, are folded.
func (v *graphView) table() g.Group {
	var nodes g.Group
	levels := v.levels()
	for first := 0; first < len(levels); {
		end, state, components := first+1, levels[first].state, len(levels[first].components)
		for end < len(levels) && isFolded(state) && levels[end].state.Word == state.Word {
			state = sum(state, levels[end].state)
			components += len(levels[end].components)
			end++
		}
		all := g.Map(levels[first:end], v.level)
		if len(all) > 3 {
			title := "Levels " + levels[first].name + "–" + levels[end-1].name
			all = g.Group{folded(look.ID("graph-levels", levels[first].name), title, state, components, all)}
		}
		nodes = append(nodes, all...)
		first = end
	}
	return nodes
}

// isFolded reports whether the components of a level are of no interest now.
func isFolded(state draw.State) bool {
	return state.Tone == look.Good || state.Tone == look.Later && state.Done == 0
}

// folded returns levels, or the components of one, below a line that describes them.
func folded(id, title string, state draw.State, components int, content ...g.Node) g.Node {
	return h.Details(h.ID(id), g.If(!isFolded(state), g.Attr("open")),
		h.Summary(h.Strong(look.Text(title)), look.State(state.Tone, state.Word),
			h.Span(h.Class("soft"), g.Text(printable.Count(components, "component")+", "+counts(state)))),
		g.Group(content))
}

// level returns a level with its components, the worst first.
func (v *graphView) level(level levelView) g.Node {
	rows := slices.Clone(level.components)
	slices.SortStableFunc(rows, func(a, b *graphRow) int { return draw.CompareUrgency(a.state.Tone, b.state.Tone) })
	isShown := level.state.Tone != look.Good || len(v.rows) <= maxFinished
	table := look.Table{Caption: "Components of level " + level.name,
		Columns: []string{"Component", "State", "Done", "Reason"}}
	for _, row := range rows[:min(len(rows), maxComponents)] {
		table.Rows = append(table.Rows, []g.Node{
			look.Link{Text: printable.Line(row.component), Address: v.addressOf(row.nodes...)}.Node(),
			look.State(row.state.Tone, row.state.Word),
			g.Text(counts(row.state)),
			v.reasons(row),
		})
	}
	more := g.Node(nil)
	if !isShown || len(rows) > maxComponents {
		all := look.Link{Text: "All objects of level " + level.name, Address: v.objects("level", level.name)}
		more = h.P(all.Node())
	}
	return folded(look.ID("graph-level", level.name), levelTitle(level.name), level.state, len(rows),
		g.Iff(isShown, table.Node), more)
}

func levelTitle(level string) string {
	if level == "-" {
		return "No level"
	}
	return "Level " + level
}

func counts(state draw.State) string {
	return fmt.Sprintf("%d of %s", state.Done, printable.Count(state.Total, "manifest"))
}

// reasons returns the objects of a component that wait or have failed, or else those that hold it up.
func (v *graphView) reasons(row *graphRow) g.Node {
	var lines g.Group
	var parts []string
	if len(row.nodes) == 0 { // without the files, a component is known by its name
		parts = append(parts, "level "+row.level+", "+row.component)
	}
	for _, node := range row.nodes {
		for _, task := range v.release.Graph.Nodes[node].Tasks {
			id := kinds.IDOf(v.release.Graph.Tasks[task].Object())
			if wait := v.waits[id]; wait != "" {
				lines = append(lines, v.reason(id, nil, wait))
			}
			if part, isBlocked := v.parts.blocked[id]; isBlocked && !slices.Contains(parts, part) {
				parts = append(parts, part)
			}
		}
	}
	if len(lines) == 0 {
		for _, a := range v.parts.holders(parts...) {
			lines = append(lines, v.reason(a.Object, a.Since, cmp.Or(a.For, a.State.Text())))
		}
	}
	return append(lines[:min(maxWaits, len(lines))], look.More(len(lines)-maxWaits, "object"))
}

// maxReason limits the characters of a reason: the list of what needs attention has all.
const maxReason = 120

// reason returns an object with the reason why it is not done.
func (v *graphView) reason(id kinds.ID, since *time.Time, text string) g.Node {
	now, age := v.release.Status.Time, g.Node(nil)
	if since != nil {
		age = g.Group{g.Text(", for "), look.Age(now, *since)}
	}
	return h.P(v.site.objectLink(v.release, id), age, g.Text(": "), look.Prose(now, printable.Shorten(text, maxReason)))
}
