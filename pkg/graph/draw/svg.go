package draw

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// Measures of the picture, in pixels. Documents and pages are about as wide.
const (
	pageWidth   = 960
	labelWidth  = 84
	minBoxWidth = 200
	boxHeight   = 64
	gap         = 10
	headHeight  = 84
	barHeight   = 32
	arrowHeight = 24
	padding     = 10
	textGap     = 12 // from the frame of a box to its text
	rowWidth    = pageWidth - labelWidth - padding
)

// SVG writes the graph as a picture: levels as bands from top to bottom, the nodes
// of a band side by side, Jobs as dark bars across, deletions in red. Each box has
// the list of its manifests, which browsers show when the pointer is over it.
func (p Picture) SVG(out io.Writer) error {
	d := p.draw(headHeight)
	width, height, margin := pageWidth+2*gap, d.y+2*gap, gap
	_, err := fmt.Fprintf(out,
		`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="%d 0 %d %d" role="img">
<title>%s</title>
<style>%s</style>
<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">`+
			`<path class="tip" d="M0 0 L8 4 L0 8 z"/></marker></defs>
<rect class="page" x="%d" width="%d" height="%d"/>
%s%s%s%s</svg>
`, width, height, -margin, width, height, escape(p.Title), fileStyle(), -margin, width, height, d.head(), &d.bands,
		&d.curves, &d.boxes)
	return err
}

// Embedded writes the picture for a page that has the stylesheet. The page has the same as a table, so that screen
// readers and the keyboard pass the picture by.
func (p Picture) Embedded() string {
	d := p.draw(0)
	return fmt.Sprintf("<svg class=\"graph\" viewBox=\"-1 0 %d %d\" aria-hidden=\"true\">\n%s%s</svg>\n", pageWidth+2,
		d.y+1, &d.bands, &d.boxes)
}

// A drawing is a picture in progress, in layers: curves pass between
// the bands and the boxes.
type drawing struct {
	picture              Picture
	bands, curves, boxes strings.Builder
	y, steps             int
	isParallel           bool          // bands below each other are of the same step
	frames               map[int]frame // the place of each node
}

// A frame is the position and the size of a box.
type frame struct{ x, y, width, height int }

// draw draws everything below a head.
func (p Picture) draw(head int) *drawing {
	d := &drawing{picture: p, frames: map[int]frame{}, y: head}
	rank := 0
	for i, band := range p.bands() {
		switch {
		case i > 0 && band.rank != rank:
			d.arrow()
		case i > 0:
			d.isParallel = true
			d.y += gap / 2
		}
		rank = band.rank
		d.steps = rank + 1
		switch {
		case len(band.boxes) == 0:
			d.fold(band.folded)
		case band.boxes[0].isBarrier:
			d.barrier(band.boxes[0])
		default:
			d.band(band)
		}
	}
	for _, edge := range p.edges() {
		d.drawDashed(edge[0], edge[1])
	}
	return d
}

// head returns the title and the legend.
func (d *drawing) head() string {
	order := "levels from top to bottom"
	if d.isParallel {
		order = "bands without an arrow between them start together"
	}
	lines := []string{
		printable.Count(len(d.picture.Graph.Tasks), "manifest") + " in " + printable.Count(d.steps, "step") + ": " +
			order + "; boxes of a band run side by side,",
		"their manifests in a row; a bar is a Job, which nothing overtakes",
	}
	if d.picture.deletes() {
		lines[1] += "; red deletes"
	}
	if len(d.picture.Dependencies) > 0 {
		lines[1] += "; dashed: implied by the objects"
	}
	return fmt.Sprintf(`<text class="title" y="32">%s</text>
<text class="small" y="52">%s</text>
<text class="small" y="68">%s</text>
`, escape(d.picture.Title), escape(lines[0]), escape(lines[1]))
}

// arrow draws an arrow: the ranks below wait for the ranks above.
func (d *drawing) arrow() {
	fmt.Fprintf(&d.bands, "<path class=\"then\" d=\"M%d %d h20 l-10 12 z\"/>\n", (labelWidth+pageWidth)/2-10, d.y+6)
	d.y += arrowHeight
}

// perRow returns how many boxes with their names have room beside each other: two, even if names are longer.
func (b band) perRow() int {
	widest := minBoxWidth
	for _, box := range b.boxes {
		widest = max(widest, int(name.width(box.title()))+1+2*textGap)
	}
	return max(2, (rowWidth+gap)/(widest+gap))
}

// band draws the boxes of one level. They fill the rows, which have about as many boxes each.
func (d *drawing) band(b band) {
	count := len(b.boxes)
	if len(b.folded) > 0 {
		count++
	}
	perRow := b.perRow()
	rows := (count + perRow - 1) / perRow
	columns := (count + rows - 1) / rows
	width := (rowWidth+gap)/columns - gap
	height := rows*(boxHeight+gap) - gap + 2*padding
	fmt.Fprintf(&d.bands, "<g class=\"level-band\"><rect class=\"band\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"6\"/>"+
		"<text class=\"level\" x=\"14\" y=\"%d\">%s</text></g>\n", d.y, pageWidth, height, d.y+height/2+5,
		escape(name.fit(b.boxes[0].level(), labelWidth-18)))
	for i := range count {
		x, y := labelWidth+(i%columns)*(width+gap), d.y+padding+(i/columns)*(boxHeight+gap)
		place := frame{x, y, width, boxHeight}
		if i < len(b.boxes) {
			d.box(b.boxes[i], place)
		} else {
			d.rest(b.folded, place)
		}
	}
	d.y += height
}

// box draws the name, the state or the content, and the kinds of a node.
func (d *drawing) box(b box, place frame) {
	left, room := place.x+textGap, place.width-2*textGap
	d.open("node", "box", b, place)
	d.text("name", left, place.y+19, name.fitMiddle(b.title(), room))
	used := int(small.width(b.content()))
	if state, isKnown := d.picture.stateOf(b); isKnown {
		used = d.state(state, left, place.y+35)
		done := room * state.Done / max(state.Total, 1)
		fmt.Fprintf(&d.boxes, `<rect class="part" x="%d" y="%d" width="%d" height="3" rx="1"/>`, left, place.y+58, done)
	} else {
		d.text("small", left, place.y+35, b.content())
	}
	if taken := b.widthAtEnd(); used+taken <= room {
		d.atEnd(b, left+room, place.y+35)
	} else {
		d.atEnd(b, left+room, place.y+50)
		room -= taken
	}
	d.text("small", left, place.y+50, small.fit(b.kinds(), room))
	d.close(b)
}

// barrier draws a Job.
func (d *drawing) barrier(b box) {
	baseline := d.y + 21
	d.open("barrier", "bar", b, frame{0, d.y, pageWidth, barHeight})
	d.text("bar-name", 14, baseline, name.fit(b.level(), labelWidth-18))
	left := labelWidth + textGap
	if state, isKnown := d.picture.stateOf(b); isKnown {
		left += d.state(state, left, baseline) + 16
	}
	room := pageWidth - textGap - b.widthAtEnd() - left
	d.text("bar-name", left, baseline, name.fitMiddle(b.title(), room))
	d.atEnd(b, pageWidth-12, baseline)
	d.close(b)
	d.y += barHeight
}

// fold draws folded boxes as a bar.
func (d *drawing) fold(folded []box) {
	d.openFolded(folded, frame{0, d.y, pageWidth, barHeight})
	d.text("level", 14, d.y+21, name.fit(levelsOf(folded), labelWidth-18))
	left := labelWidth + 12
	if tone := d.picture.toneOf(folded); tone != "" {
		d.symbol(tone, left, d.y+21)
		left += 18
	}
	d.text("small", left, d.y+21, small.fit(d.picture.summary(folded), pageWidth-left-12))
	fmt.Fprint(&d.boxes, "</g></a>\n")
	d.y += barHeight
}

// rest draws folded boxes of a level as a box.
func (d *drawing) rest(folded []box, place frame) {
	d.openFolded(folded, place)
	d.text("name", place.x+12, place.y+19, fmt.Sprintf("%d more", len(folded)))
	d.text("small", place.x+12, place.y+35, small.fit(d.picture.summary(folded), place.width-24))
	fmt.Fprint(&d.boxes, "</g></a>\n")
}

// openFolded opens the element of folded boxes, and draws its frame.
func (d *drawing) openFolded(folded []box, place frame) {
	fmt.Fprintf(&d.boxes, `<a%s><g id="fold-%d" class="%s"><rect class="fold" x="%d" y="%d" width="%d" height="%d" `+
		`rx="4"/>`, link(d.picture.Unfold), folded[0].node, d.picture.toneOf(folded), place.x, place.y, place.width,
		place.height)
	for _, b := range folded {
		d.frames[b.node] = place
	}
}

// open opens the element of a node, and draws its frame.
func (d *drawing) open(class, frameClass string, b box, place frame) {
	state, isKnown := d.picture.stateOf(b)
	if isKnown {
		class += " " + string(state.Tone)
		fmt.Fprintf(&d.boxes, `<a%s id="node-%d">`, link(d.picture.Link(b.node)), b.node)
	} else if b.isRed() { // in a run, red is a failure
		class += " deletes"
	}
	fmt.Fprintf(&d.boxes, "<g class=\"%s\"><title>%s</title><rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%d\" "+
		"height=\"%d\" rx=\"4\"/>",
		class, escape(d.hover(b)), frameClass, place.x, place.y, place.width, place.height)
	d.frames[b.node] = place
}

func (d *drawing) close(b box) {
	fmt.Fprint(&d.boxes, "</g>")
	if _, isKnown := d.picture.stateOf(b); isKnown {
		fmt.Fprint(&d.boxes, "</a>")
	}
	fmt.Fprintln(&d.boxes)
}

// link returns the attributes of a link that only pointers follow: the keyboard finds it in the table.
func link(address string) string {
	if address == "" {
		return ""
	}
	return ` tabindex="-1" href="` + escape(address) + `"`
}

func (d *drawing) text(class string, x, y int, text string) {
	fmt.Fprintf(&d.boxes, `<text class="%s" x="%d" y="%d">%s</text>`, class, x, y, escape(text))
}

// state draws a state, and returns its width.
func (d *drawing) state(s State, x, y int) int {
	counts := printable.Count(s.Total, "manifest")
	if s.Done < s.Total {
		counts = fmt.Sprintf("%d of %d", s.Done, s.Total)
	}
	d.symbol(s.Tone, x, y)
	d.text("word", x+18, y, s.Word)
	after := x + 18 + int(word.width(s.Word)) + 8
	d.text("small", after, y, counts)
	return after + int(small.width(counts)) - x
}

func (d *drawing) symbol(tone Tone, x, y int) {
	fmt.Fprintf(&d.boxes, `<path class="symbol" transform="translate(%d %d) scale(.8)" d="%s"/>`, x, y-11, tone.Symbol())
}

// widthAtEnd returns the width of atEnd.
func (b box) widthAtEnd() int {
	if b.tombstones == 0 {
		return 0
	}
	return int(word.width(b.deletes())) + gap
}

// atEnd draws at the right how many objects a box deletes.
func (d *drawing) atEnd(b box, x, y int) {
	if b.tombstones == 0 {
		return
	}
	class := "small"
	if b.isRed() {
		class = "red"
	}
	fmt.Fprintf(&d.boxes, `<text class="%s" x="%d" y="%d" text-anchor="end">%s</text>`, class, x, y, b.deletes())
}

// hover returns the text that a browser shows when the pointer is over a box.
func (d *drawing) hover(b box) string {
	lines := []string{b.title()}
	for _, task := range b.tasks {
		for _, step := range StepsOf(task) {
			line := step.Label()
			switch {
			case task.IsTombstone() && b.isRed():
				line = "delete " + line
			case task.IsTombstone() && b.isDone && !b.isLater:
				line = "deleted: " + line
			case task.IsTombstone():
				line += later
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
