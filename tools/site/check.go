package main

import (
	"fmt"
	"html"
	"io/fs"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
)

// attribute is an anchor or a link of a written page, whose text has no quotation mark that is not escaped.
var attribute = regexp.MustCompile(` (id|href|src|action)="([^"]*)"`)

// check returns the links of the version that lead nowhere.
func (s *site) check() []error {
	folder := os.DirFS(s.folder)
	targets := map[string]bool{} // files, and their anchors
	links := map[string][]string{}
	err := fs.WalkDir(folder, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		targets[name] = true
		if path.Ext(name) != ".html" {
			return nil
		}
		text, err := fs.ReadFile(folder, name)
		for _, found := range attribute.FindAllStringSubmatch(string(text), -1) {
			if value := html.UnescapeString(found[2]); found[1] == "id" {
				targets[name+"#"+value] = true
			} else {
				links[name] = append(links[name], value)
			}
		}
		return err
	})
	problems := []error{err}
	for name, list := range links {
		for _, link := range list {
			if !s.resolves(name, link, targets) {
				problems = append(problems, fmt.Errorf("%s: the link %q leads nowhere", name, link))
			}
		}
	}
	return problems
}

func (s *site) resolves(name, link string, targets map[string]bool) bool {
	target, err := url.Parse(link)
	if err != nil || link == "" { // goldmark empties links that run scripts
		return false
	}
	if target.IsAbs() || target.Host != "" {
		return slices.Contains([]string{"https", "http", "mailto", "data"}, target.Scheme)
	}
	if target.Path != "" {
		name = path.Join(path.Dir(name), target.Path)
	}
	if beside, ok := strings.CutPrefix(name, "../"); ok {
		first, _, _ := strings.Cut(beside, "/")
		return slices.Contains(append([]string{latest, "versions.html"}, s.Versions...), first)
	}
	if target.Fragment != "" {
		name += "#" + target.Fragment
	}
	return targets[name]
}
