package review_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/cli"
	"github.com/runlevel/runlevel/internal/cli/core"
)

// TestGraphIsTheClusterVersionOperators compares our DOT with that of its own tool, if
// RUNLEVEL_TEST_RELEASE names a release and RUNLEVEL_TEST_GRAPHS a folder with the output of
// "cluster-version-util task-graph" for it.
func TestGraphIsTheClusterVersionOperators(t *testing.T) {
	release, graphs := os.Getenv("RUNLEVEL_TEST_RELEASE"), os.Getenv("RUNLEVEL_TEST_GRAPHS")
	if release == "" || graphs == "" {
		t.Skip("RUNLEVEL_TEST_RELEASE and RUNLEVEL_TEST_GRAPHS name no release and its graphs")
	}
	for mode, name := range map[string]string{"update": "*.by-number-and-component.dot",
		"install": "*.flatten-by-number-and-component.dot"} {
		found, err := filepath.Glob(filepath.Join(graphs, name))
		if err != nil || len(found) != 1 {
			t.Fatalf("%s: %d files; %v", name, len(found), err)
		}
		theirs, err := os.ReadFile(found[0])
		if err != nil {
			t.Fatal(err)
		}
		var ours, problems bytes.Buffer
		args := []string{"graph", release, "-o", "dot", "--mode", mode, "--profile", "self-managed-high-availability"}
		if code := cli.Run(context.Background(), args, core.Streams{Out: &ours, Err: &problems}); code != 0 {
			t.Fatalf("exit code %d: %s", code, &problems)
		}
		if diff := cmp.Diff(canonical(t, string(theirs)), canonical(t, ours.String())); diff != "" {
			t.Errorf("%s: -theirs +ours\n%s", mode, diff)
		}
	}
}

var (
	dotNode = regexp.MustCompile(`(?m)^ *(\d+) \[ label="([^"]*)" shape="box" \];$`)
	dotEdge = regexp.MustCompile(`(?m)^ *(\d+) -> (\d+);$`)
)

// canonical lists the edges of a graph without the numbers of its nodes. A node is named by
// its manifests, or by its neighbours if it has none.
func canonical(t *testing.T, dot string) []string {
	t.Helper()
	names, around := map[string]string{}, map[string][]string{}
	for _, node := range dotNode.FindAllStringSubmatch(dot, -1) {
		names[node[1]] = node[2]
	}
	edges := dotEdge.FindAllStringSubmatch(dot, -1)
	if len(names) == 0 || len(edges) == 0 {
		t.Fatalf("%d nodes and %d edges in %.200s", len(names), len(edges), dot)
	}
	for _, edge := range edges {
		around[edge[1]] = append(around[edge[1]], "before "+edge[2])
		around[edge[2]] = append(around[edge[2]], "after "+edge[1])
	}
	for range 3 { // distance between two spacers with tasks in between
		next := map[string]string{}
		for node, name := range names {
			next[node] = name
			if !strings.HasPrefix(name, "no manifests") {
				continue
			}
			var neighbours []string
			for _, neighbour := range around[node] {
				side, other, _ := strings.Cut(neighbour, " ")
				neighbours = append(neighbours, side+" "+names[other])
			}
			slices.Sort(neighbours)
			next[node] = "no manifests, " + strings.Join(neighbours, ", ")
		}
		names = next
	}
	var lines []string
	for _, edge := range edges {
		lines = append(lines, fmt.Sprintf("%s -> %s", names[edge[1]], names[edge[2]]))
	}
	for _, name := range names {
		lines = append(lines, name)
	}
	slices.Sort(lines)
	return lines
}
