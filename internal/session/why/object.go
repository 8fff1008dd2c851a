package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/apply"
)

// An explainer adds its messages to an answer, if they concern the state of the object.
type explainer func(*ObjectFacts, *Answer)

// The explainers of an object by itself, from the outside in; and those whose messages a status of the whole release
// has elsewhere.
var (
	objectExplainers = []explainer{explainUnknown, explainNotReady, explainReferences, explainDrift, explainMissing,
		explainTerminating, explainKept, explainUnserved, explainNamespace, explainStep, explainBlocked, explainPlace,
		explainReferrers, explainGate}
	releaseExplainers = []explainer{explainHooks, explainRun, explainOwner}
)

// Judge returns the state of an object, and why.
func Judge(f *ObjectFacts) *Answer {
	return judge(f, slices.Concat(objectExplainers, releaseExplainers))
}

func judge(f *ObjectFacts, explainers []explainer) *Answer {
	a := &Answer{Object: f.Object, State: f.state(), Messages: []Message{}, Unknown: f.Unknown, Release: f.Owner}
	a.Done = a.State == Ready || a.State == Deleted
	node, step, isLeft := f.step()
	// else it may be of another release
	if isLeft || f.PendingDelete != nil || (f.Owner != "" || f.IsNamed) && f.Record != nil {
		a.Release, a.Version = f.Record.Release, f.version()
	}
	if f.Plan != nil && f.Plan.File != "" {
		a.Release, a.Version, a.File, a.Node, a.Needs = cmp.Or(f.Plan.Release, a.Release),
			cmp.Or(f.Plan.Version, a.Version), f.Plan.File, f.Plan.Node, f.Plan.Needs
		a.After = f.Plan.After
	}
	if isLeft {
		a.Node, a.File = cmp.Or(step.Node, f.Run.Nodes[node].Name), cmp.Or(step.File, a.File)
	}
	for _, explain := range explainers {
		explain(f, a)
	}
	return a
}

// state returns the state of the object.
func (f *ObjectFacts) state() ObjectState {
	_, step, isLeft := f.step()
	switch {
	case f.Seen.State == tombstone.Unknown && f.Unserved == nil:
		return Unknown
	case f.Seen.State == tombstone.Terminating:
		return Terminating
	case f.isDeleted() && f.Seen.State == tombstone.Absent:
		return Deleted
	case f.Live == nil:
		return Absent
	case f.isDeleted():
		return Kept
	case f.Verdict.State != ready.Ready:
		return NotReady
	case isLeft && step.Hook != "" && !f.isObjectLeft(): // the rollout is not complete without the hook
		return NotReady
	case isLeft && (step.Phase != apply.InWait || step.Hook != ""):
		return Outdated
	case f.isUnapplied():
		return Outdated
	case f.isUnreported():
		return Unknown
	case f.Drift != nil:
		return Changed
	default:
		return Ready
	}
}

// isUnapplied reports whether the query names a version of a release that was not applied.
func (f *ObjectFacts) isUnapplied() bool {
	switch {
	case f.Plan == nil || f.Plan.File == "" || f.IsUnread:
		return false
	case f.Record == nil: // the object may name the release nevertheless
		return f.Plan.Release != "" && f.Plan.Release != f.Owner
	default:
		return !f.Plan.IsRecorded
	}
}

// isUnreported reports whether an unfinished apply may not have reached the object: the apply has neither reported nor
// changed the object since it began.
func (f *ObjectFacts) isUnreported() bool {
	if f.Record == nil || f.Record.Newest() == nil {
		return false
	}
	if newest := f.Record.Newest(); newest.State != record.Partial || !f.Applied.Before(newest.Started.Time) {
		return false
	}
	if f.Run != nil {
		return f.Run.More > 0 && f.Plan == nil
	}
	return f.Held != nil
}

// isDeleted reports whether the object should be deleted: by the release of the query, by the run,
// or by a pending delete.
func (f *ObjectFacts) isDeleted() bool {
	if f.Plan != nil && f.Plan.File != "" {
		return f.Plan.Deletes
	}
	if _, step, found := f.step(); found {
		return step.Deletes
	}
	return f.Deletes || f.PendingDelete != nil
}

// step returns the unfinished step of the object in the run of the release.
func (f *ObjectFacts) step() (node int, step apply.RunStepState, found bool) {
	if node, step, found = f.Run.Find(f.Object); found || f.Run == nil || f.Run.More == 0 || f.Plan == nil ||
		f.Plan.Node == "" {
		return node, step, found
	}
	node = slices.IndexFunc(f.Run.Nodes, func(n apply.RunNodeState) bool { return n.Name == f.Plan.Node })
	wait := apply.Wait{ID: f.Object, File: f.Plan.File, Node: f.Plan.Node}
	return max(node, 0), apply.RunStepState{Wait: wait, Phase: apply.Blocked, Deletes: f.Plan.Deletes}, node >= 0
}

// isObjectLeft reports whether the run has not finished the object itself, without regard to its hooks.
func (f *ObjectFacts) isObjectLeft() bool {
	for _, step := range f.Run.Steps() {
		if step.ID == f.Object && step.Hook == "" {
			return true
		}
	}
	return false
}

// version returns the version of the running apply, or of the last one.
func (f *ReleaseFacts) version() string {
	if f.Run != nil {
		return f.Run.Version
	}
	if newest := f.Record.Newest(); newest != nil {
		return newest.Version
	}
	return ""
}

// addMessage adds a message.
func (a *Answer) addMessage(details []string, format string, args ...any) {
	a.Messages = append(a.Messages, Message{Text: fmt.Sprintf(format, args...), Details: details})
}

// age returns the time since a moment, for humans.
func (f *ReleaseFacts) age(since time.Time) string {
	return printable.Age(f.Now, since)
}

// explainUnknown adds why the state of an object is unknown.
func explainUnknown(f *ObjectFacts, a *Answer) {
	switch {
	case a.State != Unknown:
	case f.Live != nil:
		a.addMessage(nil, "it is ready, and may not be updated yet: the apply has not reported whether it has "+
			"reached it")
	default:
		a.addMessage(nil, "it can't be read: %s", f.Seen.Why)
	}
}

// explainNotReady adds why an object is not ready.
func explainNotReady(f *ObjectFacts, a *Answer) {
	if a.State != NotReady || f.Verdict.State == ready.Ready { // NotReady of a ready object means an incomplete hook
		return
	}
	a.For, a.Reason = f.Verdict.Message, f.Verdict.Reason
	since := ""
	if _, step, found := f.step(); found && step.Hook == "" {
		a.Since, since = begun(step), f.duration(step)
	}
	if f.Verdict.State == ready.Failed {
		a.addMessage(f.Pods, "it has failed, and waiting does not help: %s%s", f.Verdict.Message, since)
	} else {
		a.addMessage(f.Pods, "it waits: %s%s", f.Verdict.Message, since)
	}
}

// explainTerminating adds who deletes a terminating object, and what holds it.
func explainTerminating(f *ObjectFacts, a *Answer) {
	if a.State != Terminating {
		return
	}
	who := "its delete was requested"
	if f.PendingDelete != nil {
		who = f.deleter() + " deletes it"
	} else if f.isDeleted() {
		who = "the release deletes it"
	}
	a.Since, a.Finalizers, a.Remaining = &f.Seen.Since, f.Seen.Finalizers, f.Seen.Remains
	a.addMessage(f.heldBy(), "%s: %s", who, f.Seen.Describe(f.Now))
	isUninstalled := f.Record != nil && f.Record.Uninstall != nil
	if isOfRelease := f.Owner != "" || a.File != ""; isOfRelease && !f.isDeleted() && !isUninstalled {
		a.addMessage(nil, "an apply creates it again once it is deleted")
	}
}

// deleter returns the version that requested the pending delete.
func (f *ObjectFacts) deleter() string {
	if f.PendingDelete.Version == "" {
		return "the release"
	}
	return "version " + printable.Line(f.PendingDelete.Version)
}

// heldBy returns for each finalizer who has to remove it, and the command that removes all finalizers if their
// controllers no longer exist.
func (f *ObjectFacts) heldBy() []string {
	var lines []string
	areForeign := len(f.Seen.Finalizers) > 0
	for _, finalizer := range f.Seen.Finalizers {
		areForeign = areForeign && tombstone.IsForeignFinalizer(finalizer)
		by := tombstone.FinalizerRemover(finalizer)
		if holder := f.Holders[finalizer]; holder != "" {
			by = "set by " + holder + "; " + by
		}
		lines = append(lines, "finalizer "+finalizer+": "+by)
	}
	if areForeign {
		lines = append(lines, "if that controller does not exist any more: kubectl patch "+kubectlName(f.Object)+
			` --type=merge -p '{"metadata":{"finalizers":null}}'`)
	}
	return lines
}

// kubectlName returns the arguments by which kubectl finds an object.
func kubectlName(id kinds.ID) string {
	name := strings.ToLower(id.GroupKind().String()) + "/" + id.Name
	if id.Namespace != "" {
		name += " --namespace=" + id.Namespace
	}
	return name
}

// explainKept adds why an object exists that should be deleted.
func explainKept(f *ObjectFacts, a *Answer) {
	_, _, isLeft := f.step()
	switch {
	case a.State == Deleted && f.PendingDelete != nil:
		a.addMessage(nil, "%s requested its delete %s ago",
			f.deleter(), f.age(f.PendingDelete.RequestedAt.Time))
	case a.State != Kept:
	case f.Seen.State == tombstone.Reappeared:
		a.addMessage(nil, "%s deleted it, and it exists again: created by %s; only an update deletes it again",
			f.deleter(), f.Seen.MadeBy)
	case f.PendingDelete != nil && !isLeft:
		a.addMessage(nil, "%s requested its delete %s ago, and it is not terminating: the apply did not "+
			"reach it, or it was created again since", f.deleter(),
			f.age(f.PendingDelete.RequestedAt.Time))
	default:
		a.addMessage(nil, "the release deletes it, and its delete was not requested yet")
	}
}

// explainUnserved adds why the cluster does not serve the kind of an object.
func explainUnserved(f *ObjectFacts, a *Answer) {
	if f.Unserved == nil || a.Done {
		return
	}
	kind := f.Object.GroupKind().String()
	switch {
	case f.Unserved.Definition == "" && f.pendingDefinition() != "":
		a.addMessage(nil, "the cluster has no kind %s: the release has not applied its definition yet, %s", kind,
			f.pendingDefinition())
	case f.Unserved.Definition == "":
		a.addMessage(nil, "the cluster has no kind %s, and no CustomResourceDefinition for it", kind)
	case f.Unserved.Verdict.State != ready.Ready:
		a.addMessage(nil, "the cluster does not serve kind %s yet: CustomResourceDefinition %s waits: %s", kind,
			printable.Line(f.Unserved.Definition), f.Unserved.Verdict.Message)
	default:
		a.addMessage(nil, "the cluster does not serve kind %s yet, although CustomResourceDefinition %s is "+
			"established: it takes a moment, unless no version is served", kind, printable.Line(f.Unserved.Definition))
	}
}

// pendingDefinition names the CustomResourceDefinition of the object's kind that the run has not applied yet; "" if the
// run has none.
func (f *ObjectFacts) pendingDefinition() string {
	for node, step := range f.Run.Steps() {
		_, group, _ := strings.Cut(step.ID.Name, ".")
		if step.ID.GroupKind() == kinds.CustomResourceDefinition && group == f.Object.Group && !step.Deletes {
			return step.ID.String() + " (" + cmp.Or(step.Node, f.Run.Nodes[node].Name) + ")"
		}
	}
	return ""
}

// explainNamespace adds that the namespace of an object does not exist, or is terminating.
func explainNamespace(f *ObjectFacts, a *Answer) {
	if f.ObjectNamespace == nil || a.Done {
		return
	}
	if f.ObjectNamespace.State == tombstone.Absent {
		a.addMessage(nil, "namespace %s does not exist", f.Object.Namespace)
		return
	}
	a.addMessage(nil, "no object can be created in namespace %s: it is %s", f.Object.Namespace,
		f.ObjectNamespace.Describe(f.Now))
}

// explainPlace adds the place of the object in the release of the query, and the objects that it needs.
func explainPlace(f *ObjectFacts, a *Answer) {
	if f.Plan == nil || a.Done {
		return
	}
	if f.Plan.File == "" {
		a.addMessage(nil, "the named release does not contain it")
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
		needs = append(needs, fmt.Sprintf("needs %s (%s): %s", need.Object,
			cmp.Or(need.Node, printable.Line(need.File)), need.Why))
	}
	a.addMessage(needs, "%s", where)
}

// explainGate adds the findings that would block the release.
func explainGate(f *ObjectFacts, a *Answer) {
	if len(f.Gate) == 0 || a.Done {
		return
	}
	var lines []string
	for _, finding := range f.Gate {
		lines = append(lines, finding.String())
	}
	a.addMessage(lines, "an apply of the release would be refused")
}

// explainOwner adds the release that the object belongs to.
func explainOwner(f *ObjectFacts, a *Answer) {
	switch {
	case f.Live == nil:
	case f.Owner == "" && f.Drift != nil: // explainDrift has added the release
	case f.Owner == "":
		a.addMessage(nil, "it does not belong to a release: neither its label nor its managedFields name one")
	case f.Plan != nil && f.Plan.Release != "" && f.Plan.Release != f.Owner:
		a.addMessage(nil, "it belongs to release %s, not to %s", printable.Line(f.Owner), f.Plan.Release)
	case f.Applied.IsZero():
		a.addMessage(nil, "it belongs to release %s", printable.Line(f.Owner))
	default:
		a.addMessage(nil, "it belongs to release %s, which changed it last %s ago", printable.Line(f.Owner),
			f.age(f.Applied))
	}
}

// few returns the first names, and how many more there are.
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
