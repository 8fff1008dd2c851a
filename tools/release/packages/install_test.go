package packages

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// shells run the installation script in its tests.
var shells = []string{"sh", "bash"}

// An installation is one run of the script.
type installation struct {
	script    string
	shell     string
	prefix    string
	arguments []string
	variables []string
	without   []string // programs that PATH does not have
	path      string   // folders before all others in PATH
}

// run runs the script, and returns its output and whether it succeeded.
func (i installation) run(t *testing.T) (string, bool) {
	t.Helper()
	folder := t.TempDir()
	for _, name := range strings.Fields("awk bash cat chmod cosign cp curl gzip id ln mkdir mktemp mv openssl rm sh " +
		"sha256sum shasum tar uname wget") {
		if file, err := exec.LookPath(name); err == nil &&
			!strings.Contains(" "+strings.Join(i.without, " ")+" ", " "+name+" ") {
			check(t, os.Symlink(file, filepath.Join(folder, name)))
		}
	}
	arguments := append([]string{"-c", `umask 077; exec "$@"`, "sh", program(t, i.shell), "-s", "--"}, i.arguments...)
	command := exec.CommandContext(t.Context(), "/bin/sh", arguments...)
	command.Stdin = strings.NewReader(i.script)
	command.Dir = t.TempDir()
	scratch := t.TempDir()
	command.Env = append([]string{"PATH=" + i.path + folder, "HOME=" + command.Dir, "RUNLEVEL_PREFIX=" + i.prefix,
		"TMPDIR=" + scratch}, i.variables...)
	output, err := command.CombinedOutput()
	if left, err := os.ReadDir(scratch); err != nil || len(left) > 0 {
		t.Errorf("%s: the script has left %v, %v", i.shell, left, err)
	}
	return string(output), err == nil
}

// expect compares the files of a prefix with those of a complete installation.
func (i installation) expect(t *testing.T) {
	t.Helper()
	texts := read(t, i.prefix)
	for _, name := range append(installed, "share/zsh/site-functions/_runlevel", "bin/kubectl-runlevel") {
		if texts[name] == "" {
			t.Errorf("%s is not installed", name)
		}
		delete(texts, name)
	}
	if len(texts) > 0 {
		t.Errorf("got more files: %v", texts)
	}
	if target, _ := os.Readlink(filepath.Join(i.prefix, "bin/kubectl-runlevel")); target != "runlevel" {
		t.Errorf("kubectl-runlevel is a link to %q", target)
	}
	for _, name := range []string{"bin", "bin/runlevel", "share/man/man1"} {
		if info, err := os.Stat(filepath.Join(i.prefix, name)); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%s has mode %v, %v", name, info.Mode(), err)
		}
	}
	for _, name := range []string{"runlevel", "kubectl-runlevel"} {
		if output := run(t, filepath.Join(i.prefix, "bin", name)); output != "runlevel v0.1.0\n" {
			t.Errorf("%s prints %q", name, output)
		}
	}
}

func forShells(t *testing.T, test func(t *testing.T, i installation)) {
	t.Helper()
	p := publish(t)
	for _, shell := range shells {
		t.Run(shell, func(t *testing.T) {
			test(t, installation{
				script: read(t, p.folder)["install.sh"], shell: shell, prefix: filepath.Join(t.TempDir(), "a prefix"),
			})
		})
	}
}

func TestInstall(t *testing.T) {
	forShells(t, func(t *testing.T, i installation) {
		output, ok := i.run(t)
		want := "installed runlevel v0.1.0 in " + i.prefix + "\n" + i.prefix + "/bin is not in PATH. Add it:\n" +
			"  export PATH=\"" + i.prefix + "/bin:$PATH\"\n"
		if !ok || output != want {
			t.Fatalf("got %v and\n%s\nwant\n%s", ok, output, want)
		}
		i.expect(t)
	})
}

// TestInstallAgain installs over a version that may be running, and of which a file is a link, with the other client.
func TestInstallAgain(t *testing.T) {
	program(t, "wget")
	forShells(t, func(t *testing.T, i installation) {
		if output, ok := i.run(t); !ok {
			t.Fatal(output)
		}
		check(t, os.WriteFile(filepath.Join(i.prefix, "bin/runlevel"), []byte("#!/bin/sh\nexit 1\n"), 0o755))
		manual := filepath.Join(t.TempDir(), "manual")
		check(t, os.WriteFile(manual, []byte("not of Runlevel"), 0o600))
		check(t, os.Remove(filepath.Join(i.prefix, "share/man/man1/runlevel.1")))
		check(t, os.Symlink(manual, filepath.Join(i.prefix, "share/man/man1/runlevel.1")))
		i.without = []string{"curl", "sha256sum"}
		if output, ok := i.run(t); !ok {
			t.Fatal(output)
		}
		i.expect(t)
		if text, _ := os.ReadFile(manual); string(text) != "not of Runlevel" {
			t.Error("the script has written through a link")
		}
	})
}

// TestInstallFindsOthersInPath compares what the script prints for folders of PATH.
func TestInstallFindsOthersInPath(t *testing.T) {
	forShells(t, func(t *testing.T, i installation) {
		links, others := t.TempDir(), t.TempDir()
		check(t, os.Symlink(filepath.Join(i.prefix, "bin/runlevel"), filepath.Join(links, "runlevel")))
		check(t, os.WriteFile(filepath.Join(others, "runlevel"), []byte("#!/bin/sh\necho N 5\n"), 0o755))
		i.arguments = []string{"--prefix=" + i.prefix + "/"}
		for folder, want := range map[string]string{
			i.prefix + "/bin":  "",
			i.prefix + "/bin/": "",
			links:              "",
			others: "PATH has another runlevel first: " + others + "/runlevel. Put this folder before it:\n" +
				"  export PATH=\"" + i.prefix + "/bin:$PATH\"\n",
		} {
			i.path = folder + ":"
			output, ok := i.run(t)
			if want = "installed runlevel v0.1.0 in " + i.prefix + "\n" + want; !ok || output != want {
				t.Errorf("got for %s in PATH\n%s\nwant\n%s", folder, output, want)
			}
		}
	})
}

func TestInstallByFlags(t *testing.T) {
	forShells(t, func(t *testing.T, i installation) {
		prefix := i.prefix
		i.prefix, i.arguments = "", []string{"--version", "0.1.0", "--prefix", prefix}
		i.variables = []string{"RUNLEVEL_VERSION=v7.0.0"}
		if output, ok := i.run(t); !ok {
			t.Fatal(output)
		}
		i.prefix = prefix
		i.expect(t)
		i.prefix, i.arguments = filepath.Join(t.TempDir(), "none"), []string{"--help"}
		if output, ok := i.run(t); !ok || !strings.HasPrefix(output, "Install the runlevel command") {
			t.Errorf("--help prints\n%s", output)
		}
		for arguments, want := range map[string]string{
			"--folder x":                "unknown argument --folder: --help lists the known ones",
			"--version":                 "--version needs a value",
			"--prefix=":                 "--prefix needs a value",
			"--version latest":          "latest is not a version: use one such as v0.1.0",
			"--version 0.1.0/../v0.1.0": "0.1.0/../v0.1.0 is not a version: use one such as v0.1.0",
			"--version=v":               "v is not a version: use one such as v0.1.0",
		} {
			i.arguments = strings.Fields(arguments)
			if output, ok := i.run(t); ok || !strings.Contains(output, "install.sh: "+want) {
				t.Errorf("got for %v\n%s", arguments, output)
			}
		}
		if _, err := os.Stat(i.prefix); err == nil {
			t.Error("wrong arguments have created the prefix")
		}
	})
}

func TestInstallWithoutSignature(t *testing.T) {
	forShells(t, func(t *testing.T, i installation) {
		i.without, i.variables = []string{"openssl", "cosign"}, []string{"RUNLEVEL_SKIP_SIGNATURE=1"}
		if output, ok := i.run(t); !ok || !strings.Contains(output, "warning: the signature is not verified") {
			t.Fatal(output)
		}
		i.expect(t)
	})
}

func TestInstallByCosign(t *testing.T) {
	cosign := os.Getenv("RUNLEVEL_TEST_COSIGN")
	if cosign == "" {
		t.Skip("RUNLEVEL_TEST_COSIGN names no cosign: CONTRIBUTING.md shows how to get it")
	}
	t.Setenv("PATH", filepath.Dir(cosign)+":"+os.Getenv("PATH"))
	p := publish(t)
	i := installation{script: read(t, p.folder)["install.sh"], shell: "sh", prefix: t.TempDir()}
	i.without = []string{"openssl"}
	if output, ok := i.run(t); !ok {
		t.Fatal(output)
	}
	i.expect(t)
	i.prefix, p.key = t.TempDir(), publish(t).key
	p.sign(t)
	i.refuses(t, "wrong signature: ")
}

func TestInstallIsCleanShell(t *testing.T) {
	run(t, program(t, "shellcheck"), "--shell=sh", "--enable=quote-safe-variables", "--severity=style",
		filepath.Join(publish(t).folder, "install.sh"))
}
