package house

import (
	"go/ast"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// What travels through a context does not show in a signature. A transport of HTTP sees nothing but
// the request, and a page asks for the rights of the user who has sent the request.
var usesContextValues = []string{"internal/cluster/observe.go", "internal/ui/incluster/access.go"}

func TestContextsCarryNoValues(t *testing.T) {
	for _, s := range sources(t) {
		ast.Inspect(s.file, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if ok && types.ExprString(call.Fun) == "context.WithValue" && !s.forTests() &&
				!slices.Contains(usesContextValues, s.name) {
				s.complain(t, call, "a value in a context: make it a parameter, or a field")
			}
			return true
		})
	}
}

// A reader takes the type of a receiver from its name: s of a Cache looks like another type.
func TestReceiversAreInitials(t *testing.T) {
	names := map[string]string{} // by folder, package and type
	for _, s := range sources(t) {
		for _, decl := range s.file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if ast.IsGenerated(s.file) || !ok || f.Recv == nil || len(f.Recv.List[0].Names) == 0 ||
				f.Recv.List[0].Names[0].Name == "_" {
				continue
			}
			typeName, _, _ := strings.Cut(strings.TrimPrefix(types.ExprString(f.Recv.List[0].Type), "*"), "[")
			name, key := f.Recv.List[0].Names[0].Name, filepath.Dir(s.name)+" "+s.file.Name.Name+" "+typeName
			if known, ok := names[key]; ok && known != name {
				s.complain(t, f, "the receiver of %s is %s elsewhere", typeName, known)
			}
			names[key] = name
			isShort := len(name) == 2 && strings.HasPrefix(strings.ToLower(typeName), name[:1]) &&
				strings.Contains(typeName, name[1:])
			if !isInitials(name, typeName) && !isShort && name != strings.ToLower(typeName) {
				s.complain(t, f, "name the receiver of %s by initials, two letters or all of it", typeName)
			}
		}
	}
}

// isInitials reports whether a name consists of initials of a type's words, in their order.
func isInitials(name, typeName string) bool {
	for i, letter := range typeName {
		if name != "" && (i == 0 || unicode.IsUpper(letter)) && rune(name[0]) == unicode.ToLower(letter) {
			name = name[1:]
		}
	}
	return name == ""
}
