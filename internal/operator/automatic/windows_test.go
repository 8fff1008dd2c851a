package automatic_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the machine may have no time zones

	"github.com/runlevel/runlevel/internal/operator/automatic"
)

func TestWindows(t *testing.T) {
	for _, c := range []struct{ windows, now, want string }{
		{"Sat,Sun 02:00-06:00 Europe/Berlin", "2026-12-01T12:00:00Z",
			"2026-12-05T02:00:00+01:00 2026-12-05T06:00:00+01:00"},
		{"Sat,Sun 02:00-06:00 Europe/Berlin", "2026-12-05T04:59:59Z",
			"2026-12-05T02:00:00+01:00 2026-12-05T06:00:00+01:00"},
		{"Sat,Sun 02:00-06:00 Europe/Berlin", "2026-12-05T05:00:00Z",
			"2026-12-06T02:00:00+01:00 2026-12-06T06:00:00+01:00"},
		{"Sat,Sun 02:00-06:00 Europe/Berlin", "2026-12-06T05:00:00Z",
			"2026-12-12T02:00:00+01:00 2026-12-12T06:00:00+01:00"},
		{"Tue 10:00-11:00", "2026-12-01T11:00:00Z",
			"2026-12-08T10:00:00Z 2026-12-08T11:00:00Z"},
		{"Mon 22:00-04:00", "2026-12-01T03:00:00Z",
			"2026-11-30T22:00:00Z 2026-12-01T04:00:00Z"},
		{"Fri-Mon 00:00-24:00", "2026-12-01T03:00:00Z",
			"2026-12-04T00:00:00Z 2026-12-05T00:00:00Z"},
		{"daily 23:00-24:00; daily 01:00-02:00 Asia/Tokyo", "2026-12-01T03:00:00Z",
			"2026-12-02T01:00:00+09:00 2026-12-02T02:00:00+09:00"},
		{"daily 23:00-24:00;daily 01:00-02:00 Asia/Tokyo", "2026-12-01T22:00:00Z",
			"2026-12-01T23:00:00Z 2026-12-02T00:00:00Z"},
		// On this day, there is no time between 02:00 and 03:00.
		{"Sun 01:00-04:00 Europe/Berlin", "2027-03-28T00:30:00Z",
			"2027-03-28T01:00:00+01:00 2027-03-28T04:00:00+02:00"},
		{"Sun 12:00-13:00 Pacific/Apia", "2026-12-05T23:30:00Z",
			"2026-12-06T12:00:00+13:00 2026-12-06T13:00:00+13:00"},
	} {
		windows, err := automatic.ParseWindows(c.windows)
		if err != nil {
			t.Error(err)
			continue
		}
		now, err := time.Parse(time.RFC3339, c.now)
		if err != nil {
			t.Fatal(err)
		}
		begin, end := automatic.Next(windows, now)
		if got := begin.Format(time.RFC3339) + " " + end.Format(time.RFC3339); got != c.want {
			t.Errorf("%s at %s: %s, want %s", c.windows, c.now, got, c.want)
		}
	}
}

func TestBadWindows(t *testing.T) {
	for windows, want := range map[string]string{
		"":                         "days, hours and time zone expected",
		";":                        "days, hours and time zone expected",
		"02:00-06:00":              "days, hours and time zone expected",
		"Sat 02:00 - 06:00 Europe": "days, hours and time zone expected",
		"Sat, Sun 02:00-06:00":     "days are daily, or some of Mon",
		"sat 02:00-06:00":          "days are daily, or some of Mon",
		"Sat- 02:00-06:00":         "days are daily, or some of Mon",
		"Sat 2:00-06:00":           "hours have the form 02:00-06:00",
		"Sat 02:00-25:00":          "hours have the form 02:00-06:00",
		"Sat 02:00-02:00":          "hours have the form 02:00-06:00",
		"Sat 24:00-06:00":          "hours have the form 02:00-06:00",
		"Sat 02:00":                "hours have the form 02:00-06:00",
		"Sat 02:00-06:00 Berlin":   "unknown time zone",
		"Sat 02:00-06:00 Local":    "unknown time zone",
		"Sat 02:00-06:00 ../etc":   "unknown time zone",
	} {
		if _, err := automatic.ParseWindows(windows); err == nil || !strings.Contains(err.Error(), ": "+want) {
			t.Errorf("%q: %v, want %s", windows, err, want)
		}
	}
}

// TestWindowsOfThePage reads the windows that the documentation shows.
func TestWindowsOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/automatic-updates.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`update-windows[:=] ?"([^"]+)"|^\| .((?:\w|,|-)+ \d\d:\d\d-\S+[^|]*)\x60 \|`).
		FindAllSubmatch(page, -1)
	if len(found) == 0 {
		t.Fatal("the page shows no windows")
	}
	for _, match := range found {
		if _, err := automatic.ParseWindows(string(match[1]) + string(match[2])); err != nil {
			t.Error(err)
		}
	}
}
