package release

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/release/info"
	"github.com/runlevel/runlevel/internal/release/loader"
	"github.com/runlevel/runlevel/internal/review/plan"
	"github.com/runlevel/runlevel/internal/review/plan/show"
	"github.com/runlevel/runlevel/internal/review/refusals"
	"github.com/runlevel/runlevel/internal/source"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

const infoHelp = `Print the contents of a release: its version and the versions that may be updated to it,
when and for which platforms it was built, its components, images and levels, the objects that it
deletes, lifecycle hooks, tests, and what is attached to its image, such as signatures and SBOMs.

With two releases, the first one is the old one: the output has the images that differ, and the
plan of the update, as "runlevel plan" prints it.

With --size, the manifests of all images are read from their registries. Sizes are compressed, for
one platform, and a layer that several images have counts once.

Exit codes: 0; 1 if something could not be read, such as the size of an image, which is reported;
2 if the release can't be read, or can't be applied.

` + core.SourceHelp

// infoFlags are the flags of runlevel release info.
type infoFlags struct {
	release   core.ReleaseFlags
	cluster   core.ClusterFlags
	format    core.Output
	imageFor  string
	pullSpecs bool
	size      bool
}

// newInfo returns the verb info.
func newInfo(streams core.Streams) *cobra.Command {
	var f infoFlags
	command := &cobra.Command{
		Use:   "info SOURCE [SOURCE]",
		Short: "Print the contents of a release, or what an update changes",
		Long:  infoHelp,
		Example: `  runlevel release info registry.example/shop:1.4.0

  # What does the update change?
  runlevel release info registry.example/shop:1.3.2 registry.example/shop:1.4.0

  # How much does a node pull?
  runlevel release info registry.example/shop:1.4.0 --size

  # The image of a component, for a script
  podman run "$(runlevel release info registry.example/shop:1.4.0 --image-for web)"

  # Which images have no digest?
  runlevel release info ./release -o json | jq -r '.images[].image | select(contains("@") | not)'`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: core.CompletePaths(2, cobra.ShellCompDirectiveDefault),
		RunE: func(command *cobra.Command, args []string) error {
			switch {
			case f.imageFor != "" && (f.format != core.Text || f.size || len(args) == 2):
				return core.Misusef("--image-for prints an image of one release: leave out -o, --size and others")
			case len(args) == 2 && f.size:
				return core.Misusef("--size needs one release, not two")
			case len(args) == 2:
				return f.compare(command.Context(), args[0], args[1], streams)
			}
			return f.run(command.Context(), args[0], streams)
		},
	}
	core.AddReleaseFlags(command, &f.release, &f.cluster)
	core.AddClusterFlags(command, &f.cluster)
	core.AddOutput(command, &f.format)
	flags := command.Flags()
	flags.StringVar(&f.imageFor, "image-for", "", "print only the image of this `name` in image-references")
	flags.BoolVar(&f.pullSpecs, "pullspecs", false, "print whole pull specs of images, not shortened digests (in text)")
	flags.BoolVar(&f.size, "size", false, "read the sizes of the images from their registries")
	return command
}

// A readRelease is a release with its description, and its problems.
type readRelease struct {
	*info.Info
	ref      string
	options  source.Options
	payload  *payload.Payload
	problems []payload.Problem
}

// refuse returns an error if the release can't be applied.
func (r *readRelease) refuse() error {
	if err := payload.Refuse(r.problems); err != nil {
		return core.ProblemsError(r.ref, err)
	}
	return nil
}

// read reads a release, and its image if it has one.
func (f *infoFlags) read(ctx context.Context, ref string, progress io.Writer) (_ *readRelease, err error) {
	options, err := f.release.Options(progress)
	if err != nil {
		return nil, err
	}
	opened, err := source.Open(ctx, ref, options.Source)
	if err != nil {
		return nil, core.ReadError(ctx, err)
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	loaded, problems, err := loader.ParseOpened(ctx, opened, options)
	if err != nil {
		return nil, core.ReadError(ctx, loader.Named(ref, err))
	}
	release := &readRelease{info.Describe(opened, loaded), ref, options.Source, loaded, problems}
	if f.imageFor != "" { // the files have it
		return release, nil
	}
	if err := release.AddImage(ctx, opened.Location, options.Source); err != nil {
		return nil, core.ReadError(ctx, fmt.Errorf("%s: %w", ref, printable.Error(err)))
	}
	core.Warn(progress, release.Unreadable)
	return release, nil
}

func (f *infoFlags) run(ctx context.Context, ref string, streams core.Streams) error {
	release, err := f.read(ctx, ref, streams.Err)
	if err != nil {
		return err
	}
	if f.imageFor != "" {
		return printImage(streams.Out, release.Images, f.imageFor)
	}
	if f.size {
		known := len(release.Unreadable)
		if err := release.AddSizes(ctx, release.options); err != nil {
			return err
		}
		core.Warn(streams.Err, release.Unreadable[known:])
	}
	err = f.format.PrintWhole(streams.Out, release.Info, infoText{release.Info, f.pullSpecs}.print)
	// variants of an object for different clusters are no problem of a description
	isVariant := func(p payload.Problem) bool { return p.Cause == payload.Duplicate }
	release.problems = slices.DeleteFunc(release.problems, isVariant)
	return cmp.Or(err, release.refuse(), core.FailIf(len(release.Unreadable) > 0))
}

// printImage prints the pull spec of an image.
func printImage(out io.Writer, images []info.Image, name string) error {
	place := slices.IndexFunc(images, func(image info.Image) bool { return image.Name == name })
	if place < 0 {
		return fmt.Errorf("the release has no image %q: \"-o json\" lists all", name)
	}
	_, err := fmt.Fprintln(out, images[place].Image)
	return err
}

// Changes are the differences between two releases.
type Changes struct {
	From *info.Info `json:"from"`
	To   *info.Info `json:"to"`
	// Listed is true if the metadata of one of the releases lists the update.
	Listed bool               `json:"listed"`
	Images []info.ImageChange `json:"images"`
	Plan   *plan.Plan         `json:"plan"`
}

// compare prints the differences between two releases.
func (f *infoFlags) compare(ctx context.Context, oldRef, newRef string, streams core.Streams) error {
	old, err := f.read(ctx, oldRef, streams.Err)
	if err != nil {
		return fmt.Errorf("the old release: %w", err)
	}
	if f.release.Capabilities != "" { // capabilities stay enabled, as in an update
		f.release.Before = old.payload
	}
	next, err := f.read(ctx, newRef, streams.Err)
	if err != nil {
		return fmt.Errorf("the new release: %w", err)
	}
	if err := errors.Join(old.refuse(), next.refuse()); err != nil {
		return err
	}
	changes := &Changes{
		From: old.Info, To: next.Info,
		Listed: slices.Contains(next.Previous, old.Version) || slices.Contains(old.Next, next.Version),
		Images: info.CompareImages(old.Images, next.Images),
		Plan: plan.Compare(old.payload, next.payload,
			refusals.Find(ctx, next.payload.Manifests, next.problems)),
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := f.format.PrintWhole(streams.Out, changes, func(out io.Writer) error {
		view := show.Printer{Plan: changes.Plan, From: oldRef, To: newRef}
		return cmp.Or(printChanges(out, changes, f.pullSpecs), view.Text(out))
	}); err != nil {
		return err
	}
	return core.FailIf(len(old.Unreadable)+len(next.Unreadable) > 0)
}
