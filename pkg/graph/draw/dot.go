package draw

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/runlevel/runlevel/pkg/graph"
)

// DOT writes the graph for Graphviz, in the form of the cluster-version operator's
// own tool: the same nodes, labels and edges. Dependencies are dashed.
func (p Picture) DOT(out io.Writer) error {
	w := bufio.NewWriter(out)
	fmt.Fprint(w, "digraph tasks {\n  labelloc=t;\n  rankdir=TB;\n")
	for i, node := range p.Graph.Nodes {
		fmt.Fprintf(w, "  %d [ label=\"%s\" shape=\"box\" ];\n", i, p.dotLabel(node))
	}
	p.writeEdges(w, "  %d -> %d;\n", "  %d -> %d [ style=\"dashed\" constraint=\"false\" ];\n")
	fmt.Fprint(w, "}\n")
	return w.Flush()
}

func (p Picture) dotLabel(node graph.Node) string {
	if len(node.Tasks) == 0 {
		return "no manifests"
	}
	var lines []string
	for _, task := range node.Tasks {
		for _, step := range StepsOf(p.Graph.Tasks[task]) {
			label := strings.NewReplacer(`"`, "", `\`, `\\`).Replace(step.Label())
			if step.Hook == "" {
				label = fmt.Sprintf("%s (%d of %d)", label, task+1, len(p.Graph.Tasks))
			}
			lines = append(lines, label)
		}
	}
	return strings.Join(lines, `\n`)
}
