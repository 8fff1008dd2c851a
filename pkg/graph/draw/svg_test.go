package draw_test

import (
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/graph/draw"
)

// svgOf returns the picture of tasks.
func svgOf(t *testing.T, tasks []task, mode graph.Mode) (svg element) {
	t.Helper()
	p := draw.Picture{Graph: graph.Build(tasks, graph.Options{Mode: mode}), Mode: mode}
	var out strings.Builder
	if err := p.SVG(&out); err != nil {
		t.Fatal(err)
	}
	if err := xml.Unmarshal([]byte(out.String()), &svg); err != nil {
		t.Fatal(err)
	}
	return svg
}

// components returns a level of components.
func components(count int, kind string) (tasks []task) {
	for i := range count {
		tasks = append(tasks, task{fmt.Sprintf("0000_10_component-%02d_x", i), kind, "x", false})
	}
	return tasks
}

func TestBoxesFillTheirRows(t *testing.T) {
	for count, rows := range map[int][]int{1: {1}, 2: {2}, 4: {4}, 5: {3, 2}, 9: {3, 3, 3}, 13: {4, 4, 4, 1}} {
		svg := svgOf(t, components(count, "ConfigMap"), graph.Update)
		band := svg.find("rect", "band")[0]
		ends, inRow := map[int]int{}, map[int]int{}
		for _, b := range svg.find("rect", "box") {
			ends[b.Y] = max(ends[b.Y], b.X+b.Width)
			inRow[b.Y]++
		}
		if len(ends) != len(rows) {
			t.Errorf("%d boxes are in %d rows, want %v", count, len(ends), rows)
		}
		first := band.Y + 10
		if inRow[first] != rows[0] || band.Width-ends[first] > 15 {
			t.Errorf("%d boxes: the first row has %d and ends at %d of %d", count, inRow[first], ends[first],
				band.Width)
		}
	}
}

func TestTextIsCutOnlyIfItDoesNotFit(t *testing.T) {
	const kind = "ValidatingWebhookConfiguration"
	for count, isCut := range map[int]bool{1: false, 3: false, 4: true} {
		kinds := svgOf(t, components(count, kind), graph.Update).find("text", "small")
		last := kinds[len(kinds)-1].Text
		if got := strings.HasSuffix(last, "…"); got != isCut || !isCut && last != kind {
			t.Errorf("of %d boxes in a row, one has %q", count, last)
		}
	}
}

// TestOnlyAnUpdateDeletes draws tombstones, one of a Job, in each mode.
func TestOnlyAnUpdateDeletes(t *testing.T) {
	tasks := []task{{"0000_10_a_x", "ConfigMap", "old", true}, {"0000_20_b_x", "Job", "old", true}}
	for mode, want := range map[graph.Mode]bool{graph.Update: true, graph.Install: false, graph.Reconcile: false} {
		p := draw.Picture{Graph: graph.Build(tasks, graph.Options{Mode: mode}), Mode: mode, Manifests: true}
		svg := svgOf(t, tasks, mode)
		if red := len(svg.find("g", "node deletes")) + len(svg.find("g", "barrier deletes")); red != 2 == want {
			t.Errorf("%s: %d red boxes", mode, red)
		}
		var text, mermaid strings.Builder
		if err := p.Text(&text); err != nil {
			t.Fatal(err)
		}
		if err := p.Mermaid(&mermaid); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(text.String(), "✗ job old") != want ||
			strings.Contains(text.String(), "1 to delete later") == want {
			t.Errorf("%s as text: %s", mode, &text)
		}
		if strings.Contains(mermaid.String(), ":::deletedBarrier") != want ||
			strings.Contains(mermaid.String(), ":::tombstone") != want {
			t.Errorf("%s as Mermaid: %s", mode, &mermaid)
		}
	}
}

func TestStatesOfARun(t *testing.T) {
	tasks := []task{{"0000_10_a_x", "ConfigMap", "one", false}, {"0000_10_b_x", "ConfigMap", "old", true},
		{"0000_20_c_x", "Job", "migrate", false}}
	p := draw.Picture{Graph: graph.Build(tasks, graph.Options{})}
	p.Link = func(node int) string { return fmt.Sprintf("/objects?node=%d&x", node) }
	for range p.Graph.Nodes {
		p.States = append(p.States, draw.State{Tone: draw.Waiting, Word: "waiting", Done: 1, Total: 3})
	}
	embedded := p.Embedded()
	var svg element
	if err := xml.Unmarshal([]byte(embedded), &svg); err != nil {
		t.Fatalf("%v in %s", err, embedded)
	}
	if words := svg.find("text", "word"); len(words) != 3 || words[0].Text != "waiting" {
		t.Errorf("the states are %v", words)
	}
	if links := svg.find("a", ""); len(links) != 3 || len(svg.find("g", "node waiting")) != 2 {
		t.Errorf("%d links in %s", len(links), embedded)
	}
	for _, unwanted := range []string{"<style", "style=", "deletes", "url("} {
		if strings.Contains(embedded, unwanted) {
			t.Errorf("the picture for a page has %s", unwanted)
		}
	}
}

// TestNamesOfALevelDiffer draws names that begin with the same words.
func TestNamesOfALevelDiffer(t *testing.T) {
	for _, word := range []string{"component-with-a-long-name", strings.Repeat("component-", 10)} {
		var tasks []task
		for i := range 9 {
			tasks = append(tasks, task{fmt.Sprintf("0000_10_%s%d_x", word, i), "ConfigMap", "x", false})
		}
		names := map[string]bool{}
		for _, text := range svgOf(t, tasks, graph.Update).find("text", "name") {
			names[text.Text] = true
			if isCut := strings.Contains(text.Text, "…"); isCut == (len(word) < 30) {
				t.Errorf("a box is named %s", text.Text)
			}
		}
		if len(names) != len(tasks) {
			t.Errorf("the boxes are named %v", names)
		}
	}
}

// TestLegend draws levels that an install starts together, and an update one after the other.
func TestLegend(t *testing.T) {
	tasks := []task{{"0000_10_a_x", "ConfigMap", "one", false}, {"0000_20_b_x", "ConfigMap", "two", false}}
	for mode, want := range map[graph.Mode]string{
		graph.Update: "levels from top to bottom", graph.Install: "bands without an arrow between them start together",
	} {
		if legend := svgOf(t, tasks, mode).find("text", "small")[0].Text; !strings.Contains(legend, want) {
			t.Errorf("%s: the legend is %q", mode, legend)
		}
	}
}

// TestDeletesOfARun draws tombstones before and after an update deletes their objects.
func TestDeletesOfARun(t *testing.T) {
	tasks := []task{{"0000_10_a_x", "ConfigMap", "old", true}, {"0000_20_b_x", "Job", "old", true}}
	for state, want := range map[draw.State]string{
		{Tone: draw.Later, Word: "later", Total: 1}:        "1 to delete",
		{Tone: draw.Good, Word: "done", Done: 1, Total: 1}: "1 deleted",
	} {
		p := draw.Picture{Graph: graph.Build(tasks, graph.Options{}), States: []draw.State{state, state}}
		p.Link = func(int) string { return "" }
		embedded := p.Embedded()
		isRed := strings.Count(embedded, `class="red"`) == 2
		if strings.Count(embedded, ">"+want+"<") != 2 || isRed != (state.Tone == draw.Later) {
			t.Errorf("%s: %s", state.Word, embedded)
		}
	}
}

// TestLongNameOfAJob draws the name of a Job, which has all of the bar.
func TestLongNameOfAJob(t *testing.T) {
	name := strings.Repeat("x", 90)
	svg := svgOf(t, []task{{"0000_20_b_x", "Job", name, false}}, graph.Update)
	if names := svg.find("text", "bar-name"); names[1].Text != "job "+name {
		t.Errorf("the bar has %q", names[1].Text)
	}
}

// TestRunThatStops draws many levels: those before the failure and those after the next one are folded.
func TestRunThatStops(t *testing.T) {
	var tasks []task
	for i := range draw.MaxUnfolded + 20 {
		for _, component := range "ab" {
			tasks = append(tasks, task{fmt.Sprintf("0000_%d_%c_x", 10+i, component), "ConfigMap", "x", false})
		}
	}
	p := draw.Picture{Graph: graph.Build(tasks, graph.Options{}), Link: func(int) string { return "" }}
	for _, node := range p.Graph.Nodes {
		state := draw.State{Tone: draw.Later, Word: "later", Total: 1}
		if len(node.Tasks) > 0 && node.Tasks[0] < 60 {
			state = draw.State{Tone: draw.Good, Word: "done", Done: 1, Total: 1}
		}
		if len(node.Tasks) > 0 && node.Tasks[0]/2 == 30 {
			state = draw.State{Tone: draw.Bad, Word: "failed", Total: 1}
		}
		p.States = append(p.States, state)
	}
	var svg element
	if err := xml.Unmarshal([]byte(p.Embedded()), &svg); err != nil {
		t.Fatal(err)
	}
	var levels []string
	for _, text := range svg.find("text", "level") {
		levels = append(levels, text.Text)
	}
	boxes := len(svg.find("rect", "box"))
	folds := len(svg.find("rect", "fold"))
	want := []string{"10–39", "40", "41", "42–69"}
	slices.Sort(levels)
	if boxes != 4 || folds != 2 || !slices.Equal(levels, want) {
		t.Errorf("%d boxes and %d bars in levels %v", boxes, folds, levels)
	}
}
