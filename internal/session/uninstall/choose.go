package uninstall

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster/dependents"
	"github.com/runlevel/runlevel/internal/cluster/fingerprint"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// KeepAnnotation is the annotation of an object that an uninstall keeps, with the value "true".
const KeepAnnotation = "runlevel.dev/keep"

// A KeepReason is the reason why an uninstall keeps an object.
type KeepReason string

// The reasons.
const (
	KeptByUser       KeepReason = "Requested"           // a user has named it
	KeptByAnnotation KeepReason = "Annotated"           // it has KeepAnnotation
	KeptData         KeepReason = "Data"                // it is a volume, or the claim of one
	KeptTakenOver    KeepReason = "TakenOver"           // another manager or release has it
	KeptHolder       KeepReason = "HoldsKeptObjects"    // a kept object would be deleted with it
	KeptForOthers    KeepReason = "HoldsForeignObjects" // foreign objects would be deleted with it
	KeptUnclear      KeepReason = "NotKnown"            // the objects that would be deleted with it could not be listed
)

// A KeptObject is an object of the release that an uninstall keeps.
type KeptObject struct {
	Object  kinds.ID   `json:"object"`
	Reason  KeepReason `json:"reason"`
	Message string     `json:"message"`

	head objectmeta.LiveMetadata
}

// A NamePattern names objects as KIND[.GROUP]/[NAMESPACE/]NAME. The name may be *.
type NamePattern struct {
	text string
	id   kinds.ID // the kind may be a plural or a short name; an empty namespace is any
}

// String returns the pattern as it was written.
func (p NamePattern) String() string { return p.text }

// ParsePattern parses a pattern.
func ParsePattern(text string) (NamePattern, error) {
	parts := strings.Split(text, "/")
	if len(parts) < 2 || len(parts) > 3 || slices.Contains(parts, "") {
		return NamePattern{}, fmt.Errorf("%q does not name an object: write KIND/NAME or KIND/NAMESPACE/NAME", text)
	}
	kind, group, _ := strings.Cut(parts[0], ".")
	p := NamePattern{text: text, id: kinds.ID{Kind: kind, Group: group, Name: parts[len(parts)-1]}}
	if len(parts) == 3 {
		p.id.Namespace = parts[1]
	}
	return p, nil
}

// matches reports whether the pattern names an object.
func (p NamePattern) matches(head objectmeta.LiveMetadata) bool {
	isKind := func(word string) bool { return strings.EqualFold(word, p.id.Kind) }
	return (isKind(head.ID.Kind) || isKind(head.Resource.Resource) ||
		slices.ContainsFunc(head.Resource.Words, isKind)) &&
		(p.id.Group == "" || p.id.Group == head.ID.Group) &&
		(p.id.Namespace == "" || p.id.Namespace == head.ID.Namespace) &&
		(p.id.Name == "*" || p.id.Name == head.ID.Name)
}

// matchesAny reports whether one of the patterns matches an object.
func matchesAny(patterns []NamePattern, head objectmeta.LiveMetadata) bool {
	return slices.ContainsFunc(patterns, func(p NamePattern) bool { return p.matches(head) })
}

// A Choice selects the objects that a user wants to keep, and those that the user wants to delete although an uninstall
// keeps them by default.
type Choice struct {
	Keep       []NamePattern
	DeleteData []NamePattern // objects to delete although they hold data or have KeepAnnotation
}

// A selection divides labelled objects into those that are deleted and those that are kept.
type selection struct {
	deleted []objectmeta.LiveMetadata
	kept    []KeptObject
}

// A chooser decides which objects of a release are deleted.
type chooser struct {
	release string
	choice  Choice
	applied *fingerprint.Cache // the objects that the release has applied
	kept    []KeptObject       // objects that earlier looks kept
}

// choose selects from objects with the label of any release. Objects of another release count if this one has applied
// them before.
func (c *chooser) choose(labelled []objectmeta.LiveMetadata) selection {
	s := selection{kept: slices.Clone(c.kept)}
	for _, head := range labelled {
		other, isOthers := head.OtherOwner(c.release)
		isKept := slices.ContainsFunc(c.kept, func(kept KeptObject) bool { return kept.head.UID == head.UID })
		switch reason, message := c.choice.reason(head); {
		case isKept:
		case isOthers && c.applied.WasApplied(head.ID):
			s.keep(head, KeptTakenOver, "release "+other+" has taken it over")
		// A controller has copied the label.
		case head.Release != c.release, head.Controller != "", head.ID.Kind == "Endpoints" && !head.IsApplied:
		case !head.IsApplied:
			s.keep(head, KeptTakenOver, "all of its fields are owned by other managers: "+managersOf(head))
		case reason != "":
			s.keep(head, reason, message)
		default:
			s.deleted = append(s.deleted, head)
		}
	}
	s.keepOwners()
	return s
}

// reason returns why an object of the release is kept; "" if it is deleted.
func (c Choice) reason(head objectmeta.LiveMetadata) (KeepReason, string) {
	isData := head.ID.Group == "" && (head.ID.Kind == "PersistentVolumeClaim" || head.ID.Kind == "PersistentVolume")
	isAnnotated := head.Object().GetAnnotations()[KeepAnnotation] == "true"
	switch {
	case matchesAny(c.Keep, head):
		return KeptByUser, "selected by --keep"
	case matchesAny(c.DeleteData, head):
		return "", ""
	case isAnnotated:
		return KeptByAnnotation, "its annotation " + KeepAnnotation + " is true"
	case isData:
		return KeptData, "it holds data"
	default:
		return "", ""
	}
}

// managersOf returns the field managers of an object.
func managersOf(head objectmeta.LiveMetadata) string {
	var found []string
	for _, entry := range head.Object().GetManagedFields() {
		if name := printable.Line(entry.Manager); entry.Subresource == "" && !slices.Contains(found, name) {
			found = append(found, name)
		}
	}
	if len(found) == 0 {
		return "another manager"
	}
	return strings.Join(found, ", ")
}

func (s *selection) keep(head objectmeta.LiveMetadata, reason KeepReason, message string) {
	s.kept = append(s.kept, KeptObject{Object: head.ID, Reason: reason, Message: printable.Line(message), head: head})
}

// keepInstead keeps an object that was selected for deletion.
func (s *selection) keepInstead(head objectmeta.LiveMetadata, reason KeepReason, message string) {
	s.deleted = slices.DeleteFunc(s.deleted, func(other objectmeta.LiveMetadata) bool { return other.UID == head.UID })
	s.keep(head, reason, message)
}

// keepOwners keeps the Namespace, the definition and the owners of each kept object, which would be deleted with them.
func (s *selection) keepOwners() {
	for i := 0; i < len(s.kept); i++ { // the list grows in the loop
		kept := s.kept[i].head
		containers := objectmeta.Containers(kept.ID, kept.Resource)
		for _, head := range slices.Clone(s.deleted) {
			isOwner := slices.ContainsFunc(kept.Object().GetOwnerReferences(), func(owner metav1.OwnerReference) bool {
				return owner.UID == head.UID
			})
			if isOwner || slices.Contains(containers, head.ID) {
				s.keepInstead(head, KeptHolder, "deleting it would also delete "+kept.ID.String()+", which is kept")
			}
		}
	}
	slices.SortFunc(s.kept, func(a, b KeptObject) int { return kinds.Compare(a.Object, b.Object) })
}

// containers returns the Namespaces and definitions that are selected for deletion.
func (s *selection) containers() []objectmeta.LiveMetadata {
	return slices.DeleteFunc(slices.Clone(s.deleted), func(head objectmeta.LiveMetadata) bool {
		return !kinds.IsContainer(head.ID.GroupKind()) || head.Terminating
	})
}

// maxNamed bounds how many objects a message names.
const maxNamed = 3

// keepFor keeps the Namespaces and definitions that contain other objects.
func (s *selection) keepFor(remainders map[types.UID]dependents.Remainder) {
	for _, head := range s.containers() {
		remainder := remainders[head.UID]
		switch {
		case len(remainder.Objects) > 0:
			var found []string
			for _, id := range remainder.Objects {
				found = append(found, id.String())
			}
			s.keepInstead(head, KeptForOthers,
				fmt.Sprintf("deleting it would also delete %s that the release does not own: %s",
					printable.Count(len(found), "object"), printable.Few(found, maxNamed))+
					claimsHint(remainder.Objects))
		case remainder.Err != nil:
			s.keepInstead(head, KeptUnclear, "cannot find out what would be deleted with it: "+remainder.Err.Error())
		}
	}
	s.keepOwners()
}

// claimsHint returns the command that deletes the claims among the objects of a Namespace. StatefulSets create
// claims that do not have the label of the release.
func claimsHint(objects []kinds.ID) string {
	var claims []string
	for _, id := range objects {
		if id.GroupKind() == kinds.PersistentVolumeClaim {
			claims = append(claims, id.Name)
		}
	}
	if len(claims) == 0 {
		return ""
	}
	command := "kubectl delete persistentvolumeclaim -n " + objects[0].Namespace + " " + strings.Join(claims, " ")
	return fmt.Sprintf("; if the data is not needed, run %q, and uninstall again", command)
}

// unmatched returns the patterns that do not match any of the objects.
func unmatched(patterns []NamePattern, labelled []objectmeta.LiveMetadata) []string {
	var texts []string
	for _, p := range patterns {
		if !slices.ContainsFunc(labelled, p.matches) {
			texts = append(texts, p.text)
		}
	}
	return texts
}

// countsOf returns the number of objects by kind.
func countsOf(objects []objectmeta.LiveMetadata) kinds.ObjectCounts {
	counted := map[schema.GroupKind]kinds.Count{}
	for _, head := range objects {
		kind := head.ID.GroupKind()
		counted[kind] = kinds.Count{
			Group:    kind.Group,
			Kind:     kind.Kind,
			Resource: head.Resource.Resource,
			Objects:  counted[kind].Objects + 1,
		}
	}
	var all []kinds.Count
	for _, count := range counted {
		all = append(all, count)
	}
	return kinds.NewObjectCounts(all)
}
