// Command image makes a container image of the runlevel command, without a
// container engine: one layer with the program, for each platform it is given.
//
// It writes an OCI image layout, which registries' clients and engines read; it
// pushes nothing. The same programs give the same bytes. "make image" calls it:
//
//	image -o FOLDER linux/amd64=PROGRAM linux/arm64=PROGRAM
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// inImage is where the program is in the image.
const inImage = "runlevel"

// nobody is the user it runs as: any that is not root.
const nobody = "65532:65532"

func main() {
	folder := flag.String("o", "", "the folder to write the image layout to")
	flag.Parse()
	if err := write(*folder, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func write(folder string, platforms []string) error {
	if folder == "" || len(platforms) == 0 {
		return errors.New("usage: image -o FOLDER OS/ARCH=PROGRAM...")
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, argument := range platforms {
		name, program, ok := strings.Cut(argument, "=")
		if !ok {
			return fmt.Errorf("%q: use OS/ARCH=PROGRAM", argument)
		}
		platform, err := v1.ParsePlatform(name)
		if err != nil {
			return err
		}
		image, err := newImage(program, platform)
		if err != nil {
			return fmt.Errorf("image for %s: %w", name, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: platform},
		})
	}
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	target, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	return target.AppendIndex(index)
}

func newImage(program string, platform *v1.Platform) (v1.Image, error) {
	layer, err := newLayer(program)
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.AppendLayers(image, layer)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Variant = platform.OS, platform.Architecture, platform.Variant
	config.Config.Entrypoint = []string{"/" + inImage}
	config.Config.User = nobody
	return mutate.ConfigFile(image, config)
}

// newLayer packs one program, with no time in it.
func newLayer(program string) (v1.Layer, error) {
	content, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	writer := tar.NewWriter(&archive)
	header := &tar.Header{Name: inImage, Mode: 0o755, Size: int64(len(content)), Typeflag: tar.TypeReg}
	if err := writer.WriteHeader(header); err != nil {
		return nil, err
	}
	if _, err := writer.Write(content); err != nil {
		return nil, err
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
}
