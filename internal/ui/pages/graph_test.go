package pages

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/session/progress"
	"github.com/runlevel/runlevel/internal/session/state"
	"github.com/runlevel/runlevel/internal/session/why"
	"github.com/runlevel/runlevel/internal/ui/live"
	"github.com/runlevel/runlevel/internal/ui/look"
	"github.com/runlevel/runlevel/pkg/graph"
)

type graphTask struct {
	file, kind string
	deletes    bool
}

func (t graphTask) File() string      { return t.file }
func (t graphTask) IsTombstone() bool { return t.deletes }

func (t graphTask) Object() *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(map[string]string{"Job": "batch/v1", "Deployment": "apps/v1"}[t.kind])
	object.SetKind(t.kind)
	object.SetNamespace("shop")
	_, name, _ := strings.Cut(t.file, "_")
	object.SetName(name)
	return object
}

// tasksOf returns a release of levels with components, each with two objects, and a Job.
func tasksOf(levels, components int) []graphTask {
	var tasks []graphTask
	for level := range levels {
		for component := range components {
			file := fmt.Sprintf("0000_%02d_component-%d", (level+1)*10, component)
			tasks = append(tasks, graphTask{file + "_1", "ConfigMap", false},
				graphTask{file + "_2", "Deployment", component == 2})
		}
		tasks = append(tasks, graphTask{fmt.Sprintf("0000_%02d_migrate_1", (level+1)*10+5), "Job", level == 1})
	}
	return tasks
}

// releaseAt returns a release whose nodes are done up to a middle one, which is in a phase, as the next ones are in
// others.
func releaseAt(tasks []graphTask, phases ...live.Phase) *live.Release {
	r := &live.Release{Namespace: "shop", Status: &state.Status{Release: "shop", Mode: "update",
		Progress: &progress.Progress{}}}
	r.Graph = graph.Build(tasks, graph.Options{})
	r.Nodes = make([]live.NodeState, len(r.Graph.Nodes))
	for i, node := range r.Graph.Nodes {
		phase, total := live.Done, len(node.Tasks)
		if after := i - len(r.Nodes)/2; after >= 0 && total > 0 {
			phase = live.Blocked
			if len(phases) > 0 {
				phase, phases = phases[0], phases[1:]
			}
		}
		r.Nodes[i] = live.NodeState{Phase: phase, Total: total}
		switch phase {
		case live.Done:
			r.Nodes[i].Done = total
		case live.Blocked:
			r.Status.Objects = append(r.Status.Objects, &why.Answer{Node: "later", After: []string{"waiting"},
				Object: kinds.IDOf(r.Graph.Tasks[node.Tasks[0]].Object()), State: why.Blocked})
		case live.Failed:
			r.Nodes[i].Done, r.Nodes[i].Failed = 1, 1
		case live.Waits:
			r.Nodes[i].Waiting = 1
			last := r.Graph.Tasks[node.Tasks[len(node.Tasks)-1]]
			r.Status.Objects = append(r.Status.Objects, &why.Answer{
				Node: "waiting", Object: kinds.IDOf(last.Object()), For: "1 of 3 pods are ready <script>"})
		}
	}
	return r
}

func render(t *testing.T, node g.Node) string {
	t.Helper()
	var out strings.Builder
	if err := node.Render(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestLookAtPages writes pages to look at: go test -run TestLookAtPages -artifacts -outputdir /tmp/pages.
func TestLookAtPages(t *testing.T) {
	site := &Site{}
	mixed := []live.Phase{live.Failed, live.Waits, live.Running, live.Running, live.Unknown}
	for name, r := range map[string]*live.Release{
		"1":   releaseAt(tasksOf(1, 1)[:1], live.Running),
		"3":   releaseAt(tasksOf(1, 3), mixed...),
		"30":  releaseAt(tasksOf(5, 5), mixed...),
		"300": releaseAt(tasksOf(20, 15), mixed...),
	} {
		for _, query := range []url.Values{{}, {"graph": {"all"}}} {
			page := look.Page{
				Title: "shop 1.4.0",
				Trail: []look.Link{{Text: "Releases", Address: "/"}, {Text: "shop"}},
				Menu:  []look.Link{{Text: "Release"}, {Text: "Objects", Address: "/x"}},
				Sections: []look.Section{{ID: "elements", Title: "Elements", Body: elements()},
					site.graphSection(r, query)},
			}
			file, err := os.Create(filepath.Join(t.ArtifactDir(), name+query.Get("graph")+".html"))
			if err != nil {
				t.Fatal(err)
			}
			if err := page.WriteFile(file); err != nil {
				t.Fatal(err)
			}
			if err := file.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// elements returns all elements of package look.
func elements() g.Group {
	var states g.Group
	for _, tone := range []look.Tone{look.Good, look.Active, look.Waiting, look.Bad, look.Deleted, look.Later,
		look.Unknown} {
		states = append(states, look.State(tone, string(tone)), g.Text(" "))
	}
	return g.Group{
		h.P(states),
		look.Progress("Progress", 31, 80, "31 of 80 objects, about 3 minutes left"),
		look.Notice(look.Bad, h.P(h.Strong(g.Text("Deployment shop/web does not become ready")),
			g.Text(": its image cannot be pulled.")), h.P(look.Command("runlevel why deployment/web"))),
		look.Notice(look.Waiting, h.P(g.Text("The next minor version waits for 1 delete."))),
		look.Facts(look.Fact{Name: "Version", Value: g.Text("1.4.0, after 1.3.2")},
			look.Fact{Name: "Applied by", Value: g.Text("runlevel-operator-0")}),
		h.Form(h.Role("search"), h.Label(g.Text("Search "), h.Input(h.Type("search"), h.Name("q"))),
			h.Label(g.Text("State "), h.Select(h.Option(g.Text("all")))), h.Button(g.Text("Show"))),
		look.Block("2026-11-30T10:00:00Z starting\n2026-11-30T10:00:01Z cannot open /etc/web/tls.crt\n", 10),
		look.Table{Caption: "Objects", Columns: []string{"Kind", "Namespace", "Name", "State", "Why"}, Rows: [][]g.Node{
			{g.Text("Deployment.apps"), g.Text("shop"), h.A(h.Href("/o"), g.Text("web")),
				look.State(look.Bad, "not ready"), g.Text("container web is in CrashLoopBackOff: exit code 1")},
			{g.Text("ValidatingWebhookConfiguration.admissionregistration.k8s.io"), g.Text("-"),
				h.A(h.Href("/o"), g.Text("products.catalog.example.com")), look.State(look.Good, "ready"), nil},
		}}.Node(),
	}
}

func TestGraphOfARelease(t *testing.T) {
	site := &Site{}
	section := render(t, site.graphSection(releaseAt(tasksOf(2, 3), live.Waits, live.Failed), nil).Node())
	for _, want := range []string{
		`<svg class="graph"`, `id="node-`, `tabindex="-1" href="/releases/shop/shop/objects?component=component-0&`,
		`<summary><strong>Level 20</strong>`, `failed`, `waiting`, `1 of 3 pods are ready &lt;script&gt;`,
		`<th scope="col">Reason</th>`,
		`kind=Deployment.apps&amp;`, `Deployment shop/20_component-0_2</a>: 1 of 3`,
	} {
		if !strings.Contains(section, want) {
			t.Errorf("%s is not in the section", want)
		}
	}
	if strings.Count(section, `Deployment shop/20_component-0_2</a>: 1 of 3`) < 2 {
		t.Error("no later component names what holds it up")
	}
	if strings.Contains(section, "<script>") || strings.Contains(section, " style=") {
		t.Error("the section has a script, or inline styles")
	}
}

// TestLevelsOfAReconcile has nodes in a shuffled order, and levels once.
func TestLevelsOfAReconcile(t *testing.T) {
	r := releaseAt(tasksOf(3, 3)[:6])
	r.Graph = graph.Build(append(tasksOf(3, 3)[:6], tasksOf(4, 3)[7:13]...), graph.Options{Mode: graph.Reconcile})
	r.Nodes = make([]live.NodeState, len(r.Graph.Nodes))
	section := render(t, (&Site{}).graphSection(r, nil).Node())
	for _, level := range []string{"10", "20"} {
		if count := strings.Count(section, `id="graph-level-`+level+`"`); count != 1 {
			t.Errorf("level %s is in the table %d times", level, count)
		}
	}
	if strings.Index(section, "graph-level-10") > strings.Index(section, "graph-level-20") {
		t.Error("the levels are not in the order of the files")
	}
}

// TestManyNodesAreFolded draws thousands of components, whose urgent ones are late in the order.
func TestManyNodesAreFolded(t *testing.T) {
	site := &Site{}
	r := releaseAt(tasksOf(10, 400), live.Waits, live.Failed)
	for _, query := range []url.Values{{}, {"graph": {"all"}}} {
		picture := render(t, site.graphSection(r, query).Body[0])
		if boxes := strings.Count(picture, "<rect"); boxes > 700 {
			t.Errorf("%s: %d rectangles are drawn", query, boxes)
		}
		for _, want := range []string{"waiting", "failed", "manifests, done"} {
			if !strings.Contains(picture, want) {
				t.Errorf("%s: %s is not in the picture", query, want)
			}
		}
	}
	if size := len(render(t, site.graphSection(r, nil).Node())); size > 500_000 {
		t.Errorf("the section has %d bytes", size)
	}
}

// TestGraphWithoutFiles has only the progress of a record.
func TestGraphWithoutFiles(t *testing.T) {
	r := &live.Release{Namespace: "shop", Unread: "the copy was deleted", Status: &state.Status{Release: "shop",
		Progress: &progress.Progress{Levels: []progress.Level{{Name: "10", Components: []progress.Component{
			{Name: "web", StateCounts: progress.StateCounts{Total: 3, Done: 1, Waiting: 1}}}}}}}}
	section := render(t, (&Site{}).graphSection(r, nil).Node())
	for _, want := range []string{"the copy was deleted", "Level 10", "web", "waiting", "1 of 3 manifests"} {
		if !strings.Contains(section, want) {
			t.Errorf("%s is not in %s", want, section)
		}
	}
	if strings.Contains(section, "<svg class=\"graph\"") {
		t.Error("a picture without a graph")
	}
}
