package printable_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/runlevel/runlevel/internal/text/printable"
)

func TestTextInOneLine(t *testing.T) {
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

func TestTruncateText(t *testing.T) {
	for text, want := range map[string]string{
		"":             "",
		"ten bytes.":   "ten bytes.",
		"more than 10": "more th…",
		"grün grün ü":  "grün g…",
		"123456ü8901":  "123456…",
	} {
		if got := printable.Truncate(text, 10); got != want {
			t.Errorf("%q is cut to %q, want %q", text, got, want)
		}
	}
}

func TestJSON(t *testing.T) {
	const value = "a\u202eb\u2066c\u2028d\u0085e\tf\u00a0g\U0001F680"
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	shown := printable.JSON(text)
	if !printable.IsHarmless(shown) || !strings.Contains(string(shown), "a\\u202eb") {
		t.Errorf("the text is shown as %q", shown)
	}
	var back string
	if err := json.Unmarshal(shown, &back); err != nil || back != value {
		t.Errorf("the text is read back as %q, error %v", back, err)
	}
}
