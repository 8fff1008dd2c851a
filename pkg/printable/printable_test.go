package printable_test

import (
	"testing"

	"github.com/runlevel/runlevel/pkg/printable"
)

func TestLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "",
		`plain "text" – ünd \n`:  `plain "text" – ünd \n`,
		"two\nlines\r\n":         `two\nlines\r\n`,
		"\x1b[31mred\x1b[0m\a\t": `\x1b[31mred\x1b[0m\a\t`,
		"right\u202eto left":     `right\u202eto left`,
		"broken \xff UTF-8":      "broken \ufffd UTF-8",
	} {
		if got := printable.Line(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}
