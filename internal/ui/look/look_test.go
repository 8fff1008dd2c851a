package look

import (
	"strings"
	"testing"
	"time"

	g "maragu.dev/gomponents"
)

// TestTimesInFiles makes a page with an age and with a message that has one. A file is read later than a served page.
func TestTimesInFiles(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	page := Page{Title: "Events", Sections: []Section{{ID: "events", Body: g.Group{
		Age(now, now.Add(-time.Minute)), g.Text(" ago: "), Prose(now, "not ready for 5d"),
	}}}}
	const ago = `<time datetime="2026-11-30T11:59:00Z" class="exact">60s</time> ago`
	const message = `: not ready for <time datetime="2026-11-25T12:00:00Z">5d</time>`
	var file, served strings.Builder
	if err := page.WriteFile(&file); err != nil {
		t.Fatal(err)
	}
	rendered, err := page.Render()
	if err != nil {
		t.Fatal(err)
	}
	if err := rendered.Serve(&served, "", now); err != nil {
		t.Fatal(err)
	}
	if want := ago + " <small>(2026-11-30T11:59:00Z)</small>" + message; !strings.Contains(file.String(), want) {
		t.Errorf("%s is not in the file\n%s", want, &file)
	}
	if want := ago + message; !strings.Contains(served.String(), want) {
		t.Errorf("%s is not in the served page\n%s", want, &served)
	}
	page.Sections[0].Body = g.Group{Age(now.Add(time.Hour), now.Add(-time.Minute)), g.Text(" ago: "),
		Prose(now, "not ready for 5d")}
	if later, err := page.Render(); err != nil || later.Version != rendered.Version {
		t.Errorf("an age alone has changed the page (%v)", err)
	}
}
