package precondition

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// judgeClaims implements ForeignObject: one finding for each other release.
func judgeClaims(f *Facts) []Finding {
	type cause struct {
		release string
		deletes bool
	}
	var findings []Finding
	for _, claims := range grouped(f.Claims, func(c Claim) cause {
		return cause{c.Release, c.Manifest.IsTombstone()}
	}) {
		var manifests []*payload.Manifest
		for _, claim := range claims {
			manifests = append(manifests, claim.Manifest)
		}
		problem := "can't be applied"
		if claims[0].Manifest.IsTombstone() {
			problem = "can't be deleted"
		}
		other := printable.Line(claims[0].Release)
		resolution := "dropping it here or in release " + other
		if len(claims) > 1 {
			resolution = "applying them as release " + other +
				", if it is the same one, or dropping them here or in release " + other
		}
		findings = append(findings, blocks(resolution, "%s: %s %s of release %s, and %s by this one",
			files(manifests), name(ids(manifests)), either(len(claims), "is", "are"), other,
			problem).withFile(manifests...))
	}
	return findings
}

// judgeNamespaces implements NoNamespace, one finding for all. A release has no default namespace.
func judgeNamespaces(f *Facts) []Finding {
	if len(f.WithoutNamespace) == 0 {
		return nil
	}
	subject := either(len(f.WithoutNamespace), "is in no namespace, and objects of its kind are in one",
		"are in no namespace, and objects of their kinds are in one")
	return []Finding{blocks("writing metadata.namespace", "%s: %s %s", files(f.WithoutNamespace),
		name(ids(f.WithoutNamespace)), subject).withFile(f.WithoutNamespace...)}
}

// judgeKinds implements UnservedKinds: one finding for each kind; for all of a group and version, if their
// discovery failed.
func judgeKinds(f *Facts) []Finding {
	var findings []Finding
	for _, alike := range grouped(f.Unserved, func(u UnservedManifest) schema.GroupVersionKind {
		kind := u.Manifest.GroupVersionKind()
		if u.Err != nil {
			kind.Kind = ""
		}
		return kind
	}) {
		var manifests []*payload.Manifest
		for _, manifest := range alike {
			manifests = append(manifests, manifest.Manifest)
		}
		findings = append(findings,
			judgeKind(manifests[0].GroupVersionKind(), alike[0], manifests).withFile(manifests...))
	}
	return findings
}

// judgeKind returns the finding about one kind in one version.
func judgeKind(kind schema.GroupVersionKind, why UnservedManifest, manifests []*payload.Manifest) Finding {
	name := printable.Line(fmt.Sprintf("%s in %s", kind.Kind, kind.GroupVersion()))
	if slices.ContainsFunc(manifests, func(m *payload.Manifest) bool { return m.GroupVersionKind() != kind }) {
		name = printable.Line(fmt.Sprintf("%s and other kinds in %s", kind.Kind, kind.GroupVersion()))
	}
	file := files(manifests)
	other := printable.Line(schema.GroupVersion{Group: kind.Group, Version: why.Has}.String())
	switch {
	case why.Err != nil:
		return warns("waiting for the server of "+printable.Line(kind.GroupVersion().String()),
			"%s: cannot determine whether the cluster serves %s: %s",
			file, name, printable.Line(why.Err.Error()))
	case why.InOurs:
		return blocks("writing "+other+" instead, or serving "+printable.Line(kind.Version)+" too",
			"%s: the release defines no %s, only in %s", file, name, other)
	case why.Has != "":
		return blocks("writing "+other+" instead", "%s: the cluster does not serve %s, only in %s", file, name, other)
	case kinds.ScopeOf(kind.GroupKind()) != kinds.Unknown:
		return blocks("dropping it here, or using a cluster of another version of Kubernetes",
			"%s: the cluster does not serve %s, nor any other version of it", file, name)
	default:
		return blocks("installing its CustomResourceDefinition or APIService",
			"%s: the cluster does not serve %s, and the release does not define it", file, name)
	}
}
