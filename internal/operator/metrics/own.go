package metrics

import (
	"slices"
)

// Runlevel's own metrics.
var (
	applyDuration = describe("runlevel_apply_duration_seconds", "How long the last complete apply of a mode took.",
		"mode")
	nodeDuration = describe("runlevel_node_duration_seconds",
		"How long a node of the graph took in the last complete apply of a mode, if it took 0.1 s or more.",
		"mode", "node")
	problems = describe("runlevel_problems",
		"How many objects are waited for ('waiting'), can't be applied or repaired ('failing'), are changed "+
			"again and again by another writer ('contested'), or were asked to go and are still there ('deleting').",
		"problem")
	problemSince = describe("runlevel_problem_timestamp_seconds",
		"Since when there is a problem with an object. Of each problem, the oldest are named.",
		"problem", "kind", "namespace", "name")
	fullPass = describe("runlevel_last_full_pass_timestamp_seconds",
		"When all objects of the release were last applied, or compared with the release.")
	unwatched = describe("runlevel_unwatched_kinds",
		"How many kinds of the release can't be watched, so that changes of their objects are not seen.")
)

// maxProblems is how many objects with the same problem are named.
const maxProblems = 20

// Collect sends the metrics.
func (r Reading) Collect(s sink) {
	s.version(r.Version)
	for i := range r.Operators {
		s.operator(&r.Operators[i])
	}
	if !r.Retrieved.IsZero() {
		s.gauge(retrieval, moment(r.Retrieved), "")
	}
	for mode, took := range r.Durations {
		s.gauge(applyDuration, took.All, mode)
		for node, seconds := range took.Nodes {
			s.gauge(nodeDuration, seconds, mode, node)
		}
	}
	if r.Applied == nil {
		return
	}
	s.payload(r.Applied)
	for _, state := range []ProblemState{Waiting, Failing, Contested, Deleting} {
		s.addProblems(state, r.Problems)
	}
	s.gauge(unwatched, float64(r.Unwatched))
	if !r.FullPass.IsZero() {
		s.gauge(fullPass, moment(r.FullPass))
	}
}

// addProblems adds the objects in a state, the oldest by their names.
func (s sink) addProblems(state ProblemState, all []ObjectProblem) {
	of := slices.DeleteFunc(slices.Clone(all), func(t ObjectProblem) bool { return t.State != state })
	slices.SortStableFunc(of, func(a, b ObjectProblem) int { return a.Since.Compare(b.Since) })
	s.gauge(problems, float64(len(of)), string(state))
	for _, t := range of[:min(maxProblems, len(of))] {
		s.gauge(problemSince, moment(t.Since), string(state), t.Object.GroupKind().String(), t.Object.Namespace,
			t.Object.Name)
	}
}
