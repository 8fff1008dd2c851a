package graph_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/runlevel/runlevel/pkg/graph"
)

// BenchmarkBuildAndWalk shows how the cost grows: time per task must stay the same.
func BenchmarkBuildAndWalk(b *testing.B) {
	for _, count := range []int{1_000, 10_000, 100_000, 1_000_000} {
		tasks := manyTasks(count)
		for name, options := range map[string]graph.Options{
			"update": {}, "install": {Mode: graph.Install}, "implied": {Mode: graph.Install, Implied: true},
		} {
			b.Run(fmt.Sprintf("%s/%d", name, count), func(b *testing.B) {
				for b.Loop() {
					finish(b, graph.Build(tasks, options))
				}
				perTask(b, count)
			})
		}
	}
}

// BenchmarkRescan walks the same graphs as the cluster-version operator does, for comparison: before each step it
// checks all nodes, beginning with the first.
func BenchmarkRescan(b *testing.B) {
	for _, count := range []int{1_000, 10_000, 100_000} {
		g := graph.Build(manyTasks(count), graph.Options{})
		b.Run(fmt.Sprintf("update/%d", count), func(b *testing.B) {
			for b.Loop() {
				done := make([]bool, len(g.Nodes))
				for node := nextNode(g, done); node >= 0; node = nextNode(g, done) {
					done[node] = true
				}
			}
			perTask(b, count)
		})
	}
}

// nextNode returns the first unfinished node that no unfinished node blocks.
func nextNode(g *graph.Graph, done []bool) int {
	for i, node := range g.Nodes {
		if !done[i] && !slices.ContainsFunc(node.In, func(before int) bool { return !done[before] }) {
			return i
		}
	}
	return -1
}

// manyTasks returns levels of ten components of ten manifests. The first manifest of each level creates the namespace
// of the others.
func manyTasks(count int) []task {
	tasks := make([]task, count)
	for i := range tasks {
		tasks[i] = newTask(fmt.Sprintf("0000_%06d_component-%d_%d.yaml", i/100, i/10%10, i))
		namespace := fmt.Sprintf("namespace-%d", i/100)
		if i%100 == 0 {
			tasks[i].object.SetKind("Namespace")
			tasks[i].object.SetName(namespace)
		} else {
			tasks[i].object.SetNamespace(namespace)
		}
	}
	return tasks
}

func perTask(b *testing.B, count int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(count), "ns/task")
}
