package why

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/inventory"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// atOnce bounds how many objects are read at a time.
const atOnce = 16

// A ReleaseAnswer is the state of a whole release.
type ReleaseAnswer struct {
	Release string              `json:"release"`
	Version string              `json:"version,omitempty"`
	Done    bool                `json:"done"` // all its known objects are in their wanted state
	Counts  map[ObjectState]int `json:"counts,omitempty"`
	Missing int                 `json:"missing,omitempty"` // objects that were deleted since a complete apply
	// the process that applies it, or the time of the last apply
	Messages []Message `json:"messages"`
	Objects  []*Answer `json:"objects"`           // objects that are not in their wanted state, the worst first
	NotKept  *NotKept  `json:"notKept,omitempty"` // why no process keeps it in place, if one should
	// MissingObjects are the missing objects, if the cluster has the files that were applied.
	MissingObjects []kinds.ID `json:"missingObjects,omitempty"`
	Unknown        []string   `json:"unknown,omitempty"`

	IsUnrecorded bool `json:"-"` // its record can't be read, and the first message reports that
}

// ReleaseFacts are the facts about a release.
type ReleaseFacts struct {
	Now         time.Time       // server time
	Record      *record.Record  // nil if the release has no record
	Run         *apply.RunState // the apply in the record; nil if all is done
	Held        *lock.Holder    // the process that applies the release; nil if none does
	IsHeldKnown bool            // the lock could be read
	// why no process keeps the release in place, if one should; else nil
	NotKept *NotKept
	Unknown []string // failed requests

	// Only GatherRelease sets the following fields.
	Requested   []record.Tombstone   // deletes that may not be done: in the record, and of terminating objects
	UnlistedErr error                // why terminating objects are not known
	Live        *inventory.Inventory // the objects on the cluster; nil with UnlistedErr
	// Missing counts objects that were deleted since they were applied: the record has hashes of their names.
	Missing  int
	Suspects []kinds.ID // objects that may not be in their wanted state

	isMissing      func(kinds.ID) bool
	missingObjects []kinds.ID // see NameMissing
}

// NameMissing finds the names of missing objects among those of the manifests that were applied.
func (f *ReleaseFacts) NameMissing(manifests []*payload.Manifest) {
	for _, m := range manifests {
		id := m.ID()
		clusterScoped := id
		clusterScoped.Namespace = "" // a manifest of a cluster-scoped object may have one
		switch {
		case m.IsTombstone():
		case f.isMissing(id):
			f.missingObjects = append(f.missingObjects, id)
		case f.isMissing(clusterScoped):
			f.missingObjects = append(f.missingObjects, clusterScoped)
		}
	}
}

// GatherRelease reads the facts about the release of a record, and finds the objects that may not be in their wanted
// state.
func GatherRelease(ctx context.Context, c *cluster.Cluster, rec *record.Record, namespace string) *ReleaseFacts {
	r := newReader(c)
	facts := r.keeper(ctx, lock.Lock{Client: c.Client, Namespace: namespace, Release: rec.Release}, rec)
	r.objects(ctx, &facts)
	facts.Unknown = r.failed
	return &facts
}

// Explain returns the state of the release: its objects that are not in their wanted state, by the record and the
// objects on the cluster. Objects that were deleted since they were applied are only counted if NameMissing was not
// called.
func (f *ReleaseFacts) Explain(ctx context.Context, c *cluster.Cluster, namespace string) *ReleaseAnswer {
	answers := make([]*Answer, len(f.Suspects))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, id := range f.Suspects {
		group.Go(func() error {
			facts := Gather(ctx, c, ObjectQuery{Records: []*record.Record{f.Record}, Namespace: namespace, known: f},
				NamedObject{ID: id})
			answers[i] = judge(facts, objectExplainers)
			return nil
		})
	}
	_ = group.Wait() // a failed request is a fact, not an error
	f.Now = c.Now()
	if f.isReadySince(answers) {
		f.Run = nil
	}
	return f.summarize(answers)
}

// isReadySince reports whether the last apply of a completed version ended while it only waited for objects, and all
// objects have become ready since.
func (f *ReleaseFacts) isReadySince(answers []*Answer) bool {
	if f.Run == nil || f.Run.More > 0 || f.isLive() || !f.wasCompleted() {
		return false
	}
	for _, step := range f.Run.Steps() {
		if step.Phase != apply.InWait || step.Deletes || step.Hook != "" {
			return false
		}
	}
	return !slices.ContainsFunc(answers, func(a *Answer) bool {
		_, _, isLeft := f.Run.Find(a.Object)
		return isLeft && !a.Done
	})
}

// maxMissing limits the missing objects that a message names.
const maxMissing = 5

// MissingText names missing objects, or counts them if their names are not known.
func MissingText(count int, objects []kinds.ID) string {
	var names []string
	for _, id := range objects {
		names = append(names, id.String())
	}
	if len(names) == 0 {
		return printable.Count(count, "object")
	}
	return printable.Few(names, maxMissing)
}

// summarize sums up the answers on single objects, and adds those that the run has not reached, and how many are
// missing.
func (f *ReleaseFacts) summarize(answers []*Answer) *ReleaseAnswer {
	w := &ReleaseAnswer{
		Release:  f.Record.Release,
		Version:  f.version(),
		Counts:   map[ObjectState]int{},
		Messages: []Message{},
		NotKept:  f.NotKept,
		Unknown:  f.Unknown,
	}
	w.Messages = append(w.Messages, f.runMessages(answers)...)
	if f.Run != nil && f.Run.More > 0 {
		w.Messages = append(w.Messages,
			Message{Text: fmt.Sprintf("%d more objects are not done; the record omits them", f.Run.More)})
	}
	for _, answer := range answers {
		for _, what := range answer.Unknown { // many answers have the same one
			if !slices.Contains(w.Unknown, what) {
				w.Unknown = append(w.Unknown, what)
			}
		}
		answer.Unknown = nil
	}
	answers = slices.DeleteFunc(answers, func(a *Answer) bool { return a.Done })
	slices.SortStableFunc(answers, func(a, b *Answer) int {
		return cmp.Or(cmp.Compare(f.rank(a), f.rank(b)), compareSince(a.Since, b.Since),
			kinds.Compare(a.Object, b.Object))
	})
	w.Objects = append(answers, f.notBegun()...)
	for _, answer := range w.Objects {
		w.Counts[answer.State]++
	}
	if f.isCompleted() && f.Missing > 0 { // the record of an incomplete apply has the objects still to come
		w.Missing = f.Missing
		w.Counts[Absent] += f.Missing
		w.MissingObjects = f.missingObjects
		w.Messages = append(w.Messages,
			Message{Text: fmt.Sprintf("missing: %s, deleted since the release was applied, or without its label: %s; "+
				"see runlevel diff %s",
				MissingText(f.Missing, f.missingObjects), f.missingRemedy("the missing objects"), w.Release)})
	}
	w.Done = f.isCompleted() && len(w.Objects) == 0 && w.Missing == 0 && w.NotKept == nil && len(w.Unknown) == 0
	return w
}

// runMessages returns who applies the release, or when it was applied last. The errors of the run are in the answers
// on the objects that have them.
func (f *ReleaseFacts) runMessages(answers []*Answer) []Message {
	facts := &ObjectFacts{ReleaseFacts: *f, Pending: map[kinds.ID][]string{}}
	for _, answer := range answers {
		for _, sentence := range answer.Messages {
			facts.Pending[answer.Object] = append(facts.Pending[answer.Object], sentence.Details...)
		}
	}
	if f.Run != nil {
		run := *f.Run
		run.Error, _, _ = strings.Cut(run.Error, ": ")
		facts.Run = &run
	}
	about := &Answer{}
	explainRun(facts, about)
	return about.Messages
}

// rank orders answers: failures, waits, pending deletes, and the rest.
func (f *ReleaseFacts) rank(a *Answer) int {
	_, step, found := f.Run.Find(a.Object)
	switch {
	case found && step.Phase == apply.HasFailed:
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
func (f *ReleaseFacts) notBegun() []*Answer {
	var answers []*Answer
	for node, steps := range f.Run.Manifests() {
		step, runNode := steps[0], f.Run.Nodes[node]
		if step.IsTried() {
			continue
		}
		answer := &Answer{
			Object: step.ID, State: Blocked, Messages: []Message{}, Release: f.Record.Release, Version: f.version(),
			File: step.File, Node: cmp.Or(step.Node, runNode.Name), After: f.names(runNode.After),
		}
		switch {
		case runNode.State != graph.Blocked && step.Awaits != nil:
			answer.addMessage(nil, "its turn comes when %s is ready", *step.Awaits)
		case runNode.State != graph.Blocked:
			answer.After = f.earlier(runNode, answer.Node)
		}
		answers = append(answers, answer)
	}
	return answers
}

// objects finds the objects of a release that may not be in their wanted state: those that the run tries or has failed
// at, those with a pending delete, and those that are terminating, not ready, or changed since they were applied.
func (r *reader) objects(ctx context.Context, f *ReleaseFacts) {
	var all []kinds.ID
	blocked := map[kinds.ID]bool{}
	for _, steps := range f.Run.Manifests() {
		step := steps[0]
		if blocked[step.ID] = !step.IsTried(); step.IsTried() {
			all = append(all, step.ID)
		}
	}
	for _, tombstone := range f.Record.Tombstones {
		all = append(all, tombstone.ID)
	}
	live, err := inventory.TakeRelease(ctx, r.cluster, f.Record.Release, f.Record.GroupKinds())
	if err != nil {
		r.unknown("list the objects of the release", err)
		f.UnlistedErr = err
	} else {
		f.Live, f.Requested = live, precondition.Pending(f.Record, live)
		all = append(all, r.abnormal(ctx, f, live)...)
	}
	slices.SortFunc(all, kinds.Compare)
	f.Suspects = slices.DeleteFunc(slices.Compact(all), func(id kinds.ID) bool { return blocked[id] })
}
