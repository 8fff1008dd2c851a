package ui

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/tools/site/browser"
)

// scripted is a page whose events a test sends.
const scripted = `<!doctype html><body data-events="/events?page=/" data-have="x" data-now="2026-11-30T00:00:00Z">
<header id="header"></header><main id="main"><h1 id="title"></h1><section id="a"></section></main>
<script>
EventSource = class {
	constructor() { window.source = this }
	addEventListener(name, handle) { this[name] = handle }
	close() {}
}
function send(state, now, sections, changed) {
	source.page({lastEventId: "y", data: JSON.stringify({title: "t", heading: "t", state, now, sections, changed})})
}
</script><script>%s</script>`

func openScripted(t *testing.T) *browser.Tab {
	t.Helper()
	script, err := os.ReadFile("../../../internal/ui/look/page.js")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(file, fmt.Appendf(nil, scripted, script), 0o600); err != nil {
		t.Fatal(err)
	}
	tab := browser.Start(t, "../node_modules")
	tab.Open(t, "file://"+file, 800)
	return tab
}

// send sends the sections of a page, and evaluates an expression after that.
func send(t *testing.T, tab *browser.Tab, state string, now time.Time, section, expression string) string {
	t.Helper()
	arguments, err := json.Marshal([]any{state, now, []string{"a"}, map[string]string{
		"a": `<section id="a">` + section + `</section>`,
	}})
	if err != nil {
		t.Fatal(err)
	}
	return browser.Read(t, tab, chromedp.Evaluate[string](
		fmt.Sprintf("send(...%s); String(%s)", arguments, expression)))
}

// The script refreshes ages by itself, in the format of the server.
func TestAgesOfScript(t *testing.T) {
	tab := openScripted(t)
	then := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	element := `<time datetime="` + then.Format(time.RFC3339) + `"></time>`
	for _, text := range []string{
		"-5s", "0s", "59s", "119s", "120s", "121s", "599s", "600s", "179m59s", "180m", "181m", "7h59m", "8h", "47h59m",
		"48h", "49h", "191h59m", "192h", "8760h", "17519h", "17520h", "17544h", "70079h", "70080h", "100000h",
	} {
		age, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		now := then.Add(age)
		got := send(t, tab, "", now, element, `document.querySelector("time").textContent`)
		if want := printable.Age(now, then); got != want {
			t.Errorf("after %s the script writes %s, and the server %s", text, got, want)
		}
	}
}

// A change keeps the work of the user on the page: the focus, a selection, typed text, open details, positions.
func TestScriptKeepsWhatUsersDo(t *testing.T) {
	tab := openScripted(t)
	const (
		row = `<tr id="%s"><td><a id="link-%[1]s" href="#">%[1]s</a></td></tr>`
		box = `<div id="box" style="height: 9px; overflow: auto"><p style="height: 900px"></p></div>`
	)
	table := func(rows ...string) string {
		text := "<table><tbody>"
		for _, name := range rows {
			text += fmt.Sprintf(row, name)
		}
		return text + "</tbody></table>"
	}
	before := `<details id="fold"><summary>s</summary>x</details><input id="words" value="v">` + box +
		table("r", "s", "t")
	after := `<p>new</p>` + `<details id="fold"><summary>s</summary>y</details><input id="words" value="v2">` + box +
		table("t", "q", "s")
	send(t, tab, "Applying", time.Time{}, before, `fold.open = true, words.value = "typed", words.focus(),
		words.setSelectionRange(1, 3), box.scrollTop = 99, kept = s`)
	got := send(t, tab, "Complete", time.Time{}, after, `[fold.open, fold.lastChild.data, words.value,
		document.activeElement.id, words.selectionStart, words.selectionEnd, box.scrollTop, kept === s,
		[...document.querySelectorAll("tr")].map(row => row.id).join(""),
		document.querySelector(".announcement").textContent]`)
	if want := "true,y,typed,words,1,3,99,true,tqs,Complete"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	send(t, tab, "Complete", time.Time{}, after, `document.getElementById("link-s").focus()`)
	if got := send(t, tab, "Complete", time.Time{}, table("s", "t"), `document.activeElement.id`); got != "link-s" {
		t.Errorf("a row that moves has lost the focus to %q", got)
	}
}
