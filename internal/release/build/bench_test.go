package build_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/runlevel/runlevel/internal/release/build"
)

var anImage = regexp.MustCompile(`(?m)^(\s*(?:- )?image: *)["']?([^\s"'@{]+?/[^\s"'@]+?)(?::[\w.-]+)?["']?$`)

var aPart = regexp.MustCompile(`0\.0\.1-snapshot-[a-z0-9-]+`)

// BenchmarkBuild builds the manifests of a real release as one component, whose images get digests. The limit of a
// build is 2 s.
func BenchmarkBuild(b *testing.B) {
	release := os.Getenv("RUNLEVEL_TEST_RELEASE")
	if release == "" {
		b.Skip("RUNLEVEL_TEST_RELEASE names no release")
	}
	files, err := filepath.Glob(filepath.Join(release, "release-manifests", "0000_*"))
	if err != nil {
		b.Fatal(err)
	}
	texts := map[string]string{
		"release.yaml": "name: openshift\nversion: 4.21.0\ncomponents: [{name: all, source: all}]\n",
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			b.Fatal(err)
		}
		text = aPart.ReplaceAll(text, []byte("1.0.0")) // its release declares them
		pinned := anImage.ReplaceAllString(string(text), "$1$2@sha256:"+strings.Repeat("a", 64))
		texts["all/"+filepath.Base(file)] = strings.ReplaceAll(pinned, "image: openshift/",
			"image: docker.io/openshift/")
	}
	folder := write(b, texts)
	b.ResetTimer()
	for b.Loop() {
		if _, err := buildIn(b, folder, build.Options{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(files)), "files")
}
