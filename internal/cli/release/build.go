package release

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	lintverb "github.com/runlevel/runlevel/internal/cli/lint"
	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/internal/release/build"
	"github.com/runlevel/runlevel/internal/release/signature"
	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/internal/source"
	"github.com/runlevel/runlevel/internal/text/printable"
)

const buildHelp = `Build the image of a release from the manifests of its components.

FILE describes the release. It is release.yaml, in the working directory or in FOLDER, unless it is named:

  name: shop
  version: 1.4.0
  previous: [1.3.2, 1.3.3]      # versions that may be updated to it
  channels: [stable-1.4]        # channels of an update service
  components:
  - name: web
    source: ./web/manifests     # a folder, an archive, or an image with manifests/
  images:                       # the images of the manifests, by their names in image-references
    web: registry.example/shop/web:1.4.0

Every image in the manifests gets the digest that its tag has now, and an image that can't be
resolved is an error. Manifests without a number get the names 0000_50_COMPONENT_FILE. The release
is linted before it is written, and errors refuse it; --rehearse also tries it on a temporary
control plane. A list of its content (SPDX) and its provenance (SLSA) are attached to the image.

The same input has the same digest on each machine. The time of the release is SOURCE_DATE_EPOCH, or
that of the newest input file: in a git checkout, set SOURCE_DATE_EPOCH=$(git log -1 --format=%ct).

Exit codes: 0 when the release was built, 1 when it was refused or could not be written, 2 for misuse.`

const buildExamples = `  # Build release.yaml, and push it with its version as the tag
  runlevel release build --to registry.example/shop/release

  # Check a pull request: build and lint, and write nothing
  runlevel release build ./shop

  # Into an archive or the folder of an OCI layout
  runlevel release build --to shop-1.4.0.tar
  runlevel release build --to ./layout

  # Put it on the operator's image, so that "runlevel install --release" needs no other image
  runlevel release build --base registry.example/runlevel:v0.1.0 --to registry.example/shop/release:1.4.0

  # Resolve images once, and build without a registry later
  runlevel release build --lock release.lock
  runlevel release build --from-lock release.lock --to ./layout`

// buildFlags are the flags of runlevel release build.
type buildFlags struct {
	to          string
	lock        string
	fromLock    string
	base        string
	platforms   []string
	isRehearsed bool
	insecure    bool
	format      core.Output
}

// A BuildReport describes a release that was built.
type BuildReport struct {
	Name       string    `json:"name"`
	Version    string    `json:"version"`
	Created    time.Time `json:"created"`
	Digest     string    `json:"digest"`
	Image      string    `json:"image,omitempty"` // where it was written
	Components int       `json:"components"`
	Manifests  int       `json:"manifests"`
	Images     int       `json:"images"`
	Bytes      int64     `json:"bytes"` // of the image, or of the largest one of several platforms
	SBOM       string    `json:"sbom"`  // digests of the documents
	Provenance string    `json:"provenance"`

	written oci.Location
}

// newBuild returns the verb build.
func newBuild(streams core.Streams) *cobra.Command {
	var f buildFlags
	command := &cobra.Command{
		Use:               "build [FILE|FOLDER]",
		Short:             "Build the image of a release",
		Long:              buildHelp,
		Example:           buildExamples,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: core.CompletePaths(1, cobra.ShellCompDirectiveDefault),
		RunE: func(command *cobra.Command, args []string) error {
			return f.run(command.Context(), append(args, ".")[0], streams)
		},
	}
	core.AddOutput(command, &f.format)
	flags := command.Flags()
	flags.StringVar(&f.to, "to", "",
		"where to write the release: an image in a registry, the folder of an OCI layout, or an archive "+
			"(FILE.tar); the default tag is the version")
	flags.StringVar(&f.lock, "lock", "", "write the images that were resolved to this file")
	flags.StringVar(&f.fromLock, "from-lock", "", "take the images from this file of --lock, instead of registries")
	flags.StringVar(&f.base, "base", "", "the image to put the release on, such as the operator's (default: none)")
	flags.StringSliceVar(&f.platforms, "platform", nil,
		"the platforms of the release, as in linux/arm64 (default: those of the base, or linux/amd64)")
	flags.BoolVar(&f.isRehearsed, "rehearse", false,
		"also try the release on a temporary control plane: see \"runlevel rehearse\"")
	flags.BoolVar(&f.insecure, "insecure", false, core.InsecureUsage)
	return command
}

// maxEpoch is the end of the year 9999: no format of the release has later times.
const maxEpoch = 253402300799

// options returns the options of the build.
func (f *buildFlags) options() (build.Options, error) {
	options := build.Options{Base: f.base, Insecure: f.insecure, Builder: core.ReadVersion().Version}
	for _, text := range f.platforms {
		platform, err := source.ParsePlatform(text)
		if err != nil {
			return options, core.Misusef("--platform: %w", err)
		}
		options.Platforms = append(options.Platforms, platform)
	}
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil || seconds < 0 || seconds > maxEpoch {
			return options, core.Misusef("SOURCE_DATE_EPOCH: %q is not a number of seconds since 1970", epoch)
		}
		options.Time = time.Unix(seconds, 0)
	}
	if f.fromLock != "" {
		lock, err := build.ReadLock(f.fromLock)
		if err != nil {
			return options, core.Misusef("--from-lock: %w", err)
		}
		options.Lock = lock
	}
	return options, nil
}

func (f *buildFlags) run(ctx context.Context, path string, streams core.Streams) (err error) {
	options, err := f.options()
	if err != nil {
		return err
	}
	config, err := build.ReadConfig(path)
	if err != nil {
		return core.Misuse(err)
	}
	release, err := build.Build(ctx, config, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release.Close()) }()
	for _, file := range release.Ignored {
		fmt.Fprintf(streams.Err, "not in the release, since it is not a manifest: %s\n", printable.Line(file))
	}
	input := lint.Input{Payload: release.Payload,
		Problems: append(release.Problems, signature.Problems(release.Payload)...)}
	if err := lintverb.Check(ctx, input, f.isRehearsed, release.SourceOf, streams.Err); err != nil {
		return err
	}
	if f.lock != "" {
		if err := release.Lock.Write(f.lock); err != nil {
			return err
		}
	}
	report := newBuildReport(release)
	if f.to != "" {
		written, err := release.Push(ctx, f.to, f.insecure)
		if err != nil {
			return err
		}
		report.Image, report.written = written.String(), written
	}
	return f.format.Print(streams.Out, report, report.text)
}

func newBuildReport(release *build.Release) BuildReport {
	return BuildReport{
		Name: release.Config.Name, Version: release.Config.Version, Created: release.Created,
		Digest: release.Root.Digest.String(), Components: len(release.Config.Components),
		Manifests: len(release.Payload.All()), Images: len(release.Payload.Images), Bytes: release.Size,
		SBOM:       release.Documents[0].Digest.String(),
		Provenance: release.Documents[1].Digest.String(),
	}
}

// text prints a report for people.
func (r BuildReport) text(out io.Writer) error {
	_, err := fmt.Fprintf(out, "built       %s %s: %s, %s, %s, %d bytes\ndigest      %s\n", r.Name, r.Version,
		printable.Count(r.Components, "component"), printable.Count(r.Manifests, "manifest"),
		printable.Count(r.Images, "image"), r.Bytes, r.Digest)
	place := cmp.Or(r.Image, "nowhere: set --to to write it")
	if r.written.Path != "" {
		place += fmt.Sprintf(" (tag %s of the layout %s)", r.written.Identifier, r.written.Path)
	}
	if err == nil {
		_, err = fmt.Fprintf(out, "written to  %s\n", place)
	}
	return err
}
