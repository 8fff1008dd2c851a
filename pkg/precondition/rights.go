package precondition

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/printable"
)

// A lack is verbs that are missing on some resources in some namespaces.
type lack struct {
	verbs      []string
	resources  []string
	namespaces []string
	ofRecord   bool
	manifests  []*payload.Manifest
}

// judgeRights is MissingRights: one finding for the same verbs, whether it is on several resources of
// a namespace or in several namespaces.
func judgeRights(f *Facts) []CheckFinding {
	user := printable.Line(cmp.Or(f.User, "this account"))
	if f.RightsErr != nil {
		return []CheckFinding{warns("an answer of the cluster", "it is not known whether %s has the rights that are needed: %s", user, printable.Line(f.RightsErr.Error()))}
	}
	var lacks []lack
	for _, right := range f.Missing {
		lacks = append(lacks, lack{
			[]string{right.Verb}, []string{printable.Line(right.Resource.String())}, []string{printable.Line(right.Namespace)}, len(right.Manifests) == 0, right.Manifests,
		})
	}
	lacks = merged(lacks, func(l lack) string { return fmt.Sprint(l.resources, l.namespaces, l.ofRecord) })
	lacks = merged(lacks, func(l lack) string { return fmt.Sprint(l.verbs, l.namespaces, l.ofRecord) })
	lacks = merged(lacks, func(l lack) string { return fmt.Sprint(l.verbs, l.resources, l.namespaces[0] == "", l.ofRecord) })
	var found []CheckFinding
	for _, one := range lacks {
		found = append(found, one.judge(user, f.Record.Release))
	}
	return found
}

// merged makes one of those with the same key.
func merged(lacks []lack, key func(lack) string) []lack {
	var all []lack
	for _, alike := range grouped(lacks, key) {
		whole := alike[0]
		for _, one := range alike[1:] {
			whole.verbs, whole.resources = union(whole.verbs, one.verbs), union(whole.resources, one.resources)
			whole.namespaces, whole.manifests = union(whole.namespaces, one.namespaces), union(whole.manifests, one.manifests)
		}
		all = append(all, whole)
	}
	return all
}

// union is what is in either list, each once.
func union[T comparable](a, b []T) []T {
	all := slices.Clone(a)
	for _, one := range b {
		if !slices.Contains(all, one) {
			all = append(all, one)
		}
	}
	return all
}

func (l lack) judge(user, release string) CheckFinding {
	where, by := "", "a ClusterRole"
	switch first := l.namespaces[0]; {
	case len(l.namespaces) > 1:
		where, by = " in namespaces "+printable.Few(l.namespaces, 5), "a Role in each namespace, or a ClusterRole"
	case first != "":
		where, by = " in namespace "+first, "a Role in namespace "+first
	}
	who := "the record of release " + printable.Line(release) + " needs"
	if len(l.manifests) > 0 {
		l.manifests = slices.SortedStableFunc(slices.Values(l.manifests), payload.InOrder)
		who = files(l.manifests) + either(len(l.manifests), " needs", " need")
	}
	finding := blocks("whoever may grant it, with "+by, "%s may not %s %s%s, which %s", user, strings.Join(l.verbs, ", "), strings.Join(l.resources, ", "), where, who)
	if len(l.manifests) > 0 {
		finding = finding.at(l.manifests...)
	}
	return finding
}
