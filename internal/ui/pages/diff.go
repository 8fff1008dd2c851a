package pages

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	g "maragu.dev/gomponents"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster/inventory"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/review/plan"
	"github.com/runlevel/runlevel/internal/review/plan/show"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/ui/planpage"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// maxDryRun limits the time of a dry run: webhooks may be slow, and the page waits.
const maxDryRun = 3 * time.Second

// A diffKey names a state of an object and its manifest. As long as both are the same, a dry run is not repeated when
// something else on the page changes.
type diffKey struct {
	id      kinds.ID
	uid     types.UID
	version string
	sum     [sha256.Size]byte
}

// diff returns what an apply of the release would change in the object, as "runlevel diff NAME" does.
func (v *objectView) diff() g.Group {
	if v.manifest == nil || v.release.Record == nil || v.unread != nil ||
		slices.Contains(v.release.Payload.Tests, v.manifest) { // an apply leaves tests out
		return nil
	}
	for _, verb := range v.dryRunVerbs() {
		if err := v.mayDo(verb); err != nil {
			return sentence("A dry run needs more rights: " + err.Error())
		}
	}
	key := diffKey{id: v.id, sum: v.manifest.Sum()}
	if v.live != nil {
		key.uid, key.version = v.live.GetUID(), v.live.GetResourceVersion()
	}
	found, err := v.plans.get(key, v.preview)
	if err != nil {
		return notKnown(err)
	}
	return planpage.Object(show.Printer{Plan: found})
}

// dryRunVerbs returns the rights on the object that a dry run needs.
func (v *objectView) dryRunVerbs() []string {
	switch {
	case v.manifest.IsTombstone():
		return []string{"delete"}
	case v.live == nil:
		return []string{"create", "patch"}
	default:
		return []string{"patch"}
	}
}

// preview finds out what an apply of the object would change, by a dry run.
func (v *objectView) preview() (*plan.Plan, error) {
	ctx, cancel := context.WithTimeout(v.ctx, maxDryRun)
	defer cancel()
	one, known := *v.release.Payload, *v.release.Record
	one.Manifests = v.needed()
	var scopes []inventory.Scope
	for _, m := range one.Manifests {
		scopes = append(scopes, inventory.Scope{Kind: m.ID().GroupKind(), Namespace: m.ID().Namespace})
	}
	before, err := inventory.Take(ctx, v.Hub.Cluster, scopes, nil)
	if err != nil {
		return nil, err
	}
	store := record.NewStore(v.Hub.Cluster.Client, v.release.Namespace, known.Release)
	report := apply.Preview(ctx, v.Hub.Cluster, &one, before, apply.Options{Options: object.Options{
		Release: known.Release, Version: one.Version, Mode: graph.Update, Journal: object.NewJournal(store, &known),
	}})
	i := slices.IndexFunc(report.Changes, func(c object.Change) bool { return c.ID == v.id && c.Hook == "" })
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("the cluster has not answered the dry run within %s: \"runlevel diff %s\" waits longer",
			maxDryRun, known.Release)
	case i < 0:
		return nil, report.Err
	}
	change := report.Changes[i]
	if failure := change.Err; failure != nil && isForbidden(failure) {
		return nil, fmt.Errorf("this user may not %s %s %s: a dry run needs this right",
			strings.Join(v.dryRunVerbs(), " and "), v.resource, v.id.Name)
	}
	report.Changes = slices.DeleteFunc(report.Changes, func(c object.Change) bool { return c.ID != v.id })
	outcome := &session.Outcome{Release: known.Release, Version: one.Version, Mode: graph.Update, Report: report}
	return outcome.Plan(ctx, v.Hub.Cluster, &one), nil
}

// isForbidden reports whether a user lacks a right.
func isForbidden(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Reason == "Forbidden"
}

// needed returns the manifests that a dry run of the object depends on, and its own: its definition, its namespace, and
// what scales it.
func (v *objectView) needed() []*payload.Manifest {
	var needed []*payload.Manifest
	for _, m := range v.release.Payload.Manifests {
		id := m.ID()
		scaled, scales := kinds.ScaleTarget(m.Object())
		switch {
		case m == v.manifest:
			needed = append(needed, v.versioned())
		case m.IsTombstone():
		case scales && scaled == v.id, id.GroupKind() == kinds.Namespace && id.Name == v.id.Namespace,
			id.GroupKind() == kinds.CustomResourceDefinition && kinds.DefinedBy(m.Object()) == v.id.GroupKind():
			needed = append(needed, m)
		}
	}
	return needed
}

// versioned returns the manifest, with the annotation of the release's version if the object has it: an apply adds that
// to some objects.
func (v *objectView) versioned() *payload.Manifest {
	if v.live != nil {
		if version, has := v.live.GetAnnotations()[objectmeta.VersionAnnotation]; has {
			return v.manifest.WithAnnotation(objectmeta.VersionAnnotation, version)
		}
	}
	return v.manifest
}
