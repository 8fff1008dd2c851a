package review

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/review/referrers"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/graph/draw"
	"github.com/runlevel/runlevel/pkg/payload"
)

// The formats of a graph, besides text and JSON.
const (
	asDOT     core.Output = "dot"
	asMermaid core.Output = "mermaid"
	asSVG     core.Output = "svg"
)

// graphFlags are the flags of runlevel graph.
type graphFlags struct {
	release   core.ReleaseFlags
	cluster   core.ClusterFlags
	format    core.Output
	mode      graph.Mode
	edges     string
	attempt   int
	manifests bool

	references bool
}

const graphHelp = `Draw the order in which a release is applied: levels one after the other, the
components of a level side by side, and nothing past a Job before it is done. It is
the graph of OpenShift's cluster-version operator, node by node. An install or a
reconciliation starts all components at once.

With --edges=all it also shows, dashed, the dependencies between objects, which Runlevel
respects when it applies them: a custom resource waits for its
CustomResourceDefinition, an object for its Namespace, a webhook for its Service.

Lifecycle hooks of a Deployment run before and after it at its place, one after the other;
--manifests lists them.

With --references it shows who refers to whom instead: which objects need which others, which
objects controllers create, and which are not in the release.

` + core.SourceHelp

const graphExamples = `  # What runs side by side?
  runlevel graph ./release --profile self-managed-high-availability

  # A picture for a document, and one for Graphviz
  runlevel graph ./release -o svg > release.svg
  runlevel graph ./release -o dot | dot -Tpng > release.png

  # Which objects would wait in an install, besides the order of files?
  runlevel graph ./release --mode install --edges all

  # Who needs the Secret tls, and which objects are not in the release?
  runlevel graph ./release --references | grep 'Secret shop/tls'
  runlevel graph ./release --references | grep 'not in the release'`

// NewGraph returns the verb graph.
func NewGraph(streams core.Streams) *cobra.Command {
	f := graphFlags{mode: graph.Update, edges: "files"}
	command := &cobra.Command{
		Use:               "graph SOURCE",
		Short:             "Draw the order in which a release is applied",
		Long:              graphHelp,
		Example:           graphExamples,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: core.CompleteSource,
		RunE: func(command *cobra.Command, args []string) error {
			for _, name := range []string{"mode", "edges", "attempt", "manifests"} {
				if f.references && command.Flags().Changed(name) {
					return core.Misusef("--references shows no order: leave out --%s", name)
				}
			}
			return f.run(command.Context(), args[0], streams)
		},
	}
	core.AddReleaseFlags(command, &f.release, &f.cluster)
	core.AddKubectlFlags(command, &f.release)
	core.AddClusterFlags(command, &f.cluster)
	core.AddOutput(command, &f.format, core.Text, core.JSON, core.YAML, asDOT, asMermaid, asSVG)
	core.AddChoice(command, &f.mode, "mode", "order of an update, an install or a reconcile", graph.Update,
		graph.Install, graph.Reconcile)
	core.AddChoice(command, &f.edges, "edges", "files: the order of the files; all: also dependencies between objects",
		"files", "all")
	command.Flags().IntVar(&f.attempt, "attempt", 0,
		"the number of the attempt of a reconciliation: each has another order")
	command.Flags().BoolVar(&f.manifests, "manifests", false, "list every manifest (in text)")
	command.Flags().BoolVar(&f.references, "references", false, "show references between objects instead of the order")
	return command
}

// run reads a release, and draws it.
func (f *graphFlags) run(ctx context.Context, ref string, streams core.Streams) error {
	switch {
	case f.attempt < 0:
		return core.Misusef("--attempt %d: attempts are counted from 0", f.attempt)
	case f.attempt > 0 && f.mode != graph.Reconcile:
		return core.Misusef("--attempt needs --mode reconcile: other modes have only one order")
	case f.references && f.format == asSVG:
		return core.Misusef("--references is not drawn as svg: use -o dot, and Graphviz")
	}
	release, problems, err := f.release.Parse(ctx, ref, streams.Err)
	if err != nil {
		return err
	}
	// Duplicates can be drawn, and a picture may help to find them.
	problems = core.TolerateDuplicates(problems)
	if err := f.release.Accept(ref, release, problems, streams.Err); err != nil {
		return err
	}
	core.WarnIfEmpty(streams.Err, release)
	if f.references {
		return f.drawReferences(streams, release)
	}
	return f.draw(streams, ref, release)
}

// drawReferences prints the references between the objects of a release.
func (f *graphFlags) drawReferences(streams core.Streams, release *payload.Payload) error {
	report := referrers.Of(release)
	write := report.Text
	switch f.format {
	case asDOT:
		write = report.DOT
	case asMermaid:
		write = report.Mermaid
	}
	return f.format.PrintWhole(streams.Out, report, write)
}

// draw prints the graph of a release.
func (f *graphFlags) draw(streams core.Streams, ref string, release *payload.Payload) error {
	g := graph.Build(release.Manifests, graph.Options{Mode: f.mode, Attempt: f.attempt})
	picture := draw.Picture{
		Graph:     g,
		Mode:      f.mode,
		Title:     title(ref, release, f.mode),
		Manifests: f.manifests,
		Reasons:   reasonsOf(release),
	}
	if f.edges == "all" {
		respected := graph.Build(release.Manifests, graph.Options{Mode: f.mode, Attempt: f.attempt, Implied: true})
		picture.Dependencies = respected.Implied
		for _, c := range respected.Conflicts {
			fmt.Fprintf(streams.Err, "warning: %s comes before %s, though %s: the order of the files wins\n",
				graph.Label(g.Tasks[c.Task]), graph.Label(g.Tasks[c.Needs]), c.Why)
		}
	}
	render := map[core.Output]func(io.Writer) error{
		asDOT: picture.DOT, asMermaid: picture.Mermaid, asSVG: picture.SVG, core.Text: picture.Text,
	}
	write, isPicture := render[f.format]
	if !isPicture {
		return f.format.Print(streams.Out, newGraphInfo(release, picture, f.mode), nil)
	}
	return f.format.PrintWhole(streams.Out, nil, write)
}

// reasonsOf returns the annotations of other tools from which the levels of manifests follow.
func reasonsOf(release *payload.Payload) map[graph.Task]string {
	reasons := map[graph.Task]string{}
	for _, m := range release.Manifests {
		if reason := m.Foreign().Reason(); reason != "" {
			reasons[m] = reason
		}
	}
	return reasons
}

func title(ref string, release *payload.Payload, mode graph.Mode) string {
	switch {
	case release.Version != "" && release.Name != "" && release.Name != payload.DefaultName:
		ref = release.Name + " " + release.Version
	case release.Version != "":
		ref = "release " + release.Version
	case release.Name != "":
		ref = release.Name
	}
	return fmt.Sprintf("%s, %s", ref, mode)
}

// GraphInfo is a graph in JSON or YAML.
type GraphInfo struct {
	Name         string           `json:"name,omitempty"`
	Version      string           `json:"version,omitempty"`
	Mode         graph.Mode       `json:"mode"`
	Tasks        []taskInfo       `json:"tasks"`
	Nodes        []nodeInfo       `json:"nodes"`
	Dependencies []dependencyInfo `json:"dependencies,omitempty"`
}

// taskInfo is a manifest and its place in the release.
type taskInfo struct {
	File      string `json:"file"`
	Line      int    `json:"line"`
	Document  int    `json:"document"`
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Level     string `json:"level,omitempty"`
	Component string `json:"component,omitempty"`
	// LevelReason is the annotation of another tool that the level follows from.
	LevelReason string `json:"levelReason,omitempty"`
	Tombstone   bool   `json:"tombstone,omitempty"`
	// Steps of a Deployment with lifecycle hooks, in order: pre, mid, object, post.
	Steps []string `json:"steps,omitempty"`
}

type nodeInfo struct {
	Tasks []int `json:"tasks"` // places in tasks, from 0
	After []int `json:"after"` // places in nodes that must be done before
}

type dependencyInfo struct {
	Task  int    `json:"task"`
	Needs int    `json:"needs"`
	Why   string `json:"why"`
}

func newGraphInfo(release *payload.Payload, picture draw.Picture, mode graph.Mode) GraphInfo {
	info := GraphInfo{Name: release.Name, Version: release.Version, Mode: mode, Tasks: []taskInfo{}}
	for _, m := range release.Manifests {
		info.Tasks = append(info.Tasks, newTaskInfo(m))
	}
	for _, node := range picture.Graph.Nodes {
		info.Nodes = append(info.Nodes, nodeInfo{Tasks: notNil(node.Tasks), After: notNil(node.In)})
	}
	for _, d := range picture.Dependencies {
		info.Dependencies = append(info.Dependencies, dependencyInfo(d))
	}
	return info
}

func newTaskInfo(m *payload.Manifest) taskInfo {
	id, name := m.ID(), graph.ParseName(m.File())
	info := taskInfo{
		File: m.Path, Line: m.Line, Document: m.Document, Group: id.Group, Kind: id.Kind, Namespace: id.Namespace,
		Name:  id.Name,
		Level: name.Level, Component: name.Component, LevelReason: m.Foreign().Reason(), Tombstone: m.IsTombstone(),
	}
	if steps := draw.StepsOf(m); len(steps) > 1 {
		for _, step := range steps {
			info.Steps = append(info.Steps, cmp.Or(string(step.Hook), "object"))
		}
	}
	return info
}

func notNil(list []int) []int {
	if list == nil {
		return []int{}
	}
	return list
}
