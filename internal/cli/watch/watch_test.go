package watch_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/cli/watch"
)

// within are the folders that are looked into, below those that are watched.
var within = []string{"manifests", "release-manifests"}

// interval is longer than the clock of file times is coarse.
const interval = 20 * time.Millisecond

// patience is for a machine that has much else to do.
const patience = 5 * time.Minute

// TestChangesAreSeen does one thing after the other, and waits each time until the callback
// has seen the current files.
func TestChangesAreSeen(t *testing.T) {
	for name, test := range map[string]struct {
		paths  string
		before string
		steps  []string
	}{
		"a file is written in place":            {"m", "write m/a 1", []string{"write m/a 2", "write m/a 3"}},
		"a file is cut off, and written":        {"m", "write m/a 1", []string{"cut m/a", "append m/a 2"}},
		"files come and go":                     {"m", "folder m", []string{"write m/a 1", "write m/b 1", "remove m/a", "rename m/b m/c"}},
		"a save by rename":                      {"m", "write m/a 1", []string{"write m/a.tmp 2; rename m/a.tmp m/a", "write m/a.tmp 3; rename m/a.tmp m/a"}},
		"a save by way of a backup":             {"m", "write m/a 1", []string{"write m/4913 x; remove m/4913; rename m/a m/a~; write m/a 2; remove m/a~", "rename m/a m/a~; write m/a 3"}},
		"a named file is written":               {"c", "write c 1", []string{"write c 2", "cut c", "append c 3"}},
		"a named file is replaced":              {"c", "write c 1", []string{"write d 2; rename d c", "write d 3; rename d c", "write c 4"}},
		"a named file is created and removed":   {"c", "folder m", []string{"write c 1", "write c 2", "remove c", "write c 3"}},
		"a named file in folders to come":       {"x/y/c", "folder m", []string{"write x/y/c 1", "write x/y/c 2", "remove x", "folder x", "folder x/y", "write x/y/c 3"}},
		"a named file that editors would leave": {"m/x.log m", "write m/x.log 1", []string{"write m/x.log 2", "write m/a 1"}},
		"a folder is removed and recreated":     {"m", "write m/a 1", []string{"remove m", "write m/a 2", "remove m; write m/a 3", "write m/a 4"}},
		"a folder is moved away and back":       {"m", "write m/a 1", []string{"rename m n", "rename n m", "write m/a 2", "rename m n; rename n m", "write m/a 3"}},
		"a folder is moved away and removed":    {"m", "write m/a 1", []string{"rename m n; remove n", "write m/a 2", "rename m n; remove n; write m/a 3", "write m/a 4"}},
		"a folder is replaced by another":       {"m", "write m/a 1; write n/a 2", []string{"rename m o; rename n m", "write m/a 3", "rename m n; rename o m", "write m/a 4"}},
		"a folder that is missing at first":     {"x/m", "folder y", []string{"write x/m/a 1", "write x/m/a 2"}},
		"a folder that becomes a file":          {"m", "write m/a 1", []string{"remove m; write m 2", "write m 3", "remove m; write m/a 4", "write m/a 5"}},
		"folders within":                        {"m", "folder m", []string{"write m/manifests/a 1", "write m/manifests/a 2", "write m/release-manifests/b 1", "write m/release-manifests/b 2", "remove m/manifests", "write m/manifests/a 3", "write m/manifests/a 4", "remove m", "write m/manifests/a 5", "write m/manifests/a 6"}},
		"many files at once":                    {"m", "many m 570 1", []string{"many m 570 2", "remove m; many m 570 3"}},
		"a link to a folder":                    {"l", "write m/a 1; write n/a 2; link m l", []string{"write m/a 3", "link n l", "write n/a 4", "remove n", "write n/a 5"}},
		"a link to a file":                      {"l", "write m/a 1; write n/a 2; link m/a l", []string{"write m/a 3", "link n/a l", "write n/a 4"}},
		"a link to a link":                      {"l", "write m/a 1; write n/a 2; link m k; link k l", []string{"write m/a 3", "link n k", "write n/a 4"}},
		"a link on the way":                     {"l/m", "write x/m/a 1; write y/m/a 2; link x l", []string{"write x/m/a 3", "link y l", "write y/m/a 4"}},
		"a folder that can't keep still":        {"x/m", "folder x", []string{"flicker x 100; write x/m/a 1", "write x/m/a 2", "flicker x/m 100; write x/m/a 3", "write x/m/a 4"}},
		"a link to nothing yet":                 {"l", "link x/y l", []string{"write x/y/a 1", "write x/y/a 2"}},
		"a link in a circle":                    {"l m", "link l l; write m/a 1", []string{"write m/a 2", "remove l; write l/a 1", "write l/a 2"}},
		"a link within":                         {"m", "write x/a 1; write y/a 2; folder m; link ../x m/manifests", []string{"write x/a 3", "link ../y m/manifests", "write y/a 4"}},
		"files that are links":                  {"m", "write x/a 1; write y 2; folder m; link ../x/a m/a", []string{"write x/a 3", "link ../y m/a", "write y 4"}},
		"a mount of Kubernetes":                 {"m", "write m/..1/a 1; link ..1 m/..data; link ..data/a m/a", []string{"write m/..2/a 2; link ..2 m/..data; remove m/..1", "write m/..3/a 3; link ..3 m/..data; remove m/..2"}},
		"one file of a mount":                   {"m/a", "write m/..1/a 1; link ..1 m/..data; link ..data/a m/a", []string{"write m/..2/a 2; link ..2 m/..data; remove m/..1", "write m/..3/a 3; link ..3 m/..data; remove m/..2"}},
		"a way round":                           {"l/../c", "write x/y/z 1; write x/c 1; link x/y l", []string{"write x/c 2"}},
		"several":                               {"m n c", "write m/a 1; write n/a 1", []string{"write m/a 2", "write n/a 2", "write c 1", "remove n", "write m/a 3", "write n/a 3"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			do(t, test.before)
			see(t, strings.Fields(test.paths), test.steps)
		})
	}
}

// TestFoldersOnTheWay come and go with a branch. That is only seen of relative paths.
func TestFoldersOnTheWay(t *testing.T) {
	t.Chdir(t.TempDir())
	do(t, "write x/y/m/a 1")
	see(t, []string{"x/y/m"}, []string{"rename x z", "rename z x", "write x/y/m/a 2", "rename x/y y; write x/y/m/a 3", "write x/y/m/a 4"})
}

// TestLockedFolders are watched once they may be read.
func TestLockedFolders(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("nothing is locked for root")
	}
	t.Chdir(t.TempDir())
	do(t, "write m/a 1; chmod m 000")
	see(t, []string{"m"}, []string{"chmod m 755", "write m/a 2"})
}

// see watches, takes steps, and waits after each until it has been seen.
func see(t *testing.T, paths, steps []string) {
	t.Helper()
	looks := make(chan map[string]string)
	start(t, watch.Set{Paths: paths, Within: within}, func(ctx context.Context) error {
		select {
		case looks <- content(paths):
		case <-ctx.Done():
		}
		return nil
	})
	deadline := time.After(patience)
	seen := map[string]string{"nothing": "is seen yet"}
	for _, step := range append([]string{""}, steps...) {
		do(t, step)
		for want := content(paths); !maps.Equal(seen, want); {
			select {
			case seen = <-looks:
			case <-deadline:
				t.Fatalf("after %q nobody is told to look (-is +seen last):\n%s", step, cmp.Diff(want, seen))
			}
		}
	}
}

// start watches until the test ends, or the function returned is called, which returns
// what watching came to.
func start(t *testing.T, set watch.Set, look func(context.Context) error) (stop func() error) {
	t.Helper()
	awaitFileTime(t)
	set.Interval = interval
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- watch.Paths(ctx, set, func() error { return look(ctx) }) }()
	var err error
	stop = func() error {
		if cancel(); ended != nil {
			err, ended = <-ended, nil
		}
		return err
	}
	t.Cleanup(func() {
		if err := stop(); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return stop
}

// content is what a reader sees: files, and files in folders and in those
// within.
func content(paths []string) map[string]string {
	seen := map[string]string{}
	read := func(path string) {
		if text, err := os.ReadFile(path); err == nil {
			seen[path] = string(text)
		} else if _, err := os.Stat(path); err == nil {
			seen[path] = "(there)"
		}
	}
	for _, path := range paths {
		read(path)
		for _, folder := range append([]string{""}, within...) {
			entries, err := os.ReadDir(path + "/" + folder)
			if errors.Is(err, os.ErrPermission) {
				seen[path+"/"+folder] = "(locked)"
			}
			for _, entry := range entries {
				read(path + "/" + folder + "/" + entry.Name())
			}
		}
	}
	return seen
}

// do does what a script says, which has one thing after each ";".
func do(t *testing.T, script string) {
	t.Helper()
	for command := range strings.SplitSeq(script, ";") {
		words := append(strings.Fields(command), "", "", "")
		var err error
		switch name, target := words[1], words[2]; words[0] {
		case "":
		case "folder":
			err = os.MkdirAll(name, 0o755)
		case "write":
			err = errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(target), 0o644))
		case "many":
			count, _ := strconv.Atoi(words[2])
			for i := range count {
				do(t, fmt.Sprintf("write %s/%d %s", name, i, words[3]))
			}
		case "flicker":
			count, _ := strconv.Atoi(words[2])
			for range count {
				do(t, "remove "+name+"; folder "+name+"/manifests")
			}
		case "cut":
			err = os.Truncate(name, 0)
		case "append":
			var file *os.File
			if file, err = os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0); err == nil {
				_, err = file.WriteString(target)
				err = errors.Join(err, file.Close())
			}
		case "remove":
			err = os.RemoveAll(name)
		case "rename":
			err = os.Rename(name, target)
		case "link": // name is the target, as with ln
			err = errors.Join(os.Symlink(name, target+".new"), os.Rename(target+".new", target))
		case "chmod":
			var mode uint64
			mode, err = strconv.ParseUint(target, 8, 32)
			err = errors.Join(err, os.Chmod(name, os.FileMode(mode)))
		default:
			t.Fatalf("there is no command %q", words[0])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestChangesWhileSomebodyLooks are not lost.
func TestChangesWhileSomebodyLooks(t *testing.T) {
	t.Chdir(t.TempDir())
	do(t, "folder m")
	looking, goOn := make(chan struct{}), make(chan struct{})
	start(t, watch.Set{Paths: []string{"m"}}, func(ctx context.Context) error {
		for _, step := range []chan struct{}{looking, goOn} {
			select {
			case step <- struct{}{}:
			case <-ctx.Done():
			}
		}
		return nil
	})
	for i := range 3 {
		await(t, looking, "look "+strconv.Itoa(i))
		do(t, "write m/a "+strconv.Itoa(i))
		await(t, goOn, "the end of it")
	}
	await(t, looking, "the look after the last change")
	await(t, goOn, "the end of it")
}

// TestABurstThatNeverEnds does not keep the callback from running.
func TestABurstThatNeverEnds(t *testing.T) {
	t.Chdir(t.TempDir())
	do(t, "folder m")
	looks := make(chan struct{})
	start(t, watch.Set{Paths: []string{"m"}}, func(ctx context.Context) error {
		select {
		case looks <- struct{}{}:
		case <-ctx.Done():
		}
		return nil
	})
	deadline := time.After(patience)
	often := time.NewTicker(5 * time.Millisecond)
	defer often.Stop()
	for seen := 0; seen < 4; {
		select {
		case <-looks:
			seen++
		case now := <-often.C:
			do(t, "write m/a "+now.Format(time.StampNano))
		case <-deadline:
			t.Fatalf("%d looks, while there were changes all the time", seen)
		}
	}
}

func TestEndsOfWatching(t *testing.T) {
	t.Chdir(t.TempDir())
	do(t, "write m/manifests/a 1")
	calls := make(chan struct{}, 1)
	stop := start(t, watch.Set{Paths: []string{"m"}, Within: within}, func(context.Context) error {
		calls <- struct{}{}
		return nil
	})
	await(t, calls, "a call")
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Errorf("watching ended with %v, want the context's error", err)
	}
	want := errors.New("enough")
	if err := watch.Paths(t.Context(), watch.Set{Paths: []string{"m"}}, func() error { return want }); !errors.Is(err, want) {
		t.Errorf("watching ended with %v, want %v", err, want)
	}
}

// TestUnwatchedFiles changes files that are not watched, and then one that is: there is one call for all.
func TestUnwatchedFiles(t *testing.T) {
	for _, name := range []string{"m/deeper/a", "m/manifests/deeper/a", "n/a", "m/b.log", "m/.a.yaml.swp", "m/.#a.yaml", "m/#a.yaml#", "m/4913", "m/output"} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			do(t, "write m/deeper/a 1; write m/manifests/deeper/a 1; write m/output 1; folder n")
			output, err := os.Stat("m/output")
			if err != nil {
				t.Fatal(err)
			}
			calls := make(chan struct{}, 100)
			start(t, watch.Set{Paths: []string{"m"}, Within: within, Skip: func(info os.FileInfo) bool { return os.SameFile(info, output) }}, func(context.Context) error {
				calls <- struct{}{}
				return nil
			})
			await(t, calls, "the first call")
			do(t, "write "+name+" 22")
			awaitNone(t, calls, name+" is watched")
			do(t, "write m/a 1")
			await(t, calls, "the second call")
			awaitNone(t, calls, name+" is watched")
		})
	}
}

// awaitNone looks several times, and fails if something happens.
func awaitNone(t *testing.T, happened <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-happened:
		t.Error(what)
	case <-time.After(5 * interval):
	}
}

// awaitFileTime writes a file until its time differs, so that the next write of any other has another time than those
// before.
func awaitFileTime(t *testing.T) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "clock")
	written := func() time.Time {
		if err := os.WriteFile(file, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		return info.ModTime()
	}
	for first := written(); !written().After(first); {
	}
}

func await(t *testing.T, happened <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-happened:
	case <-time.After(patience):
		t.Fatalf("no sign of %s", what)
	}
}
