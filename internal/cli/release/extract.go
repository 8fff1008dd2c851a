package release

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/source"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

const extractHelp = `Write the files of a release to a folder, byte for byte: release-manifests/ with
image-references and release-metadata, manifests/ and runlevel.yaml, as far as the release has
them. The folder is a SOURCE of the same release for all other commands; templates in manifests/
that have the image of the release in them need --release-image then.

The folder must be new or empty. It appears when it is complete.

With --file, one file is printed instead. The folder of the file can be left out.

Files are not filtered, and templates are not rendered: "runlevel render" prints what a
cluster gets.

` + core.SourceHelp

// maxNames limits the files in an error.
const maxNames = 20

// extractFlags are the flags of runlevel release extract.
type extractFlags struct {
	source  source.Options
	cluster core.ClusterFlags
	folder  string
	file    string
}

// newExtract returns the verb extract.
func newExtract(streams core.Streams) *cobra.Command {
	var f extractFlags
	command := &cobra.Command{
		Use:   "extract SOURCE",
		Short: "Write the files of a release to a folder, unchanged",
		Long:  extractHelp,
		Example: `  runlevel release extract registry.example/shop:1.4.0 --to ./shop-1.4.0

  # Compare the files of two releases
  runlevel release extract registry.example/shop:1.3.2 --to ./shop-1.3.2
  diff -r ./shop-1.3.2 ./shop-1.4.0

  # One file
  runlevel release extract registry.example/shop:1.4.0 --file image-references

  # The files that were applied as revision 3, from the cluster
  runlevel release extract shop@3 --to ./shop-3`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: core.CompleteSource,
		RunE: func(command *cobra.Command, args []string) error {
			return f.run(command.Context(), args[0], streams)
		},
	}
	core.AddImageFlags(command, &f.source)
	core.AddClusterFlags(command, &f.cluster)
	flags := command.Flags()
	flags.StringVar(&f.folder, "to", "", "the new or empty `folder` to write the files to")
	flags.StringVar(&f.file, "file", "", "print the file of this `name` instead, such as image-references")
	return command
}

func (f *extractFlags) run(ctx context.Context, ref string, streams core.Streams) (err error) {
	if (f.folder == "") == (f.file == "") {
		return core.Misusef("name the folder to write to with --to, or one file to print with --file")
	}
	f.source.Progress, f.source.Input, f.source.Versions = streams.Err, os.Stdin, &f.cluster
	release, err := source.Open(ctx, ref, f.source)
	if err != nil {
		return core.ReadError(ctx, err)
	}
	defer func() { err = errors.Join(err, release.Close()) }()
	names, texts, err := readFiles(release.FS, f.file)
	switch {
	case err != nil:
		return core.Misusef("%s: %w", ref, err)
	case f.file != "":
		_, err = streams.Out.Write(texts[0])
		return err
	}
	if err := core.WriteFolder("to", f.folder, names, texts, false); err != nil {
		return err
	}
	fmt.Fprintf(streams.Err, "wrote %s to %s\n", printable.Count(len(names), "file"), filepath.Clean(f.folder))
	return nil
}

// readFiles returns the files of a release, or the one that is wanted.
func readFiles(files fs.FS, wanted string) (names []string, texts [][]byte, err error) {
	if names, err = filesOf(files); err != nil {
		return nil, nil, err
	}
	if wanted != "" {
		place := slices.IndexFunc(names, func(name string) bool { return name == wanted || path.Base(name) == wanted })
		if place < 0 {
			return nil, nil, fmt.Errorf("no file %q: it has %s", wanted, printable.Line(printable.Few(names, maxNames)))
		}
		names = names[place : place+1]
	}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, nil, err
		}
		texts = append(texts, text)
	}
	return names, texts, nil
}

// filesOf returns the names of the files of a release: all of its two folders, or the manifests at the top, and the
// files beside them. An archive or a folder may have others.
func filesOf(files fs.FS) ([]string, error) {
	var names []string
	_, missing := fs.Stat(files, payload.ReleaseFolder)
	isFolder := func(name string) bool { return name == payload.ReleaseFolder || name == payload.TemplatesFolder }
	isBeside := func(name string) bool {
		return name == payload.MetadataFile || name == payload.ImagesFile || payload.IsManifest(name)
	}
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		isTop := path.Dir(name) == "."
		switch {
		case err != nil:
			return err
		case entry.IsDir() && isTop && name != "." && (missing != nil || !isFolder(name)):
			return fs.SkipDir
		case !entry.IsDir() && (!isTop || name == payload.SettingsFile || missing != nil && isBeside(name)):
			names = append(names, name)
		}
		return nil
	})
	if err == nil && len(names) == 0 {
		err = errors.New("it has no files of a release: neither " + payload.ReleaseFolder + "/ nor manifests")
	}
	return names, err
}
