package graphdata_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/runlevel/runlevel/internal/updates/graphdata"
)

const prefix = "io.openshift.upgrades.graph."

// folderOfGoldens returns a folder with fixtures of Cincinnati's openshift_secondary_metadata_parser, and graph data.
func folderOfGoldens(t *testing.T) string {
	folder := os.Getenv("RUNLEVEL_TEST_GRAPH_DATA")
	if folder == "" {
		t.Skip("RUNLEVEL_TEST_GRAPH_DATA has no folder with fixtures of Cincinnati")
	}
	return folder
}

// A rawGraph is a graph as Cincinnati's graph builder passes it between plugins.
type rawGraph struct {
	Nodes []struct {
		Version  string
		Image    string `json:"payload"`
		Metadata map[string]string
	}
	Edges [][2]int
}

func readRaw(t *testing.T, file string) (graph rawGraph) {
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &graph)
	}
	if err != nil {
		t.Fatal(err)
	}
	return graph
}

// TestGoldenGraphs compares the graphs of Cincinnati's fixtures with those that follow from its golden metadata, which
// the test applies by itself.
func TestGoldenGraphs(t *testing.T) {
	folder := folderOfGoldens(t)
	fixtures, err := filepath.Glob(filepath.Join(folder, "*", "graph-gb-raw.json"))
	if err != nil || len(fixtures) == 0 {
		t.Fatalf("%s has no fixtures: %v", folder, err)
	}
	for _, file := range fixtures {
		fixture := filepath.Dir(file)
		t.Run(filepath.Base(fixture), func(t *testing.T) {
			data := readGolden(t, fixture)
			golden := readRaw(t, filepath.Join(fixture, "graph-gb-with-quay-metadata.json"))
			want := newOracle(golden)
			graphs, edges := 0, 0
			for channel := range want.channels {
				for _, arch := range data.Architectures() {
					got := data.Graph(channel, arch, time.Now())
					compare(t, channel+"/"+arch, got, want.graph(channel, arch))
					graphs, edges = graphs+1, edges+len(got.Edges)
				}
			}
			t.Logf("%d graphs with %d edges are the same", graphs, edges)
		})
	}
}

// readGolden reads the graph data of a fixture, with the releases of its raw graph.
func readGolden(t *testing.T, fixture string) *graphdata.Data {
	graphData := filepath.Join(fixture, "cincinnati-graph-data")
	files := fstest.MapFS{}
	err := fs.WalkDir(os.DirFS(graphData), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(graphData, path))
		files[path] = &fstest.MapFile{Data: text}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	raw := readRaw(t, filepath.Join(fixture, "graph-gb-raw.json"))
	previous := map[int][]string{}
	for _, edge := range raw.Edges {
		previous[edge[1]] = append(previous[edge[1]], raw.Nodes[edge[0]].Version)
	}
	for i, node := range raw.Nodes {
		if node.Metadata == nil { // no file has this release
			continue
		}
		text, err := json.Marshal(map[string]any{"version": node.Version, "image": node.Image,
			"metadata": node.Metadata, "previous": previous[i]})
		if err != nil {
			t.Fatal(err)
		}
		files[fmt.Sprintf("releases/%d.yaml", i)] = &fstest.MapFile{Data: text}
	}
	data, err := graphdata.Read(files)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// An oracle applies golden metadata, as Cincinnati's plugin edge-add-remove does, and filters.
type oracle struct {
	graph    func(channel, arch string) map[string][]string
	channels map[string]bool
}

func newOracle(golden rawGraph) oracle {
	edges := map[[2]string]bool{}
	for _, edge := range golden.Edges {
		edges[[2]string{golden.Nodes[edge[0]].Version, golden.Nodes[edge[1]].Version}] = true
	}
	channels := map[string]bool{}
	for _, node := range golden.Nodes {
		suffix := "+" + node.Metadata[prefix+"release.arch"]
		for version := range strings.SplitSeq(node.Metadata[prefix+"previous.add"], ",") {
			edges[[2]string{strings.TrimSpace(version) + suffix, node.Version}] = true
		}
	}
	for _, node := range golden.Nodes {
		for channel := range strings.SplitSeq(node.Metadata[prefix+"release.channels"], ",") {
			channels[channel] = channel != ""
		}
		dropped := strings.Split(node.Metadata[prefix+"previous.remove"], ",")
		removing := regexp.MustCompile(node.Metadata[prefix+"previous.remove_regex"])
		for edge := range edges {
			base, _, _ := strings.Cut(edge[0], "+")
			if edge[1] == node.Version && (slices.Contains(dropped, base) || dropped[0] == "*" ||
				removing.String() != "" && removing.MatchString(edge[0])) {
				delete(edges, edge)
			}
		}
	}
	delete(channels, "")
	return oracle{channels: channels, graph: func(channel, arch string) map[string][]string {
		graph, versions := map[string][]string{}, map[string]string{}
		for _, node := range golden.Nodes {
			if slices.Contains(strings.Split(node.Metadata[prefix+"release.channels"], ","), channel) &&
				node.Metadata[prefix+"release.arch"] == arch {
				versions[node.Version] = strings.TrimSuffix(node.Version, "+"+arch)
				graph[describe(versions[node.Version], node.Image, node.Metadata)] = nil
			}
		}
		for edge := range edges {
			if from, target := versions[edge[0]], versions[edge[1]]; from != "" && target != "" {
				graph[from] = append(graph[from], target)
			}
		}
		return graph
	}}
}

// describe returns what two graphs must have in common about a node.
func describe(version, image string, metadata map[string]string) string {
	return strings.Join([]string{version, image, metadata[prefix+"release.channels"], metadata["url"]}, " ")
}

func compare(t *testing.T, name string, got *graphdata.Graph, want map[string][]string) {
	t.Helper()
	found := map[string][]string{}
	for _, node := range got.Nodes {
		found[describe(node.Version, node.Image, node.Metadata)] = nil
	}
	for _, edge := range got.Edges {
		from := got.Nodes[edge[0]].Version
		found[from] = append(found[from], got.Nodes[edge[1]].Version)
	}
	for _, graph := range []map[string][]string{found, want} {
		for version := range graph {
			slices.Sort(graph[version])
		}
	}
	for _, version := range slices.Sorted(maps.Keys(want)) {
		if all, isFound := found[version]; !isFound || !slices.Equal(all, want[version]) {
			t.Errorf("%s: %s leads to %v, want %v", name, version, found[version], want[version])
		}
	}
	for version := range found {
		if _, isWanted := want[version]; !isWanted {
			t.Errorf("%s: %s is not in the golden graph", name, version)
		}
	}
}

// TestInvalidFixture reads upstream's fixture of files that can't be read; Cincinnati skips them.
func TestInvalidFixture(t *testing.T) {
	folder := filepath.Join(folderOfGoldens(t), "invalid0", "cincinnati-graph-data")
	_, err := graphdata.Read(os.DirFS(folder))
	if err == nil || !strings.Contains(err.Error(), "invalid_format.yaml:") {
		t.Errorf("read without the error in a file: %v", err)
	}
}

// TestCurrentGraphData reads the folder "current", if there is one: the whole of the community's graph data.
func TestCurrentGraphData(t *testing.T) {
	folder := filepath.Join(folderOfGoldens(t), "current")
	if _, err := os.Stat(folder); err != nil {
		t.Skip(err)
	}
	data, err := graphdata.Read(os.DirFS(folder))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d channels, %d blocked edges", len(data.Channels), len(data.Blocked))
}
