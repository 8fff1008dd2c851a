package graph

import (
	"math/rand"
	"slices"

	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// A layout cuts tasks into nodes by the names of their files.
type layout struct {
	names   []Name // of the file of each task
	options Options
	random  *rand.Rand
}

// strides is how many attempts go through the order once, before it is shuffled
// again. It is the cluster-version operator's number, and so is the generator: the
// same attempt gives the same order as there.
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

// segments cuts tasks where the order is kept whatever the mode is.
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

// splitAtHooks cuts a segment of an install in front of each level that has a Deployment with lifecycle hooks, and behind
// it: what the hooks need is there before, and what may need their outcome comes after. An update keeps levels apart anyway.
func (l *layout) splitAtHooks(tasks []Task, segment []int) [][]int {
	var parts [][]int
	var begin int // of the last part
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
	return !task.IsTombstone() && object.GroupVersionKind().GroupKind() == kinds.Deployment && object.GetAnnotations()[deploymenthook.Annotation] != ""
}

// IsBarrier says that nothing may overtake a task: neither what comes before it nor
// what comes after. Such are Jobs.
func IsBarrier(task Task) bool {
	object := task.Object()
	return object.GetKind() == "Job" && object.GetAPIVersion() == "batch/v1"
}

// steps cuts tasks into steps, each of nodes that may run side by side.
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

// chunks cuts tasks into runs of the same level and component. A task whose name
// says neither is a chunk of its own.
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

// levels puts the chunks of a level side by side. A level of one component has
// nothing to be parallel with, and neither has a task of no level: such neighbours
// become one node.
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

// span is what lies from one chunk of tasks to another, both included. A segment
// has no gaps, so that places in it follow from the numbers of its tasks.
func span(tasks, from, to []int) []int {
	first, end := from[0]-tasks[0], to[len(to)-1]-tasks[0]+1
	return tasks[first:end:end]
}

func (l *layout) sameLevel(a, b []int) bool {
	first, second := l.names[a[0]], l.names[b[0]]
	return first.IsKnown() && second.IsKnown() && first.Level == second.Level
}

// shift begins a round of the chunks at another place at each attempt.
func shift(chunks [][]int, attempt int) [][]int {
	by := attempt % len(chunks)
	if len(chunks) >= strides {
		by = attempt * len(chunks) / strides % len(chunks)
	}
	return slices.Concat(chunks[by:], chunks[:by])
}
