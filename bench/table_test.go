package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func measured(tool, name string, round int, seconds float64) result {
	return result{
		Objects: 100,
		Case:    name,
		Tool:    tool,
		Round:   round,
		cost:    cost{Seconds: seconds, ClientCPU: seconds / 10, PeakMB: 20},
	}
}

func TestTablesHaveMediansOfTheRatiosOfRounds(t *testing.T) {
	failed := measured("helm", "again", 0, 1)
	failed.Error = "exit status 1"
	var printed strings.Builder
	err := printMarkdown(&printed, []result{
		measured("floor", "first", 0, 1), measured("runlevel", "first", 0, 1.2), measured("helm", "first", 0, 30),
		measured("floor", "first", 1, 10), measured("runlevel", "first", 1, 11), // a busy machine
		measured("floor", "first", 2, 2), measured("runlevel", "first", 2, 3),
		measured("runlevel", "again", 0, 0.1), measured("floor", "again", 0, 0.5), failed,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Time, as a ratio to the floor's first apply:\n\n" +
			"| objects | apply | floor | Runlevel | helm |\n" +
			"|---|---|---|---|---|\n" +
			"| 100 | first | 1.00 (2 s) | 1.20 (3 s) | 30.00 (30 s) |\n" +
			"| 100 | again | 0.50 (0.5 s) | 0.10 (0.1 s) | failed |\n" +
			"| 100 | 1 % changed |  |  |  |\n",
		"| 100 | again | 1.00 (0.05 s) | 0.20 (0.01 s) | failed |\n", // CPU time, against the same case
	} {
		if !strings.Contains(printed.String(), want) {
			t.Errorf("there is no\n%s\nin\n%s", want, printed.String())
		}
	}
}

func TestMedian(t *testing.T) {
	for _, test := range []struct {
		of   []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 2, 9}, 3}} {
		if got := median(test.of); got != test.want {
			t.Errorf("median of %v: %v, not %v", test.of, got, test.want)
		}
	}
}

func TestTablesAreWrittenBetweenTheMarkers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "performance.md")
	tables := func(w io.Writer) error { _, err := io.WriteString(w, "new\n"); return err }
	if err := os.WriteFile(file, []byte("# Costs\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeInto(file, tables); err == nil || !strings.Contains(err.Error(), "bench: end") {
		t.Errorf("a document without markers: %v", err)
	}
	if err := os.WriteFile(file, []byte("before\n"+begin+"old\n"+end+"after\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeInto(file, tables); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(file); string(got) != "before\n"+begin+"\nnew\n\n"+end+"after\n" {
		t.Errorf("%s", got)
	}
}

func TestDocumentHasThePlaceOfTheTables(t *testing.T) {
	content, err := os.ReadFile("../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(content), begin) != 1 || strings.Count(string(content), end) != 1 {
		t.Error("docs/performance.md has no markers, or more than one pair")
	}
}
