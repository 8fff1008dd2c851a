package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/review/plan"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// intentFlags are the flags that apply and the verbs that preview it have in common: release, cluster and options.
type intentFlags struct {
	release   releaseFlags
	cluster   clusterFlags
	mode      graph.Mode
	unknown   string
	adoptFrom []string
}

// addIntentFlags adds the flags, except those of the release.
func addIntentFlags(command *cobra.Command, f *intentFlags) {
	f.unknown = "refuse"
	addClusterFlags(command, &f.cluster)
	addChoice(command, &f.mode, "mode", "install, update or reconcile (default: what follows from the record)", graph.Install, graph.Update, graph.Reconcile)
	addChoice(command, &f.unknown, "unknown-fields", "what to do with fields that the cluster does not know: refuse the object, or drop them with a warning", "refuse", "drop")
	command.Flags().StringArrayVar(&f.adoptFrom, "adopt-from", nil, "on the first apply of an object, also take over the fields of these field managers, as NAME[,NAME]: those that the release does not have are removed; may be repeated")
}

// check refuses values that make no sense.
func (f *intentFlags) check() error {
	if slices.Contains(f.managers(), "") {
		return misusef(`--adopt-from: it has an empty name: write the managers as "kubectl get -o yaml --show-managed-fields" shows them, NAME[,NAME]`)
	}
	return nil
}

// managers returns the field managers that --adopt-from names.
func (f *intentFlags) managers() []string {
	var all []string
	for _, names := range f.adoptFrom {
		for name := range strings.SplitSeq(names, ",") {
			all = append(all, strings.TrimSpace(name))
		}
	}
	return all
}

// options returns the options of the apply.
func (f *intentFlags) options(ref string) session.Options {
	return session.Options{
		Namespace: f.cluster.namespace, Source: ref,
		Apply: apply.Options{Mode: f.mode, DropUnknownFields: f.unknown == "drop", AdoptFrom: f.managers()},
	}
}

// A previewResult is a release and the outcome of its preview on a cluster.
type previewResult struct {
	*session.Outcome
	release *payload.Payload
	cluster *cluster.Cluster
}

// preview previews an apply of a release to the cluster, and changes nothing.
func (f *intentFlags) preview(ctx context.Context, ref string, standard ready.Standard, progress io.Writer) (*previewResult, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	release, c, err := f.cluster.readFor(ctx, &f.release, ref, progress)
	if err != nil {
		return nil, err
	}
	options := f.options(ref)
	options.Apply.Standard = standard
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

// plan returns the plan of an apply, and prints the warnings of the server.
func (p *previewResult) plan(ctx context.Context, progress io.Writer) (*plan.Plan, error) {
	for _, warning := range p.Report.Warnings {
		fmt.Fprintf(progress, "warning of the cluster: %s (%s)\n", printable.Line(warning.Text), printable.Line(printable.Few(warning.Files, mostFiles)))
	}
	return p.Plan(ctx, p.cluster, p.release), ctx.Err()
}

// isWhole reports whether a preview covers every object.
func isWhole(report *apply.Report) bool {
	isNotDone := func(change object.Change) bool { return change.Action == object.NotDone }
	return report.Err == nil || len(report.Changes) > 0 && !slices.ContainsFunc(report.Changes, isNotDone)
}
