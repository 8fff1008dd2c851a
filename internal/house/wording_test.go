package house

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Words of speech: programs report, print, record and log. What stands in quotes is not looked at, since it may be a
// message of Kubernetes or OpenShift.
var (
	speech = regexp.MustCompile(`\b(?:[A-Za-z]*(?:[tT]ell|[tT]old|Says|Say|Said)[A-Za-z]*|says|say|said|saying)\b`)
	vague  = regexp.MustCompile(`\bisThere\b|\bone\s*:?= range\b|, one := range\b`)
	quotes = regexp.MustCompile("\"(?:[^\"\\\\]|\\\\.)*\"|`[^`]*`")
)

func TestCodeReportsInsteadOfSpeaking(t *testing.T) {
	for _, s := range sources(t) {
		top, _, _ := strings.Cut(s.name, "/")
		if s.forTests() || wingOf(s.name) == "internal/house" ||
			!slices.Contains([]string{"cmd", "examples", "install", "internal", "manifests", "pkg", "tools"}, top) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, s.name))
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(quotes.ReplaceAllStringFunc(string(text), blank), "\n") {
			for _, word := range speech.FindAllString(line, -1) {
				t.Errorf("%s:%d: %q: programs report, print, record or return: use such a verb, or name the message",
					s.name, i+1, word)
			}
			if word := vague.FindString(line); word != "" {
				t.Errorf("%s:%d: %q: call it found or exists, and a loop variable after its type", s.name, i+1, word)
			}
		}
	}
}

// blank keeps the lines of a text.
func blank(text string) string { return strings.Repeat("\n", strings.Count(text, "\n")) }
