package main

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// A document has what a check needs of an HTML page.
type document struct {
	anchors map[string]bool
	links   []string
}

// check returns the links of the version that lead nowhere.
func (s *site) check() []error {
	folder := os.DirFS(s.folder)
	documents := map[string]document{} // by path
	err := fs.WalkDir(folder, ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && path.Ext(name) == ".html" {
			documents[name], err = readDocument(folder, name)
		}
		return err
	})
	problems := []error{err}
	for name, document := range documents {
		for _, link := range document.links {
			if !s.resolves(folder, name, link, documents) {
				problems = append(problems, fmt.Errorf("%s: the link %q leads nowhere", name, link))
			}
		}
	}
	return problems
}

func (s *site) resolves(folder fs.FS, name, link string, documents map[string]document) bool {
	target, err := url.Parse(link)
	if err != nil || link == "" { // goldmark empties links that run scripts
		return false
	}
	if target.IsAbs() || target.Host != "" {
		return slices.Contains([]string{"https", "http", "mailto", "data"}, target.Scheme)
	}
	file := name
	if target.Path != "" {
		file = path.Join(path.Dir(name), target.Path)
	}
	if beside, ok := strings.CutPrefix(file, "../"); ok {
		first, _, _ := strings.Cut(beside, "/")
		return slices.Contains(append([]string{latest, "versions.html"}, s.Versions...), first)
	}
	if document, ok := documents[file]; ok {
		return target.Fragment == "" || document.anchors[target.Fragment]
	}
	info, err := fs.Stat(folder, file)
	return err == nil && !info.IsDir() && target.Fragment == ""
}

func readDocument(folder fs.FS, name string) (document, error) {
	file, err := folder.Open(name)
	if err != nil {
		return document{}, err
	}
	defer file.Close()
	root, err := html.Parse(file)
	if err != nil {
		return document{}, fmt.Errorf("%s: %w", name, err)
	}
	d := document{anchors: map[string]bool{}}
	for node := range root.Descendants() {
		for _, attribute := range node.Attr {
			switch attribute.Key {
			case "id":
				d.anchors[attribute.Val] = true
			case "href", "src", "action":
				d.links = append(d.links, attribute.Val)
			}
		}
	}
	return d, nil
}
