package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/review/fix"
	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/internal/review/plan"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// What --fix may fix.
const (
	fixSafe       = "safe"
	fixTombstones = "tombstones"
)

const fixHelp = `With --fix, what can be fixed safely in a folder is fixed first: delete annotations
that say true in another spelling, annotations that want quotes, levels with another
number of digits, last lines without a line break. What is ignored stays as it is.
Objects that need a tombstone get one with --fix=tombstones, each by its name. With
--diff nothing is changed, and the exit code is 1 when something would be.

`

// fixFlags are those flags of lint that change files.
type fixFlags struct {
	what    string
	objects []string
	diff    bool
}

func addFixFlags(command *cobra.Command, f *fixFlags) {
	addChoice(command, &f.what, "fix", `fix what is found in a folder: "safe" what can't go wrong, "tombstones" what objects named by --object need`, fixSafe, fixTombstones)
	flags := command.Flags()
	flags.Lookup("fix").NoOptDefVal = fixSafe
	flags.StringArrayVar(&f.objects, "object", nil, `with --fix=tombstones: the object to delete, as findings print it, "KIND NAMESPACE/NAME"; may be repeated`)
	flags.BoolVar(&f.diff, "diff", false, "with --fix: print what would be changed as a diff, and change nothing")
}

func (f *fixFlags) isOn() bool { return f.what != "" }

// check refuses flags that contradict each other, and sources that can't be changed.
func (f *fixFlags) check(ref string, format output) error {
	switch {
	case f.diff && !f.isOn():
		return misuse{errors.New("--diff is for --fix")}
	case len(f.objects) > 0 && f.what != fixTombstones:
		return misuse{errors.New("--object is for --fix=tombstones")}
	case f.diff && format != asText:
		return misuse{fmt.Errorf("--diff prints a diff and no findings: drop -o %s", format)}
	case f.isOn() && folderOf(ref) == "":
		return misuse{fmt.Errorf("--fix changes files, and %s is no folder of manifests: unpack it into one first", printable.Line(ref))}
	}
	return nil
}

// A fixRun fixes the files of a release's folder.
type fixRun struct {
	flags   *lintFlags
	ref     string
	now     lintRun // what is known of the folder as it is
	streams Streams
	absent  []plan.ObjectPlan // see missingOf
}

// nameOf is what a file of the payload is called in the folder; "" if it is not there.
func (m *fixRun) nameOf(file string) string {
	if placed := m.now.paths.placed; placed != nil {
		file, _ = placed.Own(file)
	}
	return file
}

// run changes the folder, or prints what it would change.
func (m *fixRun) run(ctx context.Context) (err error) {
	folder, err := fix.OpenFolder(m.ref)
	if err != nil {
		return misuse{err}
	}
	defer func() { err = cmp.Or(err, folder.Close()) }()
	patch := fix.New(folder.FS())
	if m.flags.fix.what == fixTombstones {
		err = m.addTombstones(patch)
	} else {
		err = m.fix(ctx, patch)
	}
	if err != nil {
		return err
	}
	changes, left := folder.WithoutLinks(patch.Changes())
	for _, l := range slices.Concat(patch.Left(), left) {
		fmt.Fprintln(m.streams.Err, printable.Line("not fixed: "+m.where(l.Path, l.Line)+": "+l.Why))
	}
	if m.flags.fix.diff {
		return m.printDiff(changes)
	}
	made, err := folder.Write(ctx, changes)
	if err == nil || len(made) > 0 {
		m.printFixed(made)
	}
	if err != nil || len(made) == 0 {
		return err
	}
	m.now, err = m.lint(ctx, m.flags.release, m.now.input.Config)
	m.absent = nil // it may be less
	return err
}

// maxRounds is how often fixing may show something else to fix. Twice is what is known:
// a delete annotation is looked at when all annotations are texts.
const maxRounds = 10

// fix adds all safe fixes to a patch. Nothing is written yet: findings that a fix reveals are looked for in the
// files as they will be.
func (m *fixRun) fix(ctx context.Context, patch *fix.Patch) error {
	found := m.now
	for range maxRounds {
		if !patch.Fix(m.requests(found.result)) {
			return nil
		}
		fixed := m.flags.release
		fixed.instead = patch.FS()
		var err error
		if found, err = m.lint(ctx, fixed, onlyFixable(m.now.input.Config)); err != nil {
			return err
		}
	}
	return nil
}

// onlyFixable returns the configuration with those rules turned off whose findings can't be fixed.
func onlyFixable(config lint.Config) lint.Config {
	config.Severities = maps.Clone(config.Severities)
	for _, id := range ruleIDs() {
		if !slices.Contains(fix.Rules(), id) {
			config.Severities[id] = lint.Off
		}
	}
	return config
}

// requests are the findings that can be fixed.
func (m *fixRun) requests(result *lint.Result) []fix.Request {
	var requests []fix.Request
	for _, f := range result.Findings {
		if f.In == lint.InPayload && slices.Contains(fix.Rules(), f.Rule) {
			requests = append(requests, fix.Request{Rule: f.Rule, Path: f.File, Document: f.Document, Name: f.Instead})
		}
	}
	return requests
}

// lint lints the release once more.
func (m *fixRun) lint(ctx context.Context, release releaseFlags, config lint.Config) (lintRun, error) {
	again := m.now
	again.input.Config = config
	var err error
	if again.paths.placed != nil {
		flags := *m.flags
		flags.release = release
		again.paths.placed, err = flags.place(ctx, m.ref, io.Discard, &again.input)
		again.input.Previous = m.now.input.Previous
	} else {
		again.input.Payload, again.input.Problems, err = release.parse(ctx, m.ref, io.Discard)
	}
	if err != nil {
		return again, err
	}
	again.result, err = lint.Run(ctx, again.input)
	return again, err
}

// printDiff prints what would be changed.
func (m *fixRun) printDiff(changes []fix.FileChange) error {
	for _, c := range changes {
		if _, err := m.streams.Out.Write(c.Diff(filepath.ToSlash(m.ref))); err != nil {
			return err
		}
	}
	if len(changes) > 0 {
		return exitStatus(exitFailed)
	}
	return exitStatus(exitOK)
}

// printFixed prints the fixes that were made.
func (m *fixRun) printFixed(made []fix.FileChange) {
	count := 0
	for _, c := range made {
		for _, fixed := range c.Fixed {
			fmt.Fprintln(m.streams.Err, printable.Line("fixed "+m.where(c.NewPath, fixed.Line)+": "+fixed.What))
			count++
		}
	}
	if count == 0 {
		fmt.Fprintln(m.streams.Err, "nothing to fix")
		return
	}
	fmt.Fprintf(m.streams.Err, "fixed %s in %s\n", printable.Count(count, "place"), printable.Count(len(made), "file"))
}

// where is a place in the folder, as an editor opens it.
func (m *fixRun) where(file string, line int) string {
	where := filepath.ToSlash(filepath.Join(m.ref, file))
	if line > 0 {
		where += fmt.Sprintf(":%d", line)
	}
	return where
}
