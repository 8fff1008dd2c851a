package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"html"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const mermaid = "mermaid" // the language of diagrams

var (
	fence   = regexp.MustCompile("(?ms)^```mermaid\n(.*?)^```")
	drawing = regexp.MustCompile(`(?s)<pre>(.*?)</pre>`)
)

// drawDiagrams draws the diagrams of all pages: mermaid needs a browser, so that each picture is drawn by Chromium. If
// one of the two is not installed, or fails, diagrams are shown as their source.
func (s *site) drawDiagrams() error {
	script, err := filepath.Abs(filepath.Join(s.modules, "@mermaid-js/tiny/dist/mermaid.tiny.js"))
	if err != nil {
		return err
	}
	browser, noBrowser := exec.LookPath("chromium")
	if _, noScript := os.Stat(script); noBrowser != nil || noScript != nil {
		return nil
	}
	var sources, pages []string
	for _, name := range slices.Sorted(maps.Keys(s.pages)) {
		for _, found := range fence.FindAllStringSubmatch(s.pages[name].text, -1) {
			sources, pages = append(sources, found[1]), append(pages, name)
		}
	}
	pictures, err := draw(browser, script, sources)
	if err != nil {
		fmt.Fprintln(os.Stderr, "site: diagrams are shown as text:", err)
		return nil
	}
	s.diagrams = map[string]string{}
	for i, source := range sources {
		if !strings.HasPrefix(pictures[i], "<svg") {
			s.problems = append(s.problems, fmt.Errorf("%s: a diagram can't be drawn: %s", pages[i], pictures[i]))
			continue
		}
		name := fmt.Sprintf("diagram-%.6x.svg", sha256.Sum256([]byte(source)))
		s.diagrams[source] = name
		if err := writeFile(filepath.Join(s.folder, name), []byte(pictures[i])); err != nil {
			return err
		}
	}
	return nil
}

// draw opens a page that draws the sources, and returns the pictures that it then has as text.
func draw(browser, script string, sources []string) ([]string, error) {
	list, err := json.Marshal(sources)
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "diagrams")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	name := filepath.Join(folder, "page.html")
	layout, err := files.ReadFile("diagrams.html")
	if err != nil {
		return nil, err
	}
	page := strings.NewReplacer("SCRIPT", script, "SOURCES", string(list)).Replace(string(layout))
	if err := os.WriteFile(name, []byte(page), 0o600); err != nil {
		return nil, err
	}
	text, err := exec.Command(browser, "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files",
		"--user-data-dir="+folder, "--virtual-time-budget=60000", "--dump-dom", "file://"+name).Output()
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", browser, err)
	}
	var pictures []string
	for _, found := range drawing.FindAllStringSubmatch(string(text), -1) {
		pictures = append(pictures, html.UnescapeString(found[1]))
	}
	if len(pictures) != len(sources) {
		return nil, fmt.Errorf("%s has drawn %d of %d diagrams", browser, len(pictures), len(sources))
	}
	return pictures, nil
}
