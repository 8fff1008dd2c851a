package graph

import (
	"math/rand"
	"slices"

	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// A layout cuts tasks into nodes by the names of their files.
type layout struct {
	names   []Name // name of the file of each task
	options Options
	random  *rand.Rand
}

// strides is the number of attempts with the same shuffle, each with another start.
// It is the cluster-version operator's number, and so is the generator: the same
// attempt has the same order as there.
const strides = 8

func newLayout(tasks []Task, options Options) *layout {
	l := &layout{names: make([]Name, len(tasks)), options: options}
	for i, task := range tasks {
		l.names[i] = ParseName(task.File())
	}
	if options.Mode == Reconcile {
		l.random = rand.New(rand.NewSource(int64(options.Attempt / strides)))
	}
	return l
}

// segments cuts tasks where every mode keeps the order.
func (l *layout) segments(tasks []Task) [][]int {
	segments := splitAtJobs(tasks)
	if l.options.Mode != Install {
		return segments
	}
	var parts [][]int
	for _, segment := range segments {
		parts = append(parts, l.splitAtHooks(tasks, segment)...)
	}
	return parts
}

// splitAtJobs cuts tasks at Jobs: each Job stands alone.
func splitAtJobs(tasks []Task) [][]int {
	var segments [][]int
	var current []int
	for i, task := range tasks {
		if !IsBarrier(task) {
			current = append(current, i)
			continue
		}
		if len(current) > 0 {
			segments = append(segments, current)
		}
		segments = append(segments, []int{i})
		current = nil
	}
	if len(current) > 0 {
		segments = append(segments, current)
	}
	return segments
}

// splitAtHooks cuts a segment of an install before and after each level that has a Deployment with lifecycle hooks: the
// hooks may need earlier levels, and later levels may need the hooks. An update keeps levels apart anyway.
func (l *layout) splitAtHooks(tasks []Task, segment []int) [][]int {
	var parts [][]int
	var begin int // start of the last part
	wasHooked := false
	for start := 0; start < len(segment); {
		end := start + 1
		for end < len(segment) && l.sameLevel(segment[start:], segment[end:]) {
			end++
		}
		isHooked := slices.ContainsFunc(segment[start:end], func(task int) bool { return HasHooks(tasks[task]) })
		if len(parts) == 0 || isHooked || wasHooked {
			parts, begin = append(parts, nil), start
		}
		parts[len(parts)-1] = segment[begin:end:end]
		start, wasHooked = end, isHooked
	}
	return parts
}

// HasHooks reports whether a task is a Deployment with lifecycle hooks.
func HasHooks(task Task) bool {
	object := task.Object()
	return !task.IsTombstone() && object.GroupVersionKind().GroupKind() == kinds.Deployment &&
		object.GetAnnotations()[deploymenthook.Annotation] != ""
}

// IsBarrier reports whether a task is a Job: all earlier tasks are done before it, and
// all later tasks after it.
func IsBarrier(task Task) bool {
	object := task.Object()
	return object.GetKind() == "Job" && object.GetAPIVersion() == "batch/v1"
}

// steps cuts tasks into steps, each of nodes that may run in parallel.
func (l *layout) steps(tasks []int) [][][]int {
	switch l.options.Mode {
	case Install:
		return [][][]int{l.chunks(tasks)}
	case Reconcile:
		chunks := l.chunks(tasks)
		l.random.Shuffle(len(chunks), func(i, j int) { chunks[i], chunks[j] = chunks[j], chunks[i] })
		return [][][]int{shift(chunks, l.options.Attempt%strides)}
	default:
		return l.levels(tasks)
	}
}

// chunks splits tasks into sequences of the same level and component. A task whose name has neither is a separate
// chunk.
func (l *layout) chunks(tasks []int) [][]int {
	var chunks [][]int
	start := 0
	for i := 1; i <= len(tasks); i++ {
		if i < len(tasks) && l.names[tasks[i]].IsKnown() && l.names[tasks[i]] == l.names[tasks[start]] {
			continue
		}
		chunks = append(chunks, tasks[start:i:i])
		start = i
	}
	return chunks
}

// levels makes a step of the chunks of each level. Neighbouring steps of a single
// chunk, from levels of one component or tasks without a level, become one node.
func (l *layout) levels(tasks []int) [][][]int {
	var steps [][][]int
	joins := false // the last step is a single chunk, which the next one may join
	chunks := l.chunks(tasks)
	for start := 0; start < len(chunks); {
		end := start + 1
		for end < len(chunks) && l.sameLevel(chunks[start], chunks[end]) {
			end++
		}
		isSingle := end == start+1
		switch {
		case isSingle && joins:
			last := steps[len(steps)-1]
			last[0] = span(tasks, last[0], chunks[start])
		default:
			steps = append(steps, chunks[start:end:end])
		}
		joins = isSingle
		start = end
	}
	return steps
}

// span returns the tasks from one chunk to another, both included. A segment has no
// gaps, so indexes in it follow from the numbers of its tasks.
func span(tasks, from, values []int) []int {
	first, end := from[0]-tasks[0], values[len(values)-1]-tasks[0]+1
	return tasks[first:end:end]
}

func (l *layout) sameLevel(a, b []int) bool {
	first, second := l.names[a[0]], l.names[b[0]]
	return first.IsKnown() && second.IsKnown() && first.Level == second.Level
}

// shift rotates the chunks, at each attempt to another start.
func shift(chunks [][]int, attempt int) [][]int {
	by := attempt % len(chunks)
	if len(chunks) >= strides {
		by = attempt * len(chunks) / strides % len(chunks)
	}
	return slices.Concat(chunks[by:], chunks[:by])
}
