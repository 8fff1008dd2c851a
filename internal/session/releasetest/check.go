package releasetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// The reasons for which tests do not run.
const (
	ReasonUnknown  = "ReleaseUnknown"  // nothing was applied
	ReasonApplying = "ReleaseApplying" // a process applies the release
	ReasonDenied   = "TestsDenied"     // rights are missing
)

// Check returns why tests of a release can't run now: it was never applied, a process applies it, or rights are
// missing. The namespace is that of the record. It returns a note if the last update of the release is not complete.
func Check(ctx context.Context, c *cluster.Cluster, namespace, release string,
	tests []*payload.Manifest) (note string, err error) {
	known, found, err := record.NewStore(c.Client, namespace, release).Load(ctx)
	if err != nil {
		return "", err
	}
	newest := known.Newest()
	if !found && newest == nil {
		return "", &reason.Error{
			Reason: ReasonUnknown,
			Message: fmt.Sprintf(`namespace %s has no record of a release %q: "runlevel list" lists all releases`,
				namespace, release),
		}
	}
	isPartial := newest != nil && newest.State == record.Partial
	held, err := lock.New(c, namespace, release).Holder(ctx)
	if err != nil {
		return "", err
	}
	now := c.Now()
	if held != nil && !held.IsDead(now) && (isPartial || !held.Keeps()) {
		return "", &reason.Error{
			Reason:  ReasonApplying,
			Message: fmt.Sprintf(`tests can't run during an apply: "runlevel wait %s" waits for its end`, release),
			Err:     &lock.HeldError{Release: release, Holder: *held, Age: now.Sub(held.Since)},
		}
	}
	if isPartial {
		note = printable.Line(fmt.Sprintf("the update of release %s to %s is not complete", release,
			cmp.Or(newest.Version, "its last version")))
	}
	return note, checkRights(ctx, c, tests)
}

// checkRights returns an error if rights to run the tests are missing. Tests need no rights to read pods and logs.
func checkRights(ctx context.Context, c *cluster.Cluster, tests []*payload.Manifest) error {
	var needed []precondition.NamedRight
	seen := map[string]bool{}
	for _, m := range tests {
		id, resource := m.ID(), schema.GroupResource{Group: kinds.Job.Group, Resource: "jobs"}
		if id.Kind == "Pod" {
			resource = schema.GroupResource{Resource: "pods"}
		}
		key := id.Namespace + "/" + resource.Resource
		if seen[key] {
			continue
		}
		seen[key] = true
		for _, verb := range []string{"get", "list", "watch", "create", "delete"} {
			right := precondition.Right{Verb: verb, Resource: resource, Namespace: id.Namespace}
			needed = append(needed, precondition.NamedRight{Right: right, Names: []string{""}})
		}
	}
	missing, err := precondition.Lacking(ctx, c, needed)
	if err != nil {
		return fmt.Errorf("find out which rights are missing: %w", printable.Error(err))
	}
	if len(missing) == 0 {
		return nil
	}
	var texts []string
	for _, right := range missing {
		texts = append(texts, fmt.Sprintf("%s %s in namespace %s", right.Verb, right.Resource.Resource,
			right.Namespace))
	}
	slices.Sort(texts)
	return &reason.Error{
		Reason:  ReasonDenied,
		Message: printable.Line("this user lacks rights that the tests need: " + strings.Join(texts, "; ")),
	}
}
