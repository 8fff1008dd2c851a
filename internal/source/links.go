package source

import (
	"archive/tar"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"
)

// maxHops is how many links are followed for a name, as on Linux.
const maxHops = 40

// files returns the files of the folder root, with every link replaced by its target, so
// that no reader has to follow links.
func (t *tree) files(root string, limits Limits) (fs.FS, error) {
	unlinked := &linkResolver{
		tree:     t,
		children: map[string][]string{},
		budget:   &budget{limits: limits},
		within:   map[string]bool{},
	}
	for name := range t.nodes {
		if name != "." {
			parent := path.Dir(name)
			unlinked.children[parent] = append(unlinked.children[parent], name)
		}
	}
	for _, names := range unlinked.children {
		slices.Sort(names)
	}
	if err := unlinked.add(".", root); err != nil {
		return nil, err
	}
	return txtar.FS(&txtar.Archive{Files: unlinked.files})
}

// A linkResolver converts a tree to files without links.
type linkResolver struct {
	tree     *tree
	children map[string][]string
	budget   *budget // links to folders can multiply the number of files
	within   map[string]bool
	files    []txtar.File
}

// add adds the node of the tree with a name, at the path as.
func (u *linkResolver) add(as, name string) error {
	if len(as) > maxName {
		return fmt.Errorf("links make a name of more than %d bytes: %s", maxName, quoted(as))
	}
	found := u.tree.nodes[name]
	switch found.kind {
	case tar.TypeSymlink:
		target, err := u.tree.follow(name)
		if err == nil && u.within[target] {
			err = errCircular
		}
		if err != nil {
			return fmt.Errorf("link %s to %s: %w", quoted(name), quoted(found.target), err)
		}
		return u.add(as, target)
	case tar.TypeDir:
		return u.addFolder(as, name)
	default:
		if err := u.budget.entry(as); err != nil {
			return err
		}
		if err := u.budget.file(as, int64(len(found.content))); err != nil {
			return err
		}
		u.files = append(u.files, txtar.File{Name: as, Data: found.content})
		return nil
	}
}

func (u *linkResolver) addFolder(as, name string) error {
	if u.within[name] {
		return fmt.Errorf("folder %s: %w", quoted(name), errCircular)
	}
	u.within[name] = true
	defer delete(u.within, name)
	if as != "." {
		if err := u.budget.entry(as); err != nil {
			return err
		}
	}
	for _, child := range u.children[name] {
		if err := u.add(path.Join(as, path.Base(child)), child); err != nil {
			return err
		}
	}
	return nil
}

var (
	errCircular = errors.New("it leads round in circles")
	errOutside  = errors.New("it leads out of the archive")
	errAbsolute = errors.New("it's absolute, and an archive has no fixed place")
	errNowhere  = errors.New("there is nothing")
	errNotKept  = errors.New("there is nothing, or nothing of the payload")
)

// follow returns the file or folder that a link finally leads to, step by step as an
// operating system does.
func (t *tree) follow(link string) (string, error) {
	name, rest := ".", strings.Split(link, "/")
	for hops := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		switch {
		case part == "" || part == ".":
			continue
		case part == ".." && name == "." && !t.ofImage:
			return "", errOutside
		case part == "..":
			name = path.Dir(name) // above the root of an image is its root
			continue
		}
		next := path.Join(name, part)
		found := t.nodes[next]
		switch {
		case found == nil && t.ofImage:
			return "", errNotKept
		case found == nil:
			return "", errNowhere
		case found.kind == tar.TypeReg && len(rest) > 0:
			return "", errNowhere
		case found.kind != tar.TypeSymlink:
			name = next
			continue
		}
		if hops++; hops > maxHops {
			return "", errCircular
		}
		if path.IsAbs(found.target) {
			if !t.ofImage {
				return "", errAbsolute
			}
			name = "."
		}
		rest = slices.Concat(strings.Split(found.target, "/"), rest)
	}
	return name, nil
}
