package draw_test

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/graph/draw"
)

type task struct {
	file, kind, name string
	tombstone        bool
}

func (t task) File() string      { return t.file }
func (t task) IsTombstone() bool { return t.tombstone }

func (t task) Object() *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion("v1")
	if t.kind == "Job" {
		object.SetAPIVersion("batch/v1")
	}
	object.SetKind(t.kind)
	object.SetName(t.name)
	return object
}

// picture returns a picture with all kinds of elements, and with names that need escaping.
func picture() draw.Picture {
	tasks := []task{
		{"0000_10_a_x", "Namespace", "one", false},
		{"0000_10_b_x", "ConfigMap", `<b> & "c"`, false},
		{"0000_10_b_y", "ConfigMap", "old", true},
		{"0000_20_job_x", "Job", "migrate", false},
		{"odd #1\n.yaml", "ConfigMap", "two", false},
		{"0000_30_c_x", "ConfigMap", "three", false},
	}
	return draw.Picture{
		Graph: graph.Build(tasks, graph.Options{}), Title: `release "1" <2>`,
		Dependencies: []graph.Dependency{{Task: 4, Needs: 0, Why: "because"}, {Task: 2, Needs: 0, Why: "because"}},
	}
}

// An element is an XML element of the picture, with its text and its child elements.
type element struct {
	XMLName  xml.Name
	Class    string    `xml:"class,attr"`
	X        int       `xml:"x,attr"`
	Y        int       `xml:"y,attr"`
	Width    int       `xml:"width,attr"`
	Height   int       `xml:"height,attr"`
	Text     string    `xml:",chardata"`
	Children []element `xml:",any"`
}

func (e element) find(name, class string) []element {
	var found []element
	if e.XMLName.Local == name && (class == "" || e.Class == class) {
		found = append(found, e)
	}
	for _, child := range e.Children {
		found = append(found, child.find(name, class)...)
	}
	return found
}

func TestPictureAsSVG(t *testing.T) {
	var out strings.Builder
	if err := picture().SVG(&out); err != nil {
		t.Fatal(err)
	}
	var svg element
	if err := xml.Unmarshal([]byte(out.String()), &svg); err != nil {
		t.Fatalf("the picture is not valid XML: %v\n%s", err, &out)
	}
	for name, test := range map[string]struct {
		found []element
		want  int
	}{
		"bands of levels":       {svg.find("g", "level-band"), 2},
		"boxes":                 {svg.find("g", "node"), 2},
		"boxes with tombstones": {svg.find("g", "node deletes"), 1},
		"barriers":              {svg.find("g", "barrier"), 1},
		"arrows between steps":  {svg.find("path", "then"), 2},
		"dashed dependencies":   {svg.find("path", "dashed"), 2},
	} {
		if len(test.found) != test.want {
			t.Errorf("%d %s, want %d", len(test.found), name, test.want)
		}
	}
	hover := svg.find("g", "node deletes")[0].find("title", "")[0].Text
	if want := "b\nconfigmap <b> & \"c\"\ndelete configmap old"; hover != want {
		t.Errorf("pointed at, a box shows %q, want %q", hover, want)
	}
	if bar := svg.find("rect", "bar")[0]; bar.Width < 900 {
		t.Errorf("a barrier is %d wide: it must reach across", bar.Width)
	}
}

// TestBoxesDoNotOverlap draws a level with many components.
func TestBoxesDoNotOverlap(t *testing.T) {
	var tasks []task
	for i := range 23 {
		tasks = append(tasks, task{fmt.Sprintf("0000_10_a-component-with-a-very-long-name-%02d_x", i), "ConfigMap", "x",
			i%5 == 0})
	}
	var out strings.Builder
	if err := (draw.Picture{Graph: graph.Build(tasks, graph.Options{})}).SVG(&out); err != nil {
		t.Fatal(err)
	}
	var svg element
	if err := xml.Unmarshal([]byte(out.String()), &svg); err != nil {
		t.Fatal(err)
	}
	boxes := svg.find("rect", "box")
	if len(boxes) != len(tasks) {
		t.Fatalf("%d boxes for %d components", len(boxes), len(tasks))
	}
	taken := map[[2]int]bool{}
	for _, b := range boxes {
		if values := [2]int{b.X, b.Y}; taken[values] || b.X < 0 || b.X+b.Width > 1280 {
			t.Errorf("a box is at %v, where another is, or outside", values)
		} else {
			taken[values] = true
		}
	}
}

func TestPictureAsDOT(t *testing.T) {
	var out strings.Builder
	if err := picture().DOT(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`  2 [ label="configmap <b> & c (2 of 6)\nconfigmap old (3 of 6)" shape="box" ];`,
		`  0 [ label="no manifests" shape="box" ];`,
		`  0 -> 2;`,
		`  1 -> 2 [ style="dashed" constraint="false" ];`,
	} {
		if !strings.Contains(out.String(), want+"\n") {
			t.Errorf("%s is not in\n%s", want, &out)
		}
	}
}

func TestPictureAsMermaid(t *testing.T) {
	var out strings.Builder
	if err := picture().Mermaid(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`title: "release \"1\" <2>"`,
		`  n0(( ))`,
		`  n2["10 · b<br>2 manifests, 1 to delete"]:::tombstone`,
		`  n4[["job migrate<br>1 manifest"]]:::barrier`,
		`  n5["30 · odd #35;1\n.yaml, c<br>2 manifests"]`,
		`  n1 -.-> n5`,
	} {
		if !strings.Contains(out.String(), want+"\n") {
			t.Errorf("%s is not in\n%s", want, &out)
		}
	}
}

func TestTextOfAPicture(t *testing.T) {
	p := picture()
	p.Manifests = true
	var out strings.Builder
	if err := p.Text(&out); err != nil {
		t.Fatal(err)
	}
	want := `release "1" <2>

step 1: 2 nodes side by side
  10     a  1 manifest
         namespace one
  10     b  2 manifests, 1 to delete
         configmap <b> & "c"
       ✗ configmap old

step 2: a Job, alone
  20     job migrate  1 manifest
         job migrate

step 3
  30     odd #1\n.yaml, c  2 manifests
         configmap two
         configmap three

2 that the objects themselves imply
  configmap two waits for namespace one: because
  configmap old waits for namespace one: because
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &out, want)
	}
}

func TestAnEmptyGraphCanBeDrawn(t *testing.T) {
	p := draw.Picture{Graph: graph.Build([]task(nil), graph.Options{}), Title: "nothing"}
	for name, write := range map[string]func(io.Writer) error{"SVG": p.SVG, "DOT": p.DOT, "Mermaid": p.Mermaid,
		"text": p.Text} {
		if err := write(io.Discard); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestAFailureToWriteIsReturned(t *testing.T) {
	p := picture()
	for name, write := range map[string]func(io.Writer) error{"SVG": p.SVG, "DOT": p.DOT, "Mermaid": p.Mermaid,
		"text": p.Text} {
		if err := write(full{}); err == nil {
			t.Errorf("%s: got no error from a failed write", name)
		}
	}
}
