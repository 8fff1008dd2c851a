package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestSite writes the site of the repository, whose links and anchors lead somewhere, and looks at some pages.
func TestSite(t *testing.T) {
	output := t.TempDir()
	s := site{source: "../..", Version: "v0.1.0"}
	if err := s.write(output); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"index.html":                {`url=latest/index.html`, `<a href="latest/index.html">`},
		"404.html":                  {`href="/runlevel/latest/style.css"`},
		"latest/index.html":         {`<h1 id="runlevel">Runlevel</h1>`, `src="demo.svg"`, `<a href="install-command.html">Get the command</a>`},
		"v0.1.0/operator.html":      {`<th>`, `aria-current="page"`, `edit/main/docs/operator.md`, `<a href="../latest/operator.html">latest</a>`},
		"v0.1.0/install.html":       {`href="https://github.com/runlevel/runlevel/blob/v0.1.0/`, `<a href="migrate-helm.html">`},
		"v0.1.0/plan.html":          {`rel="prev" href="rehearse.html"`, `rel="next" href="payload.html"`},
		"v0.1.0/lint.html":          {`href="rules/missing-key.html"`, `rel="canonical" href="https://runlevel.github.io/runlevel/latest/lint.html"`},
		"v0.1.0/machines.html":      {`<code class="language-mermaid">flowchart TD`},
		"v0.1.0/machines-code.html": {`href="project/contributing.html#where-a-change-goes"`},
		"v0.1.0/rules/bad-ignore.html": {
			`<strong>error</strong>. An ignore has no reason`, `<h2 id="why-it-matters">`, `<p class="parent"><a href="../lint.html">`, `rel="next"`,
			`<span class="nt">apiVersion</span>`, `0000_50_web_01_settings.yaml:1:1: error:`, `<a href="../lint.html" aria-current="page">`,
		},
	} {
		content := readFile(t, filepath.Join(output, name))
		for _, text := range want {
			if !strings.Contains(content, text) {
				t.Errorf("%s does not have %s", name, text)
			}
		}
	}
}

// repositoryOf returns a folder with the files that a site needs, and others.
func repositoryOf(t *testing.T, others map[string]string) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "repository")
	for name, text := range map[string]string{
		"README.md": "# Runlevel\n", "CONTRIBUTING.md": "# Contribute\n", "SECURITY.md": "# Report\n",
		"docs/lint.md":   "# Lint\n",
		"docs/README.md": "# Documentation\n\n## Use it\n\n[Lint](lint.md)\n",
	} {
		if _, replaced := others[name]; !replaced {
			writeTestFile(t, filepath.Join(folder, name), text)
		}
	}
	for name, text := range others {
		writeTestFile(t, filepath.Join(folder, name), text)
	}
	return folder
}

func TestMistakes(t *testing.T) {
	source := repositoryOf(t, map[string]string{
		"docs/README.md":    "# Documentation\n\n## Use it\n\n[Lint](lint.md), [move](move.md)\n",
		"docs/lint.md":      "# Lint\n\n[a](#lint) [b](#lints) [c](move.md#from-x-1) [d](move.md#from-x-2) [e](../examples/a) [f](../examples/b)\n",
		"docs/move.md":      "# Move\n\n## From `X`\n\n## From X\n\n![a picture](picture.svg) ![outside](../../secret.svg)\n\nSet <NAME> <!-- to yours -->.\n",
		"docs/other.md":     "# Other\n\n[a](javascript:alert(1)) [b](//example.org) [c](htp://example.org) [d](mailto:a@example.org)\n\n<script>\n",
		"docs/move-helm.md": "# Move from Helm\n", "examples/a/main.go": "package main\n", "../secret.svg": "<svg/>",
	})
	output := filepath.Join(t.TempDir(), "site")
	err := (&site{source: source, Version: "main"}).write(output)
	if err == nil {
		t.Fatal("the site is written")
	}
	want := strings.Split(strings.TrimSpace(`
docs/move.md: "<NAME>" is HTML: write it in backquotes
docs/other.md is in no section of docs/README.md: link it there
docs/other.md: "<script>\n" is HTML: write it in backquotes
lint.html: the link "#lints" leads nowhere
lint.html: the link "../examples/b" leads nowhere
lint.html: the link "move.html#from-x-2" leads nowhere
move.html: the link "../../secret.svg" leads nowhere
move.html: the link "picture.svg" leads nowhere
other.html: the link "" leads nowhere
other.html: the link "//example.org" leads nowhere
other.html: the link "htp://example.org" leads nowhere`), "\n")
	got := strings.Split(err.Error(), "\n")
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if entries, err := os.ReadDir(output); err == nil && len(entries) > 0 {
		t.Errorf("a site with mistakes left %v", entries)
	}
}

// TestVersionsStay writes versions into one folder, as the published branch has them. The documentation changes.
func TestVersionsStay(t *testing.T) {
	output := t.TempDir()
	writeTestFile(t, filepath.Join(output, ".git/HEAD"), "")
	write := func(version string, others map[string]string) {
		if err := (&site{source: repositoryOf(t, others), Version: version}).write(output); err != nil {
			t.Fatal(err)
		}
	}
	old := map[string]string{"docs/README.md": "## Use it\n\n[Lint](lint.md) [Old](old.md)\n", "docs/old.md": "# Old\n"}
	write("v0.9.0", old)
	write("v0.10.0", nil)
	write("v0.11.0-rc.1", old)
	write("v0.9.1", old)
	list := readFile(t, filepath.Join(output, "versions.html"))
	if want := `<ul>
<li><a href="v0.11.0-rc.1/index.html">v0.11.0-rc.1</a></li>
<li><a href="v0.10.0/index.html">v0.10.0</a></li>
<li><a href="v0.9.1/index.html">v0.9.1</a></li>
<li><a href="v0.9.0/index.html">v0.9.0</a></li>
</ul>`; !strings.Contains(list, want) {
		t.Errorf("versions are not listed from the newest to the oldest:\n%s", list)
	}
	if strings.Contains(list+readFile(t, filepath.Join(output, "404.html")), "old.html") {
		t.Error("a page beside the versions leads to a page that the latest version does not have")
	}
	text := readFile(t, filepath.Join(output, "latest/lint.html"))
	if !strings.Contains(text, "</span>v0.10.0</summary>") {
		t.Errorf("the latest version is not v0.10.0:\n%s", text)
	}
	text = readFile(t, filepath.Join(output, "v0.9.1/lint.html"))
	if !strings.Contains(text, `<a href="../v0.9.0/index.html">v0.9.0</a>`) || strings.Contains(text, ".git/") {
		t.Errorf("the menu does not have the versions that were there:\n%s", text)
	}
	for _, version := range []string{"latest", "..", ".", "", "a/b"} {
		if err := (&site{source: "../..", Version: version}).write(output); err == nil {
			t.Errorf("version %q is written", version)
		}
	}
	readFile(t, filepath.Join(output, "v0.9.0/old.html"))
}

// TestSlugs has headings, and the anchors that GitHub gives them.
func TestSlugs(t *testing.T) {
	for words, want := range map[string]string{
		"Where a change goes":                "where-a-change-goes",
		"A hostile image, before it is used": "a-hostile-image-before-it-is-used",
		"runlevel.yaml":                      "runlevelyaml",
		"Names & modes":                      "names--modes",
		"spec.overrides_of, Ü–x":             "specoverrides_of-üx",
	} {
		if got := slug(words); got != want {
			t.Errorf("%s: got %s, want %s", words, got, want)
		}
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func writeTestFile(t *testing.T, name, text string) {
	t.Helper()
	if err := writeFile(name, []byte(text)); err != nil {
		t.Fatal(err)
	}
}
