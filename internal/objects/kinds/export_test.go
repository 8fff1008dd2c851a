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
