package realnode

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// ImportImages imports images into the node's container runtime, the image of pause containers among them. Each is an
// archive or an OCI image layout, as PATH or PATH=NAME: layouts often have no name for their image.
func (n KubeletNode) ImportImages(ctx context.Context, programs Programs, images []string) error {
	pause := n.path("pause.tar")
	if err := writePauseImage(pause); err != nil {
		return err
	}
	for _, image := range append([]string{pause}, images...) {
		if err := n.importImage(ctx, programs, image); err != nil {
			return fmt.Errorf("import image %s: %w", image, err)
		}
	}
	return nil
}

func (n KubeletNode) importImage(ctx context.Context, programs Programs, image string) error {
	path, name, isNamed := strings.Cut(image, "=")
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() {
		archive := n.path("layout.tar")
		defer os.Remove(archive)
		if err := pack(path, archive); err != nil {
			return err
		}
		path = archive
	}
	args := []string{"--address", n.Socket(), "--namespace", "k8s.io", "images", "import", "--snapshotter", n.snapshotter()}
	if isNamed {
		args = append(args, "--index-name", name)
	}
	return run(exec.CommandContext(ctx, programs.Ctr, append(args, path)...))
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
