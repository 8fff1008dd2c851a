package fix

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// A Folder is one whose files are changed.
type Folder struct {
	root *os.Root
	name string // as it was given
}

// OpenFolder opens a folder. Nothing outside of it is ever read or written.
func OpenFolder(name string) (*Folder, error) {
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	return &Folder{root: root, name: filepath.ToSlash(name)}, nil
}

// Close closes the folder.
func (f *Folder) Close() error { return f.root.Close() }

// FS is what the folder holds.
func (f *Folder) FS() fs.FS { return f.root.FS() }

// WithoutLinks separates the changes of links from the others: what a link leads to is for a person to change.
func (f *Folder) WithoutLinks(changes []FileChange) (ready []FileChange, links []Unfixed) {
	for _, c := range changes {
		info, err := f.root.Lstat(c.Path)
		switch {
		case c.Path != "" && err != nil:
			links = append(links, Unfixed{Path: c.Path, Why: plain(err)})
		case c.Path != "" && info.Mode()&fs.ModeSymlink != 0:
			links = append(links, Unfixed{Path: c.Path, Why: "it is a link: fix the file that it leads to"})
		default:
			ready = append(ready, c)
		}
	}
	return ready, links
}

// plain is an error without the paths in it.
func plain(err error) string {
	var wrong *fs.PathError
	var wrongLink *os.LinkError
	switch {
	case errors.As(err, &wrong):
		return wrong.Err.Error()
	case errors.As(err, &wrongLink):
		return wrongLink.Err.Error()
	default:
		return err.Error()
	}
}

// Write makes changes that WithoutLinks has let through, and returns those that it has made:
// all of them, or some and why not the others. Each file has its old content or its new
// one at all times. Nothing is changed if it can be known that something can't be.
func (f *Folder) Write(ctx context.Context, changes []FileChange) (made []FileChange, err error) {
	unfinished := make([]string, len(changes)) // the new files beside the old ones
	defer func() {
		for _, name := range unfinished {
			if name != "" {
				err = errors.Join(err, f.root.Remove(name))
			}
		}
	}()
	for i, c := range changes {
		if err := cmp.Or(ctx.Err(), f.check(c)); err != nil {
			return nil, err
		}
		if unfinished[i], err = f.prepare(i, c); err != nil {
			return nil, fmt.Errorf("%s can't be written: %s; nothing is changed", f.shown(c), plain(err))
		}
	}
	for i, c := range changes {
		if err := cmp.Or(ctx.Err(), f.check(c)); err != nil {
			return made, err
		}
		if err := f.finish(unfinished[i], c); err != nil {
			return made, fmt.Errorf("%s can't be written: %s", f.shown(c), plain(err))
		}
		if !bytes.Equal(c.Before, c.After) {
			unfinished[i] = "" // it has become the file
		}
		made = append(made, c)
	}
	return made, nil
}

// shown is the file of a change, for people.
func (f *Folder) shown(c FileChange) string { return path.Join(f.name, cmp.Or(c.Path, c.NewPath)) }

// check says why a file must not be changed: it is not any more what was read, may not be
// written, or would take another's name.
func (f *Folder) check(c FileChange) error {
	if _, err := f.root.Lstat(c.NewPath); c.NewPath != c.Path && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is there already, and is not overwritten", path.Join(f.name, c.NewPath))
	}
	if c.Path == "" {
		return nil
	}
	text, err := f.root.ReadFile(c.Path)
	if err != nil {
		return fmt.Errorf("%s can't be read any more: %s", f.shown(c), plain(err))
	}
	if !bytes.Equal(text, c.Before) {
		return fmt.Errorf("%s has changed since it was read, and is not overwritten: run it again", f.shown(c))
	}
	info, err := f.root.Lstat(c.Path)
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return fmt.Errorf("%s has become a link since it was read, and is not overwritten: run it again", f.shown(c))
	}
	if err == nil && info.Mode()&0o200 == 0 {
		return fmt.Errorf("%s may only be read, and is not changed: allow writing it first", f.shown(c))
	}
	return err
}

// prepare writes the new file, under a name that is none of a manifest.
func (f *Folder) prepare(number int, c FileChange) (name string, err error) {
	folder := path.Dir(cmp.Or(c.Path, c.NewPath))
	name = path.Join(folder, fmt.Sprintf(".runlevel-fix-%d-%d", os.Getpid(), number))
	mode := fs.FileMode(0o644)
	if c.Path != "" {
		info, err := f.root.Stat(c.Path)
		if err != nil {
			return "", err
		}
		mode = info.Mode().Perm()
	}
	file, err := f.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return "", err
	}
	_, err = file.Write(c.After)
	err = errors.Join(err, file.Sync(), file.Close())
	if c.Path != "" { // what the user's mask took away, the file has
		err = errors.Join(err, f.root.Chmod(name, mode))
	}
	return name, err
}

// finish gives the new file its name.
func (f *Folder) finish(unfinished string, c FileChange) error {
	if c.Path == "" {
		return f.root.Rename(unfinished, c.NewPath)
	}
	if !bytes.Equal(c.Before, c.After) {
		if err := f.root.Rename(unfinished, c.Path); err != nil {
			return err
		}
	}
	if c.NewPath == c.Path {
		return nil
	}
	return f.root.Rename(c.Path, c.NewPath)
}
