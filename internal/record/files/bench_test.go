package files_test

import (
	"os"
	"testing"

	"github.com/runlevel/runlevel/internal/record/files"
)

// BenchmarkPack packs the manifests of this repository's machine controller, or of RUNLEVEL_TEST_RELEASE.
func BenchmarkPack(b *testing.B) {
	folder := os.Getenv("RUNLEVEL_TEST_RELEASE")
	if folder == "" {
		folder = "../../../manifests"
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		b.Fatal(err)
	}
	var names []string
	var size int64
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && info.Mode().IsRegular() {
			names = append(names, entry.Name())
			size += info.Size()
		}
	}
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := files.Pack(os.DirFS(folder), names, nil); err != nil {
			b.Fatal(err)
		}
	}
}
