package kinds

import "k8s.io/apimachinery/pkg/runtime/schema"

// Table returns all kinds of the table.
func Table() []schema.GroupKind {
	var kinds []schema.GroupKind
	for kind := range kindTable {
		kinds = append(kinds, kind)
	}
	return kinds
}

// Scopes returns the scopes of all built-in kinds.
func Scopes() map[schema.GroupKind]Scope { return scopes() }
