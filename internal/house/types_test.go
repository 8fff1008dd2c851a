package house

import (
	"go/ast"
	"go/types"
	"testing"
)

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
