package release

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/release/mirror"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// mirrorFlags are the flags of runlevel release mirror.
type mirrorFlags struct {
	mirror.Options
	configDir string
	isDryRun  bool
	isList    bool
	format    core.Output
}

const mirrorHelp = `Copy a release with all images that it names: those of its image-references, and those of
the pods in its manifests, for all platforms. Signatures, attestations and SBOMs are copied
with each image: referrers, and the tags of cosign (.sig, .att, .sbom). OpenPGP signatures are
copied from the stores that the release names, and from those of --signature-store.

DESTINATION is a registry, which may be followed by a path, or a folder, such as ./carry. An image
registry.example/shop/web is copied to DESTINATION/shop/web. A folder is an OCI image layout of
all images; as SOURCE it is copied to a registry that can't reach the others.

The images and their sizes are printed first, with what the destination lacks. The missing
parts are copied, and verified afterwards; after an interrupt, the same command continues. The
release itself is copied last, when all of its images are complete.

After a copy to a registry, the settings with which clusters find the images are printed, or written
to the folder of --config-dir: mirror-sets.yaml (ImageDigestMirrorSet and ImageTagMirrorSet of
OpenShift), certs.d/ (containerd's hosts.toml), operator.yaml (the operator's settings, the same as
"runlevel install --image-mirror"), signatures.yaml (signatures in ConfigMaps) and signatures/ (the
same as the folder of a signature store).

Exit codes: 0 if the destination has everything, also after --dry-run, which copies nothing; 1 if an
image is missing or could not be copied or verified: the others are copied; 2 for misuse or a
release that can't be read.`

const mirrorExamples = `  # To another registry
  runlevel release mirror registry.example/shop/release:1.4.0 registry.internal:5000/mirror --config-dir ./config

  # To a folder, and from there into a registry without access to the first one
  runlevel release mirror registry.example/shop/release:1.4.0 ./carry
  runlevel release mirror ./carry registry.internal:5000 --config-dir ./config

  # What would be copied
  runlevel release mirror registry.example/shop/release:1.4.0 ./carry --dry-run

  # A list of the images for another tool
  runlevel release mirror registry.example/shop/release:1.4.0 --list -o hauler`

// newMirror returns the verb mirror.
func newMirror(streams core.Streams) *cobra.Command {
	var f mirrorFlags
	command := &cobra.Command{
		Use:               "mirror SOURCE DESTINATION",
		Short:             "Copy a release with all of its images and signatures",
		Long:              mirrorHelp,
		Example:           mirrorExamples,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: core.CompleteSource,
		RunE: func(command *cobra.Command, args []string) error {
			return f.run(command.Context(), args, streams)
		},
	}
	flags := command.Flags()
	flags.BoolVar(&f.Source.Insecure, "insecure", false, core.InsecureUsage)
	flags.Var(&f.Source.Mirrors, "image-mirror", core.MirrorUsage)
	flags.StringArrayVar(&f.SignatureStores, "signature-store", nil,
		"another store of OpenPGP signatures: a `URL`, a folder, or a YAML file; may be repeated")
	flags.StringVar(&f.configDir, "config-dir", "", "the `folder` to write settings for clusters to")
	flags.BoolVar(&f.isDryRun, "dry-run", false, "list the images and what the destination lacks, and copy nothing")
	flags.BoolVar(&f.isList, "list", false, "only print the names of the images; needs no DESTINATION")
	core.AddOutput(command, &f.format, core.Text, core.JSON, core.Output(mirror.Txt), core.Output(mirror.Hauler),
		core.Output(mirror.ImageSet))
	_ = command.MarkFlagDirname("config-dir")
	return command
}

func (f *mirrorFlags) run(ctx context.Context, args []string, streams core.Streams) error {
	isForList := f.format != core.Text && f.format != core.JSON
	switch {
	case f.isList && len(args) == 2:
		return core.Misusef("--list copies nothing: leave out DESTINATION")
	case f.isList && f.format == core.JSON:
		return core.Misusef("--list prints txt, hauler or imageset")
	case !f.isList && isForList:
		return core.Misusef("-o %s is for --list", f.format)
	case !f.isList && len(args) == 1:
		return core.Misusef("DESTINATION is missing: name a folder, or a registry such as registry.internal:5000")
	case f.isList:
		return f.list(ctx, args[0], streams)
	}
	return f.mirror(ctx, args[0], args[1], streams)
}

// list prints the names of the images.
func (f *mirrorFlags) list(ctx context.Context, ref string, streams core.Streams) error {
	releases, err := mirror.Read(ctx, ref, f.Source)
	if err != nil {
		return core.ReadError(ctx, err)
	}
	text, err := mirror.List(releases, mirror.ListFormat(f.format))
	if err == nil {
		_, err = streams.Out.Write(text)
	}
	return err
}

// mirror lists the images, and copies them.
func (f *mirrorFlags) mirror(ctx context.Context, ref, destination string, streams core.Streams) error {
	progress := &copyProgress{area: core.AreaOn(streams.Err, f.format), begin: time.Now()}
	f.Progress = progress.show
	m, err := mirror.New(ctx, ref, destination, f.Options)
	if err != nil {
		return core.ReadError(ctx, err)
	}
	defer m.Close()
	if m.IsFolder() && f.configDir != "" {
		return core.Misusef("--config-dir is for copies to a registry: %s is a folder", destination)
	}
	if err := m.Survey(ctx); err != nil {
		return err
	}
	if f.format == core.Text {
		printMirror(streams.Out, m)
	}
	var files []mirror.File
	if !f.isDryRun {
		err = m.Copy(ctx)
		progress.stop()
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: run the command again to continue the copy", context.Cause(ctx))
	}
	if err == nil && !f.isDryRun && m.Failed() == 0 {
		files, err = m.Settings(ctx)
	}
	if err == nil && f.configDir != "" {
		err = mirror.WriteFiles(f.configDir, files)
		files = nil
	}
	if err != nil {
		m.Error = err.Error()
	}
	err = errors.Join(err, f.format.Print(streams.Out, m, func(out io.Writer) error {
		f.printEnd(out, m)
		return printSettings(out, files)
	}))
	if err != nil {
		return err
	}
	return core.FailIf(m.Failed() > 0)
}

// printMirror prints the images with their sizes and the missing ones.
func printMirror(out io.Writer, m *mirror.Mirror) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "IMAGE\tSIZE\tMISSING\tATTACHED")
	for _, item := range m.Items {
		size, missing := inMegabytes(item.Bytes), inMegabytes(item.Missing)
		if item.Error != "" {
			size, missing = "?", "?"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\n", item.Image, size, missing, item.Attached)
	}
	table.Flush()
	fmt.Fprintf(out, "%s, %s; %s to copy\n", printable.Count(len(m.Items), "image"), inMegabytes(m.Bytes),
		inMegabytes(m.Missing))
	for _, note := range m.Notes {
		fmt.Fprintln(out, "note:", printable.Line(note))
	}
}

// printEnd prints the images that failed, and the result.
func (f *mirrorFlags) printEnd(out io.Writer, m *mirror.Mirror) {
	copied := 0
	for _, item := range m.Items {
		if item.Copied {
			copied++
		}
		if item.Error != "" {
			fmt.Fprintf(out, "failed      %s: %s\n", item.Image, printable.Line(item.Error))
		}
	}
	switch failed := m.Failed(); {
	case failed > 0:
		fmt.Fprintf(out, "%s of %d failed\n", printable.Count(failed, "image"), len(m.Items))
	case !f.isDryRun && m.Error == "":
		fmt.Fprintf(out, "the destination has all %s; %d copied and verified\n",
			printable.Count(len(m.Items), "image"), copied)
	}
}

// printSettings prints the settings for clusters, without the binary files of a signature store.
func printSettings(out io.Writer, files []mirror.File) error {
	for _, file := range files {
		if !strings.HasPrefix(file.Name, mirror.SignaturesFolder+"/") {
			fmt.Fprintf(out, "\n# %s\n%s", file.Name, file.Text)
		}
	}
	return nil
}
