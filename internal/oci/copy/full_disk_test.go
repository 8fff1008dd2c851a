//go:build linux

package copy_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/internal/oci/copy"
)

func TestAFullDisk(t *testing.T) {
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=3m"); err != nil {
		t.Skipf("a small disk can't be mounted: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) })
	source := serve(t)
	image := randomImage(t, 2*mib, 2)
	source.push(t, "shop/web:1", image)
	for _, name := range []string{"layout", "x.tar"} {
		t.Run(name, func(t *testing.T) {
			target := oci.Location{Path: filepath.Join(disk, name), Identifier: "1"}
			_, err := copyImage(t, source.location(t, "shop/web:1"), target, copy.Options{})
			checkError(t, err, "the disk of "+target.Path+" is full: free some space, then run the command again")
			if _, err := os.Stat(filepath.Join(target.Path, "index.json")); err == nil {
				t.Error("the image is in the layout")
			}
			if info, err := os.Stat(target.Path); err == nil && !info.IsDir() {
				t.Error("the archive is there")
			}
			if err := unix.Mount("", disk, "", unix.MS_REMOUNT, "size=50m"); err != nil {
				t.Fatal(err)
			}
			mustCopy(t, source.location(t, "shop/web:1"), target, copy.Options{})
			for _, path := range []string{target.Path, target.Path + ".partial"} {
				if err := os.RemoveAll(path); err != nil {
					t.Fatal(err)
				}
			}
			if err := unix.Mount("", disk, "", unix.MS_REMOUNT, "size=3m"); err != nil {
				t.Fatal(err)
			}
		})
	}
}
