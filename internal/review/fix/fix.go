// Package fix fixes findings in the files of a release: delete annotations with another
// spelling of true, annotations and labels without quotes, levels with too few digits,
// last lines without a line break. It changes single bytes
// and leaves all others as they are, comments and layout included.
//
// It finds nothing by itself: the caller names the document of a file, and the finding.
// It verifies each fix: package payload reads each document before and after, and they
// must differ in the intended value only. Other findings are left, with the reason. It
// never adds a delete: only a manifest whose own annotation is true, in some spelling,
// becomes a tombstone.
//
// New is the call to start from: it returns a Patch, which collects fixes and can be read
// like the fixed files. A Folder writes it.
package fix

import (
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/internal/source/overlay"
	"github.com/runlevel/runlevel/pkg/payload"
)

// The rules whose findings can be fixed, by the names that package lint gives them.
const (
	DeleteValue  = "delete-value"
	Malformed    = "malformed"
	LevelWidth   = "level-width"
	FinalNewline = "final-newline"
)

// Rules are all of them.
func Rules() []string { return []string{DeleteValue, Malformed, LevelWidth, FinalNewline} }

// A Request is one finding to fix.
type Request struct {
	Rule     string
	Path     string // of the file, as the patch calls it by now
	Document int    // of the file, counted from 1, for what is in one
	Name     string // what the file is to be called, for LevelWidth
}

// A FileChange is what becomes of one file.
type FileChange struct {
	Path          string // "" if there is no such file yet
	NewPath       string // the same, unless it is renamed
	Before, After []byte
	Fixed         []Fixed
}

// A Fixed is one fix.
type Fixed struct {
	Rule string
	Line int // 0 when the whole file is meant
	What string
}

// An Unfixed is a finding that must be fixed by hand.
type Unfixed struct {
	Path string
	Line int // 0 when the whole file is meant
	Why  string
}

// A Patch is what becomes of the files of a folder.
type Patch struct {
	files   fs.FS
	changes map[string]*FileChange // by what files are called by now
	left    []Unfixed
}

// New is a patch that changes nothing yet.
func New(files fs.FS) *Patch { return &Patch{files: files, changes: map[string]*FileChange{}} }

// Changes are those of all files, in the order of their names.
func (p *Patch) Changes() []FileChange {
	var all []FileChange
	for _, change := range p.changes {
		slices.SortStableFunc(change.Fixed, func(a, b Fixed) int { return cmp.Compare(a.Line, b.Line) })
		all = append(all, *change)
	}
	slices.SortFunc(all, func(a, b FileChange) int { return cmp.Compare(a.NewPath, b.NewPath) })
	return all
}

// Left returns the requested findings that must be fixed by hand.
func (p *Patch) Left() []Unfixed { return p.left }

// Fix adds the fixes that can be made, and reports whether there are any. A fix may reveal another finding, which
// is for the caller to find and to request.
func (p *Patch) Fix(requests []Request) bool {
	byPath := map[string][]Request{}
	var paths []string
	for _, request := range requests {
		if byPath[request.Path] == nil {
			paths = append(paths, request.Path)
		}
		byPath[request.Path] = append(byPath[request.Path], request)
	}
	slices.Sort(paths)
	isChanged := false
	for _, name := range paths {
		isFixed, isRenamed := p.fixText(name, byPath[name]), p.rename(name, byPath[name])
		isChanged = isChanged || isFixed || isRenamed
	}
	return isChanged
}

// fixText changes what is in a file.
func (p *Patch) fixText(name string, requests []Request) bool {
	requests = slices.DeleteFunc(slices.Clone(requests), func(r Request) bool { return r.Rule == LevelWidth })
	if len(requests) == 0 {
		return false
	}
	text, err := p.read(name)
	if err != nil {
		p.leave(Unfixed{Path: name, Why: plain(err)})
		return false
	}
	m := fixer{text: text}
	m.fix(requests)
	for _, left := range m.left {
		left.Path = name
		p.leave(left)
	}
	if len(m.fixed) == 0 {
		return false
	}
	change := p.change(name, text)
	change.After = m.text
	change.Fixed = append(change.Fixed, m.fixed...)
	return true
}

// rename gives a file another name, if nothing is called so.
func (p *Patch) rename(name string, requests []Request) bool {
	at := slices.IndexFunc(requests, func(r Request) bool { return r.Rule == LevelWidth && r.Name != "" })
	if at < 0 {
		return false
	}
	newName := path.Join(path.Dir(name), requests[at].Name)
	if path.Base(newName) != requests[at].Name || newName == name {
		return false
	}
	if _, err := fs.ReadFile(p.FS(), newName); p.exists(newName) || err == nil {
		p.leave(Unfixed{Path: name, Why: fmt.Sprintf("it can't be called %s: there is such a file already", requests[at].Name)})
		return false
	}
	text, err := fs.ReadFile(p.FS(), name)
	if err != nil {
		p.leave(Unfixed{Path: name, Why: plain(err)})
		return false
	}
	change := p.change(name, text)
	delete(p.changes, name)
	change.NewPath = newName
	change.Fixed = append(change.Fixed, Fixed{Rule: LevelWidth, What: "it was called " + path.Base(name)})
	p.changes[newName] = change
	return true
}

// exists says whether anything has a name in the folder as it is, a folder or a broken
// link included, whatever becomes of it.
func (p *Patch) exists(name string) bool {
	entries, err := fs.ReadDir(p.files, path.Dir(name))
	return err != nil || slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return strings.EqualFold(e.Name(), path.Base(name)) })
}

// read is the text of a file that may be changed.
func (p *Patch) read(name string) ([]byte, error) {
	text, err := fs.ReadFile(p.FS(), name)
	if err != nil {
		return nil, err
	}
	if p.isTemplate(name) && bytes.Contains(text, []byte("{{")) {
		return nil, fmt.Errorf("it is a template, and its output is not known: fix it by hand")
	}
	return text, nil
}

// isTemplate says whether a file is rendered before it is read.
func (p *Patch) isTemplate(name string) bool {
	_, err := fs.Stat(p.files, payload.ReleaseFolder)
	return path.Dir(name) == payload.TemplatesFolder && err == nil
}

// change is the one of a file, made for it if it has none.
func (p *Patch) change(name string, text []byte) *FileChange {
	if p.changes[name] == nil {
		p.changes[name] = &FileChange{Path: name, NewPath: name, Before: text, After: text}
	}
	return p.changes[name]
}

// leave notes what is left, once.
func (p *Patch) leave(left Unfixed) {
	if !slices.Contains(p.left, left) {
		p.left = append(p.left, left)
	}
}

// FS is the files as they will be.
func (p *Patch) FS() fs.FS {
	files := overlay.On(p.files)
	for _, change := range p.changes {
		files.Remove(change.Path)
	}
	for name, change := range p.changes { // which may be called as another was
		files.Put(name, change.After)
	}
	return files
}
