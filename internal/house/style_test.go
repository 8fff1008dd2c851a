package house

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// The sizes that a reader can hold in mind.
const (
	maxFunctionLines      = 60
	maxFunctionStatements = 40
	maxParameters         = 5
	maxInterfaceMethods   = 5
	maxFileLines          = 400
	maxTestFileLines      = 800
	maxColumns            = 120 // a tab takes four
	maxMainLines          = 60
	minPackageComment     = 5   // lines: its purpose, its limits, the call to read first
	maxPerformanceLines   = 150 // lines of docs/performance.md: ratios and growth, no diary
)

// A source is one parsed file.
type source struct {
	name string // path from the repository's root
	file *ast.File
	set  *token.FileSet
}

func (s source) isTest() bool { return strings.HasSuffix(s.name, "_test.go") }

// forTests reports whether only tests use the file.
func (s source) forTests() bool { return s.isTest() || strings.HasSuffix(s.file.Name.Name, "test") }

func (s source) line(pos token.Pos) int { return s.set.Position(pos).Line }

// complain reports a finding the way editors can jump to.
func (s source) complain(t *testing.T, node ast.Node, format string, args ...any) {
	t.Helper()
	t.Errorf("%s:%d: %s", s.name, s.line(node.Pos()), fmt.Sprintf(format, args...))
}

func TestFilesAreShort(t *testing.T) {
	for _, s := range sources(t) {
		limit := maxFileLines
		switch {
		case ast.IsGenerated(s.file):
			continue
		case s.isTest():
			limit = maxTestFileLines
		case filepath.Base(s.name) == "main.go" && strings.HasPrefix(s.name, "cmd/"):
			limit = maxMainLines
		}
		if lines := s.line(s.file.FileEnd); lines > limit {
			t.Errorf("%s has %d lines: at most %d; split it by purpose", s.name, lines, limit)
		}
	}
}

// TestLinesAreNarrow leaves out directives, lines with a text in backquotes, which can't be broken, and in tests those
// with a long text, such as a manifest.
func TestLinesAreNarrow(t *testing.T) {
	for _, s := range sources(t) {
		if ast.IsGenerated(s.file) {
			continue
		}
		isExempt := map[int]bool{}
		ast.Inspect(s.file, func(node ast.Node) bool {
			literal, ok := node.(*ast.BasicLit)
			if ok && (strings.HasPrefix(literal.Value, "`") || s.isTest() && len(literal.Value) > maxColumns/2) {
				for line := s.line(literal.Pos()); line <= s.line(literal.End()); line++ {
					isExempt[line] = true
				}
			}
			return true
		})
		for i, line := range strings.Split(readFile(t, s.name), "\n") {
			columns := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    "))
			if columns > maxColumns && !isExempt[i+1] && !directive.MatchString(line) {
				t.Errorf("%s:%d: %d columns, at most %d", s.name, i+1, columns, maxColumns)
			}
		}
	}
}

// directive is a comment for a program, or a command to copy.
var directive = regexp.MustCompile(`^(//go:|\s*// ?\+|//\t)`)

func TestFunctionsAreShort(t *testing.T) {
	for _, s := range sources(t) {
		for _, declaration := range s.file.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok || function.Body == nil || s.isTest() {
				continue
			}
			name := function.Name.Name
			if lines := s.line(function.Body.Rbrace) - s.line(function.Body.Lbrace) - 1; lines > maxFunctionLines {
				s.complain(t, function, "%s has %d lines, at most %d", name, lines, maxFunctionLines)
			}
			if count := statements(function.Body); count > maxFunctionStatements {
				s.complain(t, function, "%s has %d statements, at most %d", name, count, maxFunctionStatements)
			}
			if count := function.Type.Params.NumFields(); count > maxParameters {
				s.complain(t, function, "%s has %d parameters: at most %d; use a struct", name, count,
					maxParameters)
			}
			if name == "init" && function.Recv == nil {
				s.complain(t, function, "init runs unasked: let the caller call a function")
			}
		}
	}
}

func TestInterfacesAreSmall(t *testing.T) {
	for _, s := range sources(t) {
		ast.Inspect(s.file, func(node ast.Node) bool {
			if i, ok := node.(*ast.InterfaceType); ok && i.Methods.NumFields() > maxInterfaceMethods {
				s.complain(t, i, "an interface of %d methods: at most %d, the ones that the caller needs",
					i.Methods.NumFields(), maxInterfaceMethods)
			}
			return true
		})
	}
}

func TestPackagesHaveComments(t *testing.T) {
	comments := map[string]string{} // comments of all files, by folder
	for _, s := range sources(t) {
		dir := filepath.Dir(s.name)
		if !s.isTest() {
			comments[dir] += s.file.Doc.Text()
		}
	}
	begins := regexp.MustCompile(`^(Package|Command) \S+ `)
	for dir, comment := range comments {
		if !begins.MatchString(comment) || strings.Count(comment, "\n") < minPackageComment {
			t.Errorf("%s: begin the package comment with \"Package\" or \"Command\" and the name, and describe in at "+
				"least %d lines its purpose, its limits, and \"Start with X.\"", dir, minPackageComment)
		}
		if slices.Contains([]string{"util", "utils", "common", "helpers", "types", "constants", "misc"},
			filepath.Base(dir)) {
			t.Errorf("%s: the name has no meaning; name the package after its purpose", dir)
		}
	}
}

func TestNobodySleepsOrLosesItsContext(t *testing.T) {
	for _, s := range sources(t) {
		hasFakeClock := slices.ContainsFunc(s.file.Imports, func(i *ast.ImportSpec) bool {
			return i.Path.Value == `"testing/synctest"`
		})
		choices := map[ast.Node]bool{} // the cases of selects
		ast.Inspect(s.file, func(node ast.Node) bool {
			if clause, ok := node.(*ast.CommClause); ok {
				choices[clause.Comm] = true
			}
			if statement, ok := node.(*ast.ExprStmt); ok && s.isTest() && !hasFakeClock && !choices[statement] &&
				isSleep(statement.X) {
				s.complain(t, statement, "<-time.After: wait for a condition or a context instead")
			}
			selector, ok := node.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			name, _ := selector.X.(*ast.Ident)
			switch {
			case name == nil:
			case name.Name == "time" && selector.Sel.Name == "Sleep":
				s.complain(t, selector, "time.Sleep: wait for a condition or a context instead")
			case name.Name == "context" && slices.Contains([]string{"Background", "TODO"}, selector.Sel.Name) &&
				!s.forTests() && !slices.Contains([]string{"bench", "cmd", "examples", "sandbox", "tools"},
				strings.Split(s.name, "/")[0]):
				s.complain(t, selector, "context.%s: take the caller's context", selector.Sel.Name)
			}
			return true
		})
	}
}

// isSleep reports whether an expression that stands alone, and not in a select, waits for time to pass.
func isSleep(expression ast.Expr) bool {
	receive, _ := expression.(*ast.UnaryExpr)
	if receive == nil || receive.Op != token.ARROW {
		return false
	}
	call, _ := receive.X.(*ast.CallExpr)
	if call == nil {
		return false
	}
	selector, _ := call.Fun.(*ast.SelectorExpr)
	if selector == nil {
		return false
	}
	name, _ := selector.X.(*ast.Ident)
	return name != nil && name.Name == "time" && slices.Contains([]string{"After", "Tick"}, selector.Sel.Name)
}

func TestMakefileIsSmallAndDocumented(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	targets := regexp.MustCompile(`(?m)^([a-z-]+):[^=\n]*?(##)?[^#\n]*$`).FindAllStringSubmatch(string(content), -1)
	if len(targets) == 0 {
		t.Error("no target was found")
	}
	for _, target := range targets {
		if target[2] == "" {
			t.Errorf("make help does not describe the target %s: add \"## description\"", target[1])
		}
	}
}

func TestFiguresAreFew(t *testing.T) {
	if lines := strings.Count(readFile(t, "docs/performance.md"), "\n"); lines > maxPerformanceLines {
		t.Errorf("docs/performance.md has %d lines, at most %d: put a figure into a table, or drop one", lines,
			maxPerformanceLines)
	}
}

// The first build takes minutes, in which the go command prints nothing by default.
func TestMakeAnnouncesTheBuild(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip(err)
	}
	for _, target := range []string{"build", "demo"} {
		output, err := exec.Command("make", "-n", "-C", root, target).CombinedOutput() // runs no command
		if err != nil {
			t.Fatalf("%v\n%s", err, output)
		}
		if text := string(output); !regexp.MustCompile(`(?s)compiling runlevel: .* build -v `).MatchString(text) {
			t.Errorf("make %s does not print that it compiles runlevel:\n%s", target, text)
		}
	}
}

// statements counts the statements of a body, those in blocks within included.
func statements(body *ast.BlockStmt) int {
	count := 0
	ast.Inspect(body, func(node ast.Node) bool {
		if _, isBlock := node.(*ast.BlockStmt); !isBlock {
			if _, ok := node.(ast.Stmt); ok {
				count++
			}
		}
		return true
	})
	return count
}

// sources parses all Go files of the repository, the nested modules' and those
// for other systems included.
func sources(t *testing.T) []source {
	t.Helper()
	var found []source
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == "testdata" || entry.Name() == "bin" ||
			strings.HasPrefix(entry.Name(), ".git")) {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		found = append(found, source{name: filepath.ToSlash(name), file: file, set: set})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
