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
func writeFolder(folder string, manifests []rendered, progress io.Writer) (err error) {
	if folder, err = freeFolder(folder); err != nil {
		return err
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
	names := fileNames(manifests)
	for i, m := range manifests {
		if err := writeNew(filepath.Join(unfinished, filepath.FromSlash(names[i])), m.comment(), bodies[i]); err != nil {
			return err
		}
	}
	if err := os.Chmod(unfinished, 0o755); err != nil {
		return err
	}
	if err := os.Remove(folder); err != nil && !errors.Is(err, fs.ErrNotExist) { // it is empty
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

// freeFolder finds out where the new folder is to be: at a place where there is
// nothing, or an empty folder that nobody is in.
func freeFolder(folder string) (string, error) {
	path, err := filepath.Abs(folder)
	if err != nil {
		return "", fmt.Errorf("--output-dir: %w", err)
	}
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return filepath.Clean(folder), nil
	}
	if err != nil {
		return "", misuse{fmt.Errorf("--output-dir: %w", err)}
	}
	link, err := os.Lstat(path)
	here, _ := os.Getwd()
	switch {
	case err != nil:
		return "", misuse{fmt.Errorf("--output-dir: %w", err)}
	case len(entries) > 0:
		return "", misuse{fmt.Errorf("--output-dir: %s is not empty: name a new folder", folder)}
	case path == here || link.Mode()&fs.ModeSymlink != 0:
		return "", misuse{fmt.Errorf("--output-dir: %s can't be replaced: name a new folder", folder)}
	default:
		return filepath.Clean(folder), nil
	}
}

// fileNames gives each manifest a file of its own. A file with one manifest keeps its
// name, and those of several sort where their file did: the folder has the same order.
func fileNames(manifests []rendered) []string {
	count := map[string]int{}
	for _, m := range manifests {
		count[m.Path] = max(count[m.Path], m.Document)
	}
	taken := map[string]bool{} // in lower case, as some file systems see it
	names := make([]string, len(manifests))
	for i, m := range manifests {
		name := m.Path
		switch {
		case count[m.Path] > 1:
			digits := len(strconv.Itoa(count[m.Path]))
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
