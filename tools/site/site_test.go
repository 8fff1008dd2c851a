package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSite writes the site of the repository, whose links and anchors lead somewhere, and looks at some pages.
func TestSite(t *testing.T) {
	output := t.TempDir()
	s := site{source: "../..", version: "v0.1.0"}
	if err := s.write(output); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"index.html":                {`url=latest/index.html`, `<a href="latest/index.html">`},
		"404.html":                  {`href="/runlevel/latest/style.css"`},
		"latest/index.html":         {`<h1 id="runlevel">Runlevel</h1>`, `src="demo.svg"`, `<h2>Run the operator</h2>`},
		"v0.1.0/operator.html":      {`<div class="table" tabindex="0"><table>`, `aria-current="page"`, `edit/main/docs/operator.md`},
		"v0.1.0/install.html":       {`href="https://github.com/runlevel/runlevel/blob/v0.1.0/`},
		"v0.1.0/plan.html":          {`rel="prev" href="rehearse.html"`, `rel="next" href="payload.html"`},
		"v0.1.0/lint.html":          {`href="rules/missing-key.html"`},
		"v0.1.0/machines.html":      {`flowchart TD`}, // without a browser, the source of a diagram
		"v0.1.0/machines-code.html": {`href="project/contributing.html#where-a-change-goes"`},
		"v0.1.0/rules/bad-ignore.html": {
			`<strong>error</strong>. An ignore has no reason`, `<h2 id="why-it-matters">`, `<p class="parent"><a href="../lint.html">`, `rel="next"`,
			`<span class="nt">apiVersion</span>`, `0000_50_web_01_settings.yaml:1:1: error:`,
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
	folder := t.TempDir()
	for name, text := range map[string]string{
		"README.md": "# Runlevel\n", "CONTRIBUTING.md": "# Contribute\n", "SECURITY.md": "# Report\n",
		"CHANGELOG.md": "# Changes\n", "LICENSE": "A licence\n", "docs/lint.md": "# Lint\n",
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
		"docs/README.md": "# Documentation\n\n## Use it\n\n[Lint](lint.md), [move](move.md)\n",
		"docs/lint.md":   "# Lint\n\n[a](#lint) [b](#lints) [c](move.md#from-x-1) [d](move.md#from-x-2) [e](../examples/a) [f](../examples/b)\n",
		"docs/move.md":   "# Move\n\n## From `X`\n\n## From X\n\n![a picture](picture.svg)\n",
		"docs/other.md":  "# Other\n", "docs/move-helm.md": "# Move from Helm\n",
		"examples/a/main.go": "package main\n",
	})
	err := (&site{source: source, version: "main"}).write(t.TempDir())
	if err == nil {
		t.Fatal("the site is written")
	}
	want := []string{
		"docs/lint.md links to ../examples/b, which does not exist",
		"docs/move.md shows picture.svg, which does not exist",
		"docs/other.md is in no section of docs/README.md: link it there",
		"main/lint.html: the link #lints leads nowhere",
		"main/lint.html: the link ../examples/b leads nowhere",
		"main/lint.html: the link move.html#from-x-2 leads nowhere",
		"main/move.html: the link picture.svg leads nowhere",
	}
	got := strings.Split(err.Error(), "\n")
	for _, line := range want {
		if !strings.Contains(err.Error()+"\n", line+"\n") {
			t.Errorf("missing: %s", line)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %d problems, want %d:\n%v", len(got), len(want), err)
	}
}

// TestVersionsStay writes three versions into one folder, as a published branch has them.
func TestVersionsStay(t *testing.T) {
	output, source := t.TempDir(), repositoryOf(t, nil)
	for _, version := range []string{"v0.9.0", "v0.10.0", "v0.9.1"} {
		if err := (&site{source: source, version: version}).write(output); err != nil {
			t.Fatal(err)
		}
	}
	list := readFile(t, filepath.Join(output, "versions.html"))
	newest, last := strings.Index(list, `href="v0.10.0/index.html"`), strings.Index(list, `href="v0.9.0/index.html"`)
	if newest < 0 || last < newest {
		t.Errorf("versions are not listed from the newest to the oldest:\n%s", list)
	}
	text := readFile(t, filepath.Join(output, "latest/lint.html"))
	if !strings.Contains(text, "</span>v0.10.0</summary>") {
		t.Errorf("the latest version is not v0.10.0:\n%s", text)
	}
	text = readFile(t, filepath.Join(output, "v0.9.1/lint.html"))
	if !strings.Contains(text, `<a href="../v0.9.0/index.html">v0.9.0</a>`) {
		t.Errorf("the menu does not have the version that was there:\n%s", text)
	}
	if err := (&site{source: source, version: "latest"}).write(output); err == nil {
		t.Error("a version with the name of the alias is written")
	}
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
