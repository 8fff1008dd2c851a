package lint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/rehearse"
	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/session/snapshot"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// rehearsalFlags are the flags of a rehearsal, which lint has as well.
type rehearsalFlags struct {
	with      []string
	from      string
	cluster   string
	ready     []string
	down      bool
	patience  time.Duration
	nodes     int
	realNodes int
	images    []string
	standard  ready.Standard
	unknown   string
}

const rehearseHelp = `Try an update before it is released: install OLD on a temporary control plane, update it
to NEW, apply NEW again, and report objects that were refused, did not become ready or were
left behind, deletes that did not end, changes by the second apply, and pods that the update
replaces. Without OLD, NEW is installed. With --from or --from-cluster, the rehearsal starts
from the state of a release on a cluster: see "runlevel snapshot".

After a failure, the rehearsal continues with the next step. Findings have the formats, the
comments that ignore them and the exit codes of "runlevel lint". Only what the rehearsal shows
is reported: "runlevel lint --rehearse" reports it together with what the rules of lint find in
the files, such as certificates that clients refuse or Services that reach no pod.

The control plane is that of "runlevel sandbox": the programs are found, or built once, which
takes minutes. No container runs: Deployments roll out and Jobs complete, webhooks are not called,
and custom resources are not awaited unless --ready has the status of their controllers. With
--real-nodes, containers run, and webhooks are called (Linux, as root). Definitions, Namespaces and
classes that the release requires come from --with, or are created and reported.

Exit codes: 0 when no finding is as severe as --fail-on, 1 when one is, 2 for misuse, a release
that can't be read, a control plane that does not start, or a rehearsal that can't be finished.

` + core.SourceHelp

const rehearseExamples = `  # Try an update
  runlevel rehearse registry.example/shop:1.4.0 ./release

  # From the last applied version, whose copy is on the cluster
  runlevel rehearse shop@ ./release

  # The update of a cluster as it is
  runlevel rehearse shop@ ./release --from-cluster shop

  # One rehearsal, printed and in files for browsers and code hosts, for example as artifacts of a pull request
  runlevel rehearse shop@ ./release -o text -o html=rehearsal.html -o sarif=out.sarif

  # With the definitions and Namespaces of a platform, and an uninstall at the end
  runlevel rehearse ./release --with ./platform --down

  # Certificates become ready as if cert-manager ran
  runlevel rehearse ./release --ready Certificate.cert-manager.io=Ready`

// NewRehearse returns the verb rehearse.
func NewRehearse(streams core.Streams) *cobra.Command {
	f := lintFlags{failOn: lint.Error, isRehearsal: true}
	command := &cobra.Command{
		Use:               "rehearse [OLD] NEW",
		Short:             "Try an update on a temporary control plane",
		Long:              rehearseHelp,
		Example:           rehearseExamples,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: core.CompletePaths(2, cobra.ShellCompDirectiveDefault),
		RunE: func(command *cobra.Command, args []string) error {
			f.isConfigured = command.Flags().Changed("config")
			if len(args) == 2 {
				f.previous = args[0]
			}
			return f.run(command.Context(), args[len(args)-1], streams)
		},
	}
	core.AddReleaseFlags(command, &f.release, &f.cluster)
	core.AddNamespaceFlag(command, &f.release)
	core.AddClusterFlags(command, &f.cluster)
	f.addReportFlags(command)
	command.Flags().StringVar(&f.previousVersion, "old-version", "",
		"the version of OLD, if it has no release-metadata")
	f.rehearsal.add(command)
	return command
}

// add adds the flags to a command.
func (f *rehearsalFlags) add(command *cobra.Command) {
	f.standard, f.unknown = ready.Full, "refuse"
	core.AddChoice(command, &f.standard, "wait",
		"ready: every object must become ready; upstream: wait as the cluster-version operator does", ready.Full,
		ready.Upstream)
	core.AddChoice(command, &f.unknown, "unknown-fields",
		"what to do with fields that the API server does not know: refuse the object, or drop them with a warning",
		"refuse", "drop")
	flags := command.Flags()
	flags.StringArrayVar(&f.with, "with", nil,
		"a SOURCE to install first, with the objects that the release requires: definitions, Namespaces, classes; "+
			"may be repeated")
	flags.StringVar(&f.from, "from", "",
		"start from this file of \"runlevel snapshot\" instead of installing OLD")
	flags.StringVar(&f.cluster, "from-cluster", "",
		"start from the live state of this release on the cluster instead of installing OLD")
	flags.StringArrayVar(&f.ready, "ready", nil,
		"the status that makes custom resources ready without their controller, as KIND.GROUP=CONDITION, "+
			"KIND.GROUP={phase: Ready}, or a file that maps kinds to a status; may be repeated")
	flags.BoolVar(&f.down, "down", false, "uninstall the release at the end, and report remaining objects")
	flags.DurationVar(&f.patience, "patience", rehearse.DefaultPatience,
		"how long to retry each object, and to wait until it is ready")
	flags.IntVar(&f.nodes, "nodes", 3, "the number of simulated nodes")
	flags.IntVar(&f.realNodes, "real-nodes", 0,
		"the number of nodes that run containers, instead of simulated ones (Linux, as root)")
	flags.StringArrayVar(&f.images, "load-image", nil, "an image for real nodes, as PATH or PATH=NAME; may be repeated")
}

// options returns the options of a rehearsal, but for the releases.
func (f *lintFlags) options(ctx context.Context, progress io.Writer) (rehearse.Options, error) {
	r := f.rehearsal
	options := rehearse.Options{
		Down: r.down, Patience: r.patience, Standard: r.standard, DropUnknownFields: r.unknown == "drop",
		Ready: rehearse.ReadyRules{}, Progress: func(line string) {
			fmt.Fprintln(progress, line)
		},
		Sandbox: sandbox.Options{
			Nodes:      r.nodes,
			RealNodes:  r.realNodes,
			Images:     r.images,
			Kubernetes: f.kubernetes,
			Progress:   progress,
		},
	}
	if r.realNodes > 0 {
		options.Sandbox.Nodes = 0
	}
	switch {
	case r.patience <= 0:
		return options, core.Misusef("--patience: %s is invalid: it must be greater than 0", r.patience)
	case r.nodes < 1:
		return options, core.Misusef("--nodes: %d is invalid: it must be 1 or greater", r.nodes)
	}
	for _, rule := range r.ready {
		if err := addReady(options.Ready, rule); err != nil {
			return options, core.Misusef("--ready: %w", err)
		}
	}
	for _, ref := range r.with {
		with := f.release
		with.Version, with.Name, with.Image, with.ImagesFrom, with.UpdatingFrom, with.Images = "", "", "", "", "", nil
		given, _, err := with.LoadAs(ctx, "--with", ref, progress)
		if err != nil {
			return options, err
		}
		options.With = append(options.With, given)
	}
	return options, nil
}

// addReady adds the rule of a flag, or the rules of the file that it names.
func addReady(rules rehearse.ReadyRules, rule string) error {
	if strings.Contains(rule, "=") {
		return rules.Add(rule)
	}
	text, err := os.ReadFile(rule)
	if err != nil {
		return err
	}
	if err := rules.Read(text); err != nil {
		return fmt.Errorf("%s: %w", rule, err)
	}
	return nil
}

// rehearse rehearses the input of lint, and adds its findings to the input.
func (f *lintFlags) rehearse(ctx context.Context, input *lint.Input, progress io.Writer) (*RehearsalInfo, error) {
	options, err := f.options(ctx, progress)
	if err != nil {
		return nil, err
	}
	if options.From, err = f.readSnapshot(ctx); err != nil {
		return nil, err
	}
	name := defaultName
	if options.From != nil {
		name = options.From.Release
	}
	options.New, options.Old = withName(input.Payload, name), withName(input.Previous, name)
	if options.From != nil && options.New.Name != name {
		return nil, core.Misusef("the snapshot is of release %s, and SOURCE is %s: name it with --name %s, if it is "+
			"that one", name, options.New.Name, name)
	}
	report, err := rehearse.Run(ctx, options)
	switch {
	case errors.Is(err, sandbox.ErrOptions):
		return nil, core.Misuse(err)
	case err != nil:
		return nil, core.ReadError(ctx, err)
	}
	input.Rehearsal = &report.Rehearsal
	info := &RehearsalInfo{
		Kubernetes:   report.Kubernetes,
		StartSeconds: report.Start.Seconds(),
		Stages:       report.Stages,
		asked:        f.kubernetes,
		NotTried:     notTriedKinds(report.Rehearsal.Observations),
	}
	if f.rehearsal.realNodes == 0 {
		info.NotTried = append([]string{"containers (images, probes, crashes)"}, info.NotTried...)
	}
	return info, nil
}

// notTriedKinds returns the kinds of objects that were not tried, or not in all parts, with their numbers.
func notTriedKinds(observations []lint.Observation) []string {
	counts := map[string]int{}
	for _, o := range observations {
		if kind, _, _ := strings.Cut(o.Object, " "); o.Rule == lint.RehearsalNotTried && kind != "" {
			counts[kind]++
		}
	}
	kinds := []string{}
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		kinds = append(kinds, fmt.Sprintf("%s (%d)", kind, counts[kind]))
	}
	return kinds
}

// notTried describes the objects that the rehearsal has not tried; nil if there are none.
func (i *RehearsalInfo) notTried() []string {
	if len(i.NotTried) == 0 {
		return nil
	}
	return []string{"not tried, or not in all parts: " + printable.Few(i.NotTried, maxUnchecked)}
}

// readSnapshot returns the initial state from a file or a cluster; nil if the rehearsal installs the old release.
func (f *lintFlags) readSnapshot(ctx context.Context) (*snapshot.Snapshot, error) {
	r := f.rehearsal
	switch {
	case r.from != "" && r.cluster != "":
		return nil, core.Misusef("--from and --from-cluster can't be used together")
	case r.cluster != "":
		return core.TakeSnapshot(ctx, &f.cluster, r.cluster)
	case r.from == "":
		return nil, nil
	}
	file, err := os.Open(r.from)
	if err != nil {
		return nil, core.Misuse(err)
	}
	defer file.Close() //nolint:errcheck // it was only read
	read, err := snapshot.Read(file)
	if err != nil {
		return nil, core.Misusef("--from %s: %w", r.from, err)
	}
	return read, nil
}

// defaultName is the name of a release that has none.
const defaultName = "rehearsal"

// withName returns a release that has a name: its objects are labelled with it.
func withName(release *payload.Payload, name string) *payload.Payload {
	if release == nil || release.Name != "" {
		return release
	}
	with := *release
	with.Name = name
	return &with
}

// A RehearsalInfo is the part of a report that describes a rehearsal besides its findings.
type RehearsalInfo struct {
	Kubernetes   string           `json:"kubernetes"`
	StartSeconds float64          `json:"startSeconds"`
	Stages       []rehearse.Stage `json:"stages"`
	// NotTried are the parts of a cluster that the rehearsal lacks, and kinds of objects that it tries in part.
	NotTried []string `json:"notTried"`

	asked string // the version that the release is for
}

// controlPlane describes the control plane.
func (i *RehearsalInfo) controlPlane() []string {
	lines := []string{fmt.Sprintf("rehearsed on Kubernetes %s, ready after %.1f s", i.Kubernetes, i.StartSeconds)}
	if i.asked != "" && !strings.Contains(i.Kubernetes, i.asked) {
		lines = append(lines, fmt.Sprintf("  not on %s: the control plane can't behave as that version, so the "+
			"rehearsal does not find APIs that it removes or lacks", i.asked))
	}
	return lines
}

// text describes the control plane and the stages.
func (i *RehearsalInfo) text() string {
	var text strings.Builder
	text.WriteString(strings.Join(i.controlPlane(), "\n") + "\n")
	for _, stage := range i.Stages {
		fmt.Fprintf(&text, "  %s: %s in %.1f s", stage.Name, printable.Count(stage.Objects, "object"), stage.Seconds)
		if slowest := slowestOf(stage); slowest != "" {
			text.WriteString(", " + slowest)
		}
		text.WriteString("\n")
	}
	for _, line := range i.notTried() {
		text.WriteString(line + "\n")
	}
	return text.String()
}

// slowestOf names the slowest of several levels and components; "" if there is only one.
func slowestOf(stage rehearse.Stage) string {
	if len(stage.Levels) < 2 {
		return ""
	}
	slowest := slices.MaxFunc(stage.Levels, func(a, b rehearse.LevelTime) int {
		return int(1000 * (a.Seconds - b.Seconds))
	})
	return fmt.Sprintf("the slowest of %d levels and components: %s, %.1f s", len(stage.Levels), slowest.Name,
		slowest.Seconds)
}

// onlyRehearsal turns off all rules except those of a rehearsal and of unreadable files.
func onlyRehearsal(config lint.Config) lint.Config {
	severities := maps.Clone(config.Severities)
	for _, rule := range lint.Rules() {
		if !rule.NeedsRehearsal() && !slices.Contains(lint.ReadingRules(), rule.ID) {
			severities[rule.ID] = lint.Off
		}
	}
	config.Severities = severities
	return config
}
