package updates

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/release/loader"
	"github.com/runlevel/runlevel/internal/source"
	"github.com/runlevel/runlevel/internal/updates/graphdata"
	"github.com/runlevel/runlevel/pkg/payload"
)

const addHelp = `Add releases to a folder: for each, write releases/VERSION.yaml with its image by digest, and the
versions that may be updated to it, from its release-metadata. The files may be edited. To offer a
release to clusters, add its version to a channel.

A SOURCE is an image in a registry, or an archive, layout or folder, whose image is named by --image.
No signature is verified, since each operator verifies them by its own keys: see
"runlevel release verify".

Exit codes: 0; 1 if a file can't be written, or has another image of the version; 2 if a release
can't be read.

` + folderHelp

// architectureKey is the metadata with the architecture of a release.
const architectureKey = "release.openshift.io/architecture"

// addFlags are the flags of runlevel updates add.
type addFlags struct {
	source       source.Options
	image        string
	architecture string
}

// newAdd returns the verb add.
func newAdd(streams core.Streams) *cobra.Command {
	var f addFlags
	command := &cobra.Command{
		Use:   "add DIR SOURCE...",
		Short: "Add releases to the folder of an update service",
		Long:  addHelp,
		Example: `  runlevel updates add ./graph-data registry.example/shop:1.4.0 registry.example/shop:1.4.1

  # A release before it is pushed
  runlevel updates add ./graph-data ./shop.tar --image registry.example/shop`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(command *cobra.Command, args []string) error {
			if f.image != "" && len(args) > 2 {
				return core.Misusef("--image is the image of one release: add the others separately")
			}
			f.source.Progress = streams.Err
			for _, ref := range args[1:] {
				release, err := f.read(command.Context(), ref)
				if err != nil {
					return core.ReadError(command.Context(), fmt.Errorf("%s: %w", ref, err))
				}
				file, err := write(args[0], release)
				if err != nil {
					return err
				}
				fmt.Fprintf(streams.Out, "%s: %s, from %s\n", file, release.Image,
					core.Join(release.Previous))
			}
			return nil
		},
	}
	core.AddImageFlags(command, &f.source)
	flags := command.Flags()
	flags.StringVar(&f.image, "image", "", "the `image` from which clusters pull the release, if SOURCE is not one")
	flags.StringVar(&f.architecture, "architecture", "",
		"the `architecture` of clusters that get the release, as in amd64 or multi (default: of its metadata, or all)")
	return command
}

// read reads a release.
func (f *addFlags) read(ctx context.Context, ref string) (release graphdata.Release, err error) {
	opened, err := source.Open(ctx, ref, f.source)
	if err != nil {
		return release, err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	loaded, problems, err := loader.ParseOpened(ctx, opened, loader.Options{Source: f.source})
	if err == nil {
		err = payload.Refuse(problems)
	}
	if err != nil {
		return release, err
	}
	metadata := loaded.Metadata
	if metadata.Version == "" {
		return release, errors.New("it has no release-metadata with a version")
	}
	release = graphdata.Release{
		Version: metadata.Version, Architecture: f.architecture, Previous: metadata.Previous, Next: metadata.Next,
		Metadata: map[string]string{},
	}
	for key, value := range metadata.Metadata {
		switch text, isText := value.(string); {
		case !isText:
		case key == "url":
			release.URL = text
		case key == architectureKey && f.architecture == "":
			release.Architecture = text
		default:
			release.Metadata[key] = text
		}
	}
	release.Image, err = f.imageOf(opened)
	return release, err
}

// imageOf returns the image of a release by digest.
func (f *addFlags) imageOf(opened *source.Release) (string, error) {
	if f.image == "" && opened.Image == "" {
		return "", errors.New("pass --image with the image from which clusters pull it")
	}
	if f.image == "" {
		return opened.Image, nil
	}
	if _, err := name.NewDigest(f.image); err == nil {
		return f.image, nil
	}
	reference, err := name.ParseReference(f.image)
	switch {
	case err != nil:
		return "", fmt.Errorf("--image: %w", err)
	case opened.Digest == "":
		return "", errors.New("--image needs a digest: this release is not an image that has one")
	default:
		return reference.Context().Digest(opened.Digest).String(), nil
	}
}

// write writes the file of a release, and the version of the format if the folder is new.
func write(folder string, release graphdata.Release) (string, error) {
	text, err := yaml.Marshal(release)
	if err != nil {
		return "", err
	}
	file := release.Version
	if release.Architecture != "" {
		file += "-" + release.Architecture
	}
	if file != filepath.Base(file) { // it is a text of the release
		return "", fmt.Errorf("%q is not an architecture such as amd64", release.Architecture)
	}
	file = filepath.Join(folder, "releases", file+".yaml")
	if old, err := os.ReadFile(file); err == nil {
		var known graphdata.Release
		if err := yaml.Unmarshal(old, &known); err != nil || known.Image != release.Image {
			return "", fmt.Errorf("%s has another image: delete the file if clusters should get %s", file,
				release.Image)
		}
	}
	if _, err := os.Stat(filepath.Join(folder, "version")); err != nil {
		if _, err := writeFile(filepath.Join(folder, "version"), []byte("1.1.0\n")); err != nil {
			return "", err
		}
	}
	_, err = writeFile(file, text)
	return file, err
}
