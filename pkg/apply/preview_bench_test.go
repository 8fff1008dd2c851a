package apply_test

import (
	"testing"

	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/graph"
)

// BenchmarkPreview looks at a thousand objects: when none is there, when nobody can have
// changed any, and when it is not known whether somebody has.
func BenchmarkPreview(b *testing.B) {
	const objects = 1000
	release := manyObjects(b, b.Name(), objects)
	look := func(options apply.Options) func(*testing.B) {
		return func(b *testing.B) {
			for b.Loop() {
				if saw := preview(b, b.Context(), test.Sandbox(b).Config, release, options); saw.Err != nil {
					b.Fatal(saw.Err)
				}
			}
		}
	}
	b.Run("new", look(apply.Options{Mode: graph.Install}))
	if did := run(b, b.Context(), release, apply.Options{Mode: graph.Install}); did.Err != nil {
		b.Fatal(did.Err)
	}
	b.Run("unchanged", look(apply.Options{Mode: graph.Reconcile}))
	b.Run("each asked for", look(apply.Options{Mode: graph.Update, Full: true}))
}
