package main

import (
	"fmt"
	"html"
	"strings"
	"time"

	"github.com/hinshun/vt10x"
)

// Sizes of the picture.
const (
	cellWidth, cellHeight = 8.4, 19
	left, top             = 18, 44 // of the first cell
	width, height         = 2*left + columns*cellWidth, top + rows*cellHeight + 10
)

// head has the sizes, the duration and the keyframes. Without animation, the last frame is visible.
const head = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]g %[2]d" width="%[1]g" height="%[2]d" role="img" aria-labelledby="t d">
<title id="t">Runlevel in a terminal</title>
<desc id="d">A recording of runlevel apply, twice, and runlevel history. The first apply installs version 1.0.0 of a release, level by level. The second lists the changes and deletes of an update to 1.1.0, asks, and updates. Output is shown half as fast as it was printed.</desc>
<style>
text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#e6edf3;white-space:pre}g rect{fill:#e6edf3}
.b{font-weight:700}.s{fill:#9aa4b2}.r{fill:#ff8f87}.g{fill:#4cc35e}.y{fill:#e0ab3e}.l{opacity:.45}.e{opacity:.15}
.f{visibility:hidden;animation:%.2[3]fs step-end infinite}.last{visibility:visible}
@media(prefers-reduced-motion:reduce){.f{animation:none!important}}
%[4]s</style>
<rect x=".5" y=".5" width="%[5]g" height="%[6]d" rx="10" fill="#10151d" stroke="#3a4656"/>
<circle cx="22" cy="20" r="6" fill="#ff8f87"/><circle cx="42" cy="20" r="6" fill="#e0ab3e"/><circle cx="62" cy="20" r="6" fill="#4cc35e"/>
`

// A span is the time in which a row does not change.
type span struct{ from, until time.Duration }

// draw returns the picture: each row of each frame once, visible from the frame in which it appears to that in which it
// changes.
func draw(frames []frame) string {
	var total time.Duration
	for _, f := range frames {
		total += f.time
	}
	var spans []span // in the order of their first row
	drawn := map[span]string{}
	for y := range rows {
		var current string
		var since, now time.Duration
		end := func() {
			key := span{since, now}
			if current == "" || since == now {
				return
			}
			if drawn[key] == "" {
				spans = append(spans, key)
			}
			drawn[key] += current
		}
		for _, f := range frames {
			if row := drawRow(y, f.rows[y]); row != current && f.time > 0 {
				end()
				current, since = row, now
			}
			now += f.time
		}
		end()
	}
	var keyframes, body strings.Builder
	percent := func(t time.Duration) string { return fmt.Sprintf("%.4g%%", 100*t.Seconds()/total.Seconds()) }
	for i, s := range spans {
		fmt.Fprintf(&keyframes, ".k%d{animation-name:k%[1]d}@keyframes k%[1]d{0%%{visibility:hidden}", i)
		fmt.Fprintf(&keyframes, "%s{visibility:visible}", percent(s.from))
		class := "f"
		if s.until == total {
			class += " last"
		} else {
			fmt.Fprintf(&keyframes, "%s{visibility:hidden}", percent(s.until))
		}
		keyframes.WriteString("}\n")
		fmt.Fprintf(&body, "<g class=\"%s k%d\">%s</g>\n", class, i, drawn[s])
	}
	return fmt.Sprintf(head, width, height, total.Seconds(), keyframes.String(), width-1, height-1) +
		body.String() + "</svg>\n"
}

// drawRow returns the text and the bars of a row.
func drawRow(y int, cells []vt10x.Glyph) string {
	var out strings.Builder
	for start := 0; start < len(cells); {
		if isBlank(cells[start]) {
			start++
			continue
		}
		end := start + 1
		for end < len(cells) && isSame(cells[start], cells[end]) &&
			!(isBlank(cells[end]) && (end+1 == len(cells) || isBlank(cells[end+1]))) {
			end++
		}
		drawRun(&out, start, y, cells[start:end])
		start = end
	}
	return out.String()
}

func isBlank(cell vt10x.Glyph) bool { return cell.Char == ' ' || cell.Char == 0 }

// isBar reports whether a cell is drawn as a rectangle: fonts leave gaps between blocks.
func isBar(cell vt10x.Glyph) bool { return strings.ContainsRune("█▒░", cell.Char) }

func isSame(a, b vt10x.Glyph) bool {
	return styleOf(a) == styleOf(b) && isBar(a) == isBar(b) && (!isBar(a) || a.Char == b.Char)
}

func drawRun(out *strings.Builder, x, y int, cells []vt10x.Glyph) {
	pixels := left + float64(x)*cellWidth
	class := styleOf(cells[0])
	if !isBar(cells[0]) {
		text := make([]rune, len(cells))
		for i, cell := range cells {
			text[i] = cell.Char
		}
		if class != "" {
			class = ` class="` + class + `"`
		}
		fmt.Fprintf(out, `<text x="%.4g" y="%d"%s>%s</text>`, pixels, top+y*cellHeight+14, class,
			html.EscapeString(string(text)))
		return
	}
	switch cells[0].Char {
	case '▒':
		class += " l"
	case '░':
		class += " e"
	}
	fmt.Fprintf(out, `<rect x="%.4g" y="%d" width="%.4g" height="13" class="%s"/>`, pixels, top+y*cellHeight+3,
		float64(len(cells))*cellWidth, strings.TrimSpace(class))
}

// styleOf returns the classes of a cell. Bold text of a colour has the light variant of the colour.
func styleOf(cell vt10x.Glyph) string {
	const bold = 1 << 2 // vt10x does not export it
	var class string
	switch cell.FG {
	case vt10x.Red, vt10x.LightRed:
		class = "r"
	case vt10x.Green, vt10x.LightGreen:
		class = "g"
	case vt10x.Yellow, vt10x.LightYellow:
		class = "y"
	case vt10x.DarkGrey:
		class = "s"
	}
	if cell.Mode&bold != 0 {
		class += " b"
	}
	return strings.TrimSpace(class)
}
