package sandboxtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A Section is a section of a page of the documentation.
type Section struct {
	Title  string
	Files  map[string]string // blocks of YAML that begin with the name of a file as a comment
	Script string            // all blocks of shell
}

// pageBlock matches a heading, or a block of code.
var pageBlock = regexp.MustCompile("(?ms)^## ([^\n]+)$|^```(sh|yaml)\n(.*?)^```$")

// ReadPage returns the sections of a page.
func ReadPage(t testing.TB, path string) []Section {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sections := []Section{{}}
	for _, found := range pageBlock.FindAllStringSubmatch(string(text), -1) {
		if found[1] != "" {
			sections = append(sections, Section{Title: found[1], Files: map[string]string{}})
			continue
		}
		section := &sections[len(sections)-1]
		first, _, _ := strings.Cut(found[3], "\n")
		name, isNamed := strings.CutPrefix(first, "# ")
		switch {
		case found[2] == "sh":
			section.Script += found[3]
		case isNamed:
			section.Files[name] = found[3]
		}
	}
	return sections
}

// Run writes the files of the section below a folder, and runs its commands there, which must succeed. It returns their
// output. Some words of the page are replaced.
func (s Section) Run(t testing.TB, folder string, replace *strings.Replacer, environment ...string) string {
	t.Helper()
	for name, text := range s.Files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(replace.Replace(text)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.CommandContext(t.Context(), "sh", "-ex")
	command.Dir, command.Stdin = folder, strings.NewReader(replace.Replace(s.Script))
	programs := filepath.Dir(Program(t, "runlevel"))
	command.Env = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"))
	command.Env = append(command.Env, environment...)
	out, err := command.CombinedOutput()
	t.Logf("## %s\n%s", s.Title, out)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
