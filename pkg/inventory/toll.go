package inventory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/printable"
)

// A Toll is what goes when an object is deleted, beside the object itself.
type Toll struct {
	Objects int         `json:"objects"`
	Kinds   []TollOfOne `json:"kinds,omitempty"` // the most objects first
}

// A TollOfOne is how many objects of one kind go.
type TollOfOne struct {
	Group    string `json:"group,omitempty"`
	Kind     string `json:"kind"`
	Resource string `json:"resource"` // the kind's name in paths, which is its plural
	Objects  int    `json:"objects"`
}

// mostKinds bounds how many kinds are named to people.
const mostKinds = 4

// String is the toll as people read it: "5 objects: 3 Pods, ReplicaSet, Secret".
func (t Toll) String() string {
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
func (t Toll) name(of TollOfOne) string {
	text := of.Kind
	if of.Objects > 1 {
		text = strconv.Itoa(of.Objects) + " " + kinds.Plural(of.Kind, of.Resource)
	}
	isNamesake := func(other TollOfOne) bool { return other.Kind == of.Kind && other.Group != of.Group }
	if of.Group != "" && slices.ContainsFunc(t.Kinds, isNamesake) {
		text += " of " + of.Group
	}
	return text
}

// Tolls counts what goes with each of some objects, as if that one alone were deleted:
//   - what is in a namespace, and all objects of a CustomResourceDefinition;
//   - what the garbage collector takes: objects that have owners, and none that stays;
//   - what goes with those, and so on.
//
// Events don't count: nobody misses them. What is terminating already counts as long as it
// is there, but keeps nothing that it owns. The notes say what could not be counted.
func Tolls(ctx context.Context, c *cluster.Cluster, going []Head) (map[types.UID]Toll, []string, error) {
	if len(going) == 0 {
		return nil, nil, nil
	}
	listings, notes, err := sweep(ctx, c, namespacesOf(going))
	if err != nil {
		return nil, nil, fmt.Errorf("count what goes with objects: %w", err)
	}
	found := stockOf(listings, going)
	tolls := map[types.UID]Toll{}
	for _, head := range going {
		tolls[head.UID] = tollOf(found.with(found.objects[head.UID]))
	}
	return tolls, notes, nil
}

// tollOf sums up what goes.
func tollOf(gone []*object) Toll {
	counted := map[schema.GroupKind]TollOfOne{}
	for _, object := range gone {
		kind := object.in.GroupKind()
		counted[kind] = TollOfOne{kind.Group, kind.Kind, object.in.Resource, counted[kind].Objects + 1}
	}
	toll := Toll{Objects: len(gone)}
	for _, of := range counted {
		toll.Kinds = append(toll.Kinds, of)
	}
	slices.SortFunc(toll.Kinds, func(a, b TollOfOne) int {
		return cmp.Or(cmp.Compare(b.Objects, a.Objects), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Group, b.Group))
	})
	return toll
}
