package release

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// tagFlags are the flags of runlevel release tag.
type tagFlags struct {
	insecure bool
	format   core.Output
}

// A TagReport is the output of runlevel release tag -o json.
type TagReport struct {
	Image  string   `json:"image"`
	Digest string   `json:"digest"`
	Tags   []string `json:"tags"`
}

// newTag returns the verb tag.
func newTag(streams core.Streams) *cobra.Command {
	var f tagFlags
	command := &cobra.Command{
		Use:   "tag IMAGE TAG...",
		Short: "Give a release more tags where it is",
		Long: `Give the image of a release more tags in its repository, or in its layout or archive on disk. A tag that
another image has is moved.`,
		Example: `  runlevel release tag registry.example/shop/release:1.4.0 1.4 stable
  runlevel release tag registry.example/shop/release@sha256:… 1.4.0
  runlevel release tag ./layout:1.4.0 stable`,
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: core.CompleteSource,
		RunE: func(command *cobra.Command, args []string) error {
			return f.run(command.Context(), args[0], args[1:], streams)
		},
	}
	command.Flags().BoolVar(&f.insecure, "insecure", false, core.InsecureUsage)
	core.AddOutput(command, &f.format, core.Text, core.JSON)
	return command
}

func (f *tagFlags) run(ctx context.Context, ref string, tags []string, streams core.Streams) (err error) {
	for _, tag := range tags {
		if err := oci.CheckTag(tag); err != nil {
			return core.Misusef("%w", err)
		}
	}
	options := oci.Options{Insecure: f.insecure}
	image, described, err := openImage(ctx, ref, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, image.Close()) }()
	raw, err := image.Manifest(ctx, described)
	if err != nil {
		return core.ReadError(ctx, fmt.Errorf("%s: %w", ref, printable.Error(err)))
	}
	target, err := oci.Create(ctx, image.Location, options)
	if err != nil {
		return fmt.Errorf("%s: %w", ref, printable.Error(err))
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	for _, tag := range tags {
		if err := target.PutManifest(ctx, described, raw, tag); err != nil {
			return fmt.Errorf("%s: tag %s: %w", ref, tag, printable.Error(err))
		}
	}
	if err := target.Commit(ctx); err != nil {
		return fmt.Errorf("%s: %w", ref, printable.Error(err))
	}
	report := TagReport{ref, described.Digest.String(), tags}
	return f.format.Print(streams.Out, report, func(out io.Writer) error {
		for _, tag := range tags {
			fmt.Fprintf(out, "%s is %s\n", tag, described.Digest)
		}
		return nil
	})
}
