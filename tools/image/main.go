// Command image makes a container image of the programs in cmd/, without a container engine: one
// layer with them and the system files that they need, for each platform.
//
// It writes an OCI image layout, which registries' clients and engines read; it pushes nothing. The
// same source gives the same bytes. "make image" calls it:
//
//	image -source FOLDER -o FOLDER linux/amd64 linux/arm64
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is the user of the programs: not root, and as a number, so that Kubernetes can check runAsNonRoot.
const user = "65532:65532"

func main() {
	source := flag.String("source", ".", "the folder of the module whose programs are built")
	folder := flag.String("o", "", "the folder to write the image layout to")
	flag.Parse()
	if err := write(*source, *folder, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// write builds the programs for each platform, and writes the layout of their images.
func write(source, folder string, platforms []string) error {
	if folder == "" || len(platforms) == 0 {
		return errors.New("usage: image [-source FOLDER] -o FOLDER OS/ARCH...")
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, name := range platforms {
		platform, err := v1.ParsePlatform(name)
		if err != nil {
			return err
		}
		image, err := newImage(source, platform)
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

func newImage(source string, platform *v1.Platform) (v1.Image, error) {
	programs, err := build(source, platform)
	if err != nil {
		return nil, err
	}
	around, err := system()
	if err != nil {
		return nil, err
	}
	layer, err := newLayer(append(around, programs...))
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
	config.Config.Entrypoint = []string{"/runlevel"}
	config.Config.Env = []string{"PATH=/"}
	config.Config.User = user
	return mutate.ConfigFile(image, config)
}
