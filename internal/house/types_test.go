package house

import (
	"go/ast"
	"go/types"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// maxMethods is how many methods a type may have: one with more has several jobs.
const maxMethods = 25

func TestTypesHaveFewMethods(t *testing.T) {
	methods := map[string]int{}
	for _, s := range sources(t) {
		for _, declaration := range s.file.Decls {
			if function, ok := declaration.(*ast.FuncDecl); ok && function.Recv != nil && !s.isTest() {
				receiver := types.ExprString(function.Recv.List[0].Type)
				name, _, _ := strings.Cut(strings.TrimPrefix(receiver, "*"), "[")
				methods[filepath.Dir(s.name)+"."+name]++
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(methods)) {
		if count := methods[name]; count > maxMethods {
			t.Errorf("%s has %d methods, at most %d: give a part of them a type of their own", name, count, maxMethods)
		}
	}
}

// What travels through a context does not show in a signature. A transport of HTTP sees nothing but
// the request.
const usesContextValues = "internal/cluster/observe.go"

func TestContextsCarryNoValues(t *testing.T) {
	for _, s := range sources(t) {
		ast.Inspect(s.file, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if ok && types.ExprString(call.Fun) == "context.WithValue" && s.name != usesContextValues && !s.forTests() {
				s.complain(t, call, "a value in a context: make it a parameter, or a field")
			}
			return true
		})
	}
}

// sharedNames are exported type names that several packages may have: what they mean is the same everywhere.
var sharedNames = []string{"Options", "Event", "EventType", "Handler"}

// TestTypeNamesAreUnique: a reader who knows a type by its name knows it in every package.
func TestTypeNamesAreUnique(t *testing.T) {
	packages := map[string][]string{}
	for _, s := range sources(t) {
		folder := filepath.Dir(s.name)
		if s.isTest() || !strings.HasPrefix(folder, "pkg/") && !strings.HasPrefix(folder, "internal/") {
			continue
		}
		for _, declaration := range s.file.Decls {
			types, ok := declaration.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range types.Specs {
				if typeSpec, isType := spec.(*ast.TypeSpec); isType && typeSpec.Name.IsExported() && !slices.Contains(packages[typeSpec.Name.Name], folder) {
					packages[typeSpec.Name.Name] = append(packages[typeSpec.Name.Name], folder)
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		if in := packages[name]; len(in) > 1 && !slices.Contains(sharedNames, name) {
			t.Errorf("%s is a type of %s: give each a name that says what it is there", name, strings.Join(in, ", "))
		}
	}
}
