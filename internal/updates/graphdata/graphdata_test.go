package graphdata_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"golang.org/x/tools/txtar"

	"github.com/runlevel/runlevel/internal/updates/graphdata"
)

// shop returns the files of a folder, with some replaced, and the wanted graphs.
func shop(t *testing.T, replaced map[string]string) (files fstest.MapFS, want map[string]string) {
	t.Helper()
	archive, err := txtar.ParseFile("testdata/shop.txtar")
	if err != nil {
		t.Fatal(err)
	}
	files, want = fstest.MapFS{}, map[string]string{}
	for _, file := range archive.Files {
		if name, isWanted := strings.CutPrefix(file.Name, "want/"); isWanted {
			want[name] = string(file.Data)
			continue
		}
		files[file.Name] = &fstest.MapFile{Data: file.Data}
	}
	for name, text := range replaced {
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return files, want
}

var now = time.Date(2026, 12, 2, 8, 0, 0, 0, time.UTC)

func TestGraphs(t *testing.T) {
	files, want := shop(t, nil)
	data, err := graphdata.Read(files)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range want {
		channel, arch, _ := strings.Cut(name, " ")
		if diff := cmp.Diff(text, textOf(data.Graph(channel, arch, now), channel)); diff != "" {
			t.Errorf("the graph of %s (-want +got):\n%s", name, diff)
		}
	}
	if got := data.Architectures(); !slices.Equal(got, []string{"amd64", "arm64"}) {
		t.Errorf("architectures %v", got)
	}
	if got := data.ChannelNames(); !slices.Equal(got, []string{"candidate-1.4", "stable-1.4"}) {
		t.Errorf("channels %v", got)
	}
}

// textOf returns a graph as lines, nodes and then edges.
func textOf(graph *graphdata.Graph, channel string) string {
	var lines, edges []string
	for i, node := range graph.Nodes {
		line := node.Version
		if i == 0 {
			line += " " + channel + " among " + node.Metadata["io.openshift.upgrades.graph.release.channels"]
		}
		for key, word := range map[string]string{"barrier": " barrier: ", "dead-end": " dead end: "} {
			if reason := node.Metadata["dev.runlevel."+key]; reason != "" {
				line += word + reason
			}
		}
		lines = append(lines, line)
	}
	for _, edge := range graph.Edges {
		edges = append(edges, graph.Nodes[edge[0]].Version+" -> "+graph.Nodes[edge[1]].Version)
	}
	for _, group := range graph.ConditionalEdges {
		for _, edge := range group.Edges {
			edges = append(edges, edge.From+" -> "+edge.To+" with "+group.Risks[0].Name)
		}
	}
	for _, phase := range graph.PhasedEdges {
		for _, edge := range phase.Edges {
			line := fmt.Sprintf("%s -> %s phased %v %s", edge.From, edge.To, phase.Ramp.Percentage,
				phase.Ramp.Duration.Duration)
			for name, ring := range phase.Rings {
				line += fmt.Sprintf(" %s %v", name, ring.Percentage)
			}
			if phase.Halt != "" {
				line += " halted: " + phase.Halt
			}
			edges = append(edges, line)
		}
	}
	slices.Sort(edges)
	return strings.Join(append(lines, edges...), "\n") + "\n"
}

func TestPhasesOpenAndClose(t *testing.T) {
	const risk = "to: 1.4.4\nfrom: 1.4.1\nname: R\nurl: https://r.example\nmessage: m\n" +
		"matchingRules: [{type: Always}]\n"
	files, _ := shop(t, map[string]string{"blocked-edges/1.4.4.yaml": risk})
	data, err := graphdata.Read(files)
	if err != nil {
		t.Fatal(err)
	}
	end := time.Date(2026, 12, 3, 8, 0, 0, 0, time.UTC)
	before := textOf(data.Graph("stable-1.4", "amd64", end.Add(-time.Second)), "stable-1.4")
	after := textOf(data.Graph("stable-1.4", "amd64", end), "stable-1.4")
	for _, want := range []string{"1.4.0 -> 1.4.4 phased", "1.4.1 -> 1.4.4 phased"} {
		if !strings.Contains(before, want) || strings.Contains(after, want) {
			t.Errorf("%q is not only before the end of the ramp:\n%s\n%s", want, before, after)
		}
	}
	if !strings.Contains(after, "1.4.1 -> 1.4.4 with R\n") || !strings.Contains(after, "1.4.0 -> 1.4.4\n") {
		t.Errorf("after the ramp:\n%s", after)
	}
	text, err := json.Marshal(data.Graph("stable-1.4", "amd64", end.Add(-time.Second)))
	if err != nil || !strings.Contains(string(text), `"risks":[{"url":"https://r.example","name":"R","message":"m",`+
		`"matchingRules":[{"type":"Always"}]}],"first":["our-own"],"ramp":{"start":"2026-12-01T08:00:00Z"`) {
		t.Errorf("%s, %v", text, err)
	}
}

func TestReadListsEverythingThatIsWrong(t *testing.T) {
	files, _ := shop(t, map[string]string{
		"version":              "2.0.0",
		"channels/a.yaml":      "name: Stable\nversions: [1.4.0, v1.4]\nfeader: {name: b}\n",
		"channels/b.yml":       "name: b\n",
		"channels/c.yaml":      "",
		"blocked-edges/a.yaml": "to: 1.4\nfrom: (\n",
		"blocked-edges/b.yaml": "to: 1.4.0\nfrom: .*\nname: A\nurl: https://a.example\n" +
			"matchingRules: [{type: PromQL}]\n",
		"blocked-edges/c.yaml":    "to: 1.4.0\nfrom: [a]\n",
		"releases/a.yaml":         "version: 1.4.8\nimage: registry.example/shop:1.4.8\nprevious:\n- 1.4.0\n- latest\n",
		"barriers/a.yaml":         "version: 1.4.8\n",
		"phases/a.yaml":           "to: 1.4.8\nrings:\n  canary:\n    pecentage: 5\n",
		"phases/b.yaml":           "to: 1.4.8\nrings: {canary: {percentage: 500}}\nmaxFailures: many\nafter: {}\n",
		"phases/c.yaml":           "to: 1.4.8\n  start: x\n",
		"raw/metadata.json":       `{"1.4": {"a": "b"}}`,
		graphdata.HaltsFile:       "- {to: 1.4.1, at: 2026-12-02T08:00:00Z}\n- {to: 1.4.1, reason: r}\n",
		"dead-ends/README.md":     "is not read",
		"dead-ends/unknown.blah":  "is not read",
		"internal-channels/x.yml": "is not read",
	})
	_, err := graphdata.Read(files)
	want, readErr := os.ReadFile(filepath.Join("testdata", "wrong.txt"))
	if err == nil || readErr != nil {
		t.Fatalf("%v, %v", err, readErr)
	}
	lines := strings.Split(err.Error(), "\n")
	slices.Sort(lines)
	if diff := cmp.Diff(string(want), strings.Join(lines, "\n")+"\n"); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestContradictionsBetweenFiles(t *testing.T) {
	for name, test := range map[string]struct{ file, text, want string }{
		"a version twice": {"releases/x.yaml", "version: 1.4.0\narchitecture: amd64\nimage: r.example/s@sha256:" +
			strings.Repeat("0", 64), "releases/x.yaml: version 1.4.0 is also in releases/1.4.0.yaml"},
		"a version of no architecture": {"releases/x.yaml", "version: 1.4.0\nimage: r.example/s@sha256:" +
			strings.Repeat("0", 64), "releases/1.4.0.yaml: version 1.4.0 is also in releases/x.yaml"},
		"a channel twice": {"channels/x.yaml", "name: stable-1.4\nversions: []",
			"channels/x.yaml: channel stable-1.4 is also in channels/stable.yaml"},
		"an edge in two phases": {"phases/x.yaml", "to: 1.4.4\nfrom: 1[.]4[.]0",
			"phases/x.yaml: the update from 1.4.0 to 1.4.4 in channel stable-1.4 is in this phase and in phases/1.4.4"},
		"a channel of a release": {"raw/metadata.json",
			`{"1.4.4": {"io.openshift.upgrades.graph.release.channels": "stable-1.4, ../../x"}}`,
			`releases/1.4.4.yaml: metadata: "../../x" is not a name of the form ^[0-9a-z-][0-9a-z.-]*$`},
		"an architecture of a release": {"raw/metadata.json",
			`{"1.4.4": {"io.openshift.upgrades.graph.release.arch": "../x"}}`,
			`releases/1.4.4.yaml: metadata: "../x" is not a name of the form ^[0-9a-z]+$`},
		"an expression of a release": {"raw/metadata.json",
			`{"1.4.4": {"io.openshift.upgrades.graph.previous.remove_regex": "("}}`, `releases/1.4.4.yaml: metadata: ` +
				`io.openshift.upgrades.graph.previous.remove_regex: "(" is not a regular expression`},
	} {
		files, _ := shop(t, map[string]string{test.file: test.text})
		if _, err := graphdata.Read(files); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

func TestAppendHalt(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, graphdata.HaltsFile)
	before := "# by hand\n- {to: 1.4.0, at: 2026-12-01T08:00:00Z, reason: r}"
	if err := os.WriteFile(file, []byte(before), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, halt := range []graphdata.Halt{
		{To: "1.4.1", At: metav1.NewTime(now), Reason: "3 failed: \"disk\nfull\""},
		{To: "1.4.0", At: metav1.NewTime(now.Add(time.Hour)), Resumed: "fixed", By: "ada"},
	} {
		if err := graphdata.AppendHalt(folder, halt); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(folder, "version"), []byte("1.1.0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	data, err := graphdata.Read(os.DirFS(folder))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil || strings.Count(string(text), "\n") != 4 {
		t.Errorf("the file has not a line for each halt: %q, %v", text, err)
	}
	halted := data.Halted()
	if len(halted) != 1 || halted["1.4.1"].Reason != "3 failed: \"disk\nfull\"" {
		t.Errorf("halted: %v", halted)
	}
	if resumed := data.Resumed("1.4.0"); !resumed.Equal(now.Add(time.Hour)) {
		t.Errorf("resumed at %s", resumed)
	}
}
