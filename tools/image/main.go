// Command image makes a container image of the programs in cmd/, without a container engine: one
// layer with them and the system files that they need, for each platform.
//
// It writes an OCI image layout, which registries' clients and engines read; it pushes nothing. The
// same source gives the same bytes. "make image" calls it:
//
//	image -source FOLDER -o FOLDER linux/amd64 linux/arm64
//
// For a release, "make release" passes the programs that it has built, and the labels of the image.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is the user of the programs: not root, and as a number, so that Kubernetes can check runAsNonRoot.
const user = "65532:65532"

// createdLabel is the label with the time of the image.
const createdLabel = "org.opencontainers.image.created"

func main() {
	source := flag.String("source", ".", "the folder of the module whose programs are built")
	folder := flag.String("o", "", "the folder to write the image layout to")
	b := builder{labels: map[string]string{}}
	flag.StringVar(&b.programs, "programs", "",
		"the folder of programs that are built already, in OS-ARCH (default: build those of -source)")
	flag.Func("label", "a label of the image, as NAME=VALUE; may be repeated", func(text string) error {
		name, value, isPair := strings.Cut(text, "=")
		if b.labels[name] = value; !isPair {
			return errors.New("write NAME=VALUE")
		}
		return nil
	})
	flag.Parse()
	b.source = *source
	if err := b.write(*folder, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// A builder builds the image of the programs of a module.
type builder struct {
	source   string
	programs string // folder of built programs; "" to build them
	labels   map[string]string
}

// write writes the layout of the images of platforms.
func (b *builder) write(folder string, platforms []string) error {
	if folder == "" || len(platforms) == 0 {
		return errors.New("usage: image [-source FOLDER] -o FOLDER OS/ARCH...")
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, name := range platforms {
		platform, err := v1.ParsePlatform(name)
		if err != nil {
			return err
		}
		image, err := b.image(platform)
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
	if len(b.labels) > 0 {
		index = mutate.Annotations(index, b.labels).(v1.ImageIndex)
	}
	target, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	return target.AppendIndex(index)
}

func (b *builder) image(platform *v1.Platform) (v1.Image, error) {
	programs, err := b.build(platform)
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
	config.Config.Labels = b.labels
	if created, err := time.Parse(time.RFC3339, b.labels[createdLabel]); err == nil {
		config.Created = v1.Time{Time: created}
		config.History = []v1.History{{Created: config.Created, CreatedBy: "make release"}}
	}
	image, err = mutate.ConfigFile(image, config)
	if err != nil || len(b.labels) == 0 {
		return image, err
	}
	return mutate.Annotations(image, b.labels).(v1.Image), nil
}
