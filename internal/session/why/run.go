package why

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/graph"
)

// maxRoots bounds how many nodes that hold up an object are explained.
const maxRoots = 5

// roots returns the nodes that an object waits for in the end: those that run, or have failed.
func (f *ObjectFacts) roots() []int {
	start, step, found := f.step()
	if !found || step.IsTried() {
		return nil
	}
	var roots []int
	seen := map[int]bool{start: true}
	for next := []int{start}; len(next) > 0; next = next[1:] {
		node := f.Run.Nodes[next[0]]
		earlier := node.After
		if node.State != graph.Blocked {
			earlier = f.awaited(next[0])
			if len(earlier) == 0 || slices.ContainsFunc(node.Steps, apply.RunStepState.IsTried) {
				roots = append(roots, next[0])
			}
		}
		for _, before := range earlier {
			if !seen[before] {
				seen[before] = true
				next = append(next, before)
			}
		}
	}
	return roots
}

// awaited returns the other nodes with the objects that the steps of a node wait for.
func (f *ObjectFacts) awaited(node int) []int {
	var others []int
	for _, step := range f.Run.Nodes[node].Steps {
		if step.Awaits == nil || step.IsTried() {
			continue
		}
		if index, _, isLeft := f.Run.Find(*step.Awaits); isLeft && index != node && !slices.Contains(others, index) {
			others = append(others, index)
		}
	}
	return others
}

// explainStep adds the running or failed step of an object.
func explainStep(f *ObjectFacts, a *Answer) {
	_, step, found := f.step()
	switch {
	case !found || a.Done:
	case step.Hook != "":
		explainHookStep(f, a, step)
	case a.State != NotReady:
		explainObjectStep(f, a, step)
	}
}

func explainObjectStep(f *ObjectFacts, a *Answer, step apply.RunStepState) {
	what := "can't be applied"
	if step.Deletes {
		what = "can't be deleted"
	}
	switch step.Phase {
	case apply.InRetry:
		a.addMessage(f.Pending[step.ID], "it %s, which %s%s: %s", what, f.retryState(), f.duration(step), step.For)
	case apply.HasFailed:
		a.addMessage(f.Pending[step.ID], "it %s: %s", what, step.For)
	default:
		return
	}
	a.setStep(step)
}

func explainHookStep(f *ObjectFacts, a *Answer, step apply.RunStepState) {
	hook := printable.Line(step.Hook)
	switch step.Phase {
	case apply.InWait:
		a.addMessage(nil, "it waits for its %s hook%s: %s", hook, f.duration(step), step.For)
	case apply.InRetry:
		a.addMessage(nil, "its %s hook can't be run, which %s%s: %s", hook, f.retryState(), f.duration(step), step.For)
	case apply.HasFailed:
		a.addMessage(nil, "its %s hook has failed: %s", hook, step.For)
	case apply.Blocked:
		if !f.isObjectLeft() {
			a.addMessage(nil, "its %s hook is still to run", hook)
		}
		return
	}
	a.setStep(step)
}

// setStep sets what an unfinished step waits for, since when, and why.
func (a *Answer) setStep(step apply.RunStepState) {
	a.For, a.Reason, a.Since = step.For, step.Reason, cmp.Or(begun(step), a.Since)
}

// begun returns since when a step has its state; nil if it is unknown.
func begun(step apply.RunStepState) *time.Time {
	if step.Since.IsZero() {
		return nil
	}
	return &step.Since
}

// duration returns how long a step has been in its state, as the end of a sentence.
func (f *ObjectFacts) duration(step apply.RunStepState) string {
	if step.Since.IsZero() {
		return ""
	}
	return ", for " + f.age(step.Since)
}

// explainBlocked adds the nodes that an object waits for before the run reaches it.
func explainBlocked(f *ObjectFacts, a *Answer) {
	start, step, found := f.step()
	if !found || a.Done || step.IsTried() || step.Hook != "" && !f.isObjectLeft() {
		return
	}
	node, roots := f.Run.Nodes[start], f.roots()
	switch {
	case node.State != graph.Blocked && step.Awaits != nil:
		a.addMessage(nil, "its turn%s comes when %s is ready", inNode(a.Node), *step.Awaits)
	case node.State != graph.Blocked:
		a.After = f.earlier(node, a.Node)
		a.addMessage(nil, "its turn%s comes after %s", inNode(a.Node),
			cmp.Or(few(a.After, 0), "the objects before it"))
	default:
		a.After = f.names(node.After)
		a.addMessage(nil, "its turn%s comes after %s", inNode(a.Node), f.path(node, roots))
	}
	for _, root := range roots[:min(maxRoots, len(roots))] {
		f.explainRoot(f.Run.Nodes[root], a)
	}
	if more := len(roots) - maxRoots; more > 0 {
		a.addMessage(nil, "%d more nodes are before it", more)
	}
}

// inNode returns the node of an object as a part of a sentence; "" if the file has no level.
func inNode(name string) string {
	if name == "" {
		return ""
	}
	return ", " + name + ","
}

// earlier returns the levels that come first in a node with several levels.
func (f *ReleaseFacts) earlier(node apply.RunNodeState, own string) []string {
	var names []string
	for _, step := range node.Steps {
		if name := step.Node; step.IsTried() && name != own && name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// names returns the names of nodes, each once.
func (f *ReleaseFacts) names(nodes []int) []string {
	var names []string
	for _, node := range nodes {
		if name := f.Run.Nodes[node].Name; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// path names the nodes that a node waits for, directly and in the end.
func (f *ObjectFacts) path(node apply.RunNodeState, roots []int) string {
	text := few(f.names(node.After), node.More)
	isDirect := func(root int) bool { return slices.Contains(node.After, root) }
	if indirect := slices.DeleteFunc(slices.Clone(roots), isDirect); len(indirect) > 0 {
		text += ", and before that " + few(f.names(indirect), 0)
	}
	return text
}

// explainRoot adds the unfinished steps of a running or failed node.
func (f *ObjectFacts) explainRoot(node apply.RunNodeState, a *Answer) {
	before := len(a.Messages)
	for _, step := range node.Steps {
		if !step.IsTried() {
			continue
		}
		where := cmp.Or(step.Node, node.Name)
		hold := Holding{
			Node:   where,
			Object: step.ID,
			Hook:   step.Hook,
			State:  step.Phase,
			For:    step.For,
			Reason: step.Reason,
			Since:  begun(step),
		}
		if step.Hook == "" {
			hold.Why = f.Pending[step.ID]
		}
		a.Holds = append(a.Holds, hold)
		switch step.Phase {
		case apply.InRetry:
			a.addMessage(hold.Why, "%s can't %s, which %s%s: %s", where, actionOf(step), f.retryState(),
				f.duration(step), step.For)
		case apply.HasFailed:
			a.addMessage(hold.Why, "%s has failed: %s: %s", where, nameOf(step), step.For)
		default:
			a.addMessage(hold.Why, "%s waits for %s%s: %s", where, nameOf(step), f.duration(step), step.For)
		}
	}
	if len(a.Messages) > before {
		return
	}
	if node.State == graph.Failed {
		a.addMessage(nil, "%s was not finished", node.Name)
	} else {
		a.addMessage(nil, "%s is being applied", node.Name)
	}
}

// nameOf returns the name of a step for use within a sentence.
func nameOf(step apply.RunStepState) string {
	if step.Hook != "" {
		return "the " + step.Name()
	}
	return step.ID.String()
}

// actionOf returns the action of a step in words.
func actionOf(step apply.RunStepState) string {
	if step.Hook != "" {
		return "run " + nameOf(step)
	}
	return "apply " + nameOf(step)
}

// explainRun adds who applies the release, or when it was applied last.
func explainRun(f *ObjectFacts, a *Answer) {
	switch {
	case a.Done:
	case f.Record == nil:
		f.explainNoRecord(a)
	case f.Record.Uninstall != nil:
		f.explainUninstall(a)
	case !f.IsHeldKnown:
		a.addMessage(nil, "cannot determine whether release %s is being applied", f.title())
	case f.NotKept != nil:
		explainUnkept(f, a)
	case f.Held != nil && f.Held.IsDead(f.Now):
		a.addMessage(nil,
			"%[2]s, which applied release %[1]s, has died: it last renewed its lock %[3]s ago%[4]s; %[5]s", f.title(),
			printable.Line(f.Held.Name), f.age(f.Held.Renewed), f.reportedAgo("; this was reported %s ago"),
			runRemedy(f))
	case f.Held != nil && f.Held.Keeps() && f.isCompleted():
		a.addMessage(nil, "release %s was %s; %s keeps it in place", f.title(), f.ended(*f.Record.Newest()),
			printable.Line(f.Held.Name))
	case f.Held != nil && f.Held.Keeps() && f.Run != nil && f.Run.Error != "":
		a.addMessage(nil,
			"release %s is not completed (%s): %s keeps the applied objects in place, and continues to wait%s",
			f.title(), printable.Line(f.Run.Error), printable.Line(f.Held.Name),
			f.reportedAgo("; its progress was last reported %s ago"))
	case f.Held != nil && f.Held.Keeps() && f.Record.Newest().HasLeftOut():
		a.addMessage(nil, "release %s is not completed (%s): %s keeps the applied objects in place", f.title(),
			printable.Line(f.Record.Newest().End.Message), printable.Line(f.Held.Name))
	case f.Held != nil && f.isCompleted():
		a.addMessage(nil, "release %s was %s; %s has held its lock for %s, and applies it or keeps it in place",
			f.title(), f.ended(*f.Record.Newest()), printable.Line(f.Held.Name), f.age(f.Held.Since))
	case f.Held != nil:
		a.addMessage(nil, "release %s is being applied by %s, for %s%s", f.title(), printable.Line(f.Held.Name),
			f.age(f.Held.Since), cmp.Or(f.reportedAgo("; its progress was last reported %s ago"),
				"; it has not reported its progress yet"))
	default:
		f.explainLastRun(a)
	}
}

// explainUninstall adds that the release is being uninstalled, and who does that.
func (f *ObjectFacts) explainUninstall(a *Answer) {
	by := fmt.Sprintf("no process continues that: run \"runlevel uninstall %s\" to continue, or "+
		"\"runlevel apply --force\" to apply the release again", f.Record.Release)
	switch {
	case !f.IsHeldKnown:
		by = "cannot determine whether a process continues that"
	case f.isLive():
		by = "by " + printable.Line(f.Held.Name)
	}
	a.addMessage(nil, "release %s is %s; %s", f.title(), f.Record.Uninstall, by)
}

// isCompleted reports whether the last update completed, and neither a run nor an uninstall has begun since.
func (f *ReleaseFacts) isCompleted() bool { return f.Run == nil && f.wasCompleted() }

// wasCompleted reports whether the last update completed, and no uninstall has begun since. The release may be applied
// again now.
func (f *ReleaseFacts) wasCompleted() bool {
	newest := f.Record.Newest()
	return f.Record.Uninstall == nil && newest != nil && newest.State == record.Completed
}

// explainNoRecord adds that no record has the object.
func (f *ObjectFacts) explainNoRecord(a *Answer) {
	switch {
	case f.IsUnread:
	case f.Plan != nil && f.Plan.Release != "" && f.Plan.Release != f.Owner:
		a.addMessage(nil, "release %s was not applied yet", f.Plan.Release)
	case f.Owner != "":
	case f.Others > 0:
		a.addMessage(nil, "none of the %s here is known to have it: pass the name of its release",
			printable.Count(f.Others, "release"))
	default:
		a.addMessage(nil, "no known release has it: none was applied yet, or its record is in another namespace")
	}
}

// isLive reports whether a process applies the release. It also returns true if this is unknown.
func (f *ReleaseFacts) isLive() bool {
	return !f.IsHeldKnown || f.Held != nil && !f.Held.IsDead(f.Now)
}

// retryState returns whether a step is still retried.
func (f *ReleaseFacts) retryState() string {
	if f.isLive() {
		return "is retried"
	}
	return "was retried"
}

// title names the release and its version.
func (f *ReleaseFacts) title() string {
	if version := f.version(); version != "" {
		return f.Record.Release + " " + printable.Line(version)
	}
	return f.Record.Release
}

// reportedAgo formats how long ago the run last reported its progress; "" without a run.
func (f *ReleaseFacts) reportedAgo(words string) string {
	if f.Run == nil {
		return ""
	}
	return fmt.Sprintf(words, f.age(f.Run.Now))
}

// explainLastRun adds how the last apply of a release ended that no process applies now.
func (f *ObjectFacts) explainLastRun(a *Answer) {
	run, newest := f.Run, f.Record.Newest()
	switch {
	case run != nil && run.IsOver:
		a.addMessage(nil, "no process applies release %s now: the last apply ended %s ago, and not all was done "+
			"(%s); %s", f.title(), f.age(run.Now), cmp.Or(run.Error, "no reason was recorded"), runRemedy(f))
	case run != nil:
		a.addMessage(nil, "no process applies release %s now: the last apply ended without a result, and its "+
			"progress was last reported %s ago; %s", f.title(), f.age(run.Now), runRemedy(f))
	case newest == nil:
		a.addMessage(nil, "release %s was not applied yet", f.Record.Release)
	case f.Plan != nil && f.Plan.File != "" && !f.Plan.IsRecorded:
		a.addMessage(nil, "this version of release %s was not applied yet: the last is %s, %s", f.Record.Release,
			cmp.Or(printable.Line(newest.Version), "without a version"), f.ended(*newest))
	case newest.State == record.Completed && a.State == Absent && f.IsNamed && !f.IsKnown:
		a.addMessage(nil, "release %s was %s, and has it: it was deleted since; %s", f.title(), f.ended(*newest),
			applyAgain(f.Record))
	case newest.State == record.Completed && a.State == Absent && !f.IsKnown:
		a.addMessage(nil, "release %s was %s: it was deleted since, or the release does not have it", f.title(),
			f.ended(*newest))
	default:
		a.addMessage(nil, "no process applies release %s now: it was %s", f.title(), f.ended(*newest))
	}
}

// ended reports whether an update completed, and when.
func (f *ReleaseFacts) ended(entry record.HistoryEntry) string {
	if entry.Completed != nil {
		return "completed " + f.age(entry.Completed.Time) + " ago"
	}
	return "begun " + f.age(entry.Started.Time) + " ago, and not completed"
}
