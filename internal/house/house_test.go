package house

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	module = "github.com/runlevel/runlevel/"
	root   = "../.."
	plan   = "docs/architecture.md"
)

// A room is one row of the table in docs/architecture.md.
type room struct {
	floor int
	may   []string // the rooms it may import
}

// What stands in the floor column. The numbers in between stand for themselves.
var floors = map[string]int{
	"bottom": -3, "lower": -2, "under": -1, "ground": 0, "1": 1, "2": 2, "3": 3, "4": 4, "5": 5, "6": 6, "7": 7, "roof": 8,
	"beside": 8, // no floor: only the rows that name it may import it
}

func TestPackagesImportOnlyWhatTheHouseAllows(t *testing.T) {
	rooms, err := readPlan(filepath.Join(root, plan))
	if err != nil {
		t.Fatal(err)
	}
	imports, err := readImports()
	if err != nil {
		t.Fatal(err)
	}
	for _, violation := range violations(rooms, imports) {
		t.Error(violation)
	}
}

func TestThePlanItselfGoesOneWay(t *testing.T) {
	rooms, err := readPlan(filepath.Join(root, plan))
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range rooms {
		for _, below := range r.may {
			other, ok := rooms[below]
			switch {
			case !ok:
				t.Errorf("%s: %s may import %s, which has no row", plan, name, below)
			case other.floor >= r.floor && other.floor != floors["beside"]:
				t.Errorf("%s: %s may import %s, which is not below it", plan, name, below)
			}
		}
	}
}

func TestViolationsAreSaidPlainly(t *testing.T) {
	rooms := map[string]room{
		"pkg/reason": {}, "pkg/source": {}, "pkg/graph": {may: []string{"pkg/reason"}},
		"pkg/apply": {may: []string{"pkg/graph", "pkg/reason"}},
	}
	imports := map[string][]string{
		"pkg/graph":  {"pkg/apply", "pkg/reason"},
		"pkg/apply":  {"pkg/graph"},
		"pkg/reason": {"pkg/graph"},
		"pkg/util":   {"pkg/reason"},
	}
	want := []string{
		"pkg/graph imports pkg/apply: graph may only import reason; see docs/architecture.md",
		"pkg/reason imports pkg/graph: reason may import no other package of the house; see docs/architecture.md",
		"pkg/util has no place in the house: give it a row in docs/architecture.md, or move its code where it belongs",
	}
	if diff := cmp.Diff(want, violations(rooms, imports)); diff != "" {
		t.Errorf("violations (-want +got):\n%s", diff)
	}
}

// violations compares real imports with the plan.
func violations(rooms map[string]room, imports map[string][]string) []string {
	var found []string
	for name, imported := range imports {
		r, ok := rooms[name]
		if !ok {
			found = append(found, fmt.Sprintf("%s has no place in the house: give it a row in %s, or move its code where it belongs", name, plan))
			continue
		}
		for _, other := range imported {
			if !slices.Contains(r.may, other) {
				found = append(found, fmt.Sprintf("%s imports %s: %s %s; see %s", name, other, short(name), allowance(r), plan))
			}
		}
	}
	slices.Sort(found)
	return found
}

func allowance(r room) string {
	if len(r.may) == 0 {
		return "may import no other package of the house"
	}
	var names []string
	for _, name := range r.may {
		names = append(names, short(name))
	}
	return "may only import " + strings.Join(names, ", ")
}

func short(name string) string { return strings.TrimPrefix(name, "pkg/") }

// full is the opposite: names are those of packages in pkg, unless they begin
// with another top folder.
func full(name string) string {
	top, _, _ := strings.Cut(name, "/")
	if slices.Contains([]string{"cmd", "examples", "install", "internal", "manifests"}, top) {
		return name
	}
	return "pkg/" + name
}

// readPlan reads the rows "| `package` | floor | what it may import | … |".
func readPlan(file string) (map[string]room, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	rooms := map[string]room{}
	for line := range strings.Lines(string(content)) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || !strings.HasPrefix(strings.TrimSpace(cells[1]), "`") {
			continue
		}
		name := strings.Trim(strings.TrimSpace(cells[1]), "`")
		floor, ok := floors[strings.TrimSpace(cells[2])]
		if !ok {
			return nil, fmt.Errorf("%s: %s is on floor %q, which there is not", file, name, strings.TrimSpace(cells[2]))
		}
		r := room{floor: floor}
		for _, may := range strings.FieldsFunc(cells[3], func(c rune) bool { return c == ',' || c == ' ' }) {
			r.may = append(r.may, full(may))
		}
		rooms[name] = r
	}
	if len(rooms) == 0 {
		return nil, fmt.Errorf("%s: the table of the house is gone", file)
	}
	return rooms, nil
}

// readImports asks the go command which packages of ours each of them imports, on
// any of the systems that we build for. What only tests import is not part of it:
// they may stand anywhere, to use the sandbox for example.
func readImports() (map[string][]string, error) {
	imports := map[string][]string{}
	for _, system := range []string{"linux", "darwin", "windows"} {
		command := exec.Command("go", "list", "-json=ImportPath,Imports", "./...")
		command.Dir = root
		command.Env = append(os.Environ(), "GOOS="+system)
		command.Stderr = os.Stderr
		listed, err := command.Output()
		if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		if err := addImports(imports, listed); err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
	}
	return imports, nil
}

func addImports(imports map[string][]string, listed []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(listed))
	for {
		var listed struct {
			ImportPath string
			Imports    []string
		}
		if err := decoder.Decode(&listed); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		name := strings.TrimPrefix(listed.ImportPath, module)
		ours := imports[name]
		for _, imported := range listed.Imports {
			imported, ok := strings.CutPrefix(imported, module)
			if ok && !slices.Contains(ours, imported) {
				ours = append(ours, imported)
			}
		}
		imports[name] = ours
	}
}
