package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// writeFolder writes manifests to files of a new folder, one each. The folder gets
// its name when all of it is written, so that a half can't be taken for the whole.
// For the names it must know how many documents each file of the release has.
func writeFolder(folder string, manifests []rendered, documents map[string]int, progress io.Writer) (err error) {
	folder = filepath.Clean(folder)
	if err := checkFree(folder); err != nil {
		return misuse{fmt.Errorf("--output-dir: %w", err)}
	}
	bodies, err := texts(manifests)
	if err != nil {
		return err
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
	names := fileNames(manifests, documents)
	for i, m := range manifests {
		if err := writeNew(filepath.Join(unfinished, filepath.FromSlash(names[i])), m.comment(), bodies[i]); err != nil {
			return err
		}
	}
	if err := os.Chmod(unfinished, 0o755); err != nil {
		return err
	}
	if err := os.Rename(unfinished, folder); err != nil {
		return err
	}
	fmt.Fprintf(progress, "wrote %d manifests to %s\n", len(manifests), folder)
	return nil
}

// writeNew writes a file that must not be there yet: one of two would be lost.
func writeNew(path, comment string, body []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(append([]byte(comment), body...))
	return errors.Join(err, file.Close())
}

// checkFree wants a new folder, in one that is there.
func checkFree(folder string) error {
	switch _, err := os.Lstat(folder); {
	case err == nil:
		return fmt.Errorf("%s is there already: name a new folder", folder)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if above, err := os.Stat(filepath.Dir(folder)); err != nil || !above.IsDir() {
		return fmt.Errorf("there is no folder %s to make %s in", filepath.Dir(folder), filepath.Base(folder))
	}
	return nil
}

// fileNames gives each manifest a file of its own. A file with one manifest keeps its
// name. Filters don't change names, so that what they leave can be compared.
func fileNames(manifests []rendered, documents map[string]int) []string {
	taken := map[string]bool{} // in lower case, as some file systems see it
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
