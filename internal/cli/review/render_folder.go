package review

import (
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/runlevel/runlevel/internal/cli/core"
)

// writeRendered writes each manifest to a file in a new folder. The names of the files depend on the number of
// documents in each file of the release.
func writeRendered(folder string, manifests []renderedManifest, documents map[string]int, progress io.Writer) error {
	bodies, err := texts(manifests)
	if err != nil {
		return err
	}
	for i, m := range manifests {
		bodies[i] = append([]byte(m.comment()), bodies[i]...)
	}
	return writeFolder(folder, fileNames(manifests, documents), bodies, progress)
}

// writeFolder writes manifests to files in a new folder.
func writeFolder(folder string, names []string, texts [][]byte, progress io.Writer) error {
	if err := core.WriteFolder("output-dir", folder, names, texts, false); err != nil {
		return err
	}
	fmt.Fprintf(progress, "wrote %d manifests to %s\n", len(texts), filepath.Clean(folder))
	return nil
}

// fileNames returns a file name for each manifest. A file with one manifest keeps its
// name. Filters don't change names, so that filtered folders can be compared.
func fileNames(manifests []renderedManifest, documents map[string]int) []string {
	taken := map[string]bool{} // lower-case names, since some file systems ignore case
	names := make([]string, len(manifests))
	for i, m := range manifests {
		name := m.Path
		switch {
		case documents[m.Path] > 1:
			digits := len(strconv.Itoa(documents[m.Path]))
			name = fmt.Sprintf("%s.%0*d.yaml", m.Path, digits, m.Document)
		case filepath.Ext(m.Path) == ".json":
			name = m.Path + ".yaml"
		}
		for taken[strings.ToLower(name)] {
			name += ".yaml"
		}
		taken[strings.ToLower(name)] = true
		names[i] = name
	}
	return names
}
