package updates

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/updates/graphdata"
	"github.com/runlevel/runlevel/internal/updates/phase"
	"github.com/runlevel/runlevel/internal/updates/report"
)

// asDOT is the format of Graphviz, which draws pictures.
const asDOT core.Output = "dot"

// A drawing is one run of the verb graph.
type drawing struct {
	channel, arch, reports string
	format                 core.Output
}

// newGraph returns the verb graph.
func newGraph(streams core.Streams) *cobra.Command {
	var d drawing
	command := &cobra.Command{
		Use:   "graph DIR",
		Short: "Draw the updates of a channel, as they are open now",
		Long: `Draw the versions of a channel and the updates between them: those that are open for all clusters,
those with risks, those in phases with the share of the clusters that may take them now, and those
that are halted; and barriers and dead ends with their reasons. With --reports, each version has
its number of clusters, by their last reports. Clients get the JSON output.

Exit codes: 0; 2 if the folder can't be used, or lacks the channel.

` + folderHelp,
		Example: `  runlevel updates graph ./graph-data --channel stable

  # As a picture, with the clusters
  runlevel updates graph ./graph-data --channel stable --reports reports.jsonl -o dot | dot -Tsvg > stable.svg`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeFolder(nil),
		RunE:              func(_ *cobra.Command, args []string) error { return d.run(args[0], streams) },
	}
	core.AddOutput(command, &d.format, core.Text, core.JSON, core.YAML, asDOT)
	command.Flags().StringVar(&d.channel, "channel", "", "the `name` of the channel")
	command.Flags().StringVar(&d.reports, "reports", "", "the `file` with the reports of \"runlevel updates serve\"")
	_ = command.RegisterFlagCompletionFunc("reports", core.CompleteFiles)
	command.Flags().StringVar(&d.arch, "arch", "", "the `architecture` of the clusters (default: the first one)")
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

func (d *drawing) run(folder string, streams core.Streams) error {
	data, err := read(folder)
	if err != nil {
		return err
	}
	names := data.ChannelNames()
	if !slices.Contains(names, d.channel) {
		return core.Misusef("--channel %q: the channels are %s", d.channel, core.Join(names))
	}
	if architectures := data.Architectures(); d.arch == "" && len(architectures) > 0 {
		d.arch = architectures[0]
	}
	now := time.Now()
	graph := data.Graph(d.channel, d.arch, now)
	clusters, err := countClusters(d.reports)
	switch {
	case err != nil:
		return core.Misusef("--reports: %w", err)
	case d.format == core.Text:
		return printGraph(streams.Out, d.channel+", "+d.arch, graph, linesOf(graph, now), clusters)
	case d.format == asDOT:
		return printDOT(streams.Out, graph, linesOf(graph, now), clusters)
	case d.reports != "":
		return core.Misusef("--reports is for -o text and -o dot: clients get JSON without them")
	default:
		return d.format.PrintWhole(streams.Out, graph, nil)
	}
}

// A line is an update, by indexes of nodes.
type line struct {
	from, target int
	color, label string
}

// linesOf returns the updates of a graph, by the versions that they begin at.
func linesOf(graph *graphdata.Graph, now time.Time) []line {
	var lines []line
	indexes := map[string]int{}
	for i, node := range graph.Nodes {
		indexes[node.Version] = i
	}
	add := func(edges []phase.Edge, color, label string) {
		for _, edge := range edges {
			lines = append(lines, line{indexes[edge.From], indexes[edge.To], color, printable.Line(label)})
		}
	}
	for _, edge := range graph.Edges {
		lines = append(lines, line{edge[0], edge[1], "black", ""})
	}
	for _, group := range graph.ConditionalEdges {
		var names []string
		for _, risk := range group.Risks {
			names = append(names, risk.Name)
		}
		add(group.Edges, "orange", "risk "+strings.Join(names, ", "))
	}
	for _, group := range graph.PhasedEdges {
		if group.Halt != "" {
			add(group.Edges, "red", "halted: "+group.Halt)
			continue
		}
		label := "open for " + shareOf(group.Ramp, now)
		for _, ring := range slices.Sorted(maps.Keys(group.Rings)) {
			label += ", ring " + ring + " " + shareOf(group.Rings[ring], now)
		}
		add(group.Edges, "blue", label)
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Or(a.from-b.from, a.target-b.target) })
	return lines
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

// clusters are numbers of clusters at a version.
type clusters struct{ there, updating, failed int }

// countClusters counts the clusters at each version, by their last reports in a file; none without a file.
func countClusters(file string) (map[string]clusters, error) {
	if file == "" {
		return nil, nil
	}
	if _, err := os.Stat(file); err != nil {
		return nil, err
	}
	last := map[string]*report.Report{} // by clusters
	_, err := report.Read(file, func(e report.Entry) {
		if e.Report != nil {
			last[e.ID] = e.Report
		}
	})
	counts := map[string]clusters{}
	for _, r := range last {
		version := r.Version
		if r.Condition == report.RolledBack {
			version = r.From
		}
		count := counts[version]
		switch r.Condition {
		case report.Began:
			count.updating++
		case report.Failed:
			count.failed++
		default:
			count.there++
		}
		counts[version] = count
	}
	return counts, err
}

func (c clusters) String() string {
	var parts []string
	add := func(number int, text string) {
		if number > 0 {
			parts = append(parts, printable.Count(number, "cluster")+text)
		}
	}
	add(c.there, "")
	add(c.updating, " updating to it")
	add(c.failed, " failed")
	return strings.Join(parts, ", ")
}

// describe returns a version with its clusters, and the reasons why it is a barrier or a dead end.
func describe(node graphdata.Node, all map[string]clusters) string {
	text := node.Version
	if there := all[node.Version].String(); there != "" {
		text += "  " + there
	}
	if reason := node.Metadata[graphdata.BarrierKey]; reason != "" {
		text += "  barrier: " + printable.Line(reason)
	}
	if reason := node.Metadata[graphdata.DeadEndKey]; reason != "" {
		text += "  dead end: " + printable.Line(reason)
	}
	return text
}

func printGraph(out io.Writer, title string, graph *graphdata.Graph, updates []line,
	all map[string]clusters) error {
	lines := []string{fmt.Sprintf("%s: %s, %s", title, printable.Count(len(graph.Nodes), "version"),
		printable.Count(len(updates), "update"))}
	for i, node := range graph.Nodes {
		lines = append(lines, describe(node, all))
		for ; len(updates) > 0 && updates[0].from == i; updates = updates[1:] {
			target := graph.Nodes[updates[0].target].Version
			lines = append(lines, strings.TrimRight("  -> "+target+"  "+updates[0].label, " "))
		}
	}
	return core.PrintLines(out, lines)
}

func printDOT(out io.Writer, graph *graphdata.Graph, updates []line,
	all map[string]clusters) error {
	lines := []string{"digraph updates {", `  rankdir="LR"`, `  node [ shape="box" fontname="sans-serif" ];`}
	for i, node := range graph.Nodes {
		lines = append(lines, fmt.Sprintf("  %d [ label=%q ];", i, describe(node, all)))
	}
	for _, l := range updates {
		lines = append(lines, fmt.Sprintf("  %d -> %d [ label=%q color=%q ];", l.from, l.target, l.label, l.color))
	}
	return core.PrintLines(out, append(lines, "}"))
}
