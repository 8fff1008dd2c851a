package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// writeFolder writes manifests to files of a new folder, one each. The folder gets
// its name when all of it is written, so that a half can't be taken for the whole.
func writeFolder(folder string, manifests []rendered, progress io.Writer) (err error) {
	if err := checkFree(folder); err != nil {
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
		path := filepath.Join(unfinished, filepath.FromSlash(names[i]))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, append([]byte(m.comment()), bodies[i]...), 0o644); err != nil {
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

// checkFree refuses a folder that has something in it.
func checkFree(folder string) error {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return misuse{fmt.Errorf("--output-dir: %w", err)}
	}
	if len(entries) > 0 {
		return misuse{fmt.Errorf("--output-dir: %s is not empty: name a new folder", folder)}
	}
	return nil
}

// fileNames gives each manifest a file. A file with one manifest keeps its name,
// and those of several sort where their file did: the folder has the same order.
func fileNames(manifests []rendered) []string {
	count := map[string]int{}
	for _, m := range manifests {
		count[m.Path]++
	}
	names := make([]string, len(manifests))
	for i, m := range manifests {
		switch {
		case count[m.Path] > 1:
			names[i] = fmt.Sprintf("%s.%03d.yaml", m.Path, m.Document)
		case filepath.Ext(m.Path) == ".json":
			names[i] = m.Path + ".yaml"
		default:
			names[i] = m.Path
		}
	}
	return names
}
