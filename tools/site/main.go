// Command site writes the documentation as a static site: docs/, the pages that it links to, and a page for each lint
// rule, in a folder for the version.
//
//	cd tools/site && go run . -source ../.. -version v0.1.0 -o ../../bin/site
//
// Folders of other versions stay, and "latest" is a copy of the newest one, so that links to it stay true. The site
// works without JavaScript. With the packages of package.json ("npm ci"), it has a search and draws diagrams. It does
// not publish anything, and it writes nothing if a link leads nowhere. Start with site.write.
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
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
)

const (
	repository = "https://github.com/runlevel/runlevel"
	latest     = "latest"     // folder of the newest version
	publicPath = "/runlevel/" // of the published site, for the page that a server returns for any unknown path
)

//go:embed page.html assets
var files embed.FS

func main() {
	source := flag.String("source", "../..", "the folder of the repository")
	version := flag.String("version", "main", "the version, which is also the name of its tag or branch")
	output := flag.String("o", "../../bin/site", "the folder of the site, which may have other versions")
	flag.Parse()
	s := site{source: *source, Version: *version, modules: "node_modules"}
	if err := s.write(*output); err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
	if !s.HasPackages {
		fmt.Fprintln(os.Stderr, "site: no search, and diagrams are text: install node, and run npm ci in tools/site")
	}
}

// A site is one version of the documentation. Exported fields are for page.html; without a version, a page is beside
// the versions.
type site struct {
	Version     string
	Versions    []string // newest first
	Sections    []section
	HasPackages bool // of npm
	source      string
	modules     string           // folder of npm's packages
	repository  *os.Root         // the source
	folder      string           // in which the version is written
	pages       map[string]*page // by path of the source in the repository
	rules       []*page          // in the order of their index
	problems    []error
}

// A section is one of docs/README.md.
type section struct {
	Title string
	Pages []*page
}

var versionName = regexp.MustCompile(`^[a-z0-9][\w.-]*$`)

// write adds the version to the folder of a site, or leaves the folder as it is.
func (s *site) write(output string) error {
	if s.Version == latest || !versionName.MatchString(s.Version) {
		return fmt.Errorf("-version %q: write a version, such as v0.1.0, or a branch without a slash", s.Version)
	}
	_, noPackages := os.Stat(filepath.Join(s.modules, "pagefind"))
	_, noNode := exec.LookPath("node")
	s.HasPackages = noPackages == nil && noNode == nil
	var err error
	if s.repository, err = os.OpenRoot(s.source); err != nil {
		return err
	}
	defer s.repository.Close()
	s.listVersions(output)
	s.folder = filepath.Join(output, ".new")
	defer os.RemoveAll(s.folder)
	if err := errors.Join(os.RemoveAll(s.folder), s.read()); err != nil {
		return err
	}
	if err := s.writeVersion(); err != nil {
		return err
	}
	if err := errors.Join(append(s.problems, s.check()...)...); err != nil {
		return err
	}
	folder := filepath.Join(output, s.Version)
	if err := errors.Join(os.RemoveAll(folder), os.Rename(s.folder, folder)); err != nil {
		return err
	}
	if s.newest() == s.Version {
		newest := filepath.Join(output, latest)
		if err := errors.Join(os.RemoveAll(newest), os.CopyFS(newest, os.DirFS(folder))); err != nil {
			return err
		}
	}
	return s.writeRoot(output)
}

// listVersions lists the versions that a folder has, and the added one.
func (s *site) listVersions(output string) {
	s.Versions = []string{s.Version}
	found, _ := fs.Glob(os.DirFS(output), "*/index.html")
	for _, name := range found {
		if version := filepath.Dir(name); version != s.Version && version != latest &&
			versionName.MatchString(version) {
			s.Versions = append(s.Versions, version)
		}
	}
	slices.SortFunc(s.Versions, func(a, b string) int { return semver.Compare(b, a) })
}

// newest returns the newest version, which is a release candidate only if there is nothing else.
func (s *site) newest() string {
	i := slices.IndexFunc(s.Versions, func(version string) bool { return semver.Prerelease(version) == "" })
	return s.Versions[max(i, 0)]
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
		if err := s.writePage(s.folder, page); err != nil {
			return err
		}
	}
	if !s.HasPackages {
		return nil
	}
	mermaid, err := os.ReadFile(filepath.Join(s.modules, "@mermaid-js/tiny/dist/mermaid.tiny.js"))
	if err != nil {
		return err
	}
	search := &page{Output: "search.html", Title: "Search",
		Body: `<h1>Search</h1><div id="site-results" aria-live="polite"></div>
<noscript><p>The search needs JavaScript. The navigation does not.</p></noscript>`}
	if err := errors.Join(writeFile(filepath.Join(s.folder, "mermaid.js"), mermaid),
		s.writePage(s.folder, search)); err != nil {
		return err
	}
	program := filepath.Join(s.modules, "pagefind/lib/runner/bin.cjs")
	if text, err := exec.Command("node", program, "--site", s.folder, "--quiet").CombinedOutput(); err != nil {
		return fmt.Errorf("index the site by pagefind: %w\n%s", err, text)
	}
	return nil
}

var layout = template.Must(template.ParseFS(files, "page.html"))

func (s *site) writePage(folder string, p *page) error {
	var out strings.Builder
	err := layout.Execute(&out, struct {
		*page
		*site
	}{p, s})
	return errors.Join(err, writeFile(filepath.Join(folder, p.Output), []byte(out.String())))
}

// writeRoot writes the files beside the versions. They have no navigation, since they belong to no version.
func (s *site) writeRoot(output string) error {
	list := "<h1>Versions</h1>\n<ul>"
	for _, version := range s.Versions {
		list += fmt.Sprintf("\n<li><a href=\"%s/index.html\">%[1]s</a></li>", version)
	}
	versions := &page{
		Output: "versions.html",
		Root:   latest + "/",
		Title:  "Versions",
		Body:   template.HTML(list + "\n</ul>\n"),
	}
	missing := &page{Output: "404.html", Root: publicPath + latest + "/", Title: "Not found",
		Body: `<h1>This page does not exist</h1>
<p>It may have another name in this version. The <a href="` + publicPath + latest +
			`/docs.html">list of pages</a> and the
<a href="` + publicPath + `versions.html">list of versions</a> may help.</p>`}
	return errors.Join(
		new(site).writePage(output, versions),
		new(site).writePage(output, missing),
		writeFile(filepath.Join(output, "index.html"), []byte(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Runlevel</title>
<meta http-equiv="refresh" content="0; url=latest/index.html"></head>
<body>
<p><a href="latest/index.html">Runlevel, newest version</a>, <a href="versions.html">all versions</a></p>
</body></html>
`)),
	)
}

func writeFile(name string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, content, 0o644)
}
