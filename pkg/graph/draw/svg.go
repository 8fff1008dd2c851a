package draw

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// Measures of the picture, in pixels.
const (
	pageWidth   = 1280
	margin      = 20
	labelWidth  = 96
	boxWidth    = 216
	boxHeight   = 56
	gap         = 10
	headHeight  = 64
	barHeight   = 30
	arrowHeight = 24
	bandPadding = 10
	perRow      = (pageWidth - 2*margin - labelWidth) / (boxWidth + gap)
)

const style = `
  text { font-family: -apple-system, "Segoe UI", "DejaVu Sans", Helvetica, Arial, sans-serif; fill: #151515; }
  .title { font-size: 18px; font-weight: 600; }
  .small { font-size: 11px; fill: #4d5258; }
  .level { font-size: 15px; font-weight: 600; fill: #4d5258; }
  .name { font-size: 12px; font-weight: 600; }
  .band { fill: #f2f4f7; }
  .box { fill: #ffffff; stroke: #8a8d90; }
  .deletes .box { stroke: #c9190b; stroke-width: 2; }
  .red { font-size: 11px; font-weight: 600; fill: #c9190b; }
  .bar { fill: #3c3f42; }
  .bar-name { font-size: 12px; font-weight: 600; fill: #ffffff; }
  .then { fill: #8a8d90; }
  .dashed { fill: none; stroke: #0066cc; stroke-width: 1.2; stroke-dasharray: 5 4; opacity: 0.65; }
`

// SVG writes the graph as a picture: levels as bands from top to bottom, the nodes
// of a band side by side, Jobs as dark bars across, deletions in red. Each box has
// the list of its manifests, which browsers show when the pointer is over it.
func (p Picture) SVG(out io.Writer) error {
	d := &drawing{picture: p, frames: map[int]frame{}}
	d.y = headHeight + margin
	ranks := p.ranks()
	for i, rank := range ranks {
		if i > 0 {
			d.arrow()
		}
		d.rank(rank)
	}
	for _, edge := range p.edges() {
		d.drawDashed(edge[0], edge[1])
	}
	_, err := fmt.Fprintf(out,
		`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img">
<title>%s</title>
<style>%s</style>
<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#0066cc"/></marker></defs>
<rect width="%d" height="%d" fill="#ffffff"/>
%s%s%s%s</svg>
`, pageWidth, d.y+margin, pageWidth, d.y+margin, escape(p.Title), style,
		pageWidth, d.y+margin, d.head(len(ranks)), &d.bands, &d.curves, &d.boxes)
	return err
}

// A drawing is a picture in progress, in layers: curves pass between
// the bands and the boxes.
type drawing struct {
	picture              Picture
	bands, curves, boxes strings.Builder
	y                    int
	frames               map[int]frame // the place of each node
}

// A frame is the position and the size of a box.
type frame struct{ x, y, width, height int }

// head returns the title and the legend.
func (d *drawing) head(steps int) string {
	legend := "levels from top to bottom; boxes of a band run side by side, their manifests in a row; red deletes; a " +
		"dark bar is a Job, which nothing overtakes"
	if len(d.picture.Dependencies) > 0 {
		legend += "; dashed: implied by the objects"
	}
	return fmt.Sprintf(`<text class="title" x="%d" y="36">%s</text>
<text class="small" x="%d" y="56">%s in %s: %s</text>
`, margin, escape(d.picture.Title), margin, printable.Count(len(d.picture.Graph.Tasks), "manifest"),
		printable.Count(steps, "step"), legend)
}

// arrow draws an arrow: the ranks below wait for the ranks above.
func (d *drawing) arrow() {
	x, y := labelWidth+margin+(pageWidth-labelWidth-2*margin)/2, d.y+4
	fmt.Fprintf(&d.bands, "<path class=\"then\" d=\"M%d %d h20 l-10 12 z\"/>\n", x-10, y)
	d.y += arrowHeight
}

// rank draws parallel boxes, level by level.
func (d *drawing) rank(boxes rank) {
	for len(boxes) > 0 {
		if boxes[0].isBarrier {
			d.barrier(boxes[0])
			boxes = boxes[1:]
		} else {
			end := 1
			for end < len(boxes) && boxes[end].level() == boxes[0].level() && !boxes[end].isBarrier {
				end++
			}
			d.band(boxes[:end])
			boxes = boxes[end:]
		}
		if len(boxes) > 0 {
			d.y += gap / 2
		}
	}
}

// band draws the boxes of one level.
func (d *drawing) band(boxes []box) {
	rows := (len(boxes) + perRow - 1) / perRow
	height := rows*(boxHeight+gap) - gap + 2*bandPadding
	fmt.Fprintf(&d.bands, "<g class=\"level-band\"><rect class=\"band\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" "+
		"rx=\"6\"/>", margin, d.y, pageWidth-2*margin, height)
	fmt.Fprintf(&d.bands, "<text class=\"level\" x=\"%d\" y=\"%d\">%s</text></g>\n", margin+14, d.y+height/2+5,
		escape(boxes[0].level()))
	for i, b := range boxes {
		x := margin + labelWidth + (i%perRow)*(boxWidth+gap)
		y := d.y + bandPadding + (i/perRow)*(boxHeight+gap)
		d.box(b, frame{x, y, boxWidth, boxHeight})
	}
	d.y += height
}

func (d *drawing) box(b box, place frame) {
	class, deletes := "node", ""
	left, right := place.x+10, place.x+place.width-10
	if b.tombstones > 0 {
		class += " deletes"
		deletes = fmt.Sprintf(`<text class="red" x="%d" y="%d" text-anchor="end">%d to delete</text>`, right,
			place.y+34,
			b.tombstones)
	}
	d.open(class, "box", b, place)
	fmt.Fprintf(&d.boxes, `<text class="name" x="%d" y="%d">%s</text>`, left, place.y+19, escape(short(b.title(), 26)))
	fmt.Fprintf(&d.boxes, `<text class="small" x="%d" y="%d">%s</text>%s`, left, place.y+34, b.content(), deletes)
	fmt.Fprintf(&d.boxes, "<text class=\"small\" x=\"%d\" y=\"%d\">%s</text></g>\n", left, place.y+48,
		escape(short(b.kinds(), 30)))
}

func (d *drawing) barrier(b box) {
	place := frame{margin, d.y, pageWidth - 2*margin, barHeight}
	d.open("barrier", "bar", b, place)
	fmt.Fprintf(&d.boxes, `<text class="bar-name" x="%d" y="%d">%s</text>`, margin+14, place.y+20, escape(b.level()))
	fmt.Fprintf(&d.boxes, "<text class=\"bar-name\" x=\"%d\" y=\"%d\">%s</text></g>\n", margin+labelWidth+10,
		place.y+20,
		escape(short(b.title(), 130)))
	d.y += barHeight
}

// open opens the element of a node, and draws its frame.
func (d *drawing) open(class, frameClass string, b box, place frame) {
	fmt.Fprintf(&d.boxes, "<g class=\"%s\"><title>%s</title><rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%d\" "+
		"height=\"%d\" rx=\"4\"/>",
		class, escape(d.hover(b)), frameClass, place.x, place.y, place.width, place.height)
	d.frames[b.node] = place
}

// hover returns the text that a browser shows when the pointer is over a box.
func (d *drawing) hover(b box) string {
	lines := []string{b.title()}
	for _, task := range b.tasks {
		for _, step := range StepsOf(task) {
			line := step.Label()
			if task.IsTombstone() {
				line = "delete " + line
			}
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// drawDashed draws a dependency as a curve from box to box: from the lower edge of the
// first to the upper edge of the second, or below both if they are side by side.
func (d *drawing) drawDashed(first, second int) {
	a, b := d.frames[first], d.frames[second]
	start, end := a.y+a.height, b.y
	if b.y < a.y {
		start, end = a.y, b.y+b.height
	}
	bend := (end - start) / 2
	leave, arrive := start+bend, end-bend
	if a.y == b.y {
		end = b.y + b.height
		leave, arrive = start+boxHeight/2, end+boxHeight/2
	}
	x1, x2 := a.x+a.width/2, b.x+b.width/2
	fmt.Fprintf(&d.curves, "<path class=\"dashed\" marker-end=\"url(#tip)\" d=\"M%d %d C%d %d %d %d %d %d\"/>\n", x1,
		start, x1, leave, x2, arrive, x2, end)
}

func escape(text string) string {
	var out strings.Builder
	_ = xml.EscapeText(&out, []byte(text)) // a strings.Builder does not fail
	return out.String()
}
