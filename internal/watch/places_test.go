package watch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/fsnotify/fsnotify"
	"github.com/google/go-cmp/cmp"
)

// TestWhatIsNobodysBusiness asks about events one by one: that something does not happen
// can't be waited for.
func TestWhatIsNobodysBusiness(t *testing.T) {
	folder := t.TempDir()
	if err := os.MkdirAll(folder+"/m/manifests/deeper", 0o755); err != nil {
		t.Fatal(err)
	}
	w := &watcher{working: "/", set: Set{
		Paths: []string{folder + "/m", folder + "/config.log"}, Within: []string{"manifests"},
		Skip: func(path string) bool { return strings.HasSuffix(path, "output") },
	}}
	for name, test := range map[string]struct {
		op   fsnotify.Op
		want bool
	}{
		"m/a":                  {fsnotify.Write, true},
		"m/b":                  {fsnotify.Chmod, false},
		"m/c":                  {fsnotify.Chmod | fsnotify.Write, true},
		"m/manifests":          {fsnotify.Create, true},
		"m/manifests/a":        {fsnotify.Remove, true},
		"m/manifests/deeper":   {fsnotify.Remove, true},
		"m/manifests/deeper/a": {fsnotify.Write, false},
		"m":                    {fsnotify.Remove, true},
		"n":                    {fsnotify.Create, false},
		"config.log":           {fsnotify.Create, true},
		"m/config.log":         {fsnotify.Write, false},
		"m/.a.yaml.swp":        {fsnotify.Write, false},
		"m/.a.yaml.swx":        {fsnotify.Create, false},
		"m/.#a.yaml":           {fsnotify.Create, false},
		"m/#a.yaml#":           {fsnotify.Write, false},
		"m/4913":               {fsnotify.Create, false},
		"m/.git":               {fsnotify.Create, false},
		"m/a.yaml~":            {fsnotify.Remove, true},
		"m/.a.yaml":            {fsnotify.Write, true},
		"m/output":             {fsnotify.Write, false},
	} {
		t.Run(name, func(t *testing.T) {
			places, event := w.find(), fsnotify.Event{Name: folder + "/" + name, Op: test.op}
			if got := places.concern(event, w.set.Skip); got != test.want {
				t.Errorf("%s matters: %t, want %t", event, got, test.want)
			}
		})
	}
}

// TestWhatIsLeftBehind is not watched any longer: there may be a lot of it.
func TestWhatIsLeftBehind(t *testing.T) {
	t.Chdir(t.TempDir())
	w, err := newWatcher(Set{Paths: []string{"link"}})
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	for _, name := range []string{"old", "new"} {
		_ = os.Remove("link")
		if err := errors.Join(os.Mkdir(name, 0o755), os.Symlink(name, "link"), w.place()); err != nil {
			t.Fatal(err)
		}
		want := []string{w.working, filepath.Join(w.working, name)}
		got := slices.Sorted(slices.Values(w.kernel.WatchList()))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("with a link to %s (-want to be watched +is):\n%s", name, diff)
		}
	}
}

func TestLimitsAreSaidWithWhatToDo(t *testing.T) {
	for err, want := range map[error]string{
		syscall.ENOSPC: "fs.inotify.max_user_watches",
		syscall.EMFILE: "fs.inotify.max_user_instances",
		syscall.ENFILE: "ulimit -n",
		syscall.EIO:    "watch m: input/output error",
	} {
		if got := explain(fmt.Errorf("watch m: %w", err)).Error(); !strings.Contains(got, want) {
			t.Errorf("%v is explained as %q, want something about %s", err, got, want)
		}
	}
}
