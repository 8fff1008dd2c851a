package precondition

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/printable"
)

// judgeClaims is ForeignObject.
func judgeClaims(f *Facts) []Finding {
	var found []Finding
	for _, claim := range f.Claims {
		does := "can't be applied"
		if claim.Manifest.IsTombstone() {
			does = "can't be deleted"
		}
		other := printable.Line(claim.Release)
		found = append(found, blocks("dropping it here, or by release "+other+" no longer having it", "%s: %s is of release %s, and %s by this one",
			printable.Line(claim.Manifest.File()), claim.Manifest.ID(), other, does).at(claim.Manifest))
	}
	return found
}

// judgeNamespaces is NoNamespace. There is no namespace that a release is for.
func judgeNamespaces(f *Facts) []Finding {
	var found []Finding
	for _, manifest := range f.Homeless {
		found = append(found, blocks("writing metadata.namespace", "%s: %s is in no namespace, and objects of its kind are in one",
			printable.Line(manifest.File()), manifest.ID()).at(manifest))
	}
	return found
}

// judgeKinds is UnservedKinds: one finding for each kind, at its first manifest.
func judgeKinds(f *Facts) []Finding {
	first := map[schema.GroupVersionKind]Unserved{}
	manifests := map[schema.GroupVersionKind][]*payload.Manifest{}
	var order []schema.GroupVersionKind
	for _, unserved := range f.Unserved {
		kind := unserved.Manifest.GroupVersionKind()
		if _, isKnown := first[kind]; !isKnown {
			first[kind] = unserved
			order = append(order, kind)
		}
		manifests[kind] = append(manifests[kind], unserved.Manifest)
	}
	var found []Finding
	for _, kind := range order {
		found = append(found, judgeKind(kind, first[kind], manifests[kind]).at(manifests[kind][0]))
	}
	return found
}

// judgeKind is about one kind in one version.
func judgeKind(kind schema.GroupVersionKind, why Unserved, manifests []*payload.Manifest) Finding {
	name := printable.Line(fmt.Sprintf("%s in %s", kind.Kind, kind.GroupVersion()))
	at := files(manifests)
	other := printable.Line(schema.GroupVersion{Group: kind.Group, Version: why.Has}.String())
	switch {
	case why.Err != nil:
		return warns("whoever serves "+printable.Line(kind.GroupVersion().String()), "%s: it is not known whether the cluster serves %s: %s",
			at, name, printable.Line(why.Err.Error()))
	case why.InOurs:
		return blocks("writing "+other+" instead, or serving "+printable.Line(kind.Version)+" too", "%s: the release defines no %s, only in %s", at, name, other)
	case why.Has != "":
		return blocks("writing "+other+" instead", "%s: the cluster does not serve %s, only in %s", at, name, other)
	case kinds.ScopeOf(kind.GroupKind()) != kinds.Unknown:
		return blocks("a cluster of another version of Kubernetes, or dropping it here", "%s: the cluster does not serve %s, nor any other version of it", at, name)
	default:
		return blocks("whoever installs its CustomResourceDefinition or APIService", "%s: the cluster does not serve %s, and the release does not define it", at, name)
	}
}

// files names the first file of some manifests, and counts the others.
func files(manifests []*payload.Manifest) string {
	text := printable.Line(manifests[0].File())
	if more := len(manifests) - 1; more > 0 {
		text += " and " + printable.Count(more, "more manifest")
	}
	return text
}
