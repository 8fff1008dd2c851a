package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/review/plan/show"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/session/why"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// review prints the plan of a rollback, and returns the release to apply, with the tombstones of the objects to delete.
// It returns an error if the gate, or an object that the cluster would refuse, stops the rollback.
func (f *rollbackFlags) review(ctx context.Context, c *cluster.Cluster, release releaseInput,
	streams core.Streams) (releaseInput, error) {
	if f.deleteNew {
		options, err := f.Options(release.ref, release.Payload)
		if err != nil {
			return release, err
		}
		orphans, err := session.FindOrphans(ctx, c, release.Payload, options)
		if err != nil {
			return release, err
		}
		added, err := f.findNew(ctx, c, release, orphans, streams.Err)
		if err != nil {
			return release, err
		}
		with := *release.Payload // its hash stays that of the revision
		with.Manifests = slices.Concat(release.Manifests, withoutContent(added, streams.Err))
		release.Payload = &with
	}
	preview, err := f.PreviewOf(ctx, c, release.Payload, release.ref)
	if err != nil {
		return release, err
	}
	p, err := preview.Plan(ctx, streams.Err)
	if err != nil {
		return release, err
	}
	core.DropWholeObjects(p)
	if f.format != core.JSON {
		if err := (show.Printer{Plan: p, To: release.ref}).Text(streams.Out); err != nil {
			return release, err
		}
	}
	if !f.deleteNew {
		added, err := f.findNew(ctx, c, release, preview.Orphans, streams.Err)
		if err != nil {
			return release, err
		}
		if len(added) > 0 {
			fmt.Fprintf(streams.Err, "only %s has %s, which would stay: --delete-new deletes those that hold no data\n",
				printable.Line(f.rolledBack()), printable.Count(len(added), "object"))
		}
	}
	return release, f.stop(preview.Outcome, c.Now(), streams.Out)
}

// rolledBack returns the version before the rollback, or its revision.
func (f *rollbackFlags) rolledBack() string {
	current := record.HistoryEntry{Version: f.Session.Rollback.Version, Revision: f.Session.Rollback.From}
	return current.Title()
}

// findNew returns the tombstones of orphans of the version that is rolled back, in the places of their manifests. It
// prints the objects of that version that another manager or release has taken over.
func (f *rollbackFlags) findNew(ctx context.Context, c *cluster.Cluster, release releaseInput, orphans []session.Orphan,
	progress io.Writer) ([]*payload.Manifest, error) {
	ref, err := core.AppliedRef(release.Name, f.Session.Rollback.From)
	if err != nil {
		return nil, err
	}
	newer, _, err := f.Release.Parse(ctx, ref, io.Discard)
	if err != nil && f.deleteNew && len(orphans) > 0 {
		return nil, fmt.Errorf("--delete-new: it is not known what only %s has: %w", f.rolledBack(), err)
	}
	if err != nil {
		return nil, nil
	}
	known := map[kinds.ID]bool{}
	for _, m := range release.Manifests {
		known[m.ID()] = true
	}
	for _, exclusion := range release.Excluded {
		known[exclusion.Manifest.ID()] = true
	}
	var added []*payload.Manifest
	for _, m := range newer.Manifests {
		isOrphan := slices.ContainsFunc(orphans, func(o session.Orphan) bool { return o.ID == m.ID() })
		switch {
		case m.IsTombstone():
		case isOrphan:
			added = append(added, m.WithAnnotation(payload.DeleteAnnotation, "true"))
		case !known[m.ID()]:
			if owner := otherOwner(ctx, c, release.Name, m.ID()); owner != "" {
				fmt.Fprintln(progress,
					printable.Line(fmt.Sprintf("not deleted: %s, which %s has taken over", m.ID(), owner)))
			}
		}
	}
	return added, nil
}

// otherOwner returns the manager or release that has taken over an object of a release; "" if there is none, or the
// object does not exist or is being deleted.
func otherOwner(ctx context.Context, c *cluster.Cluster, release string, id kinds.ID) string {
	resource, err := c.FindKind(ctx, id.GroupKind())
	if err != nil {
		return ""
	}
	object, err := c.GetMetadata(ctx, resource, id.Namespace, id.Name)
	if err != nil {
		return ""
	}
	head := objectmeta.Of(resource, object)
	other, isOther := head.OtherOwner(release)
	switch {
	case head.Terminating, head.IsOf(release):
		return ""
	case isOther:
		return "release " + other
	default:
		return "another manager"
	}
}

// withoutContent leaves out the tombstones that would delete more than their objects.
func withoutContent(tombstones []*payload.Manifest, progress io.Writer) []*payload.Manifest {
	return slices.DeleteFunc(tombstones, func(m *payload.Manifest) bool {
		content := kinds.DataLostOnDelete(m.ID().GroupKind())
		if content != "" {
			fmt.Fprintln(progress,
				printable.Line(fmt.Sprintf(
					"not deleted: %s, since that would delete %s: delete it by hand if intended", m.ID(), content,
				)))
		}
		return content != ""
	})
}

// stop returns an error with the findings that stop a rollback; nil if there are none, or all are overridden. With
// -o json, it also prints them, in the summary of an apply that the gate stops.
func (f *rollbackFlags) stop(o *session.Outcome, now time.Time, out io.Writer) error {
	blocking, refused := precondition.Blocking(o.Findings), false
	if f.Session.Lock.Wait {
		blocking = slices.DeleteFunc(blocking, func(found precondition.Finding) bool {
			return found.Check == precondition.ApplyRunning
		})
	}
	for _, found := range o.PreviewFindings() {
		if found.Check == session.RefusedObject {
			blocking, refused = append(blocking, found), true
		}
	}
	if f.Session.Force {
		if refused {
			f.Session.Forced = append(f.Session.Forced, session.RefusedObject)
		}
		return nil
	}
	if len(blocking) == 0 {
		return nil
	}
	var lines []string
	for _, found := range blocking {
		lines = append(lines, gateText(found))
	}
	err := &reason.Error{
		Reason: precondition.ReasonFailed,
		Message: "the rollback has not started: resolve the findings, or override them with --force\n" +
			strings.Join(lines, "\n"),
	}
	if f.format != core.JSON {
		return err
	}
	stopped := *o
	stopped.Report, stopped.Findings, stopped.Err = nil, o.PreviewFindings(), err
	summary := summarize(&stopped, now)
	summary.DryRun = f.dryRun.IsEnabled()
	return errors.Join(err, core.JSON.PrintNext(out, summary))
}

// refuseKept returns an error if an operator or "apply --watch" keeps a release in place.
func refuseKept(ctx context.Context, c *cluster.Cluster, namespace string, known *record.Record,
	wanted *record.Rollback) error {
	facts := why.GatherKeeper(ctx, c,
		lock.Lock{Client: c.Client, Namespace: namespace, Release: known.Release, Now: c.Now}, known)
	isKept := facts.Held != nil && facts.Held.Keeps() && !facts.Held.IsDead(facts.Now)
	isOperated := facts.NotKept != nil && facts.NotKept.Operator != nil
	if !isKept && !isOperated {
		return nil
	}
	if known.Release == payload.DefaultName {
		if _, err := why.ReadClusterVersion(ctx, c); err == nil {
			return operatorError(known, wanted)
		}
	}
	if !isKept {
		return errors.New("an operator is installed for the release, and would undo the rollback: change the release " +
			"in the settings of the operator")
	}
	return fmt.Errorf("%s keeps release %s in place, and would undo the rollback: end it first",
		printable.Line(facts.Held.Name), known.Release)
}

// operatorError returns the error of a rollback of the operator's release, with the commands that request it from the
// operator.
func operatorError(known *record.Record, wanted *record.Rollback) error {
	image := "IMAGE"
	for _, entry := range known.Since(wanted.To - 1) {
		if entry.Revision == wanted.To {
			image = printable.Line(cmp.Or(entry.Source, image))
		}
	}
	return fmt.Errorf(`an operator keeps release %s in place, and would undo the rollback: request it from the operator, with one of
  oc adm upgrade --allow-explicit-upgrade --to-image %s
  kubectl patch %s %s --type=merge -p '{"spec":{"desiredUpdate":{"image":"%[2]s"}}}'`,
		known.Release, image, "clusterversion", kinds.ClusterVersionName)
}
