// Package rehearse tries a release on a temporary control plane: it installs the previous release, updates it, applies
// the new one again, and uninstalls it. It reports the problems that a user would otherwise see on a cluster.
//
// Each stage is a session, as in an apply to a cluster. An object that fails does not block later objects
// (apply.Options.Patience), so one rehearsal reports all failures. No container runs: pods are simulated. A standIn
// (standin.go) sets the statuses of ClusterOperators, and rules of the user (readyrules.go) those of custom resources.
// Objects that a release expects to exist are created (missing.go), and each is reported.
//
// Start with Run: it starts a sandbox. On rehearses on a control plane that already runs. The rules of lint that need a
// rehearsal read the result: see lint.RehearsalRules.
package rehearse

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/session/snapshot"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// Options are the releases to rehearse, and the settings of the rehearsal.
type Options struct {
	Old  *payload.Payload // the release to update; nil to install New
	New  *payload.Payload
	With []*payload.Payload // releases with objects that Old and New expect to exist; they are applied first
	// From is a snapshot of the cluster to update; nil to install Old.
	From *snapshot.Snapshot
	Down bool // uninstall New at the end
	// Ready has the statuses of custom resources whose controllers do not run in a rehearsal.
	Ready    ReadyRules
	Standard ready.Standard // Full if it is empty
	// DropUnknownFields leaves out fields that the API server does not know.
	DropUnknownFields bool
	// Patience limits the retries of an object and the wait for its readiness; DefaultPatience if it is 0.
	Patience time.Duration
	Sandbox  sandbox.Options
	// Progress is called with one line when a stage begins, and when a stage ends. It may be nil.
	Progress func(line string)
}

// DefaultPatience is the Patience of a rehearsal without one. Simulated pods are ready within a second.
const DefaultPatience = 10 * time.Second

// A Report is the result of a rehearsal.
type Report struct {
	Kubernetes string        // the version of the control plane
	Start      time.Duration // start time of the control plane
	Stages     []Stage
	lint.Rehearsal
}

// A Stage is one part of a rehearsal.
type Stage struct {
	Name    string      `json:"name"`
	Seconds float64     `json:"seconds"`
	Objects int         `json:"objects"`
	Levels  []LevelTime `json:"levels,omitempty"`
}

// A LevelTime contains the time until all objects of a level were ready.
type LevelTime struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
}

// Run starts a control plane, rehearses the release on it, and removes the control plane.
func Run(ctx context.Context, o Options) (*Report, error) {
	s, err := sandbox.Start(ctx, o.Sandbox)
	if err != nil {
		return nil, err
	}
	defer s.Stop() //nolint:errcheck // the report is complete
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case death := <-s.Died():
			cancel(fmt.Errorf("the control plane of the rehearsal has ended: %w", death))
		case <-ctx.Done():
		}
	}()
	report, err := On(ctx, s.Config, o)
	if err != nil {
		return nil, err
	}
	report.Start = s.Took.Ready
	return report, nil
}

// On rehearses a release on a control plane, which should be empty and have simulated nodes.
func On(ctx context.Context, config *rest.Config, o Options) (*Report, error) {
	c, err := cluster.Connect(config)
	if err != nil {
		return nil, err
	}
	if o.Patience == 0 {
		o.Patience = DefaultPatience
	}
	if o.Standard == "" {
		o.Standard = ready.Full
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	r := &rehearsal{
		Options: o, cluster: c, report: &Report{}, giveUp: giveUp,
		old: manifestsByID(o.Old), findings: &findings{manifests: manifestsByID(o.New)},
	}
	if err := r.run(ctx); err != nil {
		return nil, err
	}
	r.report.Observations = r.findings.observations
	return r.report, nil
}

// A rehearsal is a running rehearsal: its options, its control plane and its findings.
type rehearsal struct {
	Options
	cluster  *cluster.Cluster
	report   *Report
	old      map[kinds.ID]*payload.Manifest // the manifests of the previous release
	findings *findings
	programs *standIn
	giveUp   context.CancelCauseFunc // ends the rehearsal without a result
}

// A manifestKey identifies a manifest in a release.
type manifestKey struct {
	path string // path of its file
	id   kinds.ID
}

func keyOf(m *payload.Manifest) manifestKey { return manifestKey{m.Path, m.ID()} }

// run runs all stages.
func (r *rehearsal) run(ctx context.Context) error {
	version, err := r.cluster.Client.Discovery().ServerVersion()
	if err != nil {
		return err
	}
	r.report.Kubernetes = version.GitVersion
	if version.EmulationMinor != "" && version.EmulationMinor != version.Minor {
		r.report.Kubernetes += ", which behaves as " + version.EmulationMajor + "." + version.EmulationMinor
	}
	defer r.startStandIn(ctx)()
	for i, with := range r.With {
		if err := r.applyWith(ctx, fmt.Sprintf("with-%d", i+1), with); err != nil {
			return err
		}
	}
	if r.From != nil {
		if err := r.restore(ctx, r.From); err != nil {
			return err
		}
	}
	if err := (&supplier{r.cluster, r.Old, r.New, r.findings}).supply(ctx); err != nil {
		return err
	}
	a := &adapter{
		ready: r.Ready, findings: r.findings, runsPods: r.Sandbox.RealNodes > 0, injects: len(r.With) > 0,
	}
	before, after := a.adapt(r.Old, lint.InPrevious), a.adapt(r.New, lint.InPayload)
	if r.From == nil && before != nil {
		r.programs.setRelease(before)
		r.stage(ctx, lint.InPrevious, before, r.options(graph.Install))
	}
	updated := r.update(ctx, before, after)
	r.dryRun(ctx, a.notApplied)
	r.reapply(ctx, updated)
	r.checkDeletes(ctx, updated)
	if r.Down {
		r.uninstall(ctx, updated)
	}
	return context.Cause(ctx)
}

// applyWith applies a release of Options.With under a name of its own.
func (r *rehearsal) applyWith(ctx context.Context, name string, with *payload.Payload) error {
	if err := (&supplier{r.cluster, nil, with, &findings{}}).provideAll(ctx); err != nil {
		return err
	}
	adapted := *(&adapter{ready: r.Ready, findings: &findings{}}).adapt(with, lint.InPrevious)
	adapted.Name = name
	options := r.options(graph.Install)
	options.Apply.NoWait = true
	outcome := session.Run(ctx, r.cluster, &adapted, options)
	if outcome.Err != nil {
		return fmt.Errorf("apply the release of --with: %w", outcome.Err)
	}
	return nil
}
