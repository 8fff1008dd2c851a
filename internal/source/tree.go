package source

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/runlevel/runlevel/internal/oci"
)

// A tree is the content of a tar, with links not resolved.
type tree struct {
	nodes  map[string]*node // nodes by name as in fs.ValidPath, including all folders
	budget *budget
	// ofImage is true if names and links are relative to the root of an image, of which
	// only the payload is kept.
	ofImage bool
}

// A node is a file, a folder or a link.
type node struct {
	kind    byte // tar.TypeReg, tar.TypeDir or tar.TypeSymlink
	content []byte
	target  string
}

func newTree(budget *budget, ofImage bool) *tree {
	return &tree{nodes: map[string]*node{".": {kind: tar.TypeDir}}, budget: budget, ofImage: ofImage}
}

// read adds the entries of a tar.
func (t *tree) read(archive io.Reader) error {
	entries := tar.NewReader(archive)
	for {
		header, err := entries.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return corruptionError(err)
		}
		if err := t.addEntry(header, entries); err != nil {
			return err
		}
	}
}

func (t *tree) addEntry(header *tar.Header, content io.Reader) error {
	if header.Typeflag == tar.TypeXGlobalHeader {
		return nil // metadata of the archive, such as its commit
	}
	name, err := t.checkName(header.Name)
	if err != nil {
		return fmt.Errorf("entry %s: %w", quoteName(header.Name), err)
	}
	if t.ofImage && !isOfRelease(name) {
		return nil
	}
	added, err := t.readNode(name, header, content)
	if err == nil {
		err = t.add(name, added)
	}
	if err != nil && !oci.IsSizeError(err) {
		return fmt.Errorf("entry %s: %w", quoteName(header.Name), err)
	}
	return err
}

func (t *tree) readNode(name string, header *tar.Header, content io.Reader) (*node, error) {
	switch header.Typeflag {
	case tar.TypeDir:
		return &node{kind: tar.TypeDir}, nil
	case tar.TypeReg, tar.TypeGNUSparse:
		if err := t.budget.countFile(name, header.Size); err != nil {
			return nil, err
		}
		read, err := readExactly(content, header.Size)
		if err != nil {
			return nil, corruptionError(err)
		}
		return &node{kind: tar.TypeReg, content: read}, nil
	case tar.TypeSymlink:
		target := header.Linkname
		if t.ofImage && !path.IsAbs(target) {
			// Not cleaned: ".." can only be resolved when all links are known.
			target = "/" + path.Dir(name) + "/" + target
		}
		if len(target) > maxName {
			return nil, fmt.Errorf("the link's target has more than %d bytes", maxName)
		}
		return &node{kind: tar.TypeSymlink, target: target}, nil
	case tar.TypeLink:
		target, err := t.checkName(header.Linkname)
		if err != nil {
			return nil, fmt.Errorf("hard link to %s: %w", quoteName(header.Linkname), err)
		}
		linked := t.nodes[target]
		if linked == nil || linked.kind == tar.TypeDir {
			return nil, fmt.Errorf("hard link to %s, which is not a file that comes before it",
				quoteName(header.Linkname))
		}
		return linked, nil
	default:
		return nil, errors.New("is a device, pipe or other special file, which a release can't have")
	}
}

// readExactly does not allocate a large size before it has read the bytes: a few bytes
// of header could otherwise cost all the memory of one file.
func readExactly(reader io.Reader, size int64) ([]byte, error) {
	const believed = mib
	if size <= believed {
		content := make([]byte, size)
		_, err := io.ReadFull(reader, content)
		return content, err
	}
	content := bytes.NewBuffer(make([]byte, 0, believed))
	_, err := io.CopyN(content, reader, size)
	return content.Bytes(), err
}

// checkName checks the name of an entry and converts it to a valid path of package fs.
func (t *tree) checkName(given string) (string, error) {
	if t.ofImage {
		given = strings.TrimLeft(given, "/")
	}
	name := path.Clean(given)
	switch {
	case path.IsAbs(given):
		return "", errors.New("its name is absolute")
	case slices.Contains(strings.Split(given, "/"), ".."):
		return "", errors.New("its name has \"..\" in it")
	case t.ofImage && !isOfRelease(name):
		return name, nil // an operating system has files with odd names
	case strings.ContainsAny(given, "\\\x00"):
		return "", errors.New("its name has a backslash or zero byte in it")
	case !utf8.ValidString(given) || !fs.ValidPath(name):
		return "", errors.New("its name isn't UTF-8")
	case len(name) > maxName:
		return "", fmt.Errorf("its name has more than %d bytes", maxName)
	default:
		return name, nil
	}
}

// add adds a node and its parent folders.
func (t *tree) add(name string, added *node) error {
	if before := t.nodes[name]; before != nil {
		if !before.equal(added) {
			return errors.New("the archive has it twice, with different content")
		}
		return nil
	}
	for parent := path.Dir(name); ; parent = path.Dir(parent) {
		if existing := t.nodes[parent]; existing != nil {
			if existing.kind != tar.TypeDir {
				return fmt.Errorf("it's in %s, which is not a folder", quoteName(parent))
			}
			break
		}
		if err := t.put(parent, &node{kind: tar.TypeDir}); err != nil {
			return err
		}
	}
	return t.put(name, added)
}

func (t *tree) put(name string, added *node) error {
	t.nodes[name] = added
	return t.budget.countEntry(name)
}

func (n *node) equal(other *node) bool {
	return n.kind == other.kind && n.target == other.target && bytes.Equal(n.content, other.content)
}

// top returns the only folder at the top, as "tar czf x.tgz release" creates it, unless
// it has the name of a folder of a release; else ".".
func (t *tree) top() string {
	top := "."
	for name := range t.nodes {
		if name == "." || path.Dir(name) != "." {
			continue
		}
		if top != "." {
			return "."
		}
		top = name
	}
	if isOfRelease(top) || t.nodes[top].kind != tar.TypeDir {
		return "."
	}
	return top
}

func (t *tree) isLayout(root string) bool {
	mark := t.nodes[path.Join(root, oci.LayoutFile)]
	return mark != nil && mark.kind == tar.TypeReg
}
