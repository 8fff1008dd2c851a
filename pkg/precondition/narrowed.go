package precondition

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/crd"
	"github.com/runlevel/runlevel/internal/objects/crdchange"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// maxObjects limits the objects of a definition that are validated, and objectsAtOnce those of a request.
const (
	maxObjects    = 500
	objectsAtOnce = 20
)

// A NarrowedDefinition is a definition of the payload that allows less than the one on the cluster.
type NarrowedDefinition struct {
	Manifest  *payload.Manifest
	Change    *crdchange.Change
	Validated int        // number of objects that were validated
	Unfit     []Obstacle // objects that the new definition does not allow
	isPart    bool       // there are more objects
	live      map[string]any
}

// narrow returns what the definition of a manifest takes away from a live one; nil if it takes nothing away. It leaves
// out the versions that StoredVersions reports.
func narrow(m *payload.Manifest, live map[string]any, stored []string) *NarrowedDefinition {
	change := crdchange.Compare(live, m.Object().Object)
	if change == nil {
		return nil
	}
	change.Removed = slices.DeleteFunc(change.Removed, func(version string) bool {
		return slices.Contains(stored, version)
	})
	found := &NarrowedDefinition{Manifest: m, Change: change, live: live}
	if len(found.effects()) == 0 {
		return nil
	}
	return found
}

// effects returns what the definition takes away, in words.
func (n *NarrowedDefinition) effects() []string {
	var effects []string
	for _, effect := range n.Change.Effects() {
		if effect.Reason != crdchange.NewStorageVersion {
			effects = append(effects, effect.Message)
		}
	}
	return effects
}

// validate finds objects that the definition does not allow, and the one on the cluster does. Objects that can't be
// listed are not judged. Few are held at a time, since they may be large.
func (n *NarrowedDefinition) validate(ctx context.Context, c *cluster.Cluster) {
	definition, err := crd.NewDefinition(n.Manifest.Object().Object)
	before, errBefore := crd.NewDefinition(n.live)
	if err != nil || errBefore != nil ||
		len(n.Change.RemovedFields)+len(n.Change.RequiredFields)+len(n.Change.NarrowedFields) == 0 {
		return // the API server refuses the definition, or the schema allows as much
	}
	_, versions := cluster.DefinedKind(n.Manifest.Object())
	for _, version := range versions {
		options := metav1.ListOptions{Limit: objectsAtOnce}
		for n.Validated < maxObjects {
			list, err := c.In(version, "").List(ctx, options)
			if err != nil {
				break // the cluster may not serve a new version
			}
			for i := range list.Items {
				object := list.Items[i].Object
				if problems := definition.Check(ctx, object); len(problems) > 0 && len(before.Check(ctx, object)) == 0 {
					n.Unfit = append(n.Unfit, Obstacle{
						ID: version.IDOf(&list.Items[i]), Why: describeProblem(problems[0]),
					})
				}
			}
			n.Validated += len(list.Items)
			if options.Continue = list.GetContinue(); options.Continue == "" {
				return
			}
		}
		if n.Validated > 0 {
			n.isPart = true
			return
		}
	}
}

// describeProblem names the field of a problem, without its value: it may be secret.
func describeProblem(problem crd.Problem) string {
	field := printable.Line(strings.Join(problem.Path, "."))
	switch {
	case field == "":
		return "breaks a rule"
	case problem.Missing:
		return "lacks " + field
	case problem.Unknown:
		return "loses " + field
	default:
		return field + " is not allowed"
	}
}

// judgeNarrowed implements NarrowedDefinition: one finding for each definition.
func judgeNarrowed(f *Facts) []Finding {
	var findings []Finding
	for _, narrowed := range f.Narrowed {
		m, objects, count := narrowed.Manifest, "", printable.Count(narrowed.Validated, "object")
		if narrowed.isPart {
			count = "the first " + count
		}
		resolution := "keeping it in the definition, or changing the clients and objects that need it"
		switch {
		case len(narrowed.Unfit) > 0:
			first := narrowed.Unfit[0]
			objects = fmt.Sprintf("; of %s, %d would not be allowed, such as %s (%s)", count, len(narrowed.Unfit),
				first.ID, first.Why)
			resolution = "changing these objects first, or keeping it in the definition"
		case narrowed.Validated > 0:
			objects = "; " + count + " would be allowed"
		}
		findings = append(findings, warns(resolution, "%s: %s allows less than the one on the cluster: %s%s",
			files([]*payload.Manifest{m}), m.ID(), strings.Join(narrowed.effects(), "; "), objects).withFile(m))
	}
	return findings
}
