package house

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A wording is a phrase that makes sentences hard to read where it is common. The limits are higher than zero, since
// each phrase has a few good uses.
type wording struct {
	phrase  *regexp.Regexp
	instead string
	code    int // limit in all Go files, tests among them
	docs    int // limit in docs and README.md
}

var wordings = []wording{
	{regexp.MustCompile(`(?i)\bthat is\b`), "a noun with an adjective, or a second sentence", 100, 40},
	{regexp.MustCompile(`(?i)\bwhat (?:is|was|has|the|a|it)\b`), "the noun itself", 100, 60},
	{regexp.MustCompile(`(?i)\bis no [a-z]`), `"is not a"`, 20, 10},
	{regexp.MustCompile(`(?i)\bof (?:it|them)\b`), `the noun, or "its"`, 60, 25},
	{
		regexp.MustCompile(`// \w+ is (?:how|what|whether|why|when|who|where) `),
		"a verb: X returns, limits, counts or reports", 60, 0,
	},
	{regexp.MustCompile(`(?i)\bgone\b`), "deleted, removed, or does not exist", 60, 25},
	{regexp.MustCompile(`(?i)\b(?:tells?|told|says?|said|saying)\b`), "report, print, log, or name the message", 100,
		35},
}

func TestWording(t *testing.T) {
	code, docs := textOfCode(t), textOfDocs(t)
	for _, w := range wordings {
		for name, text := range map[string]struct {
			content string
			most    int
		}{"Go files": {code, w.code}, "docs": {docs, w.docs}} {
			count := len(w.phrase.FindAllString(withoutPlain(text.content), -1))
			t.Logf("%s: %q %d times", name, w.phrase, count)
			if count > text.most {
				t.Errorf("%s have %q %d times, at most %d: write %s", name, w.phrase, count, text.most, w.instead)
			}
		}
	}
}

// withoutPlain removes the phrases with "is no" that are plain English.
func withoutPlain(text string) string {
	return strings.NewReplacer("there is no ", "", "There is no ", "", "is no longer", "").Replace(text)
}

// textOfCode returns all Go files, but not this package, which has the phrases in it.
func textOfCode(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, s := range sources(t) {
		if wingOf(s.name) != "internal/house" {
			all.WriteString(readFile(t, s.name))
		}
	}
	return all.String()
}

func textOfDocs(t *testing.T) string {
	t.Helper()
	pages, err := filepath.Glob(filepath.Join(root, "docs/*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatal("no pages: ", err)
	}
	all := readFile(t, "README.md") + readFile(t, "CONTRIBUTING.md")
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		all += string(text)
	}
	return all
}

// TestVariablesAreNouns finds variables that are named by a preposition or an auxiliary.
func TestVariablesAreNouns(t *testing.T) {
	for _, s := range sources(t) {
		if ast.IsGenerated(s.file) {
			continue
		}
		for _, name := range variablesOf(s) {
			if slices.Contains([]string{"of", "in", "at", "is", "was", "to"}, name.Name) {
				s.complain(t, name, "a variable %s: name it after its type or role", name.Name)
			}
		}
	}
}

// variablesOf returns the variables, parameters and receivers of functions.
func variablesOf(s source) []*ast.Ident {
	var found []*ast.Ident
	add := func(expression ast.Expr) {
		if name, ok := expression.(*ast.Ident); ok {
			found = append(found, name)
		}
	}
	ast.Inspect(s.file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.AssignStmt:
			if node.Tok == token.DEFINE {
				for _, left := range node.Lhs {
					add(left)
				}
			}
		case *ast.RangeStmt:
			add(node.Key)
			add(node.Value)
		case *ast.ValueSpec:
			found = append(found, node.Names...)
		case *ast.FuncType:
			for _, list := range []*ast.FieldList{node.Params, node.Results} {
				found = append(found, namesOf(list)...)
			}
		case *ast.FuncDecl:
			found = append(found, namesOf(node.Recv)...)
		}
		return true
	})
	return found
}

func namesOf(list *ast.FieldList) []*ast.Ident {
	var found []*ast.Ident
	if list != nil {
		for _, field := range list.List {
			found = append(found, field.Names...)
		}
	}
	return found
}
