package core

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/record/files"
	"github.com/runlevel/runlevel/internal/release/loader"
	"github.com/runlevel/runlevel/internal/review/plan"
	"github.com/runlevel/runlevel/internal/review/refusals"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/source"
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
	foreign   []string // values of foreignFlag
}

// AddIntentFlags adds the flags, except those of the release.
func AddIntentFlags(command *cobra.Command, f *IntentFlags) {
	AddUpdateFlags(command, f)
	command.Flags().BoolVar(&f.Session.CreateNamespace, "create-namespace", false,
		"create the namespace of --namespace, if it does not exist; it is not a part of the release")
	AddChoice(command, &f.Session.Apply.Mode, "mode",
		"install, update or reconcile (default: according to the record)", graph.Install, graph.Update,
		graph.Reconcile)
}

// AddUpdateFlags adds the flags of an apply with a known mode.
func AddUpdateFlags(command *cobra.Command, f *IntentFlags) {
	f.unknown, f.Session.Apply.Standard = "refuse", ready.Full
	AddClusterFlags(command, &f.Cluster)
	AddChoice(command, &f.unknown, "unknown-fields",
		"what to do with fields that the cluster does not know: refuse the object, or drop them with a warning",
		"refuse", "drop")
	command.Flags().StringArrayVar(&f.adoptFrom, "adopt-from", nil,
		"on the first apply of an object, also take over the fields of these field managers, as NAME[,NAME]: those "+
			"that the release does not have are removed; may be repeated")
	command.Flags().StringArrayVar(&f.foreign, foreignFlag, nil,
		"remove the fields that this field manager has set and the release does not have, as MANAGER, or those of "+
			"all other managers on an object, as KIND[.GROUP]/[NAMESPACE/]NAME; may be repeated")
}

// KeepForeign drops the flags on the fields of other managers, which are about the objects of one version.
func (f *IntentFlags) KeepForeign() { f.foreign = nil }

// Check refuses invalid values of flags.
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

// Options returns the options of the apply of a release.
func (f *IntentFlags) Options(ref string, release *payload.Payload) (options session.Options, err error) {
	options = f.Session
	options.Namespace, options.Source, options.Apply.AdoptFrom = f.Cluster.Namespace, ref, f.managers()
	options.Apply.DropUnknownFields, options.Apply.DropHint = f.unknown == "drop", " with --unknown-fields=drop"
	options.Apply.RemovesForeign, err = removesForeign(f.foreign, release)
	return options, err
}

// Parse opens a release, and reads it as far as it can be read.
func (f *ReleaseFlags) Parse(ctx context.Context, ref string,
	progress io.Writer) (*payload.Payload, []payload.Problem, error) {
	options, err := f.Options(progress)
	if err != nil {
		return nil, nil, err
	}
	read, problems, err := loader.Parse(ctx, ref, options)
	return read, problems, ReadError(ctx, err)
}

// Load is parse for callers that need the whole release. Problems are errors, and
// warnings are printed.
func (f *ReleaseFlags) Load(ctx context.Context, ref string, progress io.Writer) (*payload.Payload, error) {
	release, problems, err := f.Parse(ctx, ref, progress)
	if err != nil {
		return nil, err
	}
	return release, f.Accept(ref, release, problems, progress)
}

// LoadPacked is Load for a release whose files are stored on the cluster. LoadPacked also returns these files, unless
// the flags exclude them.
func (f *ReleaseFlags) LoadPacked(ctx context.Context, ref string, keep *FileFlags,
	progress io.Writer) (_ *payload.Payload, _ *files.Packed, err error) {
	options, err := f.Options(progress)
	if err != nil {
		return nil, nil, err
	}
	opened, err := source.Open(ctx, ref, options.Source)
	if err != nil {
		return nil, nil, ReadError(ctx, err)
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	read, problems, err := loader.ParseOpened(ctx, opened, options)
	if err == nil {
		err = keep.useSettings(opened, progress)
	}
	if err != nil {
		return nil, nil, ReadError(ctx, loader.Named(ref, err))
	}
	if err := f.Accept(ref, read, problems, progress); err != nil {
		return nil, nil, err
	}
	packed, err := keep.pack(opened, ref, read)
	return read, packed, err
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
	return f.PreviewOf(ctx, c, release, ref)
}

// PreviewOf is Preview for a release that was read already.
func (f *IntentFlags) PreviewOf(ctx context.Context, c *cluster.Cluster, release *payload.Payload,
	ref string) (*previewResult, error) {
	options, err := f.Options(ref, release)
	if err != nil {
		return nil, err
	}
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

// KnownRefusals returns the reasons of API servers to refuse objects of a release that are known without a cluster.
func KnownRefusals(ctx context.Context, release *payload.Payload) map[object.StepID][]fields.Refusal {
	known := map[object.StepID][]fields.Refusal{}
	for m, found := range refusals.Find(ctx, release.Manifests, nil) {
		known[object.StepOf(m)] = found
	}
	return known
}

// Plan returns the plan of an apply, and prints the warnings of the server.
func (p *previewResult) Plan(ctx context.Context, progress io.Writer) (*plan.Plan, error) {
	for _, warning := range p.Report.Warnings {
		fmt.Fprintf(progress, "warning of the cluster: %s (%s)\n", printable.Line(warning.Text),
			printable.Line(printable.Few(warning.Files, MostFiles)))
	}
	return p.Outcome.Plan(ctx, p.cluster, p.release), context.Cause(ctx)
}

// DropWholeObjects removes the content of objects that would be created.
func DropWholeObjects(p *plan.Plan) {
	for i := range p.Steps {
		p.Steps[i].Whole = nil
	}
}

// isWhole reports whether a preview covers every object.
func isWhole(report *apply.Report) bool {
	isNotDone := func(change object.Change) bool { return change.Action == object.NotDone }
	return report.Err == nil || len(report.Changes) > 0 && !slices.ContainsFunc(report.Changes, isNotDone)
}

// A DryRun is the value of --dry-run: "server" or "none".
type DryRun string

// The values of --dry-run.
const (
	DryRunOfServer = "server"
	NoDryRun       = "none"
)

// AddDryRun adds --dry-run.
func AddDryRun(command *cobra.Command, d *DryRun) {
	*d = NoDryRun
	flag := command.Flags().VarPF(d, "dry-run", "",
		"server: show the changes that the cluster would make, without applying them; or none")
	flag.NoOptDefVal = DryRunOfServer
	_ = command.RegisterFlagCompletionFunc("dry-run",
		cobra.FixedCompletions([]string{DryRunOfServer, NoDryRun}, cobra.ShellCompDirectiveNoFileComp))
}

// IsEnabled reports whether the apply is a dry run.
func (d DryRun) IsEnabled() bool { return d == DryRunOfServer }

// String returns the value of the flag.
func (d *DryRun) String() string { return string(*d) }

// Type returns the type in the help.
func (d *DryRun) Type() string { return "name" }

// Set sets the value of the flag.
func (d *DryRun) Set(value string) error {
	if value != DryRunOfServer && value != NoDryRun {
		return errors.New(`use --dry-run=server, which asks the cluster; "runlevel plan OLD NEW" needs none`)
	}
	*d = DryRun(value)
	return nil
}

// foreignFlag is the flag that names the managers and objects whose foreign fields an apply removes.
const foreignFlag = "remove-foreign-fields"

// removesForeign returns a function that reports whether the values of the flag remove foreign fields; nil if there are
// no values. A value with a slash names an object of the release, and any other value a manager.
func removesForeign(values []string, release *payload.Payload) (func(id kinds.ID, manager string) bool, error) {
	if len(values) == 0 {
		return nil, nil
	}
	var managers []string
	var objects []loader.Selector
	for _, value := range values {
		if !strings.Contains(value, "/") {
			managers = append(managers, value)
			continue
		}
		object, err := loader.ParseSelector(value)
		if err == nil {
			err = object.Check(release)
		}
		if err != nil {
			return nil, Misusef("--%s %s: %w", foreignFlag, value, err)
		}
		objects = append(objects, object)
	}
	return func(id kinds.ID, manager string) bool {
		isNamed := func(object loader.Selector) bool { return object.Matches(id) }
		return slices.Contains(managers, manager) || slices.ContainsFunc(objects, isNamed)
	}, nil
}
