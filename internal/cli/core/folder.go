package core

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/runlevel/runlevel/pkg/payload"
)

// WriteFolder writes texts to files of a new folder, or of an empty one, that a flag names. The folder appears when it
// is complete, so that it never exists in part. No name leads out of the folder. Only this user can read private files.
func WriteFolder(flag, folder string, names []string, texts [][]byte, isPrivate bool) (err error) {
	folder = filepath.Clean(folder)
	if err := CheckFree(flag, folder); err != nil {
		return err
	}
	unfinished, err := unfinishedFolder(folder)
	if err != nil {
		return fmt.Errorf("write %s: %w", folder, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("write %s: %w", folder, err), os.RemoveAll(unfinished))
		}
	}()
	for i, name := range names {
		local, err := filepath.Localize(name)
		if err == nil {
			err = WriteNew(filepath.Join(unfinished, local), texts[i])
		}
		if err == nil && isPrivate {
			err = os.Chmod(filepath.Join(unfinished, local), 0o600)
		}
		if err != nil {
			return err
		}
	}
	if !isPrivate { // the new folder is
		if err := os.Chmod(unfinished, 0o755); err != nil {
			return err
		}
	}
	if err := os.Remove(folder); err != nil && !errors.Is(err, fs.ErrNotExist) { // an empty one
		return err
	}
	return os.Rename(unfinished, folder)
}

// WriteNew writes a new file. It returns an error if the file exists.
func WriteNew(path string, text []byte) error {
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

// CheckFree returns an error unless WriteFolder can write the folder of a flag.
func CheckFree(flag, folder string) error {
	folder = filepath.Clean(folder)
	err := checkFree(folder)
	if err == nil {
		var probe string
		if probe, err = unfinishedFolder(folder); err == nil {
			err = os.Remove(probe)
		}
	}
	if err != nil {
		return Misusef("--%s: %w", flag, err)
	}
	return nil
}

// unfinishedFolder makes a folder beside another one, which it becomes when it is complete.
func unfinishedFolder(folder string) (string, error) {
	return os.MkdirTemp(filepath.Dir(folder), "."+filepath.Base(folder)+"-")
}

// checkFree returns an error if the folder exists and is not empty, or if its parent does not exist.
func checkFree(folder string) error {
	switch info, err := os.Lstat(folder); {
	case err == nil && info.IsDir():
		entries, err := os.ReadDir(folder)
		if err == nil && len(entries) > 0 || folder == "." {
			err = fmt.Errorf("%s already exists: name a new folder", folder)
		}
		return err
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

// FolderOf returns the folder of a release, which is part of the paths of findings. It
// returns "" if the release is not a folder of manifests.
func FolderOf(ref string) string {
	info, err := os.Stat(ref)
	switch {
	case err != nil:
		return ""
	case info.Mode().IsRegular() && payload.IsManifest(ref):
		return filepath.Dir(ref)
	case !info.IsDir():
		return ""
	}
	if _, err := os.Stat(filepath.Join(ref, "oci-layout")); err == nil {
		return ""
	}
	return ref
}
