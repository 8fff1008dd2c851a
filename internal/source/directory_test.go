package source_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/runlevel/runlevel/internal/source"
)

func TestADirectoryIsReadAsItIs(t *testing.T) {
	dir := write(t, small)
	release := open(t, dir, source.Options{})
	checkFiles(t, release.FS, small)
	if release.Kind != source.Directory {
		t.Errorf("got release %+v", release)
	}
}

func TestLinksInADirectory(t *testing.T) {
	outside := write(t, map[string]string{"secret": "s"})
	dir := write(t, map[string]string{"manifests/a.yaml": "a", "more/b.yaml": "b"})
	link(t, "a.yaml", filepath.Join(dir, "manifests", "again.yaml"))
	link(t, "../more", filepath.Join(dir, "manifests", "more"))
	link(t, filepath.Join(outside, "secret"), filepath.Join(dir, "manifests", "absolute"))
	link(t, "../../secret", filepath.Join(dir, "manifests", "outside"))
	link(t, "nothing", filepath.Join(dir, "manifests", "dangling"))
	link(t, "circle", filepath.Join(dir, "manifests", "circle"))
	files := open(t, dir, source.Options{}).FS

	t.Run("inside they work", func(t *testing.T) {
		for name, want := range map[string]string{"manifests/again.yaml": "a", "manifests/more/b.yaml": "b"} {
			if got, err := fs.ReadFile(files, name); err != nil || string(got) != want {
				t.Errorf("%s has %q, %v", name, got, err)
			}
		}
	})
	t.Run("a link to a file is listed as a file", func(t *testing.T) {
		kinds := map[string]fs.FileMode{}
		entries, err := fs.ReadDir(files, "manifests")
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			kinds[entry.Name()] = entry.Type()
		}
		if kinds["again.yaml"] != 0 || kinds["more"] != fs.ModeSymlink || kinds["outside"] != fs.ModeSymlink {
			t.Errorf("kinds are %v", kinds)
		}
	})
	t.Run("the rest is refused", func(t *testing.T) {
		for name, want := range map[string]string{
			"manifests/absolute": fmt.Sprintf("open manifests/absolute: link to %q: path escapes from parent",
				filepath.Join(outside, "secret")),
			"manifests/outside":  `open manifests/outside: link to "../../secret": path escapes from parent`,
			"manifests/dangling": `open manifests/dangling: link to "nothing": no such file or directory`,
			"manifests/circle":   `open manifests/circle: link to "circle": too many levels of symbolic links`,
		} {
			if _, err := fs.ReadFile(files, name); err == nil || err.Error() != want {
				t.Errorf("%s: error is %v, want %s", name, err, want)
			}
		}
	})
}

func TestADirectoryHasBounds(t *testing.T) {
	files := map[string]string{"m/a": "aaaa", "m/b": "bbbb", "m/c": "cccc"}
	read := func(names ...string) func(fs.FS) error {
		return func(files fs.FS) error {
			for _, name := range names {
				if _, err := fs.ReadFile(files, name); err != nil {
					return err
				}
			}
			return nil
		}
	}
	for name, test := range map[string]struct {
		limits source.Limits
		do     func(fs.FS) error
		want   string
	}{
		"at its limits all can be read": {source.Limits{File: 4, Total: 12, Files: 3}, read("m/a", "m/b", "m/c"),
			""},
		"a file over its limit can't": {source.Limits{File: 3}, read("m/a"),
			"open m/a: it has 4 bytes: the limit for one file is 3 bytes"},
		"nor more than all may have": {source.Limits{Total: 11}, read("m/a", "m/b", "m/c"),
			"open m/c: the files have more than 11 bytes together, which is the limit"},
		"nor more files than there may be": {source.Limits{Files: 2}, read("m/a", "m/b", "m/c"),
			"open m/c: there are more than 2 files, which is the limit"},
		"what's read again counts once": {source.Limits{Total: 4, Files: 1}, read("m/a", "m/a", "m/a"), ""},
		"a folder with too many entries isn't listed": {source.Limits{Files: 2}, func(files fs.FS) error {
			_, err := fs.ReadDir(files, "m")
			return err
		}, "readdir m: it has more than 2 entries, which is the limit"},
		"nor in parts": {source.Limits{Files: 2}, func(files fs.FS) error {
			folder, err := files.Open("m")
			if err != nil {
				return err
			}
			defer folder.Close()
			for range 3 {
				if _, err := folder.(fs.ReadDirFile).ReadDir(1); err != nil {
					return err
				}
			}
			return nil
		}, "readdir m: it has more than 2 entries, which is the limit"},
		"a folder is not a file": {source.Limits{}, read("m"), "read m: is a folder"},
		"a file is not a folder": {source.Limits{}, func(files fs.FS) error {
			_, err := fs.ReadDir(files, "m/a")
			return err
		}, "readdir m/a: is not a folder"},
		"no name leads out": {source.Limits{}, read("../etc/passwd"), "open ../etc/passwd: invalid argument"},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.do(open(t, write(t, files), source.Options{Limits: test.limits}).FS)
			switch {
			case test.want == "" && err != nil:
				t.Error(err)
			case test.want != "" && (err == nil || err.Error() != test.want):
				t.Errorf("error is %v, want %s", err, test.want)
			}
		})
	}
}

func TestAFileThatGrowsIsNotReadInPart(t *testing.T) {
	dir := write(t, map[string]string{"a": "1234"})
	opened, err := open(t, dir, source.Options{}).FS.Open("a")
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	writeFile(t, filepath.Join(dir, "a"), []byte("123456"))
	if _, err := opened.Read(make([]byte, 10)); err == nil || err.Error() != "read a: it grew while it was read" {
		t.Errorf("error is %v", err)
	}
}

func TestADirectoryIsReadByManyAtOnce(t *testing.T) {
	files := open(t, write(t, small), source.Options{}).FS
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for name := range small {
				if _, err := fs.ReadFile(files, name); err != nil {
					t.Error(err)
				}
			}
			if _, err := fs.ReadDir(files, "manifests"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func TestAClosedDirectoryIsClosed(t *testing.T) {
	release, err := source.Open(t.Context(), write(t, small), source.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := release.Close(); err != nil {
		t.Error(err)
	}
	if _, err := fs.ReadDir(release.FS, "."); err == nil {
		t.Error("the release can still be read")
	}
}

func link(t *testing.T, targetName, name string) {
	t.Helper()
	if err := os.Symlink(targetName, name); err != nil {
		t.Skip(err)
	}
}
