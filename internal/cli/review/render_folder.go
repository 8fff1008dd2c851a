package review

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
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

// writeFolder writes texts to files in a new folder. The folder is renamed when it is complete, so that it never exists
// in part.
func writeFolder(folder string, names []string, texts [][]byte, progress io.Writer) (err error) {
	folder = filepath.Clean(folder)
	if err := checkFree(folder); err != nil {
		return core.Misusef("--output-dir: %w", err)
	}
	unfinished, err := os.MkdirTemp(filepath.Dir(folder), "."+filepath.Base(folder)+"-")
	if err != nil {
		return fmt.Errorf("write %s: %w", folder, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("write %s: %w", folder, err), os.RemoveAll(unfinished))
		}
	}()
	for i, name := range names {
		if err := writeNew(filepath.Join(unfinished, filepath.FromSlash(name)), texts[i]); err != nil {
			return err
		}
	}
	if err := os.Chmod(unfinished, 0o755); err != nil {
		return err
	}
	if err := os.Rename(unfinished, folder); err != nil {
		return err
	}
	fmt.Fprintf(progress, "wrote %d manifests to %s\n", len(texts), folder)
	return nil
}

// writeNew writes a new file. It returns an error if the file exists.
func writeNew(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Close())
}

// checkFree returns an error if the folder exists, or its parent does not.
func checkFree(folder string) error {
	switch _, err := os.Lstat(folder); {
	case err == nil:
		return fmt.Errorf("%s already exists: name a new folder", folder)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if above, err := os.Stat(filepath.Dir(folder)); err != nil || !above.IsDir() {
		return fmt.Errorf("folder %s does not exist: cannot create %s in it", filepath.Dir(folder),
			filepath.Base(folder))
	}
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
