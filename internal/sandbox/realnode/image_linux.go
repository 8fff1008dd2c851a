package realnode

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// importImages imports images into the node's container runtime, including the image of pause containers. Each is an
// archive, an OCI image layout, or a folder of the image's files, as PATH or PATH=NAME: layouts often have no name for
// their image, and folders never have one.
func (n node) importImages(ctx context.Context, programs Programs, images []string) error {
	pause := n.path("pause.tar")
	if err := writePauseImage(n.path("pause"), pause); err != nil {
		return err
	}
	for _, image := range append([]string{pause}, images...) {
		if err := n.importImage(ctx, programs, image); err != nil {
			return fmt.Errorf("import image %s: %w", image, err)
		}
	}
	return nil
}

func (n node) importImage(ctx context.Context, programs Programs, image string) error {
	path, imageName, isNamed := strings.Cut(image, "=")
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() {
		archive := n.path("image.tar")
		defer os.Remove(archive)
		if isLayout(path) {
			err = pack(path, archive)
		} else {
			err, isNamed = packFiles(path, imageName, archive, nil), false // the archive has the name
		}
		if err != nil {
			return err
		}
		path = archive
	}
	args := []string{"--address", n.socket(), "--namespace", "k8s.io", "images", "import", "--snapshotter",
		n.snapshotter()}
	if isNamed {
		args = append(args, "--index-name", imageName)
	}
	return run(exec.CommandContext(ctx, programs.Ctr, append(args, path)...))
}

// packFiles writes an image with the files of a folder as an archive.
func packFiles(folder, imageName, archive string, entrypoint []string) error {
	reference, err := name.ParseReference(imageName)
	if err != nil {
		return err
	}
	layer := archive + ".layer"
	defer os.Remove(layer)
	if err := pack(folder, layer); err != nil {
		return err
	}
	image, err := imageOf(layer, entrypoint)
	if err != nil {
		return err
	}
	return tarball.WriteToFile(archive, reference, image)
}

// imageOf returns an image for this machine with one layer.
func imageOf(layer string, entrypoint []string) (v1.Image, error) {
	files, err := tarball.LayerFromFile(layer)
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(empty.Image, files)
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Config = "linux", runtime.GOARCH, v1.Config{Entrypoint: entrypoint}
	return mutate.ConfigFile(image, file)
}

// pack writes a folder as an archive.
func pack(folder, file string) (err error) {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	archive := tar.NewWriter(out)
	if err := archive.AddFS(os.DirFS(folder)); err != nil {
		return err
	}
	return archive.Close()
}
