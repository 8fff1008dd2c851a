// Command site writes the documentation as a static site: docs/, the pages that it links to, and a page for each lint
// rule, in a folder for the version.
//
//	cd tools/site && go run . -source ../.. -version v0.1.0 -o ../../bin/site
//
// Folders of other versions stay, and "latest" is a copy of the newest one. The site works without JavaScript. If
// node_modules has the packages of package.json ("npm ci"), the site has a search and, with Chromium, diagrams; without
// them, diagrams are shown as their source. It does not publish anything, and it refuses links that lead nowhere.
// Start with site.write.
package main

import (
	"embed"
	"errors"
	"flag"
	"fmt"
	"html/template"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
)

const (
	repository = "https://github.com/runlevel/runlevel"
	latest     = "latest"     // folder of the newest version
	publicPath = "/runlevel/" // of the published site, for the page that a server returns for any unknown path
)

//go:embed page.html diagrams.html assets
var files embed.FS

func main() {
	source := flag.String("source", "../..", "the folder of the repository")
	version := flag.String("version", "main", "the version, which is also the name of its tag or branch")
	output := flag.String("o", "../../bin/site", "the folder of the site, which may have other versions")
	flag.Parse()
	s := site{source: *source, version: *version, modules: "node_modules"}
	if err := s.write(*output); err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
}

// A site is one version of the documentation.
type site struct {
	source, version string
	modules         string // folder of npm's packages
	folder          string // of the version
	versions        []string
	pages           map[string]*page // by path of the source in the repository
	rules           []*page          // in the order of their index
	sections        []section
	diagrams        map[string]string // names of pictures by source
	hasSearch       bool
	problems        []error
}

// A section is one of docs/README.md.
type section struct {
	Title, ID string
	Pages     []*page
}

// write adds the version to the folder of a site.
func (s *site) write(output string) error {
	if s.version == latest || s.version == "" || s.version != filepath.Base(s.version) {
		return fmt.Errorf("-version %q: write a version, such as v0.1.0, or a branch without a slash", s.version)
	}
	var err error
	if s.versions, err = versionsOf(output, s.version); err != nil {
		return err
	}
	_, noPackage := os.Stat(filepath.Join(s.modules, "pagefind"))
	_, noNode := exec.LookPath("node")
	s.hasSearch = noPackage == nil && noNode == nil
	s.folder = filepath.Join(output, s.version)
	if err := os.RemoveAll(s.folder); err != nil {
		return err
	}
	if err := s.read(); err != nil {
		return err
	}
	if err := s.writeVersion(); err != nil {
		return err
	}
	if s.versions[0] == s.version {
		newest := filepath.Join(output, latest)
		if err := os.RemoveAll(newest); err != nil {
			return err
		}
		if err := os.CopyFS(newest, os.DirFS(s.folder)); err != nil {
			return err
		}
	}
	if err := s.writeRoot(output); err != nil {
		return err
	}
	return errors.Join(append(s.problems, check(output, s.version)...)...)
}

// versionsOf returns the versions that a folder has, and the added one, newest first.
func versionsOf(output, added string) ([]string, error) {
	entries, err := os.ReadDir(output)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	versions := []string{added}
	for _, entry := range entries {
		if name := entry.Name(); entry.IsDir() && name != added && name != latest {
			versions = append(versions, name)
		}
	}
	slices.SortFunc(versions, func(a, b string) int { return semver.Compare(b, a) })
	return versions, nil
}

// A view is the data of page.html.
type view struct {
	*page
	Root           string // path of the version's folder, relative to the page
	Version        string
	Versions       []string
	Sections       []section
	Current        string // path of the page that the navigation marks
	Search, IsHome bool
	Repository     string
}

// writeVersion writes the pages, and the index of the search.
func (s *site) writeVersion() error {
	assets, err := fs.Sub(files, "assets")
	if err != nil {
		return err
	}
	if err := os.CopyFS(s.folder, assets); err != nil {
		return err
	}
	for _, page := range s.pages {
		v := s.view(page, strings.Repeat("../", strings.Count(page.Output, "/")))
		if err := writePage(filepath.Join(s.folder, page.Output), v); err != nil {
			return err
		}
	}
	if !s.hasSearch {
		return nil
	}
	page := &page{Output: "search.html", Title: "Search", Body: `<h1>Search</h1><div id="results" aria-live="polite"></div>
<noscript><p>The search needs JavaScript. The navigation does not.</p></noscript>`}
	if err := writePage(filepath.Join(s.folder, page.Output), s.view(page, "")); err != nil {
		return err
	}
	program := filepath.Join(s.modules, "pagefind/lib/runner/bin.cjs")
	if text, err := exec.Command("node", program, "--site", s.folder, "--quiet").CombinedOutput(); err != nil {
		return fmt.Errorf("index the site by pagefind: %w\n%s", err, text)
	}
	return nil
}

// writeRoot writes the files beside the versions.
func (s *site) writeRoot(output string) error {
	list := "<h1>Versions</h1>\n<ul>"
	for _, version := range s.versions {
		list += fmt.Sprintf("\n<li><a href=\"%s/index.html\">%[1]s</a></li>", template.HTMLEscapeString(version))
	}
	versions := &page{Output: "versions.html", Title: "Versions", Body: template.HTML(list + "\n</ul>\n")}
	missing := &page{Output: "404.html", Title: "Not found", Body: template.HTML(`<h1>This page does not exist</h1>
<p>It may have another name in this version. The <a href="` + publicPath + latest + `/docs.html">list of pages</a> and the
<a href="` + publicPath + `versions.html">list of versions</a> may help.</p>`)}
	return errors.Join(
		writePage(filepath.Join(output, versions.Output), s.view(versions, latest+"/")),
		writePage(filepath.Join(output, missing.Output), s.view(missing, publicPath+latest+"/")),
		writeFile(filepath.Join(output, "index.html"), []byte(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Runlevel</title>
<meta http-equiv="refresh" content="0; url=latest/index.html"></head>
<body><p><a href="latest/index.html">Runlevel, newest version</a>, <a href="versions.html">all versions</a></p></body></html>
`)),
	)
}

func (s *site) view(page *page, root string) view {
	v := view{
		page: page, Root: root, Version: s.version, Versions: s.versions, Sections: s.sections, Current: page.Output,
		Search: s.hasSearch, IsHome: page.Source == home, Repository: repository,
	}
	if page.Parent != nil {
		v.Current = page.Parent.Output
	}
	return v
}

var layout = template.Must(template.ParseFS(files, "page.html"))

func writePage(name string, v view) error {
	var out strings.Builder
	if err := layout.Execute(&out, v); err != nil {
		return err
	}
	return writeFile(name, []byte(out.String()))
}

func writeFile(name string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, content, 0o644)
}
