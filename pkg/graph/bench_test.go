package graph_test

import (
	"fmt"
	"testing"

	"github.com/runlevel/runlevel/pkg/graph"
)

// BenchmarkBuildAndWalk shows how the cost grows: time per task must stay the same.
// Each level has ten components of ten manifests.
func BenchmarkBuildAndWalk(b *testing.B) {
	for _, count := range []int{1_000, 10_000, 100_000, 1_000_000} {
		tasks := make([]task, count)
		for i := range tasks {
			tasks[i] = newTask(fmt.Sprintf("0000_%06d_component-%d_%d.yaml", i/100, i/10%10, i))
		}
		for _, mode := range []graph.Mode{graph.Update, graph.Install} {
			b.Run(fmt.Sprintf("%s/%d", mode, count), func(b *testing.B) {
				for b.Loop() {
					finish(b, graph.Build(tasks, graph.Options{Mode: mode}))
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(count), "ns/task")
			})
		}
	}
}
