package report_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/updates/report"
)

var received = time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC)

func entry(id, version string, condition report.Condition) report.Entry {
	return report.Entry{Received: received, Address: "10.0.0.7", Report: &report.Report{
		ID: "0123456789abcdef" + id, From: "1.4.0", Version: version, Condition: condition, Time: received}}
}

// names returns a handler of entries that notes them.
func names(all *[]string) func(report.Entry) {
	return func(e report.Entry) {
		text := "away"
		if e.Report != nil {
			text = strings.TrimPrefix(e.ID, "0123456789abcdef") + " " + e.Version + " " + string(e.Condition)
		}
		*all = append(*all, text)
	}
}

func TestParse(t *testing.T) {
	const good = `"id": "0123456789abcdef", "version": "1.4.1", "condition": "Began", "time": "2026-12-01T08:00:00Z"`
	for text, want := range map[string]string{
		`{` + good + `}`:                        "",
		`{` + good + `, "later": {"field": 1}}`: "",
		``:                                      "not a report: unexpected end of JSON input",
		`[]`:                                    "not a report: json: cannot unmarshal array into Go value of type report.Report",
		`{` + good + `, "id": "short"}`:         "id has 16 to 64 letters, digits, - and _",
		`{` + good + `, "id": "0123456789abcde\u0000"}`:                 "id has 16 to 64 letters, digits, - and _",
		`{` + good + `, "version": ""}`:                                 "version is missing",
		`{` + good + `, "condition": "Fine"}`:                           "condition is one of Began, Succeeded, Failed, RolledBack",
		`{` + good + `, "time": "0001-01-01T00:00:00Z"}`:                "time is missing",
		`{` + good + `, "reason": "\u001b[2J"}`:                         "reason has characters that cannot be printed in one line",
		`{` + good + `, "reason": "a\nb"}`:                              "reason has characters that cannot be printed in one line",
		`{` + good + `, "ring": "` + strings.Repeat("a", 129) + `"}`:    "ring has at most 128 bytes",
		`{` + good + `, "reason": "` + strings.Repeat("a", 4096) + `"}`: "a report has at most 4096 bytes",
	} {
		_, err := report.Parse([]byte(text))
		if err == nil && want != "" || err != nil && err.Error() != want {
			t.Errorf("%.200s: %v, want %q", text, err, want)
		}
	}
}

func TestSend(t *testing.T) {
	code := http.StatusNoContent
	var got *report.Report
	var password string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := make([]byte, report.MaxBytes)
		n, _ := r.Body.Read(text)
		_, password, _ = r.BasicAuth()
		got, _ = report.Parse(text[:n])
		w.WriteHeader(code)
		fmt.Fprint(w, "no\x1b[2J\n"+strings.Repeat("long ", 1000))
	}))
	defer server.Close()
	r := *entry("", "1.4.1", report.Failed).Report
	r.Reason = "two\nlines " + strings.Repeat("long ", 1000)
	address := strings.Replace(server.URL, "http://", "http://runlevel:secret@", 1)
	if err := report.Send(t.Context(), server.Client(), address, r); err != nil || password != "secret" ||
		!strings.HasPrefix(got.Reason, `two\nlines long`) || len(got.Reason) > report.MaxReason {
		t.Errorf("%v, %q, %v", err, password, got)
	}
	code = http.StatusForbidden
	err := report.Send(t.Context(), server.Client(), address, r)
	if err == nil || !strings.HasPrefix(err.Error(), `report refused with 403 Forbidden: no\x1b[2J`) ||
		len(err.Error()) > 400 || strings.Contains(err.Error(), "\n") {
		t.Error(err)
	}
	server.Close()
	err = report.Send(t.Context(), server.Client(), address, r)
	if err == nil || strings.Contains(err.Error(), "secret") ||
		!strings.HasPrefix(err.Error(), "report not sent: nothing answers") {
		t.Error(err)
	}
}

func TestLogLeavesOutReportsThatChangeNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "reports.jsonl")
	log, _, err := report.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	add := func(e report.Entry, want bool) {
		t.Helper()
		if isNew, err := log.Append(e); isNew != want || err != nil {
			t.Errorf("%s %s: %t %v", e.ID, e.Condition, isNew, err)
		}
	}
	add(entry("a", "1.4.1", report.Began), true)
	add(entry("a", "1.4.1", report.Began), false)
	add(entry("b", "1.4.1", report.Began), true)
	add(entry("a", "1.4.1", report.Failed), true)
	add(entry("a", "1.4.2", report.Began), true)
	add(entry("a", "1.4.1", report.Began), true) // again
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	var all []string
	if log, _, err = report.Open(path, names(&all)); err != nil {
		t.Fatal(err)
	}
	want := []string{"a 1.4.1 Began", "b 1.4.1 Began", "a 1.4.1 Failed", "a 1.4.2 Began", "a 1.4.1 Began"}
	if diff := cmp.Diff(want, all); diff != "" {
		t.Error(diff)
	}
	add(entry("a", "1.4.1", report.Began), false)
}

// TestALogHasALimit: a file of 64 MB is renamed, and only one is kept beside the new one.
func TestALogHasALimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "reports.jsonl")
	for i, want := range []string{"1 2", "2 3"} {
		log, _, err := report.Open(path, func(report.Entry) {})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := log.Append(entry(fmt.Sprint(i+1), "1.4.1", report.Began)); err != nil {
			t.Fatal(err)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, 64<<20); err != nil { // a line of zeros, which is skipped
			t.Fatal(err)
		}
		if log, _, err = report.Open(path, func(report.Entry) {}); err != nil {
			t.Fatal(err)
		}
		if _, err := log.Append(entry(fmt.Sprint(i+2), "1.4.1", report.Succeeded)); err != nil {
			t.Fatal(err)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		var all []string
		if _, err := report.Read(path, func(e report.Entry) { all = append(all, e.ID[16:]) }); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(all, " "); got != want && got != "2 "+want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestATornLineIsSkippedAndNamed: a killed process may leave a part of a line.
func TestATornLineIsSkippedAndNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "reports.jsonl")
	log, _, err := report.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b"} {
		if _, err := log.Append(entry(id, "1.4.1", report.Began)); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for torn, want := range map[string][]string{
		string(text[:len(text)-20]):                        {path + ":2: skipped: not a report"},
		string(text[:len(text)-1]):                         nil, // only its end is missing
		strings.Repeat("x", 100_000) + "\n" + string(text): {path + ":1: skipped: not a report"},
	} {
		if err := os.WriteFile(path, []byte(torn), 0o600); err != nil {
			t.Fatal(err)
		}
		var all []string
		log, skipped, err := report.Open(path, names(&all))
		if err != nil || !slices.Equal(skipped, want) {
			t.Errorf("%v %v", skipped, err)
		}
		if _, err := log.Append(entry("c", "1.4.1", report.Failed)); err != nil {
			t.Error(err)
		}
		all = nil
		if _, err := report.Read(path, names(&all)); err != nil || all[len(all)-1] != "c 1.4.1 Failed" ||
			len(all) != 3-len(want) && len(all) != 3 {
			t.Errorf("%v, %v", all, err)
		}
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}
}
