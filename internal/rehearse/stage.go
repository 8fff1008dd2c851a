package rehearse

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// longest bounds a stage. Each object has its own patience.
const longest = 30 * time.Minute

// lockDuration is longer than a stage may take. A rehearsal is the only user of its control plane, so a lock that a
// slow machine can't renew in time must not end a stage.
const lockDuration = 2 * longest

// An appliedStage is a stage that has ended, with its events.
type appliedStage struct {
	*session.Outcome
	in      lint.Origin
	release *payload.Payload
	failing []apply.Event          // of steps that have failed, and of objects that did not become ready
	retried map[manifestKey]string // the last failures of steps that were tried again
	failed  map[manifestKey]bool   // manifests that could not be applied

	manifests map[manifestKey]*payload.Manifest
}

// observed returns an observation of the stage.
func (a *appliedStage) observed(rule, format string, args ...any) lint.Observation {
	observation := observed(rule, format, args...)
	observation.In = a.in
	return observation
}

// stageNames are the names of stages by their modes.
var stageNames = map[graph.Mode]string{
	graph.Install:   "install",
	graph.Update:    "update to",
	graph.Reconcile: "apply again",
}

// stage applies a release, and reports the objects that were refused or did not become ready.
func (r *rehearsal) stage(ctx context.Context, origin lint.Origin, release *payload.Payload,
	options session.Options) *appliedStage {
	a := &appliedStage{
		in:        origin,
		release:   release,
		retried:   map[manifestKey]string{},
		failed:    map[manifestKey]bool{},
		manifests: map[manifestKey]*payload.Manifest{},
	}
	for _, m := range release.Manifests {
		a.manifests[keyOf(m)] = m
	}
	times := Stage{
		Name:    strings.TrimSpace(stageNames[options.Apply.Mode] + " " + release.Version),
		Objects: len(release.Manifests),
	}
	r.Progress(fmt.Sprintf("%s: %s", times.Name, printable.Count(times.Objects, "object")))
	began := time.Now()
	options.Apply.OnEvent = func(e apply.Event) {
		switch {
		case e.Type == apply.Retrying && e.Hook == "" && e.Reason != object.ResourceConflict:
			a.retried[manifestKey{e.File, *e.Object}] = e.Failure
		case e.Type == apply.Failing:
			a.failing = append(a.failing, e)
		case e.Type == apply.Ended && e.Node != "":
			times.Levels = append(times.Levels, LevelTime{e.Node, e.Seconds})
		}
	}
	a.Outcome = session.Run(ctx, r.cluster, release, options)
	times.Seconds = time.Since(began).Round(time.Millisecond).Seconds()
	r.report.Stages = append(r.report.Stages, times)
	r.Progress(fmt.Sprintf("%s: %.1f s", times.Name, times.Seconds))
	if err := a.unfinished(); err != nil {
		r.giveUp(fmt.Errorf("the rehearsal could not be finished: %s: %w", times.Name, err))
	}
	if ctx.Err() == nil {
		r.reportFailures(a)
	}
	return a
}

// options returns the options of a session. All gates are overridden, and their findings are reported.
func (r *rehearsal) options(mode graph.Mode) session.Options {
	options := session.Options{Force: true, Lock: lock.Options{Duration: lockDuration}, Apply: apply.Options{
		Options:    object.Options{Mode: mode, Standard: r.Standard, DropUnknownFields: r.DropUnknownFields},
		Patience:   r.Patience,
		Timeout:    longest,
		PauseHooks: time.Millisecond,
	}}
	if r.From != nil {
		options.Namespace = r.From.Namespace
	}
	return options
}

// unfinished returns why a stage could not be finished: the control plane gave no answer, or the lock was lost. Nothing
// that follows from it is a finding about the release.
func (a *appliedStage) unfinished() error {
	all := []error{a.Err}
	if a.Report != nil {
		for _, change := range a.Report.Changes {
			if change.Err != nil {
				all = append(all, change.Err.Err)
			}
		}
	}
	index := slices.IndexFunc(all, func(err error) bool {
		return errors.Is(err, lock.ErrLost) || errors.As(err, new(object.CutOff)) || cluster.IsNoAnswer(err)
	})
	if index < 0 {
		return nil
	}
	return all[index]
}

// reportFailures reports the objects that a stage could not apply, and those that did not become ready.
func (r *rehearsal) reportFailures(a *appliedStage) {
	if a.Err != nil && (a.Report == nil || len(a.failing) == 0) {
		r.found.add(a.observed(lint.RehearsalRefused, "the release could not be applied: %s",
			printable.Line(a.Err.Error())))
	}
	if a.Report == nil {
		return
	}
	for _, change := range a.Report.Changes {
		if change.Err != nil && change.Hook == "" {
			a.failed[manifestKey{change.Path, change.ID}] = true
		}
	}
	for _, change := range a.Report.Changes {
		m := a.manifests[manifestKey{change.Path, change.ID}]
		if change.Err != nil && change.Hook == "" && m != nil {
			r.reportRefused(a, m, change.Err)
		}
	}
	for _, e := range a.failing {
		m := a.manifests[manifestKey{e.File, *e.Object}]
		if m != nil && !a.failed[keyOf(m)] {
			r.reportUnready(a, m, e)
		}
	}
}

// reportRefused reports an object that could not be applied.
func (r *rehearsal) reportRefused(a *appliedStage, m *payload.Manifest, failure *object.Failure) {
	if needed := a.container(m); needed != nil {
		r.found.addForManifest(m,
			a.observed(lint.RehearsalNotTried, "it could not be tried, since %s was not applied", needed.ID()))
		return
	}
	r.found.addRefusals(a.in, m, refusalsOf(r.old[m.ID()], m, failure))
}

// container returns the definition or the Namespace of an object, if that one could not be applied.
func (a *appliedStage) container(m *payload.Manifest) *payload.Manifest {
	for _, other := range a.release.Manifests {
		isNamespace := other.ID() == kinds.NewID(kinds.Namespace, "", m.ID().Namespace)
		isDefinition := other.ID().GroupKind() == kinds.CustomResourceDefinition &&
			kinds.DefinedBy(other.Object()) == m.ID().GroupKind()
		if (isNamespace || isDefinition) && a.failed[keyOf(other)] {
			return other
		}
	}
	return nil
}

// reportUnready reports an object that did not become ready, or a hook that has failed.
func (r *rehearsal) reportUnready(a *appliedStage, m *payload.Manifest, e apply.Event) {
	text := printable.Line(strings.Join(append([]string{e.Message}, e.Why...), "; "))
	observation := a.observed(lint.RehearsalNotReady, "it does not become ready: %s", text)
	if e.Hook != "" {
		observation.Message = fmt.Sprintf("its %s hook has failed: %s", e.Hook, text)
	}
	r.found.addForManifest(m, observation)
}
