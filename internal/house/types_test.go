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
const maxMethods = 30

// largeTypes are those that still have more, by how many. A number may only become smaller.
var largeTypes = map[string]int{
	"pkg/apply/object.Applier": 40,
	"pkg/apply.run":            57,
	"pkg/lint.subject":         41,
	"pkg/apply/await.Tracker":  35,
}

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
		limit := max(maxMethods, largeTypes[name])
		if count := methods[name]; count > limit {
			t.Errorf("%s has %d methods, at most %d: give a part of them a type of their own", name, count, limit)
		}
	}
}

// What travels through a context is seen by nobody who reads a signature. A transport of HTTP sees nothing but
// the request.
const usesContextValues = "pkg/cluster/observe.go"

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
