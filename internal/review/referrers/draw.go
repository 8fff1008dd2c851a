package referrers

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// Text writes a line for each reference, and then one for each object that a controller makes.
func (re Report) Text(out io.Writer) error {
	w := bufio.NewWriter(out)
	missing := 0
	for _, r := range re.References {
		verb := "needs"
		if r.NotNeeded {
			verb = "names"
		}
		fmt.Fprintf(w, "%s %s %s (%s)%s\n", r.By, verb, r.To, printable.Line(r.Field), r.origin())
		if r.Presence == Missing {
			missing++
		}
	}
	for _, made := range re.Makes {
		fmt.Fprintf(w, "%s makes %s\n", made.CreatedFor, made.Object)
	}
	fmt.Fprintf(w, "%s, %d to objects that are not in the release\n", printable.Count(len(re.References), "reference"),
		missing)
	return w.Flush()
}

// origin returns the origin of an object that is not in the release, as the end of a line.
func (r Referral) origin() string {
	switch r.Presence {
	case Made:
		return ": made by the controller of " + r.CreatedFor.String()
	case BuiltIn:
		return ": every cluster has it"
	case Deleted:
		return ": the release deletes it"
	case Missing:
		return ": not in the release"
	default:
		return ""
	}
}

// An arc leads from an object to one that it needs, or that a controller creates for it.
type arc struct {
	from, to kinds.ID
	isMade   bool
}

// arcs returns the objects of a picture, in order, and its arcs, each once.
func (re Report) arcs() (objects []kinds.ID, arcs []arc) {
	for _, r := range re.References {
		arcs = append(arcs, arc{r.By, r.To, false})
	}
	for _, made := range re.Makes {
		arcs = append(arcs, arc{made.CreatedFor, made.Object, true})
	}
	for _, a := range arcs {
		objects = append(objects, a.from, a.to)
	}
	slices.SortFunc(objects, kinds.Compare)
	slices.SortStableFunc(arcs, func(a, b arc) int {
		return cmp.Or(kinds.Compare(a.from, b.from), kinds.Compare(a.to, b.to))
	})
	return slices.Compact(objects), slices.Compact(arcs)
}

// absentObjects returns the missing and deleted objects, which pictures mark.
func (re Report) absentObjects() map[kinds.ID]bool {
	absent := map[kinds.ID]bool{}
	for _, r := range re.References {
		absent[r.To] = absent[r.To] || r.Presence == Missing || r.Presence == Deleted
	}
	return absent
}

// DOT writes a picture for Graphviz. Arcs to created objects are dashed; missing and deleted objects are red.
func (re Report) DOT(out io.Writer) error {
	w := bufio.NewWriter(out)
	fmt.Fprint(w, "digraph references {\n  rankdir=LR;\n")
	objects, arcs := re.arcs()
	quote := func(id kinds.ID) string {
		return `"` + strings.NewReplacer(`"`, "", `\`, `\\`).Replace(id.String()) + `"`
	}
	absent := re.absentObjects()
	for i, id := range objects {
		style := ""
		if absent[id] {
			style = " color=\"red\""
		}
		fmt.Fprintf(w, "  %d [ label=%s shape=\"box\"%s ];\n", i, quote(id), style)
	}
	for _, a := range arcs {
		style := ""
		if a.isMade {
			style = ` [ style="dashed" label="makes" ]`
		}
		fmt.Fprintf(w, "  %d -> %d%s;\n", indexOf(objects, a.from), indexOf(objects, a.to), style)
	}
	fmt.Fprint(w, "}\n")
	return w.Flush()
}

// Mermaid writes a flowchart that Markdown can hold, with the same marks.
func (re Report) Mermaid(out io.Writer) error {
	w := bufio.NewWriter(out)
	fmt.Fprint(w, "flowchart LR\n")
	objects, arcs := re.arcs()
	absent := re.absentObjects()
	for i, id := range objects {
		class := ""
		if absent[id] {
			class = ":::missing"
		}
		text := strings.NewReplacer("#", "#35;", `"`, "#quot;", "<", "#lt;", ">", "#gt;").Replace(id.String())
		fmt.Fprintf(w, "  n%d[\"%s\"]%s\n", i, text, class)
	}
	for _, a := range arcs {
		arrow := "-->"
		if a.isMade {
			arrow = "-. makes .->"
		}
		fmt.Fprintf(w, "  n%d %s n%d\n", indexOf(objects, a.from), arrow, indexOf(objects, a.to))
	}
	fmt.Fprint(w, "  classDef missing stroke:#c9190b,color:#c9190b\n")
	return w.Flush()
}

// indexOf returns the place of an object among sorted ones.
func indexOf(objects []kinds.ID, id kinds.ID) int {
	index, _ := slices.BinarySearchFunc(objects, id, kinds.Compare)
	return index
}
