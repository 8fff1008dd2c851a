package realnode

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// CheckImage returns an error if the nodes can't import an image.
func CheckImage(image string) error {
	path, name, _ := strings.Cut(image, "=")
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	if info.IsDir() && !isLayout(path) && name == "" {
		return fmt.Errorf("image %s: a folder of files needs a name: write %s=registry.example/NAME:TAG", path, path)
	}
	return nil
}

// isLayout reports whether a folder is an OCI image layout.
func isLayout(folder string) bool {
	_, err := os.Stat(filepath.Join(folder, "oci-layout"))
	return err == nil
}
