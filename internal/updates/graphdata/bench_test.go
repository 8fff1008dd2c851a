package graphdata_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/runlevel/runlevel/internal/updates/graphdata"
)

// manyVersions returns a folder with 10,000 versions in one channel, which 18 edges each lead to: as many as to those
// of OpenShift.
func manyVersions() fstest.MapFS {
	const minors, patches, fromMinor, fromBefore = 100, 100, 12, 6
	files := fstest.MapFS{"version": {Data: []byte("1.1.0")}}
	var versions []string
	for minor := range minors {
		for patch := range patches {
			version := fmt.Sprintf("1.%d.%d", minor, patch)
			versions = append(versions, version)
			var previous []string
			for i := range fromMinor {
				if patch > i {
					previous = append(previous, fmt.Sprintf("1.%d.%d", minor, patch-i-1))
				}
			}
			for i := range fromBefore {
				if minor > 0 && patch >= i {
					previous = append(previous, fmt.Sprintf("1.%d.%d", minor-1, patch-i))
				}
			}
			text := fmt.Sprintf("version: %s\narchitecture: amd64\nurl: https://shop.example/%[1]s\nprevious: [%s]\n"+
				"image: registry.example/shop@sha256:%064x\n", version, strings.Join(previous, ","), len(versions))
			files["releases/"+version+".yaml"] = &fstest.MapFile{Data: []byte(text)}
			if patch%10 == 5 {
				risk := fmt.Sprintf("to: %s\nfrom: ^1[.]%d[.].*\nname: Risk%d\nurl: https://shop.example\nmessage: m\n"+
					"matchingRules: [{type: Always}]\n", version, minor-1, minor)
				files["blocked-edges/"+version+".yaml"] = &fstest.MapFile{Data: []byte(risk)}
			}
		}
	}
	files["channels/stable.yaml"] = &fstest.MapFile{
		Data: []byte("name: stable\nversions: [" + strings.Join(versions, ",") + "]\n"),
	}
	return files
}

// BenchmarkGraph builds the graph of 10,000 versions with 175,000 edges, from files that have been read.
func BenchmarkGraph(b *testing.B) {
	data, err := graphdata.Read(manyVersions())
	if err != nil {
		b.Fatal(err)
	}
	var graph *graphdata.Graph
	b.Run("link", func(b *testing.B) {
		for b.Loop() {
			if err := data.Relink(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("graph", func(b *testing.B) {
		for b.Loop() {
			graph = data.Graph("stable", "amd64", time.Now())
		}
		b.ReportMetric(float64(len(graph.Nodes)), "versions")
		b.ReportMetric(float64(len(graph.Edges)), "edges")
	})
	b.Run("json", func(b *testing.B) {
		for b.Loop() {
			text, err := json.Marshal(graph)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(len(text)), "bytes")
		}
	})
}

func BenchmarkRead(b *testing.B) {
	files := manyVersions()
	for b.Loop() {
		if _, err := graphdata.Read(files); err != nil {
			b.Fatal(err)
		}
	}
}
