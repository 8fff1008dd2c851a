package payload_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/openshift/library-go/pkg/manifest"

	"github.com/runlevel/runlevel/pkg/payload"
)

// largeRelease is a plain folder of CustomResourceDefinitions, the bulk of real
// releases: count files of about size bytes.
func largeRelease(count, size int) fs.FS {
	files := fstest.MapFS{}
	for i := range count {
		files[fmt.Sprintf("0000_%02d_component-%d_%05d.crd.yaml", i%100, i%7, i)] = &fstest.MapFile{
			Data: []byte(definition(i, size)),
		}
	}
	return files
}

// definition is a CustomResourceDefinition with fields as people write them.
func definition(number, size int) string {
	var text strings.Builder
	fmt.Fprintf(&text, `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  annotations:
    include.release.openshift.io/self-managed-high-availability: "true"
  name: widgets%d.example.com
spec:
  group: example.com
  names:
    kind: Widget%d
    plural: widgets%d
  scope: Namespaced
  versions:
  - name: v1
    schema:
      openAPIV3Schema:
        properties:
          spec:
            properties:
`, number, number, number)
	for field := 0; text.Len() < size; field++ {
		fmt.Fprintf(&text, `              field%d:
                default: ""
                description: |-
                  field%d defines how the operator treats its findings. When it is omitted,
                  the operator chooses a reasonable default, which may change over time.

                  It can't be changed once it is set.
                maxLength: 253
                minLength: 1
                type: string
                x-kubernetes-validations:
                - message: field%d can't be changed
                  rule: oldSelf == '' || self == oldSelf
`, field, field, field)
	}
	return text.String()
}

const (
	manyFiles = 569        // files of the release with which the cluster-version operator was measured
	manyBytes = 16_000_000 // total size
)

// BenchmarkLoad also measures the cluster-version operator's way for comparison:
// library-go's parser reads the same files, one after the other.
func BenchmarkLoad(b *testing.B) {
	files := largeRelease(manyFiles, manyBytes/manyFiles)
	filter := payload.Filter{Profile: "self-managed-high-availability", FeatureSet: "Default", FeatureGates: []string{}}
	b.Run("runlevel", func(b *testing.B) {
		b.SetBytes(manyBytes)
		for b.Loop() {
			load(b, files, filter)
		}
	})
	b.Run("one-core", func(b *testing.B) {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
		b.SetBytes(manyBytes)
		for b.Loop() {
			load(b, files, filter)
		}
	})
	b.Run("library-go", func(b *testing.B) {
		b.SetBytes(manyBytes)
		for b.Loop() {
			parseWithLibraryGo(b, files)
		}
	})
}

// BenchmarkLoadGrows shows how the cost grows: time per file must stay the same.
func BenchmarkLoadGrows(b *testing.B) {
	for _, count := range []int{200, 1_000, 5_000} {
		files := largeRelease(count, 4_000)
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			for b.Loop() {
				load(b, files, payload.Filter{})
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(count), "µs/file")
		})
	}
}

func load(b *testing.B, files fs.FS, filter payload.Filter) {
	b.Helper()
	p, _, err := payload.Load(b.Context(), files, payload.Options{Filter: filter})
	if err != nil || len(p.Excluded) > 0 {
		b.Fatal(err, "nothing should be left out")
	}
}

func parseWithLibraryGo(b *testing.B, files fs.FS) {
	b.Helper()
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		b.Fatal(err)
	}
	for _, entry := range entries {
		text, err := fs.ReadFile(files, entry.Name())
		if err != nil {
			b.Fatal(err)
		}
		if _, err := manifest.ParseManifests(bytes.NewReader(text)); err != nil {
			b.Fatal(err)
		}
	}
}
