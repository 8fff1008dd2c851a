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

// maxHops limits the links that are followed for one name, as on Linux.
const maxHops = 40

// files returns the files of the folder root. Each link is replaced by its target, so that
// readers need not follow links.
func (t *tree) files(root string, limits Limits) (fs.FS, error) {
	resolver := &linkResolver{
		tree:        t,
		children:    map[string][]string{},
		budget:      &budget{limits: limits},
		openFolders: map[string]bool{},
	}
	for name := range t.nodes {
		if name != "." {
			parent := path.Dir(name)
			resolver.children[parent] = append(resolver.children[parent], name)
		}
	}
	for _, names := range resolver.children {
		slices.Sort(names)
	}
	if err := resolver.add(".", root); err != nil {
		return nil, err
	}
	return txtar.FS(&txtar.Archive{Files: resolver.files})
}

// A linkResolver converts a tree to files without links.
type linkResolver struct {
	tree        *tree
	children    map[string][]string
	budget      *budget // links to folders can multiply the number of files
	openFolders map[string]bool
	files       []txtar.File
}

// add adds the node with a name at the path as.
func (r *linkResolver) add(as, name string) error {
	if len(as) > maxName {
		return fmt.Errorf("links make a name of more than %d bytes: %s", maxName, quoteName(as))
	}
	found := r.tree.nodes[name]
	switch found.kind {
	case tar.TypeSymlink:
		target, err := r.tree.follow(name)
		if err == nil && r.openFolders[target] {
			err = errLoop
		}
		if err != nil {
			return fmt.Errorf("link %s to %s: %w", quoteName(name), quoteName(found.target), err)
		}
		return r.add(as, target)
	case tar.TypeDir:
		return r.addFolder(as, name)
	default:
		if err := r.budget.countEntry(as); err != nil {
			return err
		}
		if err := r.budget.countFile(as, int64(len(found.content))); err != nil {
			return err
		}
		r.files = append(r.files, txtar.File{Name: as, Data: found.content})
		return nil
	}
}

func (r *linkResolver) addFolder(as, name string) error {
	if r.openFolders[name] {
		return fmt.Errorf("folder %s: %w", quoteName(name), errLoop)
	}
	r.openFolders[name] = true
	defer delete(r.openFolders, name)
	if as != "." {
		if err := r.budget.countEntry(as); err != nil {
			return err
		}
	}
	for _, child := range r.children[name] {
		if err := r.add(path.Join(as, path.Base(child)), child); err != nil {
			return err
		}
	}
	return nil
}

var (
	errLoop         = errors.New("symbolic link loop")
	errOutside      = errors.New("the target is outside of the archive")
	errAbsolute     = errors.New("absolute targets are not allowed in an archive")
	errNotFound     = errors.New("the target does not exist")
	errNotInPayload = errors.New("the target does not exist, or is not part of the payload")
)

// follow returns the final target of a link: a file or a folder. It resolves names step by
// step, as an operating system does.
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
			name = path.Dir(name) // the parent of an image's root is the root itself
			continue
		}
		next := path.Join(name, part)
		found := t.nodes[next]
		switch {
		case found == nil && t.ofImage:
			return "", errNotInPayload
		case found == nil:
			return "", errNotFound
		case found.kind == tar.TypeReg && len(rest) > 0:
			return "", errNotFound
		case found.kind != tar.TypeSymlink:
			name = next
			continue
		}
		if hops++; hops > maxHops {
			return "", errLoop
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
