package uninstall

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// maxRights bounds how many missing rights a message names.
const maxRights = 10

// checkRights returns an error if rights to delete the objects or the record are missing.
func (l *looker) checkRights(ctx context.Context, p *Plan) error {
	missing, err := precondition.Lacking(ctx, l.cluster, l.rights(p))
	if err != nil {
		return fmt.Errorf("find out which rights are missing: %w", printable.Error(err))
	}
	if len(missing) == 0 {
		return nil
	}
	var texts []string
	for _, right := range missing {
		text := right.Verb + " " + right.Resource.String()
		if right.Namespace != "" {
			text += " in namespace " + right.Namespace
		}
		texts = append(texts, printable.Line(text))
	}
	slices.Sort(texts)
	if more := len(texts) - maxRights; more > 0 {
		texts = append(texts[:maxRights], fmt.Sprintf("and %d more", more))
	}
	user := printable.Line(cmp.Or(cluster.UserOf(ctx, l.cluster).Username, "this account"))
	return &reason.Error{Reason: ReasonDenied,
		Message: fmt.Sprintf("%s lacks rights that the uninstall of release %s needs; nothing was deleted; missing: %s",
			user, p.Release, strings.Join(texts, "; "))}
}

// A resourceScope is a resource in a namespace.
type resourceScope struct {
	resource  schema.GroupResource
	namespace string
}

// rights returns the rights that the uninstall needs: on the objects, on the record, and on the Lease.
func (l *looker) rights(p *Plan) []precondition.NamedRight {
	var all []precondition.NamedRight
	indexes := map[resourceScope]int{}
	for _, head := range p.Objects() {
		right := precondition.Right{
			Verb:      "delete",
			Resource:  head.Resource.GroupResource(),
			Namespace: head.ID.Namespace,
		}
		key := resourceScope{right.Resource, right.Namespace}
		if i, isKnown := indexes[key]; isKnown {
			all[i].Names = append(all[i].Names, head.ID.Name)
			continue
		}
		indexes[key] = len(all)
		all = append(all, precondition.NamedRight{Right: right, Names: []string{head.ID.Name}})
	}
	for _, resource := range []schema.GroupResource{{Resource: "configmaps"},
		{Group: "coordination.k8s.io", Resource: "leases"}} {
		for _, verb := range []string{"get", "update", "delete"} {
			right := precondition.Right{Verb: verb, Resource: resource, Namespace: l.options.Namespace}
			all = append(all, precondition.NamedRight{Right: right, Names: []string{lock.Name(l.options.Release)}})
		}
	}
	if p.record.History.HasFiles() {
		for _, verb := range []string{"list", "delete"} {
			right := precondition.Right{
				Verb:      verb,
				Resource:  schema.GroupResource{Resource: "secrets"},
				Namespace: l.options.Namespace,
			}
			all = append(all, precondition.NamedRight{Right: right, Names: []string{""}}) // the right on all names
		}
	}
	return all
}
