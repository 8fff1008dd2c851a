//go:build unix

package source_test

import (
	"io/fs"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/runlevel/runlevel/internal/source"
)

// Opening a pipe waits for a writer: a test that fails hangs.
func TestAPipeIsRefusedAndNotWaitedFor(t *testing.T) {
	dir := write(t, small)
	pipe := filepath.Join(dir, "manifests", "pipe.yaml")
	if err := syscall.Mkfifo(pipe, 0o644); err != nil {
		t.Skip(err)
	}
	link(t, "pipe.yaml", filepath.Join(dir, "manifests", "link.yaml"))
	files := open(t, dir, source.Options{}).FS
	for _, name := range []string{"manifests/pipe.yaml", "manifests/link.yaml"} {
		want := "open " + name + ": is neither a file nor a folder"
		if _, err := fs.ReadFile(files, name); err == nil || err.Error() != want {
			t.Errorf("error is %v, want %s", err, want)
		}
		if _, err := files.Open(name); err == nil || err.Error() != want {
			t.Errorf("error is %v, want %s", err, want)
		}
		if _, err := fs.ReadDir(files, name); err == nil {
			t.Errorf("%s can be listed as a folder", name)
		}
	}
	checkFailure(t, pipe, source.Options{}, "REF is neither a file nor a folder")
}

func TestADeviceIsRefused(t *testing.T) {
	checkFailure(t, "/dev/zero", source.Options{}, "REF is neither a file nor a folder")
}
