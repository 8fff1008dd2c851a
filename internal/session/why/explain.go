package why

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/diagnosis"
	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// Explain returns the states of objects, and why. If the query names a release that no process applies, the
// answers have the findings of the gate that would stop it.
func Explain(ctx context.Context, c *cluster.Cluster, q ObjectQuery, objects []NamedObject) ([]*Answer, error) {
	var facts []*ObjectFacts
	for _, object := range objects {
		facts = append(facts, Gather(ctx, c, q, object))
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	gate, unasked := q.gate(ctx, c, facts)
	answers := []*Answer{}
	for _, f := range facts {
		f.Gate, f.IsUnread = gate, q.Unread != ""
		for _, what := range []string{q.Unread, unasked} {
			if what != "" {
				f.Unknown = append(f.Unknown, what)
			}
		}
		answers = append(answers, Judge(f))
	}
	for _, explainer := range q.Explainers {
		for _, answer := range answers {
			answer.explainBy(ctx, c, explainer)
		}
	}
	return answers, nil
}

// explainBy adds the messages of an explainer of the object's kind before all other messages, and corrects the state of
// an object that waits for something.
func (a *Answer) explainBy(ctx context.Context, c *cluster.Cluster, explainer diagnosis.Explainer) {
	if !explainer.Explains(a.Object.GroupKind()) {
		return
	}
	explanation, err := explainer.Explain(ctx, c, a.Object)
	switch {
	case errors.Is(err, cluster.ErrNotServed):
		return
	case err != nil:
		a.Unknown = append(a.Unknown, explainer.Subject+": "+printable.RequestError(err).Error())
		return
	case explanation == nil:
		return
	}
	a.Messages = append(explanation.Messages, a.Messages...)
	a.Unknown = append(a.Unknown, explanation.Unknown...)
	switch {
	case explanation.IsDone:
		return
	case explanation.IsTerminating:
		a.State = Terminating
	case a.State == Ready || a.State == Changed || a.State == Unknown:
		a.State = NotReady
	}
	a.Done = false
}

// gate returns the findings that would block the release if no process applies it, or why they are unknown.
func (q ObjectQuery) gate(ctx context.Context, c *cluster.Cluster,
	facts []*ObjectFacts) ([]precondition.Finding, string) {
	isOpen := func(f *ObjectFacts) bool {
		return !Judge(f).Done && (f.Held == nil || f.Held.IsDead(f.Now))
	}
	if q.Release == nil || q.Release.Name == "" || !slices.ContainsFunc(facts, isOpen) {
		return nil, ""
	}
	outcome := session.Inspect(ctx, c, q.Release, session.Options{Namespace: q.Namespace})
	if outcome.Err != nil {
		return nil, "what would stop the release: " + printable.Line(outcome.Err.Error())
	}
	return precondition.Blocking(outcome.Findings), ""
}

// Remedy returns the actions that complete a run which no process continues: another apply, and before that a fix of an
// object that would fail again: an object or hook that has failed for good, or one whose image can't be pulled; or the
// removal of fields that other managers have set. The details are the diagnoses of objects that are not ready.
func Remedy(rec *record.Record, run *apply.RunState, details map[kinds.ID][]string) string {
	var broken, foreign []string
	for _, step := range run.Steps() {
		if slices.ContainsFunc(details[step.ID], fields.IsForeign) {
			foreign = append(foreign, nameOf(step))
		}
		if step.Phase == apply.HasFailed || slices.ContainsFunc(details[step.ID], ready.IsImageMissing) {
			broken = append(broken, nameOf(step))
		}
	}
	switch {
	case len(broken) == 0 && len(foreign) > 0:
		return "remove what other managers have added to " + printable.Few(foreign, 1)
	case len(broken) == 0:
		return applyAgain(rec)
	case len(broken) == 1:
		return fmt.Sprintf("fix %s, then apply it again", broken[0]) + rollBack(rec)
	default:
		return fmt.Sprintf("fix %s and %s, then apply it again", broken[0], printable.Count(len(broken)-1, "other")) +
			rollBack(rec)
	}
}

// applyAgain returns the request to apply a release again, with the command if the cluster has its files.
func applyAgain(rec *record.Record) string {
	if newest := rec.Newest(); newest == nil || newest.Files == nil || newest.Files.Digest == "" {
		return "apply it again"
	}
	return fmt.Sprintf("apply it again (runlevel apply %s@)", rec.Release)
}

// rollBack returns the command that rolls a failed update back; "" if no earlier version has its files on the cluster.
func rollBack(rec *record.Record) string {
	newest := rec.Newest()
	if newest == nil || newest.State != record.Partial || rec.Applied() == nil {
		return ""
	}
	wanted, err := rec.FindRollback("")
	if err != nil {
		return ""
	}
	historyEntry, err := rec.FindRevision(strconv.Itoa(wanted.To))
	if err != nil || historyEntry.Files == nil || historyEntry.Files.Digest == "" {
		return ""
	}
	return fmt.Sprintf(", or go back to %s (runlevel rollback %s)", printable.Line(historyEntry.Title()), rec.Release)
}

// runRemedy returns the remedy of the run, by the diagnoses of this object and of the objects that the run waits for.
func runRemedy(f *ObjectFacts) string {
	details := map[kinds.ID][]string{f.Object: f.Pods}
	maps.Copy(details, f.Pending)
	return Remedy(f.Record, f.Run, details)
}

// missingRemedy returns who creates objects again that were deleted since they were applied.
func (f *ReleaseFacts) missingRemedy(objects string) string {
	switch isHeld := f.Held != nil && !f.Held.IsDead(f.Now); {
	case isHeld && f.Held.Keeps():
		return printable.Line(f.Held.Name) + " creates " + objects + " again"
	case isHeld:
		return "the running apply does not create " + objects + " again, but the next one does"
	case f.NotKept != nil && f.NotKept.Operator != nil:
		return "the operator creates " + objects + " again once it runs"
	default:
		return applyAgain(f.Record)
	}
}
