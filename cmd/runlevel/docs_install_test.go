package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	shellBlock     = regexp.MustCompile("(?ms)^ *```sh\n(.*?)^ *```$")
	installCommand = regexp.MustCompile(
		`^(runlevel (install|uninstall)|runlevel apply (manifests|examples)|kubectl apply)\b`,
	)
	// notRunnable matches the commands that can't be run unchanged: a part is left out, is on another host, or is in a
	// variable or on the next lines.
	notRunnable = regexp.MustCompile(`…|://|<<|"\$| -f -`)
)

// TestInstallCommandsOfTheDocumentation looks for the installation commands of the pages in the scripts that
// run them.
func TestInstallCommandsOfTheDocumentation(t *testing.T) {
	scripts := allText(t, "testdata/*.txtar")
	for _, pattern := range []string{"../../README.md", "../../docs/*.md", "../../examples/*/README.md"} {
		for page, text := range allText(t, pattern) {
			if filepath.Base(page) == "fleet.md" {
				continue // TestPageOnManyClusters runs it
			}
			for _, command := range installCommands(text) {
				want := strings.ReplaceAll(command, "--release registry.example/", "--release $REGISTRY/")
				if !isIn(scripts, want) {
					t.Errorf("%s has a command that no script runs: %s", page, want)
				}
			}
		}
	}
}

// installCommands returns the installation commands of a page, without comments.
func installCommands(page string) []string {
	var found []string
	for _, block := range shellBlock.FindAllStringSubmatch(page, -1) {
		for line := range strings.Lines(block[1]) {
			command, _, _ := strings.Cut(line, " #")
			command = strings.TrimSpace(command)
			if installCommand.MatchString(command) && !notRunnable.MatchString(command) {
				found = append(found, command)
			}
		}
	}
	return found
}

// allText returns the texts of files by their names.
func allText(t *testing.T, pattern string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: no file, %v", pattern, err)
	}
	texts := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts[file] = string(text)
	}
	return texts
}

// isIn reports whether one of the scripts has a command in a line of its own.
func isIn(scripts map[string]string, command string) bool {
	for _, text := range scripts {
		for line := range strings.Lines(text) {
			line, _, _ = strings.Cut(strings.TrimPrefix(line, "[exec:kubectl] "), " &") // it runs in the background
			if strings.TrimSpace(strings.TrimPrefix(line, "exec ")) == command {
				return true
			}
		}
	}
	return false
}
