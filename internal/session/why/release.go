package why

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/diagnosis"
	"github.com/runlevel/runlevel/internal/cluster/fingerprint"
	"github.com/runlevel/runlevel/internal/cluster/inventory"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// atOnce bounds how many objects are asked for at a time.
const atOnce = 16

// A ReleaseAnswer is the state of a whole release.
type ReleaseAnswer struct {
	Release  string              `json:"release"`
	Version  string              `json:"version,omitempty"`
	Done     bool                `json:"done"` // everything that is known of it is in its wanted state
	Counts   map[ObjectState]int `json:"counts,omitempty"`
	Missing  int                 `json:"missing,omitempty"` // objects that were deleted since a complete apply: their names are not known
	Messages []Message           `json:"messages"`          // who applies it, or when it was applied last
	Objects  []*Answer           `json:"objects"`           // that are not in their wanted state, the worst first
	NotKept  *NotKept            `json:"notKept,omitempty"` // why no process keeps it in place, if one is to
	Unknown  []string            `json:"unknown,omitempty"`
}

// ExplainRelease returns the state of the release of a record: its objects that are not in their wanted
// state, by the record and the objects on the cluster. Objects that were deleted since they were
// applied are only counted: the record has hashes of their names.
func ExplainRelease(ctx context.Context, c *cluster.Cluster, of *record.Record, namespace string) *ReleaseAnswer {
	g := &gatherer{cluster: c, trouble: &diagnosis.Diagnoser{Cluster: c}, ObjectQuery: ObjectQuery{Records: []*record.Record{of}, Namespace: namespace}, facts: &ObjectFacts{Record: of}}
	g.record(ctx)
	g.findKeeper(ctx)
	suspects := g.suspects(ctx)
	answers := make([]*Answer, len(suspects))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, id := range suspects {
		group.Go(func() error {
			facts := Gather(ctx, c, ObjectQuery{Object: id, Records: g.Records, Namespace: namespace, keeping: &keeping{g.facts.NotKept}})
			answers[i] = judge(facts, ofObject)
			return nil
		})
	}
	_ = group.Wait() // which has no errors: a failed request is a fact
	g.facts.Now = c.Now()
	return g.facts.summarize(answers, g.missing)
}

// summarize sums up the answers on single objects, and adds those that the run has not reached, and how many are missing.
func (f *ObjectFacts) summarize(answers []*Answer, missing int) *ReleaseAnswer {
	w := &ReleaseAnswer{Release: f.Record.Release, Version: f.version(), Counts: map[ObjectState]int{}, Messages: []Message{}, NotKept: f.NotKept, Unknown: f.Unknown}
	w.Messages = append(w.Messages, f.runMessages(answers)...)
	if f.Record.Run != nil && f.Record.Run.More > 0 {
		w.Messages = append(w.Messages, Message{Text: fmt.Sprintf("%d more objects are not done, which its record has no room for", f.Record.Run.More)})
	}
	for _, answer := range answers {
		for _, what := range answer.Unknown { // of which many have the same
			if !slices.Contains(w.Unknown, what) {
				w.Unknown = append(w.Unknown, what)
			}
		}
		answer.Unknown = nil
	}
	answers = slices.DeleteFunc(answers, func(a *Answer) bool { return a.Done })
	slices.SortStableFunc(answers, func(a, b *Answer) int {
		return cmp.Or(cmp.Compare(f.rank(a), f.rank(b)), compareSince(a.Since, b.Since), kinds.Compare(a.Object, b.Object))
	})
	w.Objects = append(answers, f.notBegun()...)
	for _, answer := range w.Objects {
		w.Counts[answer.State]++
	}
	if f.isCompleted() && missing > 0 { // the record of an incomplete apply has the objects still to come
		w.Missing = missing
		w.Counts[Absent] += missing
		w.Messages = append(w.Messages, Message{Text: fmt.Sprintf("missing: %s, deleted since the release was applied, or without its label: %s; see runlevel diff SOURCE",
			printable.Count(missing, "object"), f.missingRemedy("what is missing"))})
	}
	w.Done = f.isCompleted() && len(w.Objects) == 0 && w.Missing == 0 && w.NotKept == nil && len(w.Unknown) == 0
	return w
}

// runMessages returns who applies the release, or when it was applied last. The errors of the run are in the answers
// on the objects that have them.
func (f *ObjectFacts) runMessages(answers []*Answer) []Message {
	facts, of := *f, *f.Record
	facts.Pending = map[kinds.ID][]string{}
	for _, answer := range answers {
		for _, sentence := range answer.Messages {
			facts.Pending[answer.Object] = append(facts.Pending[answer.Object], sentence.Details...)
		}
	}
	if of.Run != nil {
		run := *of.Run
		run.Error, _, _ = strings.Cut(run.Error, ": ")
		of.Run = &run
	}
	facts.Record = &of
	about := &Answer{}
	explainRun(&facts, about)
	return about.Messages
}

// rank orders answers: failures, then waits, then pending deletes, then
// the rest.
func (f *ObjectFacts) rank(a *Answer) int {
	_, step, found := f.Record.Run.Find(a.Object)
	switch {
	case found && step.State == record.Failed:
		return 0
	case a.State == NotReady, a.State == Absent:
		return 1
	case a.State == Terminating, a.State == Kept:
		return 2
	default:
		return 3
	}
}

// compareSince orders times, the longest ago first, and unknown ones last.
func compareSince(a, b *time.Time) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	default:
		return a.Compare(*b)
	}
}

// notBegun returns the objects that the run has not reached.
func (f *ObjectFacts) notBegun() []*Answer {
	if f.Record.Run == nil {
		return nil
	}
	var answers []*Answer
	for _, node := range f.Record.Run.Nodes {
		for _, steps := range record.ByManifest(node.Steps) {
			if step := steps[0]; step.State == record.Blocked {
				answers = append(answers, &Answer{
					Object: step.ID, State: Blocked, Messages: []Message{}, Release: f.Record.Release, Version: f.version(),
					File: step.File, Node: cmp.Or(nodeOf(step.File), node.Name), After: f.names(node.After),
				})
			}
		}
	}
	return answers
}

// suspects returns the objects that may not be in their wanted state: those that the run tries or has
// failed at, those that are to be deleted, and those of the release that are terminating, not ready, or
// changed since they were applied.
func (g *gatherer) suspects(ctx context.Context) []kinds.ID {
	var all []kinds.ID
	blocked := map[kinds.ID]bool{}
	if run := g.facts.Record.Run; run != nil {
		for _, node := range run.Nodes {
			for _, steps := range record.ByManifest(node.Steps) {
				step := steps[0]
				if blocked[step.ID] = !isTried(step); isTried(step) {
					all = append(all, step.ID)
				}
			}
		}
	}
	for _, tombstone := range g.facts.Record.Tombstones {
		all = append(all, tombstone.ID)
	}
	all = append(all, g.abnormal(ctx)...)
	slices.SortFunc(all, kinds.Compare)
	return slices.DeleteFunc(slices.Compact(all), func(id kinds.ID) bool { return blocked[id] })
}

// abnormal returns the objects of the release on the cluster that are terminating, not ready, or changed.
func (g *gatherer) abnormal(ctx context.Context) []kinds.ID {
	release := g.facts.Record.Release
	live, err := inventory.TakeRelease(ctx, g.cluster, release, g.facts.Record.GroupKinds())
	if err != nil {
		g.unknown("list the objects of the release", err)
		return nil
	}
	for _, kind := range live.UnlistedKinds() {
		g.unknown("list "+kind.String()+" in the whole cluster", live.ListError(kind))
	}
	applied := fingerprint.Read(g.facts.Record.Fingerprints)
	if len(live.UnlistedKinds()) == 0 {
		g.missing = applied.Missing(g.knownObjects(live))
	}
	var mu sync.Mutex
	var found []kinds.ID
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, head := range live.Of(release) {
		group.Go(func() error {
			isChanged := applied.WasApplied(head.ID) && !applied.IsUnchanged(head)
			if head.Terminating || isChanged || !g.isReady(ctx, head) {
				mu.Lock()
				defer mu.Unlock()
				found = append(found, head.ID)
			}
			return nil
		})
	}
	_ = group.Wait() // which has no errors
	return found
}

// knownObjects returns the objects that exist, and the Jobs that finished: their TTL may have removed them.
func (g *gatherer) knownObjects(live *inventory.Inventory) iter.Seq[kinds.ID] {
	return func(yield func(kinds.ID) bool) {
		for id := range live.IDs() {
			if !yield(id) {
				return
			}
		}
		for _, job := range g.facts.Record.Jobs {
			if !yield(job.ID) {
				return
			}
		}
	}
}

// isReady reports whether an object is certainly ready. Its body is only read if it may not be.
func (g *gatherer) isReady(ctx context.Context, head objectmeta.LiveMetadata) bool {
	kind := head.ID.GroupKind()
	isCalling := kind == kinds.APIService || kind.Group == "admissionregistration.k8s.io" // which depends on Services, too
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(kind.WithVersion(head.Resource.Version))
	object.SetAnnotations(head.Object().GetAnnotations())
	if !ready.Awaits(object, ready.Full) {
		return !isCalling
	}
	live, err := g.cluster.In(head.Resource, head.ID.Namespace).Get(ctx, head.ID.Name, metav1.GetOptions{})
	return err == nil && ready.Check(live, ready.Full, ready.Related{}).State == ready.Ready
}
