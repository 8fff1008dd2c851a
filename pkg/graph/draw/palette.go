package draw

import (
	"fmt"
	"os"
	"strings"
)

// A Color is a colour on light and on dark paper.
type Color struct{ Name, Light, Dark string }

// Palette has the colours of all pictures and pages. Text is readable on the paper, on raised paper, and on the fills,
// by WCAG 2.2 AA.
var Palette = []Color{
	{"paper", "#ffffff", "#10151d"},
	{"raised", "#f5f7fa", "#18202b"},
	{"line", "#dce1e8", "#2b3644"},   // separates, and says nothing
	{"border", "#788496", "#718096"}, // frame of a box, or of a field to type into
	{"ink", "#1b2330", "#e3e8ef"},
	{"soft", "#566072", "#a3aebd"}, // text of less importance
	{"accent", "#1a56c4", "#84b0ff"},
	{"good", "#1a6b3a", "#7fd096"},
	{"waiting", "#8a4b00", "#f0b072"},
	{"bad", "#b3211a", "#ff9d93"},
	{"bar", "#3b4453", "#b9c4d2"}, // a Job
	{"good-fill", "#e4f4e9", "#12301f"},
	{"waiting-fill", "#fdf1de", "#35260f"},
	{"bad-fill", "#fdeae8", "#3d1b1a"},
	{"accent-fill", "#e8effc", "#16253f"},
}

// Fonts for text and for code.
const (
	fontText = `system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif`
	fontCode = `ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace`
)

// sizes are the sizes of text, and the distances of things, of pages.
const sizes = "--small: .8125rem; --body: .9375rem; --large: 1.125rem; --title: 1.625rem; " +
	"--s1: .25rem; --s2: .5rem; --s3: .75rem; --s4: 1rem; --s5: 1.5rem; --s6: 2.5rem;"

// A Tone is the meaning of a state, with a colour and a symbol.
type Tone string

// The tones.
const (
	Good    Tone = "good"    // done, ready
	Active  Tone = "active"  // being applied
	Waiting Tone = "waiting" // applied, and not ready
	Bad     Tone = "bad"     // failed, or degraded
	Deleted Tone = "deleted" // being deleted
	Later   Tone = "later"   // its turn comes later
	Unknown Tone = "unknown"
)

// symbols are lines in a square of 16 pixels: tones differ in more than colour, and look the same with any font.
var symbols = map[Tone]string{
	Good:    "M3 8.5l3.5 3.5L13 4.5",
	Active:  "M5 3l8 5l-8 5z",
	Waiting: "M8 2a6 6 0 1 1 0 12a6 6 0 1 1 0-12M8 5v3.3l2.3 1.7",
	Bad:     "M3.5 3.5l9 9M12.5 3.5l-9 9",
	Deleted: "M2.5 4.5h11M6 4.5v-2h4v2M4 4.5l.8 9h6.4l.8-9",
	Later:   "M8 4a4 4 0 1 1 0 8a4 4 0 1 1 0-8",
	Unknown: "M5.3 5.8a2.7 2.7 0 1 1 3.9 2.4c-.8.4-1.2.9-1.2 1.8M8 13v.2",
}

// Symbol returns the outline of the symbol of a tone, in a square of 16 pixels.
func (t Tone) Symbol() string { return symbols[t] }

// Stylesheet returns the palette as properties of CSS, such as --paper, and the rules for pictures inside a page.
func Stylesheet() string {
	var out strings.Builder
	fmt.Fprintf(&out, ":root { color-scheme: light dark; --text: %s; --code: %s; %s", fontText, fontCode, sizes)
	for _, c := range Palette {
		fmt.Fprintf(&out, " --%s: light-dark(%s, %s);", c.Name, c.Light, c.Dark)
	}
	property := func(c Color) string { return "var(--" + c.Name + ")" }
	fmt.Fprintf(&out, " }\n.graph {%s%s}\n", shapes, paint(colors, property))
	return out.String()
}

// fileStyle returns the rules for a picture in a file, with literal colours: not every viewer knows properties.
func fileStyle() string {
	dark := func(c Color) string { return c.Dark }
	return shapes + paint(colors, light) + "  @media (prefers-color-scheme: dark) {" + paint(colors, dark) + "  }\n"
}

func light(c Color) string { return c.Light }

// paint replaces the names of colours in a text.
func paint(text string, value func(Color) string) string {
	return os.Expand(text, func(name string) string {
		for _, c := range Palette {
			if c.Name == name {
				return value(c)
			}
		}
		return ""
	})
}

// shapes are rules for a picture without its colours.
const shapes = `
  text { font-family: ` + fontText + `; font-size: 12px; }
  .title { font-size: 18px; font-weight: 600; }
  .level { font-size: 14px; font-weight: 600; }
  .name, .bar-name { font-size: 13px; font-weight: 600; }
  .red, .word { font-weight: 600; }
  .symbol { fill: none; stroke-width: 2; stroke-linecap: round; stroke-linejoin: round; }
  .deletes .box, .bad .box { stroke-width: 2; }
  .dashed { fill: none; stroke-width: 1.2; stroke-dasharray: 5 4; }
`

const colors = `
  .page { fill: ${paper}; }
  text { fill: ${ink}; }
  .small, .level { fill: ${soft}; }
  .band { fill: ${raised}; }
  .box { fill: ${paper}; stroke: ${border}; }
  .deletes .box { stroke: ${bad}; }
  .red { fill: ${bad}; }
  .bar { fill: ${bar}; }
  .deletes .bar { fill: ${bad}; }
  .then { fill: ${border}; }
  .dashed { stroke: ${accent}; }
  .tip { fill: ${accent}; }
  .fold { fill: ${raised}; stroke: ${line}; }
  .part { fill: ${border}; }
  .symbol { stroke: ${soft}; }
  .good .symbol { stroke: ${good}; }
  .good .part { fill: ${good}; }
  .active .symbol, .active .box { stroke: ${accent}; }
  .active .part, .active .word { fill: ${accent}; }
  .waiting .symbol, .waiting .box { stroke: ${waiting}; }
  .waiting .part, .waiting .word { fill: ${waiting}; }
  .bad .symbol, .bad .box { stroke: ${bad}; }
  .bad .part, .bad .word { fill: ${bad}; }
  .bad .box { fill: ${bad-fill}; }
  .bad .bar { fill: ${bad}; }
  .barrier text, .barrier .word, .barrier .red { fill: ${paper}; }
  .barrier .symbol { stroke: ${paper}; }
`
