package draw

import "strings"

// A font is the size of a text in pixels, and its weight.
type font struct {
	size   float64
	isBold bool
}

var (
	small = font{12, false}
	word  = font{12, true}
	name  = font{13, true}
)

// widths are the widths of characters as parts of the size of a font, for wide fonts such as DejaVu Sans: a text that
// fits there fits in other fonts.
var widths = []struct {
	characters string
	width      float64
}{
	{"ijl.,:;'|!I", .34},
	{" ftr-()[]/\"", .41},
	{"Jcksvxyz", .57},
	{"MWmw@%", .98},
	{"ABCDEFGHKLNOPQRSTUVXYZ&…", .75},
}

// width returns the width of a text in pixels.
func (f font) width(text string) float64 {
	var sum float64
	for _, r := range text {
		sum += widthOf(r)
	}
	if f.isBold {
		sum *= 1.12
	}
	return sum * f.size
}

func widthOf(r rune) float64 {
	for _, class := range widths {
		if strings.ContainsRune(class.characters, r) {
			return class.width
		}
	}
	if r > 0x2e80 { // Chinese, Japanese, emoji
		return 1.1
	}
	return .64
}

// fit cuts a text to a width in pixels.
func (f font) fit(text string, most int) string {
	if f.width(text) <= float64(most) {
		return text
	}
	left := float64(most) - f.width("…")
	for i, r := range text {
		if left -= f.width(string(r)); left < 0 {
			return strings.TrimRight(text[:i], ", ") + "…"
		}
	}
	return text
}

// fitMiddle cuts a name to a width in pixels. It keeps both ends: names of a level often begin with the same words.
func (f font) fitMiddle(text string, most int) string {
	if f.width(text) <= float64(most) {
		return text
	}
	runes := []rune(text)
	for kept := min(len(runes)-1, most/4); kept > 0; kept-- { // no character is narrower than 4 pixels
		cut := string(runes[:kept-kept/2]) + "…" + string(runes[len(runes)-kept/2:])
		if f.width(cut) <= float64(most) {
			return cut
		}
	}
	return "…"
}
