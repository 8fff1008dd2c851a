package house

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestMakeTargetsOfTheDocumentation looks for the targets that pages and scripts name.
func TestMakeTargetsOfTheDocumentation(t *testing.T) {
	known := regexp.MustCompile(`(?m)^([a-z-]+):`).FindAllString(readFile(t, "Makefile"), -1)
	pages, err := filepath.Glob(filepath.Join(root, "docs/*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatal("no pages: ", err)
	}
	count := 0
	for _, page := range append(pages, root+"/README.md", root+"/CONTRIBUTING.md", root+"/.ci/run") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, named := range regexp.MustCompile("(?m)(?:^|`)make ([a-z-]+)").FindAllStringSubmatch(string(text), -1) {
			count++
			if !slices.Contains(known, named[1]+":") {
				t.Errorf("%s names make %s, which the Makefile does not have", page, named[1])
			}
		}
	}
	if count < 10 {
		t.Errorf("only %d targets were found", count)
	}
}

// TestMakeGenerateRunsWhatItNames looks for the tests that write generated files: go test is content with a pattern
// that matches none.
func TestMakeGenerateRunsWhatItNames(t *testing.T) {
	commands := regexp.MustCompile(
		`(?m)^\t\$\(GO\) test ((?:\./\S+ )+)-run "?([\w|]+)"? -update$`,
	).FindAllStringSubmatch(readFile(t, "Makefile"), -1)
	if len(commands) < 5 {
		t.Errorf("only %d commands were found", len(commands))
	}
	for _, command := range commands {
		for _, folder := range strings.Fields(command[1]) {
			files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
			if err != nil {
				t.Fatal(err)
			}
			var tests strings.Builder
			for _, file := range files {
				tests.WriteString(readFile(t, strings.TrimPrefix(file, root)))
			}
			for _, name := range strings.Split(command[2], "|") {
				if !strings.Contains(tests.String(), "func "+name) {
					t.Errorf("make generate runs %s, which %s does not have", name, folder)
				}
			}
		}
	}
}

// TestMakeInstall installs a program into a folder. If the shell finds another program of the same name first, make
// prints a note.
func TestMakeInstall(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip(err)
	}
	folder := t.TempDir()
	makefile, err := filepath.Abs(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	compiler := filepath.Join(folder, "go") // stands for go, which would link for seconds
	if err := os.WriteFile(compiler, []byte("#!/bin/sh\nmkdir -p bin && echo program >bin/runlevel\n"),
		0o755); err != nil {
		t.Fatal(err)
	}
	prefix := filepath.Join(folder, "a prefix")
	install := exec.Command("make", "-f", makefile, "install", "GO="+compiler, "PREFIX="+prefix)
	install.Dir = folder
	output, err := install.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	if want := "put " + prefix + "/bin before other folders of PATH"; !strings.Contains(string(output), want) {
		t.Errorf("got output\n%s\nwant %q in it", output, want)
	}
	program := filepath.Join(prefix, "bin", "runlevel")
	if fileInfo, err := os.Stat(program); err != nil || fileInfo.Mode().Perm() != 0o755 {
		t.Errorf("the program is not installed: %v, %v", fileInfo, err)
	}
	install = exec.Command("make", "-f", makefile, "install", "GO="+compiler, "PREFIX="+prefix)
	install.Dir, install.Env = folder, append(os.Environ(), "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"))
	if output, err := install.CombinedOutput(); err != nil || strings.Contains(string(output), "the shell finds") {
		t.Errorf("make prints a note although the shell finds the installed program: %v\n%s", err, output)
	}
}
