package core

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/review/plan"
	"github.com/runlevel/runlevel/internal/review/refusals"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// IntentFlags are the flags that apply and the verbs that preview it have in common: release, cluster and options.
type IntentFlags struct {
	Release   ReleaseFlags
	Cluster   ClusterFlags
	Session   session.Options // see Options
	unknown   string
	adoptFrom []string
}

// AddIntentFlags adds the flags, except those of the release.
func AddIntentFlags(command *cobra.Command, f *IntentFlags) {
	f.unknown, f.Session.Apply.Standard = "refuse", ready.Full
	AddClusterFlags(command, &f.Cluster)
	AddChoice(command, &f.Session.Apply.Mode, "mode", "install, update or reconcile (default: what follows from the record)", graph.Install, graph.Update, graph.Reconcile)
	AddChoice(command, &f.unknown, "unknown-fields", "what to do with fields that the cluster does not know: refuse the object, or drop them with a warning", "refuse", "drop")
	command.Flags().StringArrayVar(&f.adoptFrom, "adopt-from", nil, "on the first apply of an object, also take over the fields of these field managers, as NAME[,NAME]: those that the release does not have are removed; may be repeated")
}

// Check refuses values that make no sense.
func (f *IntentFlags) Check() error {
	if slices.Contains(f.managers(), "") {
		return Misusef(`--adopt-from: it has an empty name: write the managers as "kubectl get -o yaml --show-managed-fields" shows them, NAME[,NAME]`)
	}
	return nil
}

// managers returns the field managers that --adopt-from names.
func (f *IntentFlags) managers() []string {
	var all []string
	for _, names := range f.adoptFrom {
		for name := range strings.SplitSeq(names, ",") {
			all = append(all, strings.TrimSpace(name))
		}
	}
	return all
}

// Options returns the options of the apply.
func (f *IntentFlags) Options(ref string) session.Options {
	options := f.Session
	options.Namespace, options.Source, options.Apply.AdoptFrom = f.Cluster.Namespace, ref, f.managers()
	options.Apply.DropUnknownFields, options.Apply.DropHint = f.unknown == "drop", " with --unknown-fields=drop"
	return options
}

// A previewResult is a release and the outcome of its preview on a cluster.
type previewResult struct {
	*session.Outcome
	release *payload.Payload
	cluster *cluster.Cluster
}

// Preview previews an apply of a release to the cluster, and changes nothing.
func (f *IntentFlags) Preview(ctx context.Context, ref string, progress io.Writer) (*previewResult, error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	release, c, err := f.Cluster.ReadFor(ctx, &f.Release, ref, progress)
	if err != nil {
		return nil, err
	}
	options := f.Options(ref)
	options.Apply.Refusals = KnownRefusals(ctx, release)
	outcome := session.Preview(ctx, c, release, options)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case outcome.Report == nil:
		return nil, outcome.Err
	case !isWhole(outcome.Report):
		return nil, outcome.Report.Err
	}
	return &previewResult{outcome, release, c}, nil
}

// KnownRefusals returns why an API server would refuse objects of a release, as far as that is known without the cluster.
func KnownRefusals(ctx context.Context, release *payload.Payload) map[object.StepID][]fields.FieldRefusal {
	known := map[object.StepID][]fields.FieldRefusal{}
	for m, found := range refusals.Find(ctx, release.Manifests, nil) {
		known[object.StepOf(m)] = found
	}
	return known
}

// Plan returns the plan of an apply, and prints the warnings of the server.
func (p *previewResult) Plan(ctx context.Context, progress io.Writer) (*plan.Plan, error) {
	for _, warning := range p.Report.Warnings {
		fmt.Fprintf(progress, "warning of the cluster: %s (%s)\n", printable.Line(warning.Text), printable.Line(printable.Few(warning.Files, MostFiles)))
	}
	return p.Outcome.Plan(ctx, p.cluster, p.release), context.Cause(ctx)
}

// isWhole reports whether a preview covers every object.
func isWhole(report *apply.Report) bool {
	isNotDone := func(change object.Change) bool { return change.Action == object.NotDone }
	return report.Err == nil || len(report.Changes) > 0 && !slices.ContainsFunc(report.Changes, isNotDone)
}
