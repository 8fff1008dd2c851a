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
	p := publish(t)
	script := read(t, p.folder)["install.sh"]
	for _, shell := range shells {
		i := installation{script: script, shell: shell, prefix: t.TempDir()}
		for _, client := range []string{"curl", "wget"} {
			i.without = []string{map[string]string{"curl": "wget", "wget": "curl"}[client]}
			if _, err := exec.LookPath(client); err != nil {
				continue
			}
			i.variables = []string{"RUNLEVEL_VERSION=v9.9.9"}
			i.refuses(t, "could not download "+p.Base()+"/v9.9.9/checksums.txt: does version v9.9.9 exist for ")
			i.variables = []string{"RUNLEVEL_BASE_URL=http://127.0.0.1:1"}
			i.refuses(t, "could not download http://127.0.0.1:1/v0.1.0/checksums.txt: see the error above\n")
		}
		i.variables, i.without = nil, []string{"openssl", "cosign"}
		i.refuses(t, "install openssl or cosign to verify the signature, or set RUNLEVEL_SKIP_SIGNATURE=1")
		i.without = []string{"curl", "wget"}
		i.refuses(t, "install curl or wget first")
		i.without, i.prefix = []string{"uname"}, t.TempDir()
		i.refuses(t, "no archive for ")
	}
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

// TestInstallOverFolders wants an error instead of files in the wrong folder, or of half an installation.
func TestInstallOverFolders(t *testing.T) {
	forShells(t, func(t *testing.T, i installation) {
		folder := filepath.Join(i.prefix, "bin/runlevel")
		check(t, os.MkdirAll(folder, 0o755))
		i.refuses(t, folder+" is a folder: remove it\n")
		check(t, os.RemoveAll(i.prefix))
		check(t, os.Mkdir(i.prefix, 0o755))
		check(t, os.Symlink("/dev/null", filepath.Join(i.prefix, "share")))
		output, ok := i.run(t)
		if want := "install.sh: cannot write to " + i.prefix + "/share/bash-completion/completions: "; ok ||
			!strings.HasPrefix(output, want) {
			t.Errorf("got %v and\n%s\nwant\n%s", ok, output, want)
		}
		if left, _ := os.ReadDir(filepath.Join(i.prefix, "bin")); len(left) > 0 {
			t.Error("installed ", left)
		}
	})
}

// TestInstallIsStopped by a signal during a download, whose limits it reads, and before a program is in its place.
func TestInstallIsStopped(t *testing.T) {
	forShells(t, func(t *testing.T, i installation) {
		for name, limits := range map[string]string{
			"curl": "--proto =https,http --connect-timeout 20 --speed-limit 1000 --speed-time 30 ",
			"wget": "-T 30 -t 3 ",
			"mv":   "",
		} {
			folder := t.TempDir()
			program := "#!/bin/sh\necho \"$*\" >" + folder + "/arguments\nkill -TERM $PPID\n"
			check(t, os.WriteFile(filepath.Join(folder, name), []byte(program), 0o755))
			i.path, i.without = folder+":", nil
			if name == "wget" {
				i.without = []string{"curl"}
			}
			if output, ok := i.run(t); ok || output != "" {
				t.Errorf("%s: got %v and\n%s", name, ok, output)
			}
			if arguments := read(t, folder)["arguments"]; !strings.Contains(arguments, limits) {
				t.Errorf("%s has the arguments %q, want %q", name, arguments, limits)
			}
			if left := read(t, i.prefix); len(left) > 0 {
				t.Errorf("%s: the script has left %v", name, left)
			}
		}
	})
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
