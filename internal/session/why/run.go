package why

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/graph"
)

// mostRoots is of how many nodes that hold up an object it is said what they are at.
const mostRoots = 5

// roots are the nodes that an object waits for in the end: those that run, or have failed.
func (f *ObjectFacts) roots() []int {
	start, step, found := f.step()
	if !found || step.State != record.Blocked {
		return nil
	}
	nodes := f.Record.Run.Nodes
	var roots []int
	seen := map[int]bool{start: true}
	for next := []int{start}; len(next) > 0; next = next[1:] {
		node := next[0]
		earlier := nodes[node].After
		if nodes[node].State != string(graph.Blocked) {
			earlier = f.awaited(node)
			if len(earlier) == 0 || slices.ContainsFunc(nodes[node].Steps, isTried) {
				roots = append(roots, node)
			}
		}
		for _, before := range earlier {
			if !seen[before] && before >= 0 && before < len(nodes) {
				seen[before] = true
				next = append(next, before)
			}
		}
	}
	return roots
}

// isTried says whether the run is at a step, or has failed at it.
func isTried(step record.RunStep) bool { return step.State != record.Blocked }

// awaited are the other nodes that have what the steps of a node can't begin without.
func (f *ObjectFacts) awaited(node int) []int {
	var others []int
	for _, step := range f.Record.Run.Nodes[node].Steps {
		if step.Awaits == nil || isTried(step) {
			continue
		}
		if at, _, isLeft := f.Record.Run.Find(*step.Awaits); isLeft && at != node && !slices.Contains(others, at) {
			others = append(others, at)
		}
	}
	return others
}

// tellStep is about an object that the run tries to apply, or has failed to, or at whose hook it is.
func tellStep(f *ObjectFacts, a *Answer) {
	_, step, found := f.step()
	switch {
	case !found || a.Done:
	case step.Hook != "":
		tellHook(f, a, step)
	case a.State != NotReady:
		tellObjectStep(f, a, step)
	}
}

func tellObjectStep(f *ObjectFacts, a *Answer, step record.RunStep) {
	what := "can't be applied"
	if step.Deletes {
		what = "can't be deleted"
	}
	switch step.State {
	case record.Retrying:
		a.say(f.Pending[step.ID], "it %s, which %s%s: %s", what, f.again(), f.lasting(step), step.For)
	case record.Failed:
		a.say(f.Pending[step.ID], "it %s: %s", what, step.For)
	default:
		return
	}
	a.about(step)
}

func tellHook(f *ObjectFacts, a *Answer, step record.RunStep) {
	hook := printable.Line(step.Hook)
	switch step.State {
	case record.Waiting:
		a.say(nil, "it waits for its %s hook%s: %s", hook, f.lasting(step), step.For)
	case record.Retrying:
		a.say(nil, "its %s hook can't be run, which %s%s: %s", hook, f.again(), f.lasting(step), step.For)
	case record.Failed:
		a.say(nil, "its %s hook has failed: %s", hook, step.For)
	case record.Blocked:
		if !f.isObjectLeft() {
			a.say(nil, "its %s hook is still to run", hook)
		}
		return
	}
	a.about(step)
}

// about makes an answer one about a step that is not done.
func (a *Answer) about(step record.RunStep) {
	a.For, a.Reason, a.Since = step.For, step.Reason, cmp.Or(step.Begun(), a.Since)
}

// lasting is for how long a step stands as it does.
func (f *ObjectFacts) lasting(step record.RunStep) string {
	if step.Since == nil {
		return ""
	}
	return ", for " + f.age(step.Since.Time)
}

// tellTurn is about an object that the run has not come to.
func tellTurn(f *ObjectFacts, a *Answer) {
	start, step, found := f.step()
	if !found || a.Done || step.State != record.Blocked || step.Hook != "" && !f.isObjectLeft() {
		return
	}
	node, roots := f.Record.Run.Nodes[start], f.roots()
	switch {
	case node.State != string(graph.Blocked) && step.Awaits != nil:
		a.say(nil, "its turn%s comes when %s is ready", inNode(a.Node), *step.Awaits)
	case node.State != string(graph.Blocked):
		a.After = f.earlier(node, a.Node)
		a.say(nil, "its turn%s comes after %s", inNode(a.Node), cmp.Or(few(a.After, 0), "what is before it there"))
	default:
		a.After = f.names(node.After)
		a.say(nil, "its turn%s comes after %s", inNode(a.Node), f.path(node, roots))
	}
	for _, root := range roots[:min(mostRoots, len(roots))] {
		f.tellRoot(f.Record.Run.Nodes[root], a)
	}
	if more := len(roots) - mostRoots; more > 0 {
		a.say(nil, "so do %d more", more)
	}
}

// inNode says where a turn is, if its file has a level.
func inNode(name string) string {
	if name == "" {
		return ""
	}
	return ", " + name + ","
}

// earlier are the levels that come first in a node that has several.
func (f *ObjectFacts) earlier(node record.RunNode, own string) []string {
	var names []string
	for _, step := range node.Steps {
		if name := nodeOf(step.File); step.State != record.Blocked && name != own && name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// names are those of nodes, each once. A place where there is none is left aside.
func (f *ObjectFacts) names(places []int) []string {
	var names []string
	for _, place := range places {
		if place < 0 || place >= len(f.Record.Run.Nodes) {
			continue
		}
		if name := f.Record.Run.Nodes[place].Name; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// path names the nodes that one waits for, and those that they wait for in the end.
func (f *ObjectFacts) path(node record.RunNode, roots []int) string {
	text := few(f.names(node.After), node.More)
	isDirect := func(root int) bool { return slices.Contains(node.After, root) }
	if indirect := slices.DeleteFunc(slices.Clone(roots), isDirect); len(indirect) > 0 {
		text += ", and before that " + few(f.names(indirect), 0)
	}
	return text
}

// tellRoot says what a node is at.
func (f *ObjectFacts) tellRoot(node record.RunNode, a *Answer) {
	said := len(a.Messages)
	for _, step := range node.Steps {
		if step.State == record.Blocked {
			continue
		}
		where := cmp.Or(nodeOf(step.File), node.Name)
		hold := Holding{Node: where, Object: step.ID, Hook: step.Hook, State: step.State, For: step.For, Reason: step.Reason, Since: step.Begun()}
		if step.Hook == "" {
			hold.Why = f.Pending[step.ID]
		}
		a.Holds = append(a.Holds, hold)
		switch step.State {
		case record.Retrying:
			a.say(hold.Why, "%s can't %s, which %s%s: %s", where, doing(step), f.again(), f.lasting(step), step.For)
		case record.Failed:
			a.say(hold.Why, "%s has failed: %s: %s", where, nameOf(step), step.For)
		default:
			a.say(hold.Why, "%s waits for %s%s: %s", where, nameOf(step), f.lasting(step), step.For)
		}
	}
	if len(a.Messages) > said {
		return
	}
	if node.State == string(graph.Failed) {
		a.say(nil, "%s was not finished", node.Name)
	} else {
		a.say(nil, "%s is being applied", node.Name)
	}
}

// nameOf names a step in the midst of a sentence.
func nameOf(step record.RunStep) string {
	if step.Hook != "" {
		return "the " + step.Title()
	}
	return step.ID.String()
}

// doing says in words what a step does.
func doing(step record.RunStep) string {
	if step.Hook != "" {
		return "run " + nameOf(step)
	}
	return "apply " + nameOf(step)
}

// tellRun says who applies the release, or when it was applied last.
func tellRun(f *ObjectFacts, a *Answer) {
	switch {
	case a.Done:
	case f.Record == nil:
		f.tellNoRecord(a)
	case !f.IsHeldKnown:
		a.say(nil, "whether release %s is being applied now is not known", f.title())
	case f.NotKept != nil:
		tellNotKept(f, a)
	case f.Held != nil && f.Held.IsDead(f.Now):
		a.say(nil, "%[2]s, which applied release %[1]s, has died: the last sign of life was %[3]s ago%[4]s; %[5]s", f.title(), printable.Line(f.Held.Name), f.age(f.Held.Renewed), f.told("; all this was told %s ago"), carryOn(f))
	case f.Held != nil && f.Held.Keeps() && f.isCompleted():
		a.say(nil, "release %s was %s; %s keeps it in place", f.title(), f.ended(*f.Record.Newest()), printable.Line(f.Held.Name))
	case f.Held != nil && f.Held.Keeps() && f.Record.Run != nil && f.Record.Run.Error != "":
		a.say(nil, "release %s is not completed (%s): %s keeps in place what is applied, and goes on waiting%s", f.title(), printable.Line(f.Record.Run.Error), printable.Line(f.Held.Name), f.told("; it told how it stands %s ago"))
	case f.Held != nil && f.isCompleted():
		a.say(nil, "release %s was %s; %s has held its lock for %s, and applies it or keeps it in place", f.title(), f.ended(*f.Record.Newest()), printable.Line(f.Held.Name), f.age(f.Held.Since))
	case f.Held != nil:
		a.say(nil, "release %s is being applied by %s, for %s%s", f.title(), printable.Line(f.Held.Name), f.age(f.Held.Since), cmp.Or(f.told("; it told how it stands %s ago"), "; it has not told yet how it stands"))
	default:
		f.tellLast(a)
	}
}

// isCompleted says whether all was applied, and nothing has been told since.
func (f *ObjectFacts) isCompleted() bool {
	newest := f.Record.Newest()
	return f.Record.Run == nil && newest != nil && newest.State == record.Completed
}

// tellNoRecord is about an object of no release that has a record.
func (f *ObjectFacts) tellNoRecord(a *Answer) {
	switch {
	case f.IsUnread:
	case f.Plan != nil && f.Plan.Release != "" && f.Plan.Release != f.Owner:
		a.say(nil, "release %s was not applied yet", f.Plan.Release)
	case f.Owner != "":
	case f.Others > 0:
		a.say(nil, "none of the %s here is known to have it: name the one that is to", printable.Count(f.Others, "release"))
	default:
		a.say(nil, "no release is known here that is to have it: none was applied yet, or its record is in another namespace")
	}
}

// isLive says whether the release is being applied now, as far as is known.
func (f *ObjectFacts) isLive() bool {
	return !f.IsHeldKnown || f.Held != nil && !f.Held.IsDead(f.Now)
}

// again says that something is tried again, or was by an apply that has ended.
func (f *ObjectFacts) again() string {
	if f.isLive() {
		return "is tried again and again"
	}
	return "was tried again and again"
}

// title names the release that is applied, and its version.
func (f *ObjectFacts) title() string {
	if version := f.version(); version != "" {
		return f.Record.Release + " " + printable.Line(version)
	}
	return f.Record.Release
}

// told is when the run last told how it stands, in words that have a place for that.
func (f *ObjectFacts) told(words string) string {
	if f.Record.Run == nil {
		return ""
	}
	return fmt.Sprintf(words, f.age(f.Record.Run.ReportedAt.Time))
}

// tellLast is about a release that no process applies now.
func (f *ObjectFacts) tellLast(a *Answer) {
	run, newest := f.Record.Run, f.Record.Newest()
	switch {
	case run != nil && run.Ended:
		a.say(nil, "no process applies release %s now: the last apply ended %s ago, and not all was done (%s); %s", f.title(), f.age(run.ReportedAt.Time), cmp.Or(run.Error, "it does not say why"), carryOn(f))
	case run != nil:
		a.say(nil, "no process applies release %s now: the last apply ended without a word, and told how it stands %s ago; %s", f.title(), f.age(run.ReportedAt.Time), carryOn(f))
	case newest == nil:
		a.say(nil, "release %s was not applied yet", f.Record.Release)
	case f.Plan != nil && f.Plan.File != "" && !f.Plan.IsRecorded:
		a.say(nil, "this version of release %s was not applied yet: the last is %s, %s", f.Record.Release, cmp.Or(printable.Line(newest.Version), "without a version"), f.ended(*newest))
	case newest.State == record.Completed && a.State == Absent && f.IsNamed && !f.IsKnown:
		a.say(nil, "release %s was %s, and has it: it was deleted since; apply it again", f.title(), f.ended(*newest))
	case newest.State == record.Completed && a.State == Absent && !f.IsKnown:
		a.say(nil, "release %s was %s: it was deleted since, or the release does not have it", f.title(), f.ended(*newest))
	default:
		a.say(nil, "no process applies release %s now: it was %s", f.title(), f.ended(*newest))
	}
}

// ended says how far an update came, and when.
func (f *ObjectFacts) ended(entry record.HistoryEntry) string {
	if entry.Completed != nil {
		return "completed " + f.age(entry.Completed.Time) + " ago"
	}
	return "begun " + f.age(entry.Started.Time) + " ago, and not completed"
}
