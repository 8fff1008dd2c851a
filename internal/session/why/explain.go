package why

import (
	"context"
	"errors"
	"slices"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/diagnosis"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/text/printable"
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
