package fix_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/review/fix"
)

const cut, ended = "apiVersion: v1", "apiVersion: v1\n"

// folderOf is a folder of files, some of them links, and a patch that ends the last line
// of all manifests in it.
func folderOf(t *testing.T, files map[string]string) (string, *fix.Folder, *fix.Patch) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "release")
	var requests []fix.Request
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if to, isLink := strings.CutPrefix(text, "-> "); isLink {
			err = os.Symlink(to, file)
		} else {
			err = os.WriteFile(file, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		requests = append(requests, fix.Request{Rule: fix.FinalNewline, Path: name})
		if strings.HasPrefix(name, "0000_5_") {
			requests = append(requests, fix.Request{Rule: fix.LevelWidth, Path: name, Name: strings.Replace(name, "_5_", "_05_", 1)})
		}
	}
	folder, err := fix.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = folder.Close() })
	patch := fix.New(folder.FS())
	patch.Fix(requests)
	return dir, folder, patch
}

// contents are the files of a folder; links say where to.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if entry.Type()&fs.ModeSymlink != 0 {
			to, err := os.Readlink(path)
			found[name] = "-> " + to
			return err
		}
		text, err := os.ReadFile(path)
		found[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestWriting(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside.yaml")
	if err := os.WriteFile(outside, []byte(cut), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		before, want map[string]string
		left         []string
	}{
		"files":                 {map[string]string{"a.yaml": cut, "m/b.yaml": cut, "c.yaml": ended}, map[string]string{"a.yaml": ended, "m/b.yaml": ended, "c.yaml": ended}, nil},
		"a new name":            {map[string]string{"0000_5_a": ended}, map[string]string{"0000_05_a": ended}, nil},
		"a new name, too":       {map[string]string{"0000_5_a": cut}, map[string]string{"0000_05_a": ended}, nil},
		"a link":                {map[string]string{"0000_5_a": "-> m/b", "m/b": cut}, map[string]string{"0000_5_a": "-> m/b", "m/b": ended}, []string{"0000_5_a: it is a link: fix the file that it leads to"}},
		"a link to the outside": {map[string]string{"a": "-> " + outside, "b": cut}, map[string]string{"a": "-> " + outside, "b": ended}, []string{"a: path escapes from parent"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir, folder, patch := folderOf(t, test.before)
			ready, left := folder.WithoutLinks(patch.Changes())
			made, err := folder.Write(t.Context(), ready)
			if err != nil || len(made) != len(ready) {
				t.Errorf("made %d changes of %d: %v", len(made), len(ready), err)
			}
			if diff := cmp.Diff(test.want, contents(t, dir)); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
			var got []string
			for _, l := range slices.Concat(patch.Left(), left) {
				got = append(got, l.Path+": "+l.Why)
			}
			if diff := cmp.Diff(test.left, got); diff != "" {
				t.Errorf("left (-want +got):\n%s", diff)
			}
		})
	}
	if text, err := os.ReadFile(outside); err != nil || string(text) != cut {
		t.Errorf("the file outside is %q, %v", text, err)
	}
}

func TestTheModeIsKept(t *testing.T) {
	dir, folder, patch := folderOf(t, map[string]string{"a.yaml": cut})
	file := filepath.Join(dir, "a.yaml")
	if err := os.Chmod(file, 0o660); err != nil {
		t.Fatal(err)
	}
	ready, _ := folder.WithoutLinks(patch.Changes())
	if _, err := folder.Write(t.Context(), ready); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("its mode is %v, %v", info.Mode(), err)
	}
}

// TestNothingIsHalfDone lets something go wrong between reading and writing.
func TestNothingIsHalfDone(t *testing.T) {
	before := map[string]string{"0000_5_c.yaml": cut, "a.yaml": cut, "b.yaml": cut}
	for name, test := range map[string]struct {
		meanwhile func(dir string) error
		want      string
	}{
		"a file is changed": {func(dir string) error { return os.WriteFile(filepath.Join(dir, "b.yaml"), []byte("x"), 0o644) }, "b.yaml has changed since it was read, and is not overwritten: run it again"},
		"a file is gone":    {func(dir string) error { return os.Remove(filepath.Join(dir, "b.yaml")) }, "b.yaml can't be read any more: no such file or directory"},
		"a file is a link now": {
			func(dir string) error {
				file := filepath.Join(dir, "b.yaml")
				return errors.Join(os.Rename(file, file+"~"), os.Symlink("b.yaml~", file))
			},
			"b.yaml has become a link since it was read, and is not overwritten: run it again",
		},
		"a name is taken": {
			func(dir string) error { return os.WriteFile(filepath.Join(dir, "0000_05_c.yaml"), nil, 0o644) },
			"0000_05_c.yaml is there already, and is not overwritten",
		},
		"a file may only be read": {func(dir string) error { return os.Chmod(filepath.Join(dir, "b.yaml"), 0o444) }, "b.yaml may only be read, and is not changed: allow writing it first"},
		"the name of the new file is taken": {
			func(dir string) error {
				return os.Mkdir(filepath.Join(dir, fmt.Sprintf(".runlevel-fix-%d-2", os.Getpid())), 0o755)
			},
			"b.yaml can't be written: file exists; nothing is changed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, folder, patch := folderOf(t, before)
			ready, _ := folder.WithoutLinks(patch.Changes())
			if err := test.meanwhile(dir); err != nil {
				t.Fatal(err)
			}
			now := contents(t, dir)
			made, err := folder.Write(t.Context(), ready)
			if err == nil || err.Error() != filepath.Join(dir, test.want) || len(made) > 0 {
				t.Errorf("made %d changes, and said: %v", len(made), err)
			}
			if diff := cmp.Diff(now, contents(t, dir)); diff != "" {
				t.Errorf("files are changed (-before +after):\n%s", diff)
			}
		})
	}
}

// countdown is a context that ends when it was asked often enough.
type countdown struct {
	context.Context
	asked, end int
}

func (c *countdown) Err() error {
	if c.asked++; c.asked > c.end {
		return context.Canceled
	}
	return nil
}

// TestAnInterruptLeavesWholeFiles ends writing at every place where it can be.
func TestAnInterruptLeavesWholeFiles(t *testing.T) {
	before := map[string]string{"0000_5_c.yaml": cut, "a.yaml": cut, "b.yaml": cut}
	for end := range 2 * len(before) {
		dir, folder, patch := folderOf(t, before)
		ready, _ := folder.WithoutLinks(patch.Changes())
		made, err := folder.Write(&countdown{t.Context(), 0, end}, ready)
		if err == nil || len(made) != max(0, end-len(before)) {
			t.Errorf("ended after %d: made %d changes, %v", end, len(made), err)
		}
		fixed := 0
		for name, text := range contents(t, dir) {
			if text == ended {
				fixed++
			} else if text != cut || strings.HasPrefix(name, ".") {
				t.Errorf("ended after %d: %s holds %q", end, name, text)
			}
		}
		if fixed != len(made) {
			t.Errorf("ended after %d: %d files are fixed, and %d said to be", end, fixed, len(made))
		}
	}
}

func TestAFolderThatMayNotBeWritten(t *testing.T) {
	dir, folder, patch := folderOf(t, map[string]string{"m/a.yaml": cut, "n/b.yaml": cut})
	locked := filepath.Join(dir, "n")
	if err := os.Chmod(locked, 0o555); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(locked, 0o755) })
	if os.WriteFile(filepath.Join(locked, "probe"), nil, 0o644) == nil {
		t.Skip("this user may write everywhere")
	}
	ready, _ := folder.WithoutLinks(patch.Changes())
	made, err := folder.Write(t.Context(), ready)
	if want := "n/b.yaml can't be written: permission denied; nothing is changed"; err == nil || err.Error() != filepath.Join(dir, want) || len(made) > 0 {
		t.Errorf("made %d changes, and said: %v", len(made), err)
	}
	if diff := cmp.Diff(map[string]string{"m/a.yaml": cut, "n/b.yaml": cut}, contents(t, dir)); diff != "" {
		t.Errorf("files are changed (-before +after):\n%s", diff)
	}
}
