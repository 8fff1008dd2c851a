package fields

import (
	"maps"
	"slices"
)

// Claims are the claims of the table of immutable fields, each in a line for one kind: a
// change of the field is refused, or is allowed in a certain case.
func Claims() map[string][]string {
	claims := map[string][]string{}
	for kind, rows := range maps.All(immutableFields) {
		name := kind.String() // KIND.GROUP
		for _, row := range rows {
			claims[name] = append(claims[name], row.field+" is refused")
			for _, part := range row.except {
				claims[name] = append(claims[name], row.field+" allows "+part)
			}
			for part := range row.defaults {
				claims[name] = append(claims[name], row.field+" may have the default "+part)
			}
			if row.removable {
				claims[name] = append(claims[name], row.field+" can be taken away")
			}
			if row.fallback != nil {
				claims[name] = append(claims[name], row.field+" may be its default")
			}
			if row.hasPodSpec {
				claims[name] = append(claims[name], row.field+" may have the defaults of pods")
			}
			if row.when != nil {
				claims[name] = append(claims[name], row.field+" is not always refused")
			}
		}
		slices.Sort(claims[name])
		claims[name] = slices.Compact(claims[name])
	}
	return claims
}
