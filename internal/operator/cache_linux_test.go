package operator_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// TestFullCache: a full cache stores no image, and does not block updates.
func TestFullCache(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	s := newStage(t)
	large := shop + `
-- 0000_30_large_10_map.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: large, namespace: shop}, data: {text: "` + strings.Repeat("x",
		200_000) + `"}}
`
	s.prepare("1.0.0", large)
	s.options.CacheDir = filepath.Join(t.TempDir(), "full")
	s.must(os.Mkdir(s.options.CacheDir, 0o700))
	if err := unix.Mount("tmpfs", s.options.CacheDir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skip("a small disk can't be mounted here: ", err)
	}
	t.Cleanup(func() { s.must(unix.Unmount(s.options.CacheDir, 0)) })
	s.start()
	s.until("installed", isAt("1.0.0"))
	s.update(s.push("1.0.1", large))
	s.until("updated", isAt("1.0.1"))
	left, err := os.ReadDir(s.options.CacheDir)
	s.must(err)
	if len(left) > 0 {
		t.Errorf("the folder has %v", left)
	}
	s.must(s.end())
}
