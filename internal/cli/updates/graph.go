package updates

import (
	"fmt"
	"html"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/updates/graphdata"
	"github.com/runlevel/runlevel/internal/updates/phase"
)

// The formats of a graph, besides text and JSON.
const (
	asDOT core.Output = "dot"
	asSVG core.Output = "svg"
)

// graphFlags are the flags of runlevel updates graph.
type graphFlags struct {
	channel, arch string
	format        core.Output
}

// newGraph returns the verb graph.
func newGraph(streams core.Streams) *cobra.Command {
	var f graphFlags
	command := &cobra.Command{
		Use:   "graph DIR",
		Short: "Draw the updates of a channel, as they are open now",
		Long: `Draw the versions of a channel and the updates between them: those that are open for all clusters,
those with risks, those in phases with the share of the clusters that may take them now, and those
that are halted; and barriers and dead ends with their reasons. JSON is what clients get.

Exit codes: 0; 2 if the folder can't be used, or lacks the channel.

` + folderHelp,
		Example: `  runlevel updates graph ./graph-data --channel stable

  runlevel updates graph ./graph-data --channel stable -o svg > stable.svg`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeFolder(nil),
		RunE: func(_ *cobra.Command, args []string) error {
			data, err := read(args[0])
			if err != nil {
				return err
			}
			names := data.ChannelNames()
			if !slices.Contains(names, f.channel) {
				return core.Misusef("--channel %q: the channels are %s", f.channel, core.Join(names))
			}
			architectures := data.Architectures()
			if f.arch == "" && len(architectures) > 0 {
				f.arch = architectures[0]
			}
			graph := data.Graph(f.channel, f.arch, time.Now())
			p := newPicture(fmt.Sprintf("%s, %s", f.channel, f.arch), graph, time.Now())
			draw := map[core.Output]func(io.Writer) error{core.Text: p.text, asDOT: p.dot, asSVG: p.svg}[f.format]
			if draw == nil {
				return f.format.PrintWhole(streams.Out, graph, nil)
			}
			return draw(streams.Out)
		},
	}
	core.AddOutput(command, &f.format, core.Text, core.JSON, core.YAML, asDOT, asSVG)
	command.Flags().StringVar(&f.channel, "channel", "", "the `name` of the channel")
	command.Flags().StringVar(&f.arch, "arch", "", "the `architecture` of the clusters (default: the first one)")
	for flag, words := range map[string]func(*graphdata.Data) []string{
		"channel": (*graphdata.Data).ChannelNames, "arch": (*graphdata.Data).Architectures,
	} {
		_ = command.RegisterFlagCompletionFunc(flag, func(c *cobra.Command, args []string,
			word string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return completeFolder(words)(c, args, word)
		})
	}
	return command
}

// A look is how an update is drawn.
type look struct{ color, dash string }

var (
	openLook   = look{"#3b4453", ""}
	riskLook   = look{"#8a4b00", "6 3"}
	phaseLook  = look{"#1a56c4", "2 3"}
	haltedLook = look{"#b3211a", "1 4"}
)

// A line is an update, by indexes of nodes.
type line struct {
	from, target int
	look         look
	label        string
}

// A picture is a graph as it is drawn.
type picture struct {
	title string
	nodes []graphdata.Node
	lines []line
}

func newPicture(title string, graph *graphdata.Graph, now time.Time) *picture {
	p := &picture{title: title, nodes: graph.Nodes}
	indexes := map[string]int{}
	for i, node := range graph.Nodes {
		indexes[node.Version] = i
	}
	add := func(edges []phase.Edge, look look, label string) {
		for _, edge := range edges {
			p.lines = append(p.lines, line{indexes[edge.From], indexes[edge.To], look, printable.Line(label)})
		}
	}
	for _, edge := range graph.Edges {
		p.lines = append(p.lines, line{edge[0], edge[1], openLook, ""})
	}
	for _, group := range graph.ConditionalEdges {
		var names []string
		for _, risk := range group.Risks {
			names = append(names, risk.Name)
		}
		add(group.Edges, riskLook, "risk "+strings.Join(names, ", "))
	}
	for _, group := range graph.PhasedEdges {
		if group.Halt != "" {
			add(group.Edges, haltedLook, "halted: "+group.Halt)
			continue
		}
		label := "open for " + shareOf(group.Ramp, now)
		for _, ring := range slices.Sorted(maps.Keys(group.Rings)) {
			label += ", ring " + ring + " " + shareOf(group.Rings[ring], now)
		}
		add(group.Edges, phaseLook, label)
	}
	slices.SortStableFunc(p.lines, func(a, b line) int {
		return (a.from-b.from)*len(p.nodes) + a.target - b.target
	})
	return p
}

// shareOf returns the share of clusters for which a ramp is open now, and when it begins or is open for all.
func shareOf(ramp phase.Ramp, now time.Time) string {
	share := fmt.Sprintf("%.0f %%", 100*ramp.Share(now))
	end := ramp.Start.Add(ramp.Duration.Duration)
	switch {
	case ramp.Start.IsZero():
	case now.Before(ramp.Start.Time):
		share += " (from " + ramp.Start.UTC().Format(time.RFC3339) + ")"
	case now.Before(end):
		share += " (all at " + end.UTC().Format(time.RFC3339) + ")"
	}
	return share
}

// notes returns the reasons why a version is a barrier or a dead end.
func notes(node graphdata.Node) (notes []string) {
	for key, word := range map[string]string{graphdata.BarrierKey: "barrier", graphdata.DeadEndKey: "dead end"} {
		if reason := node.Metadata[key]; reason != "" {
			notes = append(notes, printable.Line(word+": "+reason))
		}
	}
	return notes
}

func (p *picture) text(out io.Writer) error {
	lines := []string{fmt.Sprintf("%s: %s, %s", p.title, printable.Count(len(p.nodes), "version"),
		printable.Count(len(p.lines), "update"))}
	for i, node := range p.nodes {
		lines = append(lines, strings.Join(append([]string{node.Version}, notes(node)...), "  "))
		for _, l := range p.lines {
			if l.from == i {
				lines = append(lines, strings.TrimRight("  -> "+p.nodes[l.target].Version+"  "+l.label, " "))
			}
		}
	}
	return core.PrintLines(out, lines)
}

func (p *picture) dot(out io.Writer) error {
	lines := []string{"digraph updates {", `  rankdir="LR"`, `  node [ shape="box" fontname="sans-serif" ];`}
	for i, node := range p.nodes {
		label := strings.Join(append([]string{node.Version}, notes(node)...), "\n")
		lines = append(lines, fmt.Sprintf("  %d [ label=%q ];", i, label))
	}
	for _, l := range p.lines {
		style := "solid"
		if l.look != openLook {
			style = "dashed"
		}
		lines = append(lines, fmt.Sprintf("  %d -> %d [ label=%q color=%q style=%q ];", l.from, l.target, l.label,
			l.look.color, style))
	}
	return core.PrintLines(out, append(lines, "}"))
}

// svg draws a column for each minor version, and below them what lines and versions mean.
func (p *picture) svg(out io.Writer) error {
	const width, height, gap, column = 130, 26, 18, 240
	x, y := make([]int, len(p.nodes)), make([]int, len(p.nodes))
	minor, row, bottom, right := "", 0, 0, -column+20
	var texts []string
	seen := map[string]bool{}
	note := func(text, color string) {
		if text != "" && !seen[text] {
			seen[text] = true
			texts = append(texts, fmt.Sprintf(`<tspan x="20" dy="18" fill="%s">%s</tspan>`, color, html.EscapeString(text)))
		}
	}
	var boxes, paths strings.Builder
	for i, node := range p.nodes {
		parts := strings.SplitN(node.Version, ".", 3)
		if next := strings.Join(parts[:2], "."); next != minor {
			minor, row, right = next, 0, right+column
		}
		x[i], y[i] = right, 50+row*(height+gap)
		row, bottom = row+1, max(bottom, y[i]+height)
		color, fill := openLook.color, "#f5f7fa"
		if all := notes(node); len(all) > 0 {
			color, fill = haltedLook.color, "#fdeae8"
			note(node.Version+" "+strings.Join(all, ", "), color)
		}
		fmt.Fprintf(&boxes, `<rect x="%d" y="%d" width="%d" height="%d" rx="4" fill="%s" stroke="%s"/>`+
			`<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", x[i], y[i], width, height, fill, color,
			x[i]+width/2, y[i]+height/2+4, html.EscapeString(printable.Shorten(node.Version, 18)))
	}
	for _, l := range p.lines {
		x1, y1, x2, y2 := x[l.from]+width, y[l.from]+height/2, x[l.target], y[l.target]+height/2-4
		bend1, bend2 := x1+50, x2-50
		if x[l.from] == x[l.target] {
			x2 += width
			bend1 = x1 + 16 + min(max(y2-y1, y1-y2)/4, 60)
			bend2 = bend1
		}
		title := p.nodes[l.from].Version + " to " + p.nodes[l.target].Version
		fmt.Fprintf(&paths, `<path d="M%d %dC%d %d %d %d %d %d" stroke="%s" stroke-dasharray="%s" `+
			`marker-end="url(#arrow)"><title>%s</title></path>`+"\n", x1, y1, bend1, y1, bend2, y2, x2, y2, l.look.color,
			l.look.dash, html.EscapeString(strings.TrimSpace(title+" "+l.label)))
		note(l.label, l.look.color)
	}
	_, err := fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" `+
		`font-size="12"><rect width="100%%" height="100%%" fill="#ffffff"/>
<marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">`+
		`<path d="M0 0L8 4L0 8z" fill="#3b4453"/></marker>
<text x="20" y="28" font-size="16">%s</text>
<g fill="none" stroke-width="1.5">
%s</g>
%s<text y="%d">%s</text>
</svg>
`, max(right+column, 600), bottom+40+18*len(texts), html.EscapeString(p.title), &paths, &boxes, bottom+14,
		strings.Join(texts, ""))
	return err
}
