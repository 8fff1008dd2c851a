package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hinshun/vt10x"
)

// TestDraw draws two frames: text is escaped and has its colour, and the still frame is visible without animation.
func TestDraw(t *testing.T) {
	screen := vt10x.New(vt10x.WithSize(columns, rows))
	_, _ = screen.Write([]byte("$ <a>\x1b[?25l"))
	first := frame{}
	first.rows[0] = drawRow(screen, 0)
	_, _ = screen.Write([]byte("\r\x1b[31mfailed"))
	second := frame{since: time.Second}
	second.rows[0] = drawRow(screen, 0)
	picture := draw([]frame{first, second}, time.Second)
	for _, want := range []string{
		`<g class="f k0-0"><text x="18" y="58"><tspan>$ &lt;a&gt;</tspan></text></g>`,
		`<g class="f k0-1000 still"><text x="18" y="58"><tspan></tspan><tspan class="r">failed</tspan><tspan class=""></tspan></text></g>`,
		"@keyframes k0-0{0%{visibility:hidden}0%{visibility:visible}25%{visibility:hidden}}",
		"@keyframes k0-1000{0%{visibility:hidden}25%{visibility:visible}100%{visibility:hidden}}",
		"animation:4.00s step-end -1.00s infinite",
	} {
		if !strings.Contains(picture, want) {
			t.Errorf("missing %s in\n%s", want, picture)
		}
	}
}

// TestPictureIsCurrent compares the layout of docs/demo.svg with what the recorder writes.
func TestPictureIsCurrent(t *testing.T) {
	text, err := os.ReadFile("../../../docs/demo.svg")
	if err != nil {
		t.Fatal(err)
	}
	before, _, _ := strings.Cut(string(text), ".f{")
	want, _, _ := strings.Cut(draw([]frame{{}}, 0), ".f{")
	if before != want {
		t.Errorf("run make demo-svg: the picture begins with\n%s\nwant\n%s", before, want)
	}
	if !strings.Contains(string(text), " still\">") {
		t.Error("no row is visible without animation")
	}
}
