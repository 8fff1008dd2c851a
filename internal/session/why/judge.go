package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// A tell adds what it has to say to an answer, if that has to do with how the object stands.
type tell func(*ObjectFacts, *Answer)

// What may be said: of an object by itself, from the outside in; and what a status of the whole release says elsewhere.
var (
	ofObject  = []tell{tellUnseen, tellNotReady, tellDrift, tellMissing, tellEnd, tellKept, tellUnserved, tellHome, tellStep, tellTurn, tellNeeds, tellGate}
	ofRelease = []tell{tellHooks, tellRun, tellOwner}
)

// Judge says how an object stands, and why.
func Judge(f *ObjectFacts) *Answer { return judge(f, slices.Concat(ofObject, ofRelease)) }

func judge(f *ObjectFacts, tells []tell) *Answer {
	a := &Answer{Object: f.Object, State: f.state(), Messages: []Message{}, Unknown: f.Unknown, Release: f.Owner}
	a.Done = a.State == Ready || a.State == Gone
	node, step, isLeft := f.step()
	if isLeft || f.Asked != nil || (f.Owner != "" || f.IsNamed) && f.Record != nil { // else it may be of another release
		a.Release, a.Version = f.Record.Release, f.version()
	}
	if f.Plan != nil && f.Plan.File != "" {
		a.Release, a.Version, a.File, a.Node, a.Needs = cmp.Or(f.Plan.Release, a.Release), cmp.Or(f.Plan.Version, a.Version), f.Plan.File, f.Plan.Node, f.Plan.Needs
		a.After = f.Plan.After
	}
	if isLeft {
		a.Node, a.File = cmp.Or(nodeOf(step.File), f.Record.Run.Nodes[node].Name), cmp.Or(step.File, a.File)
	}
	for _, tell := range tells {
		tell(f, a)
	}
	return a
}

// state says how the object stands.
func (f *ObjectFacts) state() ObjectState {
	_, step, isLeft := f.step()
	switch {
	case f.Seen.State == tombstone.Unknown && f.Unserved == nil:
		return Unknown
	case f.Seen.State == tombstone.Terminating:
		return Terminating
	case f.isToGo() && f.Seen.State == tombstone.Absent:
		return Gone
	case f.Live == nil:
		return Absent
	case f.isToGo():
		return Kept
	case f.Verdict.State != ready.Ready:
		return NotReady
	case isLeft && step.Hook != "" && !f.isObjectLeft(): // of which the rollout is not complete without it
		return NotReady
	case isLeft && (step.State != record.Waiting || step.Hook != ""):
		return Outdated
	case f.isUnapplied():
		return Outdated
	case f.isUntold():
		return Unknown
	case f.Drift != nil:
		return Changed
	default:
		return Ready
	}
}

// isUnapplied says whether the question names a version of a release that was not applied.
func (f *ObjectFacts) isUnapplied() bool {
	switch {
	case f.Plan == nil || f.Plan.File == "" || f.IsUnread:
		return false
	case f.Record == nil: // the object may tell all the same
		return f.Plan.Release != "" && f.Plan.Release != f.Owner
	default:
		return !f.Plan.IsRecorded
	}
}

// isUntold says whether an apply that is not done may have the object still to come: it has
// not told of it, and has not changed it since it began.
func (f *ObjectFacts) isUntold() bool {
	if f.Record == nil || f.Record.Newest() == nil {
		return false
	}
	if newest := f.Record.Newest(); newest.State != record.Partial || !f.Applied.Before(newest.Started.Time) {
		return false
	}
	if run := f.Record.Run; run != nil {
		return run.More > 0 && f.Plan == nil
	}
	return f.Held != nil
}

// isToGo says whether the object is to be gone: by what the question names, by what the run
// is about to do, or by a delete that is pending.
func (f *ObjectFacts) isToGo() bool {
	if f.Plan != nil && f.Plan.File != "" {
		return f.Plan.Deletes
	}
	if _, step, found := f.step(); found {
		return step.Deletes
	}
	return f.Deletes || f.Asked != nil
}

// step is where the run of the release stands with the object, if it is not done with it.
func (f *ObjectFacts) step() (node int, step record.RunStep, found bool) {
	if f.Record == nil {
		return 0, step, false
	}
	run := f.Record.Run
	if node, step, found = run.Find(f.Object); found || run == nil || run.More == 0 || f.Plan == nil || f.Plan.Node == "" {
		return node, step, found
	}
	node = slices.IndexFunc(run.Nodes, func(n record.RunNode) bool { return n.Name == f.Plan.Node })
	return max(node, 0), record.RunStep{ID: f.Object, File: f.Plan.File, State: record.Blocked, Deletes: f.Plan.Deletes}, node >= 0
}

// isObjectLeft says whether the run is not done with the object itself, whatever its hooks are at.
func (f *ObjectFacts) isObjectLeft() bool {
	for _, step := range f.Record.Run.Steps() {
		if step.ID == f.Object && step.Hook == "" {
			return true
		}
	}
	return false
}

// version is the one that was applied last, or is.
func (f *ObjectFacts) version() string {
	if f.Record.Run != nil {
		return f.Record.Run.Version
	}
	if newest := f.Record.Newest(); newest != nil {
		return newest.Version
	}
	return ""
}

// say adds a sentence.
func (a *Answer) say(details []string, format string, args ...any) {
	a.Messages = append(a.Messages, Message{Text: fmt.Sprintf(format, args...), Details: details})
}

// age is how long something has lasted.
func (f *ObjectFacts) age(since time.Time) string {
	return duration.HumanDuration(max(f.Now.Sub(since), 0))
}

// tellUnseen is about an object of which how it stands is not known.
func tellUnseen(f *ObjectFacts, a *Answer) {
	switch {
	case a.State != Unknown:
	case f.Live != nil:
		a.say(nil, "it is there and ready, maybe as it was before: the apply has not told whether it has come to it")
	default:
		a.say(nil, "it can't be looked at: %s", f.Seen.Why)
	}
}

// tellNotReady is about an object that is there.
func tellNotReady(f *ObjectFacts, a *Answer) {
	if a.State != NotReady || f.Verdict.State == ready.Ready { // then it is a hook that is not done
		return
	}
	a.For, a.Reason = f.Verdict.Message, f.Verdict.Reason
	since := ""
	if _, step, found := f.step(); found && step.Since != nil && step.Hook == "" {
		a.Since, since = step.Begun(), f.lasting(step)
	}
	if f.Verdict.State == ready.Failed {
		a.say(f.Pods, "it has failed, and waiting does not help: %s%s", f.Verdict.Message, since)
	} else {
		a.say(f.Pods, "it waits: %s%s", f.Verdict.Message, since)
	}
}

// tellEnd is about an object that is on its way out.
func tellEnd(f *ObjectFacts, a *Answer) {
	if a.State != Terminating {
		return
	}
	who := "its delete was asked for"
	if f.Asked != nil {
		who = "version " + cmp.Or(printable.Line(f.Asked.Version), "-") + " deletes it"
	} else if f.isToGo() {
		who = "the release deletes it"
	}
	a.Since, a.Finalizers, a.Remaining = &f.Seen.Since, f.Seen.Finalizers, f.Seen.Remains
	a.say(f.heldBy(), "%s: %s", who, f.Seen.Describe(f.Now))
	if isOfRelease := f.Owner != "" || a.File != ""; isOfRelease && !f.isToGo() {
		a.say(nil, "an apply makes it again once it is gone")
	}
}

// heldBy says of each finalizer who has to take it off.
func (f *ObjectFacts) heldBy() []string {
	var lines []string
	for _, finalizer := range f.Seen.Finalizers {
		by := tombstone.FinalizerRemover(finalizer)
		if holder := f.Holders[finalizer]; holder != "" {
			by = "set by " + holder + "; " + by
		}
		lines = append(lines, "finalizer "+finalizer+": "+by)
	}
	return lines
}

// tellKept is about an object that is to be gone, and whose delete was not asked for.
func tellKept(f *ObjectFacts, a *Answer) {
	_, _, isLeft := f.step()
	switch {
	case a.State == Gone && f.Asked != nil:
		a.say(nil, "version %s has asked for its end %s ago", cmp.Or(printable.Line(f.Asked.Version), "-"), f.age(f.Asked.RequestedAt.Time))
	case a.State != Kept:
	case f.Seen.State == tombstone.Reappeared:
		a.say(nil, "it was deleted as version %s says, and is there again: made by %s; only an update deletes it once more", cmp.Or(printable.Line(f.Asked.Version), "-"), f.Seen.MadeBy)
	case f.Asked != nil && !isLeft:
		a.say(nil, "version %s wants it gone since %s, and it is not on its way out: the apply did not come to it, or it was made again since", cmp.Or(printable.Line(f.Asked.Version), "-"), f.age(f.Asked.RequestedAt.Time))
	default:
		a.say(nil, "the release deletes it, and its end is not asked for yet")
	}
}

// tellUnserved is about an object whose kind the cluster does not have.
func tellUnserved(f *ObjectFacts, a *Answer) {
	if f.Unserved == nil || a.Done {
		return
	}
	kind := f.Object.GroupKind().String()
	switch {
	case f.Unserved.Definition == "" && f.coming() != "":
		a.say(nil, "the cluster has no kind %s: the release brings it, in %s, and has not done so yet", kind, f.coming())
	case f.Unserved.Definition == "":
		a.say(nil, "the cluster has no kind %s, and no CustomResourceDefinition for it", kind)
	case f.Unserved.Verdict.State != ready.Ready:
		a.say(nil, "the cluster does not serve kind %s yet: CustomResourceDefinition %s waits: %s", kind, printable.Line(f.Unserved.Definition), f.Unserved.Verdict.Message)
	default:
		a.say(nil, "the cluster does not serve kind %s yet, although CustomResourceDefinition %s is established: it takes a moment, unless no version is served", kind, printable.Line(f.Unserved.Definition))
	}
}

// coming names the definition that the run has still to make for the object's kind.
func (f *ObjectFacts) coming() string {
	if f.Record == nil {
		return ""
	}
	for node, step := range f.Record.Run.Steps() {
		_, group, _ := strings.Cut(step.Name, ".")
		if step.GroupKind() == kinds.CustomResourceDefinition && group == f.Object.Group && !step.Deletes {
			return step.ID.String() + " (" + cmp.Or(nodeOf(step.File), f.Record.Run.Nodes[node].Name) + ")"
		}
	}
	return ""
}

// tellHome is about an object whose namespace is not there, or is going.
func tellHome(f *ObjectFacts, a *Answer) {
	if f.Home == nil || a.Done {
		return
	}
	if f.Home.State == tombstone.Absent {
		a.say(nil, "namespace %s is not there", f.Object.Namespace)
		return
	}
	a.say(nil, "nothing can be made in namespace %s: it is %s", f.Object.Namespace, f.Home.Describe(f.Now))
}

// tellNeeds is about where the object stands in the release that is named, and what it can't be
// without.
func tellNeeds(f *ObjectFacts, a *Answer) {
	if f.Plan == nil || a.Done {
		return
	}
	if f.Plan.File == "" {
		a.say(nil, "the release that is named does not have it")
		return
	}
	where := "it is in " + printable.Line(f.Plan.File)
	if f.Plan.Node != "" {
		where += ", " + f.Plan.Node
	}
	if _, _, found := f.step(); !found && len(f.Plan.After) > 0 {
		where += ", which comes after " + few(f.Plan.After, 0)
	}
	var needs []string
	for _, need := range f.Plan.Needs {
		needs = append(needs, fmt.Sprintf("needs %s (%s): %s", need.Object, cmp.Or(need.Node, printable.Line(need.File)), need.Why))
	}
	a.say(needs, "%s", where)
}

// tellGate is about what would stop the release.
func tellGate(f *ObjectFacts, a *Answer) {
	if len(f.Gate) == 0 || a.Done {
		return
	}
	var lines []string
	for _, finding := range f.Gate {
		lines = append(lines, finding.String())
	}
	a.say(lines, "an apply of the release would be refused")
}

// tellOwner says whose the object is.
func tellOwner(f *ObjectFacts, a *Answer) {
	switch {
	case f.Live == nil:
	case f.Owner == "" && f.Drift != nil: // which has been said
	case f.Owner == "":
		a.say(nil, "it is of no release: nothing says that runlevel has applied it")
	case f.Plan != nil && f.Plan.Release != "" && f.Plan.Release != f.Owner:
		a.say(nil, "it is of release %s, not of %s", printable.Line(f.Owner), f.Plan.Release)
	case f.Applied.IsZero():
		a.say(nil, "it is of release %s", printable.Line(f.Owner))
	default:
		a.say(nil, "it is of release %s, which changed it last %s ago", printable.Line(f.Owner), f.age(f.Applied))
	}
}

// few are some names, and how many more there are.
func few(names []string, more int) string {
	const most = 3
	if len(names) > most+1 || more > 0 && len(names) > most {
		names, more = names[:most], more+len(names)-most
	}
	text := strings.Join(names, "; ")
	if more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
