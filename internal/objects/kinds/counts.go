package kinds

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// ObjectCounts is the number of objects, in total and by kind.
type ObjectCounts struct {
	Objects int     `json:"objects"`
	Kinds   []Count `json:"kinds,omitempty"` // the most frequent first
}

// A Count is the number of objects of one kind.
type Count struct {
	Group    string `json:"group,omitempty"`
	Kind     string `json:"kind"`
	Resource string `json:"resource"` // the plural name of the kind, as in paths
	Objects  int    `json:"objects"`
}

// NewObjectCounts sums up counts of different kinds.
func NewObjectCounts(counts []Count) ObjectCounts {
	sum := ObjectCounts{Kinds: slices.Clone(counts)}
	for _, count := range counts {
		sum.Objects += count.Objects
	}
	slices.SortFunc(sum.Kinds, func(a, b Count) int {
		return cmp.Or(cmp.Compare(b.Objects, a.Objects), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Group, b.Group))
	})
	return sum
}

// maxKinds limits the kinds that String lists.
const maxKinds = 4

// String returns the counts for people: "5 objects: 3 Pods, ReplicaSet, Secret".
func (o ObjectCounts) String() string {
	text := printable.Count(o.Objects, "object")
	if o.Objects == 0 {
		return "no objects"
	}
	var named []string
	rest := o.Objects
	for _, kind := range o.Kinds[:min(maxKinds, len(o.Kinds))] {
		named = append(named, o.name(kind))
		rest -= kind.Objects
	}
	if text += ": " + strings.Join(named, ", "); rest > 0 {
		text += fmt.Sprintf(" and %d more", rest)
	}
	return printable.Line(text)
}

// name returns the count with the kind. The group is added only if another kind has the same name.
func (o ObjectCounts) name(count Count) string {
	text := count.Kind
	if count.Objects > 1 {
		text = strconv.Itoa(count.Objects) + " " + Plural(count.Kind, count.Resource)
	}
	isNamesake := func(other Count) bool { return other.Kind == count.Kind && other.Group != count.Group }
	if count.Group != "" && slices.ContainsFunc(o.Kinds, isNamesake) {
		text += " of " + count.Group
	}
	return text
}

// Plural returns the plural of a kind, which is the name of its resource, in the case of
// the kind: Policies of Policy.
func Plural(kind, resource string) string {
	same := 0
	for same < min(len(kind), len(resource)) && strings.EqualFold(kind[:same+1], resource[:same+1]) {
		same++
	}
	return kind[:same] + resource[same:]
}
