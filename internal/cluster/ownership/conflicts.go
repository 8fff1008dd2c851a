package ownership

import (
	"cmp"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// A Conflict is a field that another manager has set and that we set, too.
type Conflict struct {
	Manager string `json:"manager"`
	Field   string `json:"field"`
}

// Conflicts returns the conflicts of a server-side apply that failed without force, sorted; nil
// if it failed for any other reason.
func Conflicts(err error) []Conflict {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	var losses []Conflict
	for _, cause := range status.Status().Details.Causes {
		if cause.Type == metav1.CauseTypeFieldManagerConflict {
			losses = append(losses, Conflict{
				Manager: managerIn(cause.Message),
				Field:   printable.Line(strings.TrimPrefix(cause.Field, ".")),
			})
		}
	}
	slices.SortFunc(losses, inOrder)
	return slices.Compact(losses)
}

func inOrder(a, b Conflict) int {
	return cmp.Or(cmp.Compare(a.Manager, b.Manager), cmp.Compare(a.Field, b.Field))
}

// conflictMessage matches the message of a conflict: conflict with "x" with subresource "scale" using apps/v1.
var conflictMessage = regexp.MustCompile(`^conflict with ("(?:[^"\\]|\\.)*")(?: with subresource ("(?:[^"\\]|\\.)*"))?`)

// managerIn parses the manager from a message. A message of another form is returned as it is.
func managerIn(message string) string {
	found := conflictMessage.FindStringSubmatch(message)
	if found == nil {
		return printable.Line(message)
	}
	name, err := strconv.Unquote(found[1])
	if err != nil {
		return printable.Line(message)
	}
	subresource, _ := strconv.Unquote(found[2])
	return managerName(name, subresource)
}

// managerName returns the name of a manager to print, with the subresource.
func managerName(manager, subresource string) string {
	if subresource != "" {
		manager += "/" + subresource
	}
	return printable.Line(manager)
}

// Owners returns the managers other than us that own a field, or anything below it. If none
// does, it returns those that own a field that contains it, such as an atomic
// list.
func Owners(entries []metav1.ManagedFieldsEntry, path fieldpath.Path) []string {
	return ownersOf(read(entries), path)
}

// An entry contains the fields that a manager owns.
type entry struct {
	manager string // result of managerName
	fields  *fieldpath.Set
	isOurs  bool
}

// read parses entries. It skips those that can't be parsed.
func read(entries []metav1.ManagedFieldsEntry) []entry {
	var all []entry
	for _, managedFieldsEntry := range entries {
		if set, err := fieldsOf(managedFieldsEntry); err == nil {
			isOurs := managedFieldsEntry.Manager == cluster.FieldManager && managedFieldsEntry.Subresource == ""
			all = append(all, entry{managerName(managedFieldsEntry.Manager, managedFieldsEntry.Subresource), set,
				isOurs})
		}
	}
	return all
}

func ownersOf(entries []entry, path fieldpath.Path) []string {
	var exactly, around []string
	for _, item := range entries {
		switch {
		case item.isOurs:
		case ownsWithin(item.fields, path):
			exactly = append(exactly, item.manager)
		case ownsAround(item.fields, path):
			around = append(around, item.manager)
		}
	}
	owners := exactly
	if len(owners) == 0 {
		owners = around
	}
	slices.Sort(owners)
	return slices.Compact(owners)
}

// Owns reports whether we own a field, or anything below it, from an apply.
func Owns(entries []metav1.ManagedFieldsEntry, path fieldpath.Path) bool {
	set := ownedByRunlevel(entries)
	return ownsWithin(set, path) || ownsAround(set, path)
}

// ownsWithin reports whether a set has a field, or anything below it.
func ownsWithin(set *fieldpath.Set, path fieldpath.Path) bool {
	if set.Has(path) {
		return true
	}
	for _, step := range path {
		set = set.WithPrefix(step)
	}
	return !set.Empty()
}

// ownsAround reports whether a set has a field that contains the path, and nothing below that field.
func ownsAround(set *fieldpath.Set, path fieldpath.Path) bool {
	for _, step := range path {
		below := set.WithPrefix(step)
		if below.Empty() {
			return set.Members.Has(step)
		}
		set = below
	}
	return false
}
