package review

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/review/plan"
	"github.com/runlevel/runlevel/internal/review/plan/show"
	"github.com/runlevel/runlevel/internal/review/refusals"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/ui/planpage"
	"github.com/runlevel/runlevel/pkg/payload"
)

// Markdown is the format of comments on pull requests.
const Markdown core.Output = "markdown"

// planFlags are the flags of runlevel plan.
type planFlags struct {
	core.IntentFlags // flags of --cluster, except the flags of the release
	component        core.ComponentFlags
	ofCluster        bool
	previousVersion  string
	previousImage    string
	format           core.Output
	all              bool
	exitCode         bool
	tombstones       string // the folder to write them to
	command          string // the command line, without flags of the format
}

const planHelp = `Show the objects that an update from one release to another creates, changes and
deletes, with the components in the order in which they begin. Problems come first: objects that
are left behind because nothing deletes them, objects and changes that an API server
refuses, versions, fields and values that a CustomResourceDefinition no longer has,
tombstones of objects that no release had.

  +  created          -  deleted, by itself or with its Namespace, definition or owner
  ~  changed          !  left behind in the cluster
  =  unchanged        ?  tombstone of an unknown object        .  deleted already

Both releases are read with the same flags, as those of one cluster. With
--capabilities, the capabilities of OLD stay enabled in NEW, as in an update. The plan does
not read a cluster, so it ignores changes there. The values of Secrets are never shown.

With --cluster there is one SOURCE, and the plan previews "runlevel apply" on the
cluster by dry runs, which change nothing. It shows which changes would be
overwritten, which objects each delete would also delete, which objects earlier releases
have left behind, and the findings of the gate.

  x  refused by the cluster       ?  the cluster can't check it before the apply

"runlevel plan OLD NEW" is for reviewers of a release, "runlevel plan SOURCE --cluster"
for those who are about to apply it; "runlevel diff SOURCE" shows them every field, and
"runlevel apply SOURCE --dry-run=server" shows the log of a pipeline.

With --write-tombstones DIR, the tombstones of dropped objects are written to new files of
that folder, named as the files that the objects were in. Those of Namespaces, definitions
and volumes are not: they would delete other objects, too.

Exit codes: 0, whatever the plan is; with --cluster, 1 for an object that the cluster would
refuse; 2 when a release can't be read. With --exit-code, 1 means that there is a
difference, and 2 is any failure. Objects that are only left behind in a cluster are not
a difference.

OLD and NEW are each a SOURCE.

` + core.SourceHelp + `

` + core.ComponentHelp + `
OLD is RELEASE as it is, unless it is given.`

// NewPlan returns the verb plan.
func NewPlan(streams core.Streams) *cobra.Command {
	f := planFlags{component: core.ComponentFlags{IsUpdate: true}}
	command := &cobra.Command{
		Use:   "plan [OLD] NEW",
		Short: "Preview an update, between two releases or on a cluster",
		Long:  planHelp,
		Example: `  # What will the update do to a cluster of this profile?
  runlevel plan ./4.20 ./4.21 --profile self-managed-high-availability

  # In a pull request: before and after, as a comment
  runlevel plan main/manifests manifests -o markdown > comment.md

  # As a file for browsers, for example the artifact of a pull request
  runlevel plan main/manifests manifests -o html > plan.html

  # Compare two applied versions, or the last one and a folder
  runlevel plan shop@3 shop@5
  runlevel plan shop@ ./new

  # Two images; is there anything to review?
  runlevel plan registry.example/shop:1.3.2 registry.example/shop:1.4.0 --exit-code

  # What does a component's pull request do to the release that it goes into?
  runlevel plan ./manifests --component web --into registry.example/shop:1.4.0

  # What would the update change here, and what would its deletes also delete?
  runlevel plan ./4.21 --cluster

  # Delete what NEW has dropped: write its tombstones into NEW, and review them
  runlevel plan ./4.20 ./4.21 --write-tombstones ./4.21/release-manifests

  # Which objects would be left behind?
  runlevel plan ./old ./new -o json | jq -r '.absent[] | select(.coveredBy | not) | .tombstone | values | "---\n" + .'`,
		Args:              f.checkArgs,
		ValidArgsFunction: f.completeSources,
		RunE: func(command *cobra.Command, args []string) error {
			f.command = commandLine(command, args)
			return f.run(command, args, streams)
		},
	}
	core.AddReleaseFlags(command, &f.Release, &f.Cluster)
	core.AddComponentFlags(command, &f.component)
	core.AddIntentFlags(command, &f.IntentFlags)
	core.AddOutput(command, &f.format, core.Text, core.JSON, core.YAML, Markdown, core.HTML)
	flags := command.Flags()
	flags.Lookup("release-version").Usage = "the version of NEW, if it has no release-metadata"
	flags.Lookup("release-image").Usage = "the image of NEW, for templates (default: NEW, if it is an image)"
	flags.StringVar(&f.previousVersion, "previous-version", "", "the version of OLD, if it has no release-metadata")
	flags.StringVar(&f.previousImage, "previous-image", "",
		"the image of OLD, for templates (default: OLD, if it is an image)")
	flags.BoolVar(&f.ofCluster, "cluster", false,
		"preview an apply of SOURCE to the cluster; --mode, --unknown-fields and --adopt-from need this flag")
	flags.BoolVar(&f.all, "all", false, "also list unchanged objects, and cut nothing (in text)")
	flags.BoolVar(&f.exitCode, "exit-code", false,
		"exit with 1 if there is a difference, and with 2 for any failure")
	flags.StringVar(&f.tombstones, "write-tombstones", "",
		"write the tombstones of dropped objects to new files of this `folder`")
	_ = flags.MarkHidden("updating-from") // OLD is the previous release
	return command
}

// checkArgs requires one release less with --into, and with --cluster, which compares with the
// cluster.
func (f *planFlags) checkArgs(command *cobra.Command, args []string) error {
	if f.ofCluster {
		if len(args) != 1 {
			return errors.New("--cluster compares with the cluster: name one SOURCE, not OLD and NEW")
		}
		return nil
	}
	if f.component.Into != "" {
		return cobra.RangeArgs(1, 2)(command, args)
	}
	if len(args) == 1 {
		return errors.New("name two releases, OLD and NEW, or one and --cluster, to compare it with the cluster")
	}
	return cobra.ExactArgs(2)(command, args)
}

// run prints a plan.
func (f *planFlags) run(command *cobra.Command, args []string, streams core.Streams) error {
	if err := errors.Join(f.checkFlags(command.Flags(), append(args, f.component.Into)...),
		f.checkTombstonesFlag()); err != nil {
		return err
	}
	run := f.plan
	if f.ofCluster {
		run = f.planCluster
	}
	found, err := run(command.Context(), args, streams)
	return exitOfDifference(f.exitCode, found, err)
}

// A planDifference is the result of a plan that exit codes depend on.
type planDifference int

const (
	noDifference   planDifference = iota
	someDifference                // an update changes something
	refusedChange                 // a cluster would refuse a change
)

// differenceOf returns the difference of a plan.
func differenceOf(p *plan.Plan, isRefused bool) planDifference {
	switch {
	case isRefused:
		return refusedChange
	case p.IsEmpty():
		return noDifference
	default:
		return someDifference
	}
}

// exitOfDifference returns the error of a command with --exit-code, which exits with 1 if there is a
// difference: then 1 must not mean anything else.
func exitOfDifference(isRequested bool, found planDifference, err error) error {
	switch {
	case err != nil && isRequested:
		return core.Misuse(err)
	case err != nil:
		return err
	}
	return core.FailIf(found == refusedChange || isRequested && found == someDifference)
}

func (f *planFlags) plan(ctx context.Context, args []string, streams core.Streams) (found planDifference, err error) {
	if err := f.component.Check(&f.Release); err != nil {
		return noDifference, err
	}
	newRef := args[len(args)-1]
	oldRef := cmp.Or(f.component.Into, args[0])
	if len(args) == 2 {
		oldRef = args[0]
	}
	switch {
	case f.Release.UpdatingFrom != "":
		return noDifference, core.Misusef(
			"--updating-from: a plan updates from OLD: with --capabilities, capabilities of OLD stay enabled",
		)
	case filepath.Clean(oldRef) == filepath.Clean(newRef):
		return noDifference, core.Misusef("OLD and NEW are both %s: name two releases", newRef)
	}
	view := show.Printer{From: oldRef, To: newRef, All: f.all, Command: f.command}
	var both releasePair
	if f.component.Into != "" {
		both, err = f.place(ctx, args, &view, streams.Err)
	} else {
		both, err = f.read(ctx, oldRef, newRef, streams.Err)
	}
	if err != nil {
		return noDifference, err
	}
	p := plan.Compare(both.old, both.next, refusals.Find(ctx, both.next.Manifests, both.problems))
	if ctx.Err() != nil {
		return noDifference, context.Cause(ctx)
	}
	if p.Update == plan.Downgrade {
		fmt.Fprintf(streams.Err, "warning: OLD %s is version %s, and NEW %s is %s, which is older: are the two "+
			"swapped?\n",
			oldRef, both.old.Version, newRef, both.next.Version)
	}
	view.Plan = p
	if err := f.print(streams.Out, view); err != nil || f.tombstones == "" {
		return differenceOf(p, false), err
	}
	return differenceOf(p, false), writeTombstones(f.tombstones, view, streams.Err)
}

// commandLine returns the command that shows the same as text: other filters would show another
// plan, or none.
func commandLine(command *cobra.Command, args []string) string {
	words := append([]string{"runlevel", command.Name()}, args...)
	command.Flags().Visit(func(flag *pflag.Flag) {
		switch flag.Name {
		case "output", "all", "exit-code", "exit-code-foreign", "filename", "verbosity":
			return
		}
		values := []string{flag.Value.String()}
		if list, isList := flag.Value.(pflag.SliceValue); isList {
			values = list.GetSlice()
		}
		for _, value := range values {
			words = append(words, "--"+flag.Name+"="+value)
		}
	})
	for i, word := range words {
		words[i] = printable.ShellWord(word)
	}
	return strings.Join(words, " ")
}

func (f *planFlags) print(out io.Writer, view show.Printer) error {
	write := view.Text
	switch f.format {
	case Markdown:
		write = view.Markdown
	case core.HTML:
		write = planpage.Page(view).WriteFile
	}
	return f.format.PrintWhole(out, view.Plan, write)
}

// A releasePair is the two releases of a plan.
type releasePair struct {
	old, next *payload.Payload
	problems  []payload.Problem // problems of next
}

// read reads both releases. It returns the errors of both.
func (f *planFlags) read(ctx context.Context, oldRef, newRef string, progress io.Writer) (both releasePair, err error) {
	if _, err := f.Release.Options(progress); err != nil { // the same for both
		return both, err
	}
	before, after, err := f.sides()
	if err != nil {
		return both, err
	}
	old, _, oldErr := before.LoadAs(ctx, "the old release", oldRef, progress)
	switch {
	case ctx.Err() != nil && oldErr != nil: // do not read the other release
		return both, oldErr
	case ctx.Err() != nil:
		return both, context.Cause(ctx)
	}
	if f.Release.Capabilities != "" {
		after.Before = old
	}
	next, problems, newErr := after.LoadAs(ctx, "the new release", newRef, progress)
	if err := errors.Join(oldErr, newErr); err != nil {
		return both, err
	}
	core.Warn(progress, core.ProblemLines(problems)) // the old release can no longer be fixed
	core.WarnIfEmpty(progress, next)
	return releasePair{old, next, problems}, f.Release.CheckFilters(old, next)
}

// sides returns the flags for reading OLD and NEW.
func (f *planFlags) sides() (before, after core.ReleaseFlags, err error) {
	before, after = f.Release, f.Release
	before.Version, before.Image = f.previousVersion, f.previousImage
	return before, after, core.CheckVersion("previous-version", f.previousVersion)
}

// completeSources completes two releases with files; one release with --cluster.
func (f *planFlags) completeSources(command *cobra.Command, args []string,
	toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	most := 2
	if f.ofCluster {
		most = 1
	}
	return core.CompletePaths(most, cobra.ShellCompDirectiveDefault)(command, args, toComplete)
}
