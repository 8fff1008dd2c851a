package house

import (
	"go/ast"
	"strings"
	"testing"
)

// TestNoDeferredWaitRunsBeforeItsCancel finds functions that defer the wait for goroutines after the cancel of their
// context: deferred calls run in reverse order, so the function waits for goroutines that nothing ends.
func TestNoDeferredWaitRunsBeforeItsCancel(t *testing.T) {
	for _, s := range sources(t) {
		ast.Inspect(s.file, func(node ast.Node) bool {
			block, ok := node.(*ast.BlockStmt)
			if !ok {
				return true
			}
			cancels := map[string]bool{} // functions that cancel a context which this block created
			var deferred string          // the first function that is deferred
			for _, statement := range block.List {
				switch statement := statement.(type) {
				case *ast.AssignStmt:
					if name := cancelOf(statement); name != "" {
						cancels[name] = true
					}
				case *ast.DeferStmt:
					switch called := statement.Call.Fun.(type) {
					case *ast.Ident:
						if cancels[called.Name] {
							deferred = called.Name
						}
					case *ast.SelectorExpr:
						if called.Sel.Name == "Wait" && deferred != "" {
							s.complain(t, statement, "Wait runs before the deferred %s: defer one function that "+
								"calls %s, then Wait", deferred, deferred)
						}
					}
				}
			}
			return true
		})
	}
}

// cancelOf returns the variable that an assignment gives the cancel function of a new context; "" for other
// assignments.
func cancelOf(statement *ast.AssignStmt) string {
	if len(statement.Lhs) != 2 || len(statement.Rhs) != 1 {
		return ""
	}
	call, _ := statement.Rhs[0].(*ast.CallExpr)
	if call == nil {
		return ""
	}
	selector, _ := call.Fun.(*ast.SelectorExpr)
	name, _ := statement.Lhs[1].(*ast.Ident)
	if selector == nil || name == nil || !strings.HasPrefix(selector.Sel.Name, "With") {
		return ""
	}
	return name.Name
}
