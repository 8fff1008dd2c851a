package cli

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

// componentFlags are the flags for a SOURCE that has the manifests of one component only, and
// the release that they are for.
type componentFlags struct {
	names []string
	into  string

	isUpdate bool // capabilities of the old release stay enabled
}

// componentHelp is the help on the flags, the same for every verb that has them.
const componentHelp = `A component's own repository has only its own manifests. With --component NAME --into
RELEASE, SOURCE is the folder of these, and they take the place of what RELEASE (another
SOURCE) has in files called 0000_NN_NAME_…, and of files with the same names. As when
a release is built, files without a number become 0000_50_NAME_…, and what the
component's image-references names is replaced.`

func addComponentFlags(command *cobra.Command, f *componentFlags) {
	flags := command.Flags()
	flags.StringSliceVar(&f.names, "component", nil, "the name of the component that SOURCE has the manifests of; more than one, if its files are called differently")
	flags.StringVar(&f.into, "into", "", "the SOURCE of the release that the component's manifests are put into")
	_ = command.RegisterFlagCompletionFunc("into", completeFiles)
}

// check returns an error if the flags contradict each other.
func (f *componentFlags) check(release *releaseFlags) error {
	switch {
	case f.into == "" && len(f.names) > 0:
		return misusef("--component is for --into: name the release that its manifests go into")
	case f.into != "" && len(f.names) == 0:
		return misusef("--into needs --component: name the component as in its file names")
	case f.into != "" && release.imagesFrom != "":
		return misusef("--images-from is not for --into, which takes the images of that release")
	case f.into != "" && len(release.images) > 0:
		return misusef("--image is not for --into, which takes the images of that release")
	case f.into == "":
		return nil
	}
	if err := component.CheckNames(f.names); err != nil {
		return misusef("--component: %w", err)
	}
	return nil
}

// A placedComponent is a component whose manifests have been put into a release.
type placedComponent struct {
	*component.Build
	released                      *payload.Payload // the release as it is; nil if not requested
	before, after                 *payload.Payload // the builds without and with the manifests of the component
	beforeProblems, afterProblems []payload.Problem
}

// place puts the component at ref into its release. The release as it is is read with the
// flags in released, or not at all if they are nil.
func (f *componentFlags) place(ctx context.Context, ref string, flags, released *releaseFlags, progress io.Writer) (_ *placedComponent, err error) {
	if _, err := flags.options(progress); err != nil {
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
	build, err := component.Into(release.FS, own.FS, component.Options{Names: f.names, Version: flags.version})
	if err != nil {
		return nil, misusef("%s: %w", ref, err)
	}
	now, p := *flags, &placedComponent{Build: build}
	if released != nil {
		if p.released, _, err = f.readWhole(ctx, released, release, progress); err != nil {
			return nil, err
		}
	}
	if f.isUpdate && flags.capabilities != "" {
		now.before = cmp.Or(now.before, p.released)
	}
	if p.before, p.beforeProblems, err = f.readWhole(ctx, &now, &source.Release{FS: build.Before, Image: release.Image}, progress); err != nil {
		return nil, err
	}
	if p.after, p.afterProblems, err = now.read(ctx, &source.Release{FS: p.FS, Image: release.Image}, progress); err != nil {
		return nil, err
	}
	p.afterProblems = append(p.afterProblems, p.Problems...)
	note(progress, build.Notes(p.before, p.after))
	return p, nil
}

// note prints notes, which require no action.
func note(out io.Writer, notes []string) {
	for _, note := range notes {
		fmt.Fprintln(out, "note:", note)
	}
}

// openRelease opens the release of --into.
func (f *componentFlags) openRelease(ctx context.Context, flags *releaseFlags, progress io.Writer) (*source.Release, error) {
	release, err := flags.open(ctx, f.into, progress)
	if err == nil || ctx.Err() != nil {
		return release, err
	}
	if _, onDisk := os.Stat(f.into); onDisk == nil {
		return nil, err
	}
	return nil, fmt.Errorf("%w; where it can't be pulled, a copy on disk will do: an OCI layout, an archive or a folder", err)
}

// readWhole reads the release, and returns an error if it has problems as a whole.
func (f *componentFlags) readWhole(ctx context.Context, flags *releaseFlags, release *source.Release, progress io.Writer) (*payload.Payload, []payload.Problem, error) {
	read, problems, err := flags.read(ctx, release, progress)
	if err != nil {
		return nil, nil, err
	}
	if err := payload.Refuse(ofWhole(read, problems)); err != nil {
		return nil, nil, refused("--into "+f.into, err)
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

// change returns the change of the component for lint.
func (p *placedComponent) change() *lint.ComponentChange {
	return &lint.ComponentChange{Before: p.before, Problems: p.beforeProblems, Own: func(file string, in lint.Origin) (string, bool) {
		if in == lint.InPrevious {
			return p.Home(file), p.Had(file)
		}
		return p.Own(file)
	}}
}

// label returns the name of a component in a release.
func (f *componentFlags) label(ref string) string {
	return fmt.Sprintf("%s with %s of %s", f.into, strings.Join(f.names, ","), ref)
}

// pathOf returns the path of a file of a release in the component's folder; the path of a
// file of another component is returned unchanged.
func (p *placedComponent) pathOf(folder, file string) string {
	if _, isOwn := p.Own(file); !isOwn && !p.Had(file) {
		return file
	}
	return filepath.ToSlash(filepath.Join(folder, p.Home(file)))
}
