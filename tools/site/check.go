package main

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/net/html"
)

// A document has what a check needs of an HTML page.
type document struct {
	anchors map[string]bool
	links   []string
}

// check returns the links of a version, and of the files beside the versions, that lead nowhere.
func check(output, version string) []error {
	documents := map[string]document{} // by path in the output
	var problems []error
	err := filepath.WalkDir(output, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(name) != ".html" {
			return err
		}
		relative, err := filepath.Rel(output, name)
		if err != nil {
			return err
		}
		documents[filepath.ToSlash(relative)], err = readDocument(name)
		return err
	})
	if err != nil {
		return []error{err}
	}
	for name, document := range documents {
		if folder, _, nested := strings.Cut(name, "/"); nested && folder != version {
			continue
		}
		for _, link := range document.links {
			if !resolves(output, name, link, documents) {
				problems = append(problems, fmt.Errorf("%s: the link %s leads nowhere", name, link))
			}
		}
	}
	return problems
}

func resolves(output, name, link string, documents map[string]document) bool {
	target, err := url.Parse(link)
	if err != nil {
		return false
	}
	if target.IsAbs() || target.Host != "" {
		return true
	}
	file := name
	switch {
	case strings.HasPrefix(target.Path, publicPath):
		file = strings.TrimPrefix(target.Path, publicPath)
	case target.Path != "":
		file = path.Join(path.Dir(name), target.Path)
	}
	if document, ok := documents[file]; ok {
		return target.Fragment == "" || document.anchors[target.Fragment]
	}
	info, err := os.Stat(filepath.Join(output, file))
	return err == nil && !info.IsDir() && target.Fragment == ""
}

func readDocument(name string) (document, error) {
	file, err := os.Open(name)
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
