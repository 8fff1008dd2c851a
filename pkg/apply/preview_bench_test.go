package apply_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// BenchmarkPreview previews a thousand objects: when none exists, when no client can have changed any, and when a
// client may have changed some.
func BenchmarkPreview(b *testing.B) {
	const objects = 1000
	release := manyObjects(b, objects)
	look := func(options apply.Options) func(*testing.B) {
		return func(b *testing.B) {
			for b.Loop() {
				if saw := preview(b, b.Context(), test.Sandbox(b).Config, release, options); saw.Err != nil {
					b.Fatal(saw.Err)
				}
			}
		}
	}
	b.Run("new", look(apply.Options{Options: installMode}))
	if did := run(b, b.Context(), release, apply.Options{Options: installMode}); did.Err != nil {
		b.Fatal(did.Err)
	}
	b.Run("unchanged", look(apply.Options{Options: reconcileMode}))
	b.Run("each asked for", look(apply.Options{Options: object.Options{Mode: graph.Update, Full: true}}))
}

// manyObjects returns a payload of small ConfigMaps in ten components, in an unused namespace.
func manyObjects(b *testing.B, count int) *payload.Payload {
	b.Helper()
	namespace := test.Namespace(b)
	folder := fstest.MapFS{}
	for i := range count {
		folder[fmt.Sprintf("0000_10_component-%d_%04d.yaml", i%10, i)] = &fstest.MapFile{Data: fmt.Appendf(nil,
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: object-%04d, namespace: %s}, data: {key: %s}}", i,
			namespace, strings.Repeat("x", 200))}
	}
	release, _, err := payload.Load(b.Context(), folder, payload.Options{Name: namespace})
	if err != nil {
		b.Fatal(err)
	}
	return release
}
