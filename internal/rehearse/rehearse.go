// Package rehearse tries a release on a temporary control plane: it installs the previous release, updates it, applies
// the new one again, and uninstalls it. It reports the problems that a user would otherwise see on a cluster.
//
// It has no second way to apply: each stage is a session. A failure holds nothing up (apply.Options.Patience), so that
// the first one hides no other. No container runs: pods are simulated. Changes that only a running program could make
// are made in its place (standin.go), left out, or made ready by rules of the user (readyrules.go). Objects that a
// release expects to exist are created (missing.go), and each is reported.
//
// Run is the call to start from: it starts a sandbox. On rehearses on a control plane that runs already. The result is
// for the rules of lint that need a rehearsal: see lint.RehearsalRules.
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

// Options are what to rehearse, and how.
type Options struct {
	Old  *payload.Payload // is installed first; nil to install New
	New  *payload.Payload
	With []*payload.Payload // are installed before: they have objects that the release expects from elsewhere
	// From is a snapshot of the cluster to update; nil to install Old.
	From *snapshot.Snapshot
	Down bool // uninstall New at the end
	// Ready are the statuses of custom resources whose controllers do not run here.
	Ready    ReadyRules
	Standard ready.Standard // Full if it is empty
	// DropUnknownFields leaves out fields that the API server does not know.
	DropUnknownFields bool
	// Patience is how long an object is tried and awaited; DefaultPatience if it is 0.
	Patience time.Duration
	Sandbox  sandbox.Options
	// Progress is called with a line for each stage that begins or ends. It may be nil.
	Progress func(line string)
}

// DefaultPatience is how long an object is tried and awaited. Simulated pods are ready within a second.
const DefaultPatience = 10 * time.Second

// A Report is the result of a rehearsal.
type Report struct {
	Kubernetes string        // the version of the control plane
	Start      time.Duration // of the control plane
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

// A LevelTime is how long a level took, until all of its objects were ready.
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
	defer s.Stop() //nolint:errcheck // the report is there by then
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
		old: manifestsByID(o.Old), found: &findings{manifests: manifestsByID(o.New)},
	}
	if err := r.run(ctx); err != nil {
		return nil, err
	}
	r.report.Observations = r.found.observations
	return r.report, nil
}

// A rehearsal is one that runs.
type rehearsal struct {
	Options
	cluster  *cluster.Cluster
	report   *Report
	old      map[kinds.ID]*payload.Manifest // the manifests of the release before
	found    *findings
	programs *standIn
	giveUp   context.CancelCauseFunc // ends the rehearsal, which has no result then
}

// A manifestKey identifies a manifest in a release.
type manifestKey struct {
	path string // of its file
	id   kinds.ID
}

func keyOf(m *payload.Manifest) manifestKey { return manifestKey{m.Path, m.ID()} }

// run goes through the stages.
func (r *rehearsal) run(ctx context.Context) error {
	version, err := r.cluster.Client.Discovery().ServerVersion()
	if err != nil {
		return err
	}
	r.report.Kubernetes = version.GitVersion
	if version.EmulationMinor != "" && version.EmulationMinor != version.Minor {
		r.report.Kubernetes += ", which behaves as " + version.EmulationMajor + "." + version.EmulationMinor
	}
	defer r.standIn(ctx)()
	for i, with := range r.With {
		if err := r.give(ctx, fmt.Sprintf("with-%d", i+1), with); err != nil {
			return err
		}
	}
	if r.From != nil {
		if err := r.restore(ctx, r.From); err != nil {
			return err
		}
	}
	if err := (&supplier{r.cluster, r.Old, r.New, r.found}).supply(ctx); err != nil {
		return err
	}
	a := &adapter{ready: r.Ready, found: r.found}
	before, after := a.adapt(r.Old, lint.InPrevious), a.adapt(r.New, lint.InPayload)
	if r.From == nil && before != nil {
		r.programs.runs(before)
		r.stage(ctx, lint.InPrevious, before, r.options(graph.Install))
	}
	updated := r.update(ctx, before, after)
	r.dryRun(ctx, a.left)
	r.again(ctx, updated)
	r.checkDeletes(ctx, updated)
	if r.Down {
		r.uninstall(ctx, updated)
	}
	return context.Cause(ctx)
}

// give applies a release with objects that the rehearsed release expects from elsewhere, under a name of its own.
func (r *rehearsal) give(ctx context.Context, name string, with *payload.Payload) error {
	if err := (&supplier{r.cluster, nil, with, &findings{}}).makeAll(ctx); err != nil {
		return err
	}
	given := *(&adapter{ready: r.Ready, found: &findings{}}).adapt(with, lint.InPrevious)
	given.Name = name
	options := r.options(graph.Install)
	options.Apply.NoWait = true
	outcome := session.Run(ctx, r.cluster, &given, options)
	if outcome.Err != nil {
		return fmt.Errorf("apply the release of --with: %w", outcome.Err)
	}
	return nil
}
