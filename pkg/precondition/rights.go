package precondition

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A lack lists verbs that are missing on some resources in some namespaces.
type lack struct {
	verbs      []string
	resources  []string
	namespaces []string
	ofRecord   bool
	manifests  []*payload.Manifest
	ofHooks    bool
	rights     []string // verbs and resources of hooks, of which there are many kinds
}

// judgeRights implements MissingRights: one finding for the same verbs, on several resources of
// a namespace or in several namespaces.
func judgeRights(f *Facts) []Finding {
	user := printable.Line(cmp.Or(f.User, "this account"))
	if f.RightsErr != nil {
		return []Finding{warns("retrying when the cluster answers",
			"cannot determine whether %s has the rights that are needed: %s", user,
			printable.Line(f.RightsErr.Error()))}
	}
	var lacks []lack
	for _, right := range f.Missing {
		lacks = append(lacks, lack{
			verbs: []string{right.Verb}, resources: []string{printable.Line(right.Resource.String())},
			namespaces: []string{printable.Line(right.Namespace)},
			ofRecord:   len(right.Manifests) == 0, manifests: right.Manifests, ofHooks: right.IsForHooks,
		})
	}
	lacks = mergeLacks(lacks, func(l lack) string {
		return fmt.Sprint(l.resources, l.namespaces, l.ofRecord, l.ofHooks)
	})
	lacks = mergeLacks(lacks, func(l lack) string { return fmt.Sprint(l.verbs, l.namespaces, l.ofRecord, l.ofHooks) })
	lacks = mergeHookLacks(lacks)
	lacks = mergeLacks(lacks, func(l lack) string {
		return fmt.Sprint(l.verbs, l.resources, l.rights, l.namespaces[0] == "", l.ofRecord)
	})
	var findings []Finding
	for _, item := range lacks {
		findings = append(findings, item.judge(user, f.Record.Release))
	}
	return findings
}

// mergeHookLacks merges all lacks of hooks in a namespace.
func mergeHookLacks(lacks []lack) []lack {
	for i := range lacks {
		if item := &lacks[i]; item.ofHooks {
			item.rights = []string{item.inWords()}
			item.verbs, item.resources = nil, nil
		}
	}
	return mergeLacks(lacks, func(l lack) string {
		if l.ofHooks {
			return fmt.Sprint("hooks ", l.namespaces)
		}
		return fmt.Sprint(l.verbs, l.resources, l.namespaces, l.ofRecord)
	})
}

// inWords returns the verbs and resources.
func (l lack) inWords() string {
	if len(l.rights) > 0 {
		return strings.Join(l.rights, "; ")
	}
	return strings.Join(l.verbs, ", ") + " " + strings.Join(l.resources, ", ")
}

// mergeLacks merges lacks with the same key.
func mergeLacks(lacks []lack, key func(lack) string) []lack {
	var all []lack
	for _, alike := range grouped(lacks, key) {
		whole := alike[0]
		for _, item := range alike[1:] {
			whole.verbs, whole.resources = union(whole.verbs, item.verbs), union(whole.resources, item.resources)
			whole.namespaces, whole.manifests = union(whole.namespaces, item.namespaces),
				union(whole.manifests, item.manifests)
			whole.rights = union(whole.rights, item.rights)
		}
		all = append(all, whole)
	}
	return all
}

// union returns the items of both lists, each once.
func union[T comparable](a, b []T) []T {
	all := slices.Clone(a)
	for _, item := range b {
		if !slices.Contains(all, item) {
			all = append(all, item)
		}
	}
	return all
}

func (l lack) judge(user, release string) Finding {
	scope, grant := "", "a ClusterRole"
	switch first := l.namespaces[0]; {
	case len(l.namespaces) > 1:
		scope, grant = " in namespaces "+printable.Few(l.namespaces, 5), "a Role in each namespace, or a ClusterRole"
	case first != "":
		scope, grant = " in namespace "+first, "a Role in namespace "+first
	}
	relation := "the record of release " + printable.Line(release) + " needs"
	l.manifests = slices.SortedStableFunc(slices.Values(l.manifests), payload.InOrder)
	switch {
	case l.ofHooks:
		relation = "the lifecycle hooks of " + files(l.manifests) + " need"
	case len(l.manifests) > 0:
		relation = files(l.manifests) + either(len(l.manifests), " needs", " need")
	}
	finding := blocks("granting it with "+grant, "%s may not %s%s, which %s", user, l.inWords(), scope,
		relation)
	if len(l.manifests) > 0 {
		finding = finding.withFile(l.manifests...)
	}
	return finding
}
