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

// maxStage limits a stage. Each object has its own patience.
const maxStage = 30 * time.Minute

// lockDuration is longer than a stage may take. A rehearsal is the only user of its control plane, so a lock that a
// slow machine can't renew in time must not end a stage.
const lockDuration = 2 * maxStage

// An appliedStage is a completed stage, with its events.
type appliedStage struct {
	*session.Outcome
	origin        lint.Origin
	release       *payload.Payload
	failures      []apply.Event          // events of failed steps, and of objects that did not become ready
	retryFailures map[manifestKey]string // the last failure of each retried step
	notApplied    map[manifestKey]bool   // manifests that could not be applied

	manifests map[manifestKey]*payload.Manifest
}

// newObservation returns an observation of the stage.
func (a *appliedStage) newObservation(rule, format string, args ...any) lint.Observation {
	observation := newObservation(rule, format, args...)
	observation.In = a.origin
	return observation
}

// stageNames are the names of stages by their modes.
var stageNames = map[graph.Mode]string{
	graph.Install:   "install",
	graph.Update:    "update to",
	graph.Reconcile: "apply again",
}

// stage applies a release, and reports the refused objects and the objects that did not become ready.
func (r *rehearsal) stage(ctx context.Context, origin lint.Origin, release *payload.Payload,
	options session.Options) *appliedStage {
	a := &appliedStage{
		origin:        origin,
		release:       release,
		retryFailures: map[manifestKey]string{},
		notApplied:    map[manifestKey]bool{},
		manifests:     map[manifestKey]*payload.Manifest{},
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
			a.retryFailures[manifestKey{e.File, *e.Object}] = e.Failure
		case e.Type == apply.Failing:
			a.failures = append(a.failures, e)
		case e.Type == apply.Ended && e.Node != "":
			times.Levels = append(times.Levels, LevelTime{e.Node, e.Seconds})
		}
	}
	a.Outcome = session.Run(ctx, r.cluster, release, options)
	times.Seconds = time.Since(began).Round(time.Millisecond).Seconds()
	r.report.Stages = append(r.report.Stages, times)
	r.Progress(fmt.Sprintf("%s: %.1f s", times.Name, times.Seconds))
	if err := a.interruption(); err != nil {
		r.giveUp(fmt.Errorf("the rehearsal could not be finished: %s: %w", times.Name, err))
	}
	if ctx.Err() == nil {
		r.reportFailures(a)
	}
	return a
}

// options returns the options of a session. They override all gates; reportGate reports the findings of the gates.
func (r *rehearsal) options(mode graph.Mode) session.Options {
	options := session.Options{Force: true, Lock: lock.Options{Duration: lockDuration}, Apply: apply.Options{
		Options:    object.Options{Mode: mode, Standard: r.Standard, DropUnknownFields: r.DropUnknownFields},
		Patience:   r.Patience,
		Timeout:    maxStage,
		PauseHooks: time.Millisecond,
	}}
	if r.From != nil {
		options.Namespace = r.From.Namespace
	}
	return options
}

// interruption returns an error if the control plane did not answer during the stage, or the lock was lost. The
// failures of such a stage are not findings about the release.
func (a *appliedStage) interruption() error {
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

// reportFailures reports the objects that a stage could not apply, and the objects that did not become ready.
func (r *rehearsal) reportFailures(a *appliedStage) {
	if a.Err != nil && (a.Report == nil || len(a.failures) == 0) {
		r.findings.add(a.newObservation(lint.RehearsalRefused, "the release could not be applied: %s",
			printable.Line(a.Err.Error())))
	}
	if a.Report == nil {
		return
	}
	for _, change := range a.Report.Changes {
		if change.Err != nil && change.Hook == "" {
			a.notApplied[manifestKey{change.Path, change.ID}] = true
		}
	}
	for _, change := range a.Report.Changes {
		m := a.manifests[manifestKey{change.Path, change.ID}]
		if change.Err != nil && change.Hook == "" && m != nil {
			r.reportRefused(a, m, change.Err)
		}
	}
	for _, e := range a.failures {
		m := a.manifests[manifestKey{e.File, *e.Object}]
		if m != nil && !a.notApplied[keyOf(m)] {
			r.reportUnready(a, m, e)
		}
	}
}

// reportRefused reports an object that could not be applied.
func (r *rehearsal) reportRefused(a *appliedStage, m *payload.Manifest, failure *object.Failure) {
	if needed := a.failedContainer(m); needed != nil {
		r.findings.addForManifest(m,
			a.newObservation(lint.RehearsalNotTried, "not tried, because %s was not applied", needed.ID()))
		return
	}
	r.findings.addRefusals(a.origin, m, refusalsOf(r.old[m.ID()], m, failure))
}

// failedContainer returns the definition or the Namespace of an object, if the stage could not apply it.
func (a *appliedStage) failedContainer(m *payload.Manifest) *payload.Manifest {
	for _, other := range a.release.Manifests {
		isNamespace := other.ID() == kinds.NewID(kinds.Namespace, "", m.ID().Namespace)
		isDefinition := other.ID().GroupKind() == kinds.CustomResourceDefinition &&
			kinds.DefinedBy(other.Object()) == m.ID().GroupKind()
		if (isNamespace || isDefinition) && a.notApplied[keyOf(other)] {
			return other
		}
	}
	return nil
}

// reportUnready reports an object that did not become ready, or a hook that has failed.
func (r *rehearsal) reportUnready(a *appliedStage, m *payload.Manifest, e apply.Event) {
	text := printable.Line(strings.Join(append([]string{e.Message}, e.Why...), "; "))
	observation := a.newObservation(lint.RehearsalNotReady, "it does not become ready: %s", text)
	if e.Hook != "" {
		observation.Message = fmt.Sprintf("its %s hook has failed: %s", e.Hook, text)
	}
	r.findings.addForManifest(m, observation)
}
