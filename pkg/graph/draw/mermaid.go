package draw

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// Mermaid writes the graph as a flowchart that Markdown can hold: one box for each
// node, with counts rather than every manifest, because renderers have limits.
func (p Picture) Mermaid(out io.Writer) error {
	w := bufio.NewWriter(out)
	if p.Title != "" {
		fmt.Fprintf(w, "---\ntitle: %q\n---\n", p.Title)
	}
	fmt.Fprint(w, "flowchart TB\n")
	for i, node := range p.Graph.Nodes {
		if len(node.Tasks) == 0 {
			fmt.Fprintf(w, "  n%d(( ))\n", i)
			continue
		}
		b := p.box(i)
		fmt.Fprintf(w, "  n%d%s\n", i, b.mermaid())
	}
	p.writeEdges(w, "  n%d --> n%d\n", "  n%d -.-> n%d\n")
	fmt.Fprint(w, paint("  classDef tombstone fill:${bad-fill},stroke:${bad},color:${bad}\n"+
		"  classDef barrier fill:${bar},color:${paper}\n  classDef deletedBarrier fill:${bad},color:${paper}\n", light))
	return w.Flush()
}

func (b box) mermaid() string {
	text := fmt.Sprintf(`%s<br>%s`, escapeMermaid(b.title()), escapeMermaid(b.count()))
	if !b.isBarrier {
		text = fmt.Sprintf(`%s · %s`, escapeMermaid(b.level()), text)
	}
	switch {
	case b.isBarrier && b.isRed():
		return fmt.Sprintf(`[["%s"]]:::deletedBarrier`, text)
	case b.isBarrier:
		return fmt.Sprintf(`[["%s"]]:::barrier`, text)
	case b.isRed():
		return fmt.Sprintf(`["%s"]:::tombstone`, text)
	default:
		return fmt.Sprintf(`["%s"]`, text)
	}
}

// escapeMermaid keeps a text from being parsed as Mermaid or HTML.
func escapeMermaid(text string) string {
	return strings.NewReplacer("#", "#35;", `"`, "#quot;", "<", "#lt;", ">", "#gt;").Replace(text)
}
