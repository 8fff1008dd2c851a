package house

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	module = "github.com/runlevel/runlevel/"
	root   = "../.."
	plan   = "docs/architecture.md"
)

// A row is one of the table in docs/architecture.md: folders, the folders whose packages theirs may import, and how
// many lines of code they may have.
type row struct {
	wings  []string
	may    []string
	budget int
}

// beside are folders without a row: packages of tests, which nothing imports.
var beside = []string{"internal/house", "install/ci"}

func TestPackagesHaveOnlyAllowedImports(t *testing.T) {
	rows, err := readPlan(filepath.Join(root, plan))
	if err != nil {
		t.Fatal(err)
	}
	imports, err := readImports()
	if err != nil {
		t.Fatal(err)
	}
	for _, violation := range slices.Concat(upward(rows), violations(rows, imports), circles(imports)) {
		t.Error(violation)
	}
}

// TestWingsKeepTheirBudgets counts lines of code without tests and generated files.
func TestWingsKeepTheirBudgets(t *testing.T) {
	rows, err := readPlan(filepath.Join(root, plan))
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string]int{}
	for _, s := range sources(t) {
		if !s.isTest() && !ast.IsGenerated(s.file) {
			lines[wingOf(s.name)] += s.line(s.file.FileEnd)
		}
	}
	for _, r := range rows {
		count := 0
		for _, wing := range r.wings {
			count += lines[wing]
		}
		t.Logf("%s: %d of %d lines", r.name(), count, r.budget)
		if count > r.budget {
			t.Errorf("%s has %d lines, and its budget in %s is %d: remove some, or raise the budget and give the "+
				"reason in the commit", r.name(), count, plan, r.budget)
		}
	}
}

func TestViolationsNameTheImportAndTheRow(t *testing.T) {
	rows := []row{
		{wings: []string{"pkg/apply"}, may: []string{"pkg/graph", "internal/text", "internal/cluster"}},
		{wings: []string{"pkg/graph"}, may: []string{"pkg/apply"}},
		{wings: []string{"internal/text"}},
	}
	imports := map[string][]string{
		"pkg/apply/hook":         {"pkg/graph", "pkg/apply", "internal/text/reason"},
		"internal/text/reason":   {"pkg/graph"},
		"internal/util":          {"internal/text/reason"},
		"internal/text/a":        {"internal/text/reason/b"},
		"internal/text/reason/b": {"internal/text/a/b"},
	}
	want := []string{
		"docs/architecture.md: pkg/apply may import internal/cluster, which has no row below it",
		"docs/architecture.md: pkg/graph may import pkg/apply, which has no row below it",
		"docs/architecture.md: pkg/apply may import internal/cluster, but does not: take it out of the row",
		"docs/architecture.md: pkg/graph may import pkg/apply, but does not: take it out of the row",
		"internal/text/reason imports pkg/graph: internal/text may import no other wing; see docs/architecture.md",
		"internal/util is in no wing: give it a row in docs/architecture.md, or move its code where it belongs",
		"internal/text: a circle of imports: a -> reason -> a",
	}
	got := slices.Concat(upward(rows), violations(rows, imports), circles(imports))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("violations (-want +got):\n%s", diff)
	}
}

// upward returns the permissions that do not lead to a row below.
func upward(rows []row) []string {
	var found []string
	for i, r := range rows {
		for _, may := range r.may {
			if !slices.ContainsFunc(rows[i+1:], func(below row) bool { return slices.Contains(below.wings, may) }) {
				found = append(found, fmt.Sprintf("%s: %s may import %s, which has no row below it", plan, r.name(),
					may))
			}
		}
	}
	return found
}

// violations compares imports with the table, in both directions.
func violations(rows []row, imports map[string][]string) []string {
	var found []string
	used := map[string]bool{}
	for name, imported := range imports {
		i := slices.IndexFunc(rows, func(r row) bool { return slices.Contains(r.wings, wingOf(name)) })
		if i < 0 {
			if !slices.Contains(beside, name) {
				found = append(found,
					fmt.Sprintf("%s is in no wing: give it a row in %s, or move its code where it belongs", name, plan))
			}
			continue
		}
		for _, other := range imported {
			used[rows[i].name()+" "+wingOf(other)] = true
			if !slices.Contains(rows[i].wings, wingOf(other)) && !slices.Contains(rows[i].may, wingOf(other)) {
				found = append(found, fmt.Sprintf("%s imports %s: %s; see %s", name, other, rows[i].allowance(), plan))
			}
		}
	}
	for _, r := range rows {
		for _, may := range r.may {
			if !used[r.name()+" "+may] {
				found = append(found, fmt.Sprintf("%s: %s may import %s, but does not: take it out of the row", plan,
					r.name(), may))
			}
		}
	}
	slices.Sort(found)
	return found
}

func (r row) name() string { return strings.Join(r.wings, ", ") }

func (r row) allowance() string {
	if len(r.may) == 0 {
		return r.name() + " may import no other wing"
	}
	return r.name() + " may only import " + strings.Join(r.may, ", ")
}

// wingOf returns the folder of the table that a package is in.
func wingOf(name string) string {
	parts := strings.Split(name, "/")
	if slices.Contains([]string{"pkg", "internal"}, parts[0]) {
		return strings.Join(parts[:min(2, len(parts))], "/")
	}
	return parts[0]
}

// roomOf returns the folder of a wing that contains a package, without folders below.
func roomOf(name string) string {
	room, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(name, wingOf(name)), "/"), "/")
	return room
}

// circles returns a circle of the rooms of each wing that has one. Go refuses circles of packages only.
func circles(imports map[string][]string) []string {
	rooms := map[string]map[string][]string{}
	for name, imported := range imports {
		wing, room := wingOf(name), roomOf(name)
		if rooms[wing] == nil {
			rooms[wing] = map[string][]string{}
		}
		for _, other := range imported {
			if wingOf(other) == wing && roomOf(other) != room && room != "" &&
				!slices.Contains(rooms[wing][room], roomOf(other)) {
				rooms[wing][room] = append(rooms[wing][room], roomOf(other))
			}
		}
	}
	var found []string
	for wing, below := range rooms {
		if circle := findCircle(below); circle != nil {
			found = append(found, fmt.Sprintf("%s: a circle of imports: %s", wing, strings.Join(circle, " -> ")))
		}
	}
	slices.Sort(found)
	return found
}

// findCircle returns a path that ends where it begins; nil if there is none.
func findCircle(below map[string][]string) []string {
	done := map[string]bool{}
	var visit func(path []string, room string) []string
	visit = func(path []string, room string) []string {
		if i := slices.Index(path, room); i >= 0 {
			return append(slices.Clone(path[i:]), room)
		}
		if done[room] {
			return nil
		}
		done[room] = true
		for _, next := range below[room] {
			if circle := visit(append(path, room), next); circle != nil {
				return circle
			}
		}
		return nil
	}
	var rooms []string
	for room := range below {
		rooms = append(rooms, room)
	}
	slices.Sort(rooms)
	for _, room := range rooms {
		if circle := visit(nil, room); circle != nil {
			return circle
		}
	}
	return nil
}

var quoted = regexp.MustCompile("`([^`]+)`")

// readPlan reads the rows "| `folder`, `folder` | allowed imports | lines | … |" below the heading of the house.
func readPlan(file string) ([]row, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	_, house, _ := strings.Cut(string(content), "\n## The house\n")
	house, _, _ = strings.Cut(house, "\n## ")
	var rows []row
	for line := range strings.Lines(house) {
		cells := strings.Split(line, "|")
		if len(cells) < 6 || !strings.Contains(cells[1], "`") {
			continue
		}
		var r row
		for _, wing := range quoted.FindAllStringSubmatch(cells[1], -1) {
			r.wings = append(r.wings, wing[1])
		}
		r.may = strings.FieldsFunc(cells[2], func(c rune) bool { return c == ',' || c == ' ' })
		r.budget, _ = strconv.Atoi(strings.TrimSpace(cells[3]))
		rows = append(rows, r)
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%s: the table of the house is missing", file)
	}
	return rows, nil
}

// readImports asks the go command which packages of this module each package imports,
// on any supported system. It ignores imports of tests: tests may import any package,
// such as the sandbox.
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
