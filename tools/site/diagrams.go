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
func (s *site) drawDiagrams() {
	script, err := filepath.Abs(filepath.Join(s.modules, "@mermaid-js/tiny/dist/mermaid.tiny.js"))
	if err != nil {
		return
	}
	browser, err := exec.LookPath("chromium")
	if _, missing := os.Stat(script); err != nil || missing != nil {
		return
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
		return
	}
	s.diagrams, s.drawn = map[string]string{}, map[string]string{}
	for i, source := range sources {
		if !strings.HasPrefix(pictures[i], "<svg") {
			s.problems = append(s.problems, fmt.Errorf("%s: a diagram can't be drawn: %s", pages[i], pictures[i]))
			continue
		}
		name := fmt.Sprintf("diagram-%x.svg", sha256.Sum256([]byte(source)))[:len("diagram-")+12] + ".svg"
		s.diagrams[source], s.drawn[name] = name, pictures[i]
	}
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
	page := fmt.Sprintf(`<!doctype html><meta charset="utf-8"><script src="file://%s"></script><body><script>
mermaid.initialize({startOnLoad: false, theme: "neutral", look: "classic",
  fontFamily: "system-ui, sans-serif"});
const draw = async (source, i) => {
  const box = document.createElement("div");
  box.innerHTML = (await mermaid.render("d" + i, source)).svg;
  const picture = box.querySelector("svg"), size = picture.viewBox.baseVal;
  picture.setAttribute("width", Math.ceil(size.width));
  picture.setAttribute("height", Math.ceil(size.height));
  return new XMLSerializer().serializeToString(picture);
};
(async () => { for (const [i, source] of %s.entries()) {
  const text = await draw(source, i).catch(String);
  document.body.append(Object.assign(document.createElement("pre"), {textContent: text}));
} })();
</script>`, script, list)
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

// writePictures writes the diagrams and copies the pictures of the repository.
func (s *site) writePictures(folder string) error {
	for name, picture := range s.drawn {
		if err := writeFile(filepath.Join(folder, name), []byte(picture)); err != nil {
			return err
		}
	}
	for source, name := range s.assets {
		content, err := os.ReadFile(filepath.Join(s.source, source))
		if err != nil {
			return err
		}
		if err := writeFile(filepath.Join(folder, name), content); err != nil {
			return err
		}
	}
	return nil
}
