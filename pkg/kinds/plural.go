package kinds

import "strings"

// Plural writes the plural of a kind, which is the name of its resource, the way the kind
// is written: Policies of Policy.
func Plural(kind, resource string) string {
	same := 0
	for same < min(len(kind), len(resource)) && strings.EqualFold(kind[:same+1], resource[:same+1]) {
		same++
	}
	return kind[:same] + resource[same:]
}
