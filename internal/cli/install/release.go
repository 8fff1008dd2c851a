package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/session/uninstall"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// wide is the format of a text with the names of all objects.
const wide core.Output = "wide"

// releaseUninstallFlags are the flags for the uninstall of a release.
type releaseUninstallFlags struct {
	keep, deleteData []string
	namespaces       []string
	isConfirmed      bool
	ignoreNotFound   bool
	lock             lock.Options
	notify           core.NotifyFlags
}

// onlyReleaseFlags are the flags that have no effect with --operator.
var onlyReleaseFlags = []string{"keep", "delete-data", "namespace", "ignore-not-found", "wait-lock", "lock-duration",
	"record-namespace", "notify"}

func (f *releaseUninstallFlags) add(command *cobra.Command) {
	flags := command.Flags()
	flags.StringArrayVar(&f.keep, "keep", nil,
		"keep an object of the release, as KIND/NAME or KIND/NAMESPACE/NAME; NAME may be *; may be repeated")
	flags.StringArrayVar(&f.deleteData, "delete-data", nil,
		"also delete an object that is otherwise kept because it has data or the annotation "+uninstall.KeepAnnotation+
			"; written as for --keep; may be repeated")
	flags.StringArrayVarP(&f.namespaces, "namespace", "n", nil,
		"a namespace of the release, for a user who may not list its kinds in the whole cluster; may be repeated")
	flags.BoolVarP(&f.isConfirmed, "yes", "y", false, "don't ask")
	flags.BoolVar(&f.ignoreNotFound, "ignore-not-found", false, "succeed if the release does not exist")
	flags.BoolVar(&f.lock.Wait, "wait-lock", false,
		"wait while another process applies or uninstalls this release, however long that takes")
	flags.DurationVar(&f.lock.Duration, "lock-duration", 30*time.Second,
		"how long the lock stays valid if the uninstall is killed")
}

// options returns the options of the uninstall.
func (f *uninstallFlags) options() (uninstall.Options, error) {
	o := uninstall.Options{
		Release:   f.name,
		Namespace: f.cluster.Namespace,
		In:        f.namespaces,
		Lock:      f.lock,
		Timeout:   f.timeout,
	}
	if err := f.notify.Check(); err != nil {
		return o, err
	}
	if f.lock.Duration < time.Second || f.lock.Duration > 24*time.Hour {
		return o, core.Misusef("--lock-duration: %s is invalid: it must be between a second and a day", f.lock.Duration)
	}
	for _, text := range f.keep {
		pattern, err := uninstall.ParsePattern(text)
		if err != nil {
			return o, core.Misusef("--keep: %w", err)
		}
		o.Choice.Keep = append(o.Choice.Keep, pattern)
	}
	for _, text := range f.deleteData {
		pattern, err := uninstall.ParsePattern(text)
		if err != nil {
			return o, core.Misusef("--delete-data: %w", err)
		}
		o.Choice.DeleteData = append(o.Choice.DeleteData, pattern)
	}
	return o, nil
}

// A releaseUninstall is the uninstall of a release on the command line.
type releaseUninstall struct {
	cluster *cluster.Cluster
	options uninstall.Options
	flags   *uninstallFlags
	streams core.Streams
}

func (u *releaseUninstall) run(ctx context.Context) error {
	isDry := u.flags.dryRun.IsEnabled()
	if !isDry && !u.flags.isConfirmed && !u.streams.CanAsk() {
		return core.Misusef("--yes is missing: without a terminal, the command cannot ask for confirmation; "+
			"--dry-run=server lists the objects of %s that it would delete", u.options.Release)
	}
	p, err := uninstall.Look(ctx, u.cluster, u.options)
	if err != nil {
		return u.explain(err)
	}
	if isDry {
		return u.finish(uninstall.DryRun(ctx, u.cluster, p), p)
	}
	u.print(u.streams.Err, p, u.flags.format == wide)
	if !u.flags.isConfirmed {
		isYes, err := u.streams.Ask(ctx, fmt.Sprintf("Uninstall %s?", u.options.Release))
		if err != nil {
			return err
		}
		if !isYes {
			return errors.New("nothing is deleted")
		}
	}
	progress := newUninstallProgress(u.streams.Err, u.flags.format)
	u.options.OnEvent = progress.show
	u.options.Lock.OnHeld = progress.reportHolder
	u.options.Notify = u.flags.notify.Sender(ctx, &u.flags.cluster)
	defer u.flags.notify.Close(u.streams.Err)
	report := uninstall.Run(ctx, u.cluster, u.options, p)
	progress.stop()
	return u.finish(report, p)
}

// explain adds the flag that resolves an error to it. It returns nil if the release does not exist and
// --ignore-not-found is set.
func (u *releaseUninstall) explain(err error) error {
	var unknown *uninstall.UnknownReleaseError
	switch {
	case errors.As(err, &unknown) && len(unknown.Elsewhere) == 0 && u.flags.ignoreNotFound:
		fmt.Fprintln(u.streams.Err, printable.Line(err.Error()))
		return nil
	case errors.As(err, new(*uninstall.PatternError)):
		return core.Misuse(err)
	default:
		return withLockFlag(err)
	}
}

// withLockFlag adds --wait-lock to the error of a lock that another process holds.
func withLockFlag(err error) error {
	if errors.As(err, new(*lock.HeldError)) {
		return fmt.Errorf("%w: wait with --wait-lock, or try again later", err)
	}
	return err
}

// print prints the objects that would be deleted, and the kept ones.
func (u *releaseUninstall) print(out io.Writer, p *uninstall.Plan, withNames bool) {
	fmt.Fprintf(out, "uninstall of release %s: %s\n", printable.Line(strings.TrimSpace(p.Release+" "+p.Version)),
		p.Counts())
	for _, stage := range p.Stages {
		fmt.Fprintf(out, "  %s: %s\n", stage.Name, countText(stage))
		if withNames {
			printNames(out, stage.Objects)
		}
	}
	printKept(out, p.Kept)
	printNotes(out, p.Notes, p.Hooks)
}

// countText returns the kinds of a stage, without the sum.
func countText(stage uninstall.Stage) string {
	_, text, _ := strings.Cut(stage.Counts().String(), ": ")
	return text
}

func printNames(out io.Writer, objects []objectmeta.LiveMetadata) {
	for _, head := range objects {
		fmt.Fprintf(out, "    %s\n", head.ID)
	}
}

func printKept(out io.Writer, kept []uninstall.KeptObject) {
	for _, item := range kept {
		fmt.Fprintf(out, "%-11s %s: %s\n", "kept", item.Object, printable.Line(item.Message))
	}
}

func printNotes(out io.Writer, notes []string, hooks []kinds.ID) {
	for _, note := range notes {
		fmt.Fprintf(out, "%-11s %s\n", "note", printable.Line(note))
	}
	if len(hooks) > 0 {
		var texts []string
		for _, id := range hooks {
			texts = append(texts, id.String())
		}
		fmt.Fprintf(out, "%-11s no lifecycle hook is run: %s\n", "note", printable.Few(texts, core.MostFiles))
	}
}

// finish prints the report, and returns the error of the command.
func (u *releaseUninstall) finish(report *uninstall.Report, p *uninstall.Plan) error {
	err := u.flags.format.Print(u.streams.Out, report, func(out io.Writer) error {
		if report.DryRun {
			u.print(out, p, true)
		}
		for _, remaining := range report.Left {
			fmt.Fprintf(out, "%-11s %s: %s\n", "left", remaining.Object, printable.Line(remaining.Message))
		}
		if !report.DryRun {
			printKept(out, report.Kept)
			isShown := func(note string) bool { return slices.Contains(p.Notes, note) }
			printNotes(out, slices.DeleteFunc(slices.Clone(report.Notes), isShown), report.Hooks)
		}
		_, err := fmt.Fprintln(out, summaryOf(report))
		return err
	})
	return errors.Join(withLockFlag(report.Err), err)
}

// summaryOf returns the result in a line.
func summaryOf(r *uninstall.Report) string {
	took := time.Duration(r.Seconds * float64(time.Second)).Round(100 * time.Millisecond)
	title := "release " + r.Release
	switch {
	case r.DryRun && r.Err == nil:
		return fmt.Sprintf("%s would be uninstalled; a dry run, which changes nothing", title)
	case r.DryRun:
		return fmt.Sprintf("%s can't be uninstalled; a dry run, which changes nothing", title)
	case !r.Done:
		return fmt.Sprintf("%s not uninstalled, after %s: %s", title, took, countsText(r))
	case len(r.Kept) > 0:
		return fmt.Sprintf("%s uninstalled in %s: %s; its record is deleted, "+
			"and a later apply uses the kept objects again",
			title, took, countsText(r))
	default:
		return fmt.Sprintf("%s uninstalled in %s: %s", title, took, countsText(r))
	}
}

func countsText(r *uninstall.Report) string {
	text := fmt.Sprintf("%d deleted", r.Counts.Objects)
	if len(r.Kept) > 0 {
		text += fmt.Sprintf(", %d kept", len(r.Kept))
	}
	if len(r.Left) > 0 {
		text += fmt.Sprintf(", %d left", len(r.Left))
	}
	return text
}
