package kinds

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// ObjectCounts says how many objects there are, and of which kinds.
type ObjectCounts struct {
	Objects int     `json:"objects"`
	Kinds   []Count `json:"kinds,omitempty"` // the most objects first
}

// A Count is how many objects there are of one kind.
type Count struct {
	Group    string `json:"group,omitempty"`
	Kind     string `json:"kind"`
	Resource string `json:"resource"` // the kind's name in paths, which is its plural
	Objects  int    `json:"objects"`
}

// NewObjectCounts sums up counts of different kinds.
func NewObjectCounts(counts []Count) ObjectCounts {
	sum := ObjectCounts{Kinds: slices.Clone(counts)}
	for _, of := range counts {
		sum.Objects += of.Objects
	}
	slices.SortFunc(sum.Kinds, func(a, b Count) int {
		return cmp.Or(cmp.Compare(b.Objects, a.Objects), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Group, b.Group))
	})
	return sum
}

// mostKinds bounds how many kinds are named to people.
const mostKinds = 4

// String is the counts as people read it: "5 objects: 3 Pods, ReplicaSet, Secret".
func (t ObjectCounts) String() string {
	text := printable.Count(t.Objects, "object")
	if t.Objects == 0 {
		return "no objects"
	}
	var named []string
	rest := t.Objects
	for _, kind := range t.Kinds[:min(mostKinds, len(t.Kinds))] {
		named = append(named, t.name(kind))
		rest -= kind.Objects
	}
	if text += ": " + strings.Join(named, ", "); rest > 0 {
		text += fmt.Sprintf(" and %d more", rest)
	}
	return printable.Line(text)
}

// name is a number of objects of a kind. Their group is told only where another kind has
// the same name.
func (t ObjectCounts) name(of Count) string {
	text := of.Kind
	if of.Objects > 1 {
		text = strconv.Itoa(of.Objects) + " " + Plural(of.Kind, of.Resource)
	}
	isNamesake := func(other Count) bool { return other.Kind == of.Kind && other.Group != of.Group }
	if of.Group != "" && slices.ContainsFunc(t.Kinds, isNamesake) {
		text += " of " + of.Group
	}
	return text
}

// Plural writes the plural of a kind, which is the name of its resource, the way the kind
// is written: Policies of Policy.
func Plural(kind, resource string) string {
	same := 0
	for same < min(len(kind), len(resource)) && strings.EqualFold(kind[:same+1], resource[:same+1]) {
		same++
	}
	return kind[:same] + resource[same:]
}
