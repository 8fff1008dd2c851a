package precondition

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/printable"
)

// judgeRights is MissingRights: one finding for the verbs that are missing in one place.
func judgeRights(f *Facts) []Finding {
	user := printable.Line(cmp.Or(f.User, "this account"))
	if f.RightsErr != nil {
		return []Finding{warns("an answer of the cluster", "it is not known whether %s has the rights that are needed: %s", user, printable.Line(f.RightsErr.Error()))}
	}
	type place struct {
		resource  schema.GroupResource
		namespace string
		ofRecord  bool
	}
	var order []place
	missing := map[place][]Right{}
	for _, right := range f.Missing {
		at := place{right.Resource, right.Namespace, len(right.Manifests) == 0}
		if missing[at] == nil {
			order = append(order, at)
		}
		missing[at] = append(missing[at], right)
	}
	var found []Finding
	for _, at := range order {
		found = append(found, judgePlace(user, missing[at], f.Record.Release))
	}
	return found
}

// judgePlace is about rights on one resource in one place.
func judgePlace(user string, missing []Right, release string) Finding {
	var verbs []string
	var manifests []*payload.Manifest
	for _, right := range missing {
		verbs = append(verbs, right.Verb)
		for _, m := range right.Manifests {
			if !slices.Contains(manifests, m) {
				manifests = append(manifests, m)
			}
		}
	}
	what := strings.Join(verbs, ", ") + " " + printable.Line(missing[0].Resource.String())
	where, by := "", "a ClusterRole"
	if namespace := printable.Line(missing[0].Namespace); namespace != "" {
		where, by = " in namespace "+namespace, "a Role in namespace "+namespace
	}
	who := "the record of release " + printable.Line(release) + " needs"
	switch {
	case len(manifests) == 1:
		who = files(manifests) + " needs"
	case len(manifests) > 1:
		slices.SortStableFunc(manifests, payload.InOrder)
		who = files(manifests) + " need"
	}
	finding := blocks("whoever may grant it, with "+by, "%s may not %s%s, which %s", user, what, where, who)
	if len(manifests) > 0 {
		finding = finding.at(manifests[0])
	}
	return finding
}
