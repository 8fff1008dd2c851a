package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/release/component"
	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/internal/source"
	"github.com/runlevel/runlevel/pkg/payload"
)

// ComponentFlags are the flags for a SOURCE that has the manifests of one component only, and
// the release that they are for.
type ComponentFlags struct {
	names []string
	Into  string

	IsUpdate bool // capabilities of the old release stay enabled
}

// ComponentHelp is the help on the flags, the same for every verb that has them.
const ComponentHelp = `A component's own repository has only its own manifests. With --component NAME --into
RELEASE, SOURCE is the folder of these, and they take the place of what RELEASE (another
SOURCE) has in files called 0000_NN_NAME_…, and of files with the same names. As when
a release is built, files without a number become 0000_50_NAME_…, and what the
component's image-references names is replaced.`

// AddComponentFlags adds --component and --into.
func AddComponentFlags(command *cobra.Command, f *ComponentFlags) {
	flags := command.Flags()
	flags.StringSliceVar(&f.names, "component", nil, "the name of the component that SOURCE has the manifests of; more than one, if its files are called differently")
	flags.StringVar(&f.Into, "into", "", "the SOURCE of the release that the component's manifests are put into")
	_ = command.RegisterFlagCompletionFunc("into", CompleteFiles)
}

// Check returns an error if the flags contradict each other.
func (f *ComponentFlags) Check(release *ReleaseFlags) error {
	switch {
	case f.Into == "" && len(f.names) > 0:
		return Misusef("--component is for --into: name the release that its manifests go into")
	case f.Into != "" && len(f.names) == 0:
		return Misusef("--into needs --component: name the component as in its file names")
	case f.Into != "" && release.ImagesFrom != "":
		return Misusef("--images-from is not for --into, which takes the images of that release")
	case f.Into != "" && len(release.Images) > 0:
		return Misusef("--image is not for --into, which takes the images of that release")
	case f.Into == "":
		return nil
	}
	if err := component.CheckNames(f.names); err != nil {
		return Misusef("--component: %w", err)
	}
	return nil
}

// A PlacedComponent is a component whose manifests have been put into a release.
type PlacedComponent struct {
	*component.Build
	Released                      *payload.Payload // the release as it is; nil if not requested
	before, After                 *payload.Payload // the builds without and with the manifests of the component
	BeforeProblems, AfterProblems []payload.Problem
}

// Place puts the component at ref into its release. The release as it is is read with the
// flags in released, or not at all if they are nil.
func (f *ComponentFlags) Place(ctx context.Context, ref string, flags, released *ReleaseFlags, progress io.Writer) (_ *PlacedComponent, err error) {
	if _, err := flags.Options(progress); err != nil {
		return nil, err
	}
	own, err := flags.open(ctx, ref, progress)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, own.Close()) }()
	release, err := f.openRelease(ctx, flags, progress)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, release.Close()) }()
	build, err := component.Into(release.FS, own.FS, component.Options{Names: f.names, Version: flags.Version})
	if err != nil {
		return nil, Misusef("%s: %w", ref, err)
	}
	now, p := *flags, &PlacedComponent{Build: build}
	if released != nil {
		if p.Released, _, err = f.readWhole(ctx, released, release, progress); err != nil {
			return nil, err
		}
	}
	if f.IsUpdate && flags.Capabilities != "" {
		now.Before = cmp.Or(now.Before, p.Released)
	}
	if p.before, p.BeforeProblems, err = f.readWhole(ctx, &now, &source.Release{FS: build.Before, Image: release.Image}, progress); err != nil {
		return nil, err
	}
	if p.After, p.AfterProblems, err = now.read(ctx, &source.Release{FS: p.FS, Image: release.Image}, progress); err != nil {
		return nil, err
	}
	p.AfterProblems = append(p.AfterProblems, p.Problems...)
	note(progress, build.Notes(p.before, p.After))
	return p, nil
}

// note prints notes, which require no action.
func note(out io.Writer, notes []string) {
	for _, note := range notes {
		fmt.Fprintln(out, "note:", note)
	}
}

// openRelease opens the release of --into.
func (f *ComponentFlags) openRelease(ctx context.Context, flags *ReleaseFlags, progress io.Writer) (*source.Release, error) {
	release, err := flags.open(ctx, f.Into, progress)
	if err == nil || ctx.Err() != nil {
		return release, err
	}
	if _, onDisk := os.Stat(f.Into); onDisk == nil {
		return nil, err
	}
	return nil, fmt.Errorf("%w; where it can't be pulled, a copy on disk will do: an OCI layout, an archive or a folder", err)
}

// readWhole reads the release, and returns an error if it has problems as a whole.
func (f *ComponentFlags) readWhole(ctx context.Context, flags *ReleaseFlags, release *source.Release, progress io.Writer) (*payload.Payload, []payload.Problem, error) {
	read, problems, err := flags.read(ctx, release, progress)
	if err != nil {
		return nil, nil, err
	}
	if err := payload.Refuse(ofWhole(read, problems)); err != nil {
		return nil, nil, ProblemsError("--into "+f.Into, err)
	}
	return read, problems, nil
}

// ofWhole returns the problems of a release as a whole, without those in the files of one
// component.
func ofWhole(release *payload.Payload, problems []payload.Problem) []payload.Problem {
	if len(release.Manifests)+len(release.Excluded) == 0 {
		return problems
	}
	return slices.DeleteFunc(slices.Clone(problems), func(p payload.Problem) bool { return p.Cause != payload.Mislabelled })
}

// Change returns the change of the component for lint.
func (p *PlacedComponent) Change() *lint.ComponentChange {
	return &lint.ComponentChange{Before: p.before, Problems: p.BeforeProblems, Own: func(file string, in lint.Origin) (string, bool) {
		if in == lint.InPrevious {
			return p.Home(file), p.Had(file)
		}
		return p.Own(file)
	}}
}

// Label returns the name of a component in a release.
func (f *ComponentFlags) Label(ref string) string {
	return fmt.Sprintf("%s with %s of %s", f.Into, strings.Join(f.names, ","), ref)
}

// PathOf returns the path of a file of a release in the component's folder; the path of a
// file of another component is returned unchanged.
func (p *PlacedComponent) PathOf(folder, file string) string {
	if _, isOwn := p.Own(file); !isOwn && !p.Had(file) {
		return file
	}
	return filepath.ToSlash(filepath.Join(folder, p.Home(file)))
}
