package release

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/cli/live"
	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/internal/oci/copy"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// copyFlags are the flags of push and pull.
type copyFlags struct {
	insecure bool
	format   core.Output
}

const copyHelp = `The image is copied byte for byte, for all of its platforms, and keeps its digest. What is there
already is skipped. Dropped connections are retried; after an interrupt, the same command continues where it was,
within a blob, too. Its signatures, SBOMs and other attachments are copied as well. The images of its components are
not: "runlevel release mirror" copies them.

Credentials are those of docker, podman and Kubernetes (config.json, auth.json, .dockerconfigjson), credential
helpers included; REGISTRY_AUTH_FILE names another file.`

// newPush returns the verb push.
func newPush(streams core.Streams) *cobra.Command {
	var f copyFlags
	command := &cobra.Command{
		Use:   "push SOURCE IMAGE",
		Short: "Copy a release from a layout, an archive or a registry to a registry",
		Long:  "Copy the image of a release from the folder or archive of an OCI layout to a registry.\n\n" + copyHelp,
		Example: `  runlevel release push ./release.tar registry.example/shop/release:1.4.0

  # One of several images of a layout
  runlevel release push ./layout:1.4.0 registry.example/shop/release:1.4.0

  # The digest of what was pushed
  runlevel release push ./release.tar registry.example/shop/release:1.4.0 -o json | jq -r .digest`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: core.CompleteSource,
		RunE: func(command *cobra.Command, args []string) error {
			target, err := oci.ParseRegistry(args[1], f.insecure)
			if err != nil {
				return core.Misusef("%s: %w", args[1], err)
			}
			return f.run(command.Context(), args[0], target, streams)
		},
	}
	f.addTo(command)
	return command
}

// newPull returns the verb pull.
func newPull(streams core.Streams) *cobra.Command {
	var f copyFlags
	command := &cobra.Command{
		Use:   "pull IMAGE DESTINATION",
		Short: "Copy a release from a registry to a layout or an archive",
		Long: `Copy the image of a release from a registry to disk: to an archive if the name of DESTINATION ends
with .tar, and to the folder of an OCI layout otherwise. The image is added to those that are there; DESTINATION:TAG
gives it another tag than it has in the registry. While an archive is written, its parts are in a folder
DESTINATION.partial, so it needs twice its space for a while.

` + copyHelp,
		Example: `  runlevel release pull registry.example/shop/release:1.4.0 ./release.tar
  runlevel release pull registry.example/shop/release:1.4.0 ./layout

  # What was pulled is a SOURCE of the other commands
  runlevel plan ./layout:1.3.2 ./layout:1.4.0`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: core.CompletePaths(2, cobra.ShellCompDirectiveDefault),
		RunE: func(command *cobra.Command, args []string) error {
			target, err := oci.ParseTarget(args[1], "", f.insecure)
			if err != nil {
				return core.Misusef("%s: %w", args[1], err)
			}
			if target.IsRegistry() {
				return core.Misusef("%s: an image of a registry: copy to it with \"runlevel release push\"", args[1])
			}
			return f.run(command.Context(), args[0], target, streams)
		},
	}
	f.addTo(command)
	return command
}

func (f *copyFlags) addTo(command *cobra.Command) {
	command.Flags().BoolVar(&f.insecure, "insecure", false, core.InsecureUsage)
	core.AddOutput(command, &f.format, core.Text, core.JSON)
}

// A CopyReport is the output of push and pull with -o json.
type CopyReport struct {
	From    string      `json:"from"`
	To      string      `json:"to"`
	Digest  string      `json:"digest"`
	Copied  copy.Amount `json:"copied"`
	Skipped copy.Amount `json:"skipped"` // what was there before
}

func (f *copyFlags) run(ctx context.Context, ref string, target oci.Location, streams core.Streams) (err error) {
	options := oci.Options{Insecure: f.insecure}
	from, described, err := openImage(ctx, ref, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	switch {
	case target.Identifier == "" && !isDigest(from.Identifier):
		target.Identifier = from.Identifier
	case isDigest(target.Identifier) && target.Identifier != described.Digest.String():
		return core.Misusef("%s: the image of %s has digest %s", target, ref, described.Digest)
	}
	written, err := oci.Create(ctx, target, options)
	if err != nil {
		return fmt.Errorf("%s: %w", target, printable.Error(err))
	}
	defer func() { err = errors.Join(err, written.Close()) }()
	fmt.Fprintf(streams.Err, "copying %s to %s\n", ref, target)
	progress := &copyProgress{area: core.AreaOn(streams.Err, f.format), begin: time.Now()}
	copyOptions := copy.Options{Referrers: true, Progress: progress.show}
	if !isDigest(target.Identifier) {
		copyOptions.Tag = target.Identifier
	}
	result, err := copy.Copy(ctx, from.Store, described, written, copyOptions)
	if err == nil {
		err = written.Commit(ctx)
	}
	progress.stop()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%w: run the command again to continue the copy", context.Cause(ctx))
	case err != nil:
		return fmt.Errorf("%s to %s: %w", ref, target, printable.Error(err))
	}
	report := CopyReport{ref, target.String(), described.Digest.String(), result.Copied, result.Skipped}
	return f.format.Print(streams.Out, report, report.print)
}

// An openedImage is a store with one image.
type openedImage struct {
	oci.Store
	oci.Location
}

// openImage opens the store with an image, and finds the image.
func openImage(ctx context.Context, ref string, options oci.Options) (opened openedImage, _ v1.Descriptor, _ error) {
	location, err := oci.Parse(ref, options.Insecure)
	if err != nil {
		return opened, v1.Descriptor{}, core.Misusef("%s: %w", ref, err)
	}
	store, err := oci.Open(ctx, location, options)
	if err != nil {
		return opened, v1.Descriptor{}, core.ReadError(ctx, fmt.Errorf("%s: %w", ref, printable.Error(err)))
	}
	described, err := store.Resolve(ctx, location.Identifier)
	if err != nil {
		err = core.ReadError(ctx, fmt.Errorf("%s: %w", ref, printable.Error(err)))
		return opened, v1.Descriptor{}, errors.Join(err, store.Close())
	}
	return openedImage{store, location}, described, nil
}

// isDigest reports whether an identifier is a digest and not a tag.
func isDigest(identifier string) bool { return strings.Contains(identifier, ":") }

func (c CopyReport) print(out io.Writer) error {
	text := fmt.Sprintf("copied %s", inMegabytes(c.Copied.Bytes))
	if c.Skipped.Bytes > 0 {
		text += fmt.Sprintf("; %s were there before", inMegabytes(c.Skipped.Bytes))
	}
	_, err := fmt.Fprintf(out, "%s\ndigest %s\n", text, c.Digest)
	return err
}

// A copyProgress shows the progress of a copy on a terminal.
type copyProgress struct {
	area         *live.Area // nil without a terminal
	begin, drawn time.Time
}

// drawInterval is the least time between two drawings.
const drawInterval = 100 * time.Millisecond

func (c *copyProgress) show(done, total int64) {
	if c.area == nil || time.Since(c.drawn) < drawInterval {
		return
	}
	c.drawn = time.Now()
	text := fmt.Sprintf("%s of %s", inMegabytes(done), inMegabytes(total))
	if seconds := time.Since(c.begin).Seconds(); seconds >= 1 {
		text += fmt.Sprintf(", %s/s", inMegabytes(int64(float64(done)/seconds)))
	}
	_ = c.area.Draw(func(int, int) []string { return []string{text} }) // a closed terminal ends no copy
}

func (c *copyProgress) stop() {
	if c.area != nil {
		_ = c.area.Draw(func(int, int) []string { return nil })
	}
}
