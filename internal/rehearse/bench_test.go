package rehearse_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/runlevel/runlevel/internal/rehearse"
	"github.com/runlevel/runlevel/internal/review/mistakes"
	"github.com/runlevel/runlevel/internal/sandbox"
)

// BenchmarkRehearse300 rehearses an update of ten shops with thirty objects each, one of which gets new images. Each
// rehearsal starts a control plane; "s-start" is the part of the time that this takes, and the other metrics are those
// of the stages.
func BenchmarkRehearse300(b *testing.B) {
	shop, err := mistakes.Shop()
	if err != nil {
		b.Fatal(err)
	}
	before, after := fstest.MapFS{}, fstest.MapFS{}
	for i := range 10 {
		shops := branch(shop, slices.Collect(maps.Keys(shop)), i)
		maps.Copy(before, shops)
		if i == 0 {
			shops = withNewImages(shops)
		}
		maps.Copy(after, shops)
	}
	previous, next := parse(b, before, "1.0.0"), parse(b, after, "1.1.0")
	var start time.Duration
	stages := map[string]float64{}
	for b.Loop() {
		report, err := rehearse.Run(b.Context(),
			rehearse.Options{Old: previous, New: next, Sandbox: sandbox.Options{Nodes: 3}})
		if err != nil {
			b.Fatal(err)
		}
		start += report.Start
		for _, stage := range report.Stages {
			stages[strings.Fields(stage.Name)[0]] += stage.Seconds
		}
	}
	b.ReportMetric(float64(len(next.Manifests)), "objects")
	b.ReportMetric(start.Seconds()/float64(b.N), "s-start")
	for name, seconds := range stages {
		b.ReportMetric(seconds/float64(b.N), "s-"+name)
	}
}

// withNewImages returns manifests whose workloads have images of version 2.
func withNewImages(files fstest.MapFS) fstest.MapFS {
	changed := fstest.MapFS{}
	for name, file := range files {
		lines := strings.Split(string(file.Data), "\n")
		for i, line := range lines {
			if strings.Contains(line, "image: ") {
				lines[i] = strings.TrimSuffix(line, ":1") + ":2"
			}
		}
		text := strings.ReplaceAll(strings.Join(lines, "\n"), "migrate-1", "migrate-2")
		changed[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return changed
}
