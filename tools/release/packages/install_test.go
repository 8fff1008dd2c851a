package packages

import (
	"net/http"
	"net/http/httptest"
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
	command := exec.CommandContext(t.Context(), program(t, i.shell), append([]string{"-s", "--"}, i.arguments...)...)
	command.Stdin = strings.NewReader(i.script)
	command.Dir = t.TempDir()
	command.Env = append([]string{"PATH=" + folder, "HOME=" + command.Dir, "RUNLEVEL_PREFIX=" + i.prefix,
		"TMPDIR=" + t.TempDir()}, i.variables...)
	output, err := command.CombinedOutput()
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
		if !ok || !strings.Contains(output, "installed runlevel v0.1.0 in "+i.prefix) ||
			!strings.Contains(output,
				"The shell finds no runlevel, not "+i.prefix+"/bin/runlevel") {
			t.Fatal(output)
		}
		i.expect(t)
		// Over an installed version, which may be running and of which a file is a link, with the other client.
		check(t, os.WriteFile(filepath.Join(i.prefix, "bin/runlevel"), []byte("#!/bin/sh\nexit 1\n"), 0o755))
		manual := filepath.Join(t.TempDir(), "manual")
		check(t, os.WriteFile(manual, []byte("not of Runlevel"), 0o600))
		check(t, os.Remove(filepath.Join(i.prefix, "share/man/man1/runlevel.1")))
		check(t, os.Symlink(manual, filepath.Join(i.prefix, "share/man/man1/runlevel.1")))
		program(t, "wget")
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
		for _, arguments := range [][]string{{"--folder", "x"}, {"--version"}} {
			i.arguments = arguments
			if output, ok := i.run(t); ok || !strings.Contains(output, arguments[0]) {
				t.Errorf("got for %v\n%s", arguments, output)
			}
		}
		if _, err := os.Stat(i.prefix); err == nil {
			t.Error("wrong arguments have created the prefix")
		}
	})
}

// TestInstallRefusesFiles publishes a release with a wrong file.
func TestInstallRefusesFiles(t *testing.T) {
	archives := func(t *testing.T, p *published, change func(text []byte) []byte) {
		t.Helper()
		for _, archive := range p.On("linux", "darwin") {
			file := filepath.Join(p.folder, archive.File)
			text, err := os.ReadFile(file)
			check(t, err)
			check(t, os.WriteFile(file, change(text), 0o644))
		}
	}
	extend := func(text []byte) []byte { return append(text, 0) }
	for _, test := range []struct {
		name, want string
		spoil      func(t *testing.T, p *published)
	}{
		{"checksum", "wrong checksum: runlevel_v0.1.0_", func(t *testing.T, p *published) {
			t.Helper()
			archives(t, p, extend)
		}},
		{"half an archive", "wrong checksum: runlevel_v0.1.0_", func(t *testing.T, p *published) {
			t.Helper()
			archives(t, p, func(text []byte) []byte { return text[:len(text)/2] })
		}},
		{"checksums of others", "wrong signature: ", func(t *testing.T, p *published) {
			t.Helper()
			archives(t, p, extend)
			p.writeChecksums(t)
		}},
		{"no signature", "could not download ", func(t *testing.T, p *published) {
			t.Helper()
			check(t, os.Remove(filepath.Join(p.folder, "checksums.txt.sig")))
		}},
		{"empty signature", "wrong signature: ", func(t *testing.T, p *published) {
			t.Helper()
			check(t, os.Truncate(filepath.Join(p.folder, "checksums.txt.sig"), 0))
		}},
		{"other key", "wrong signature: ", func(t *testing.T, p *published) {
			t.Helper()
			p.key = publish(t).key
			p.sign(t)
		}},
		{"no archive", "could not download ", func(t *testing.T, p *published) {
			t.Helper()
			for _, archive := range p.On("linux", "darwin") {
				check(t, os.Remove(filepath.Join(p.folder, archive.File)))
			}
		}},
		{"archive not listed", "checksums.txt of v0.1.0 does not list runlevel_v0.1.0_",
			func(t *testing.T, p *published) {
				t.Helper()
				for _, archive := range p.On("linux", "darwin") {
					check(t, os.Rename(filepath.Join(p.folder, archive.File),
						filepath.Join(p.folder, "other-"+archive.File)))
				}
				p.sign(t)
				for _, archive := range p.On("linux", "darwin") {
					check(t, os.Rename(filepath.Join(p.folder, "other-"+archive.File),
						filepath.Join(p.folder, archive.File)))
				}
			}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := publish(t)
			test.spoil(t, p)
			for _, shell := range shells {
				i := installation{script: read(t, p.folder)["install.sh"], shell: shell, prefix: t.TempDir()}
				i.refuses(t, test.want)
			}
		})
	}
}

// refuses runs the script, which has to fail with a text and to install nothing.
func (i installation) refuses(t *testing.T, want string) {
	t.Helper()
	output, ok := i.run(t)
	if ok || !strings.Contains(output, "install.sh: "+want) {
		t.Errorf("%s: got %v and\n%s\nwant an error with %q", i.shell, ok, output, want)
	}
	if left := read(t, i.prefix); len(left) > 0 {
		t.Errorf("%s: installed %v", i.shell, left)
	}
}

func TestInstallRefusesSystems(t *testing.T) {
	script := read(t, publish(t).folder)["install.sh"]
	for _, shell := range shells {
		i := installation{script: script, shell: shell, prefix: t.TempDir()}
		i.variables = []string{"RUNLEVEL_VERSION=v9.9.9"}
		i.refuses(t, "could not download ")
		i.variables, i.without = nil, []string{"openssl", "cosign"}
		i.refuses(t, "install openssl or cosign to verify the signature, or set RUNLEVEL_SKIP_SIGNATURE=1")
		i.without = []string{"curl", "wget"}
		i.refuses(t, "install curl or wget first")
		i.without, i.prefix = []string{"uname"}, t.TempDir()
		i.refuses(t, "no archive for ")
	}
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

// TestInstallToReadOnlyFolder wants one line instead of half an installation.
func TestInstallToReadOnlyFolder(t *testing.T) {
	prefix := t.TempDir()
	check(t, os.Chmod(prefix, 0o555))
	if os.Getuid() == 0 {
		prefix = "/proc/self" // root may write everywhere else
	}
	script := read(t, publish(t).folder)["install.sh"]
	for _, shell := range shells {
		output, ok := installation{script: script, shell: shell, prefix: prefix}.run(t)
		want := "install.sh: cannot write to " + prefix +
			"/bin: choose another folder with --prefix, or run this as root\n"
		if ok || output != want {
			t.Errorf("got %v and\n%s\nwant\n%s", ok, output, want)
		}
	}
}

// TestInterruptedDownloads cuts connections: that of an archive, and that of the script itself.
func TestInterruptedDownloads(t *testing.T) {
	p := publish(t)
	files := http.FileServer(http.Dir(filepath.Dir(p.folder)))
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		if !strings.HasSuffix(r.URL.Path, ".tar.gz") {
			files.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Length", "1000")
		_, _ = w.Write([]byte("half"))
	}))
	t.Cleanup(server.Close)
	script := read(t, p.folder)["install.sh"]
	for _, shell := range shells {
		i := installation{script: script, shell: shell, prefix: t.TempDir()}
		i.variables = []string{"RUNLEVEL_BASE_URL=" + server.URL}
		i.refuses(t, "could not download ")
		requests = 0
		for _, length := range cuts(len(script)) {
			i.script = script[:length]
			_, _ = i.run(t)
		}
		if left := read(t, i.prefix); len(left) > 0 || requests > 0 {
			t.Errorf("%s: a part of the script has sent %d requests and installed %v", shell, requests, left)
		}
	}
}

// cuts returns lengths of parts of a script: all in its last lines, and some before.
func cuts(length int) []int {
	var lengths []int
	for part := 0; part < length-len("}\n"); part++ {
		if part%199 == 0 || part > length-len("\n\t{main \"$@\"\n}\n") {
			lengths = append(lengths, part)
		}
	}
	return lengths
}

func TestInstallIsCleanShell(t *testing.T) {
	run(t, program(t, "shellcheck"), "--shell=sh", "--enable=quote-safe-variables", "--severity=style",
		filepath.Join(publish(t).folder, "install.sh"))
}
