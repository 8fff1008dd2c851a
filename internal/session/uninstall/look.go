package uninstall

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/dependents"
	"github.com/runlevel/runlevel/internal/cluster/fingerprint"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/files"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/session/why"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// A Plan lists the objects that an uninstall would delete, in order, and those that it would keep.
type Plan struct {
	Release string
	Version string // version of the newest update; "" if it is not known
	Stages  []Stage
	Kept    []KeptObject
	Hooks   []kinds.ID        // Deployments with lifecycle hooks; no hook runs
	Begun   *record.Uninstall // an earlier uninstall that has not ended; nil if there is none
	Notes   []string

	record  *record.Record
	applied *fingerprint.Cache
	// the Namespace of the record, if the release has it: it is deleted after the record
	last []objectmeta.LiveMetadata
}

// Objects returns all objects to be deleted, in the order of the stages.
func (p *Plan) Objects() []objectmeta.LiveMetadata {
	var all []objectmeta.LiveMetadata
	for _, stage := range p.Stages {
		all = append(all, stage.Objects...)
	}
	return append(all, p.last...)
}

// chooser returns a chooser that knows the earlier decisions.
func (p *Plan) chooser(choice Choice) *chooser {
	return &chooser{release: p.Release, choice: choice, applied: p.applied, kept: p.Kept}
}

// Counts returns how many objects of each kind the uninstall would delete.
func (p *Plan) Counts() kinds.ObjectCounts { return countsOf(p.Objects()) }

// An UnknownReleaseError is returned for a release of which the cluster has nothing.
type UnknownReleaseError struct {
	Release, Namespace string
	Elsewhere          []string // the namespaces that have its record
}

func (e *UnknownReleaseError) Error() string {
	if len(e.Elsewhere) > 0 {
		return fmt.Sprintf("the record of release %s is in namespace %s: use --record-namespace %s", e.Release,
			strings.Join(e.Elsewhere, ", "), e.Elsewhere[0])
	}
	return fmt.Sprintf("release %s not found: namespace %s does not have its record, and no object has its label",
		e.Release, e.Namespace)
}

// A looker reads the record and the objects of a release.
type looker struct {
	cluster   *cluster.Cluster
	options   Options
	store     *record.Store
	confirmed *Plan // plan that the user has confirmed; nil for the first look
}

// Look returns the plan of an uninstall. It changes nothing. It returns an error if a process applies the release or
// keeps it in place, if rights are missing, or if the objects of the release can't be listed.
func Look(ctx context.Context, c *cluster.Cluster, o Options) (*Plan, error) {
	l := &looker{cluster: c, options: o, store: record.NewStore(c.Client, o.Namespace, o.Release)}
	if err := l.checkHolder(ctx); err != nil {
		return nil, err
	}
	return l.look(ctx)
}

// lock returns the lock of the release.
func (l *looker) lock() lock.Lock {
	return lock.New(l.cluster, l.options.Namespace, l.options.Release)
}

// checkHolder returns an error if a process keeps the release in place, or applies it and the uninstall should not
// wait.
func (l *looker) checkHolder(ctx context.Context) error {
	held, err := l.lock().Holder(ctx)
	if err != nil {
		return err
	}
	now := l.cluster.Now()
	isAlive := held != nil && !held.IsDead(now)
	operator, err := why.FindOperator(ctx, l.cluster, l.lock())
	if err != nil {
		return fmt.Errorf("find out whether an operator keeps the release in place: %w", printable.Error(err))
	}
	switch {
	case operator != nil && (isAlive && held.Keeps() || hasReplicas(operator)):
		return &reason.Error{Reason: ReasonKept, Message: fmt.Sprintf(
			"the operator, Deployment %s/%s, keeps release %s in place and would recreate deleted objects: "+
				`run "runlevel uninstall --operator" first, or scale it to 0 replicas`,
			operator.GetNamespace(), operator.GetName(), l.options.Release)}
	case isAlive && held.Keeps():
		return &reason.Error{Reason: ReasonKept, Message: fmt.Sprintf(
			"%s keeps release %s in place and would recreate deleted objects: stop it first "+
				`("apply --watch" ends with Ctrl-C, an operator with "runlevel uninstall --operator")`,
			printable.Line(held.Name), l.options.Release)}
	case isAlive && !l.options.Lock.Wait:
		return &lock.HeldError{Release: l.options.Release, Holder: *held, Age: now.Sub(held.Since)}
	default:
		return nil
	}
}

func hasReplicas(deployment *unstructured.Unstructured) bool {
	wanted, isSet, _ := unstructured.NestedInt64(deployment.Object, "spec", "replicas")
	return !isSet || wanted > 0
}

// look reads the record and the objects of the release, and decides which objects are deleted.
func (l *looker) look(ctx context.Context) (*Plan, error) {
	known, isFound, err := l.store.Load(ctx)
	if err != nil {
		return nil, err
	}
	p := &Plan{
		Release: l.options.Release,
		Begun:   known.Uninstall,
		record:  known,
		applied: fingerprint.Read(known.Fingerprints),
	}
	if newest := known.Newest(); newest != nil {
		p.Version = newest.Version
	}
	if l.confirmed != nil {
		p.Kept = l.confirmed.Kept
	}
	kindsToList, err := l.kinds(ctx, p, isFound)
	if err != nil {
		return nil, err
	}
	labelled, err := l.labelled(ctx, kindsToList, testKinds)
	if err != nil {
		return nil, err
	}
	if err := l.checkExists(ctx, isFound, labelled); err != nil {
		return nil, err
	}
	if missed := append(unmatched(l.options.Choice.Keep, labelled),
		unmatched(l.options.Choice.DeleteData, labelled)...); len(missed) > 0 {
		return nil, &PatternError{Release: l.options.Release, Patterns: missed}
	}
	selected := p.chooser(l.options.Choice).choose(labelled)
	if l.confirmed == nil { // otherwise deleteStage checks each object
		if err := l.keepHolders(ctx, &selected); err != nil {
			return nil, err
		}
	}
	p.Kept = selected.kept
	p.addNotes(labelled)
	pending, err := l.pending(ctx, known, labelled)
	if err != nil {
		return nil, err
	}
	selected.deleted = append(selected.deleted, pending...)
	selected.deleted, p.last = splitNamespace(selected.deleted, l.options.Namespace)
	p.Stages = stagesOf(selected.deleted)
	return p, l.checkRights(ctx, p)
}

// A PatternError is returned for names that no object of the release has.
type PatternError struct {
	Release  string
	Patterns []string
}

func (e *PatternError) Error() string {
	return fmt.Sprintf("release %s has no object %s: write KIND/NAME or KIND/NAMESPACE/NAME", e.Release,
		strings.Join(e.Patterns, ", "))
}

// checkExists returns an error if the release has no record, no Lease and no object, or if its record and its lock
// are in another namespace.
func (l *looker) checkExists(ctx context.Context, isFound bool, labelled []objectmeta.LiveMetadata) error {
	if isFound {
		return nil
	}
	elsewhere, err := record.Namespaces(ctx, l.cluster.Client, l.options.Release)
	if err != nil || len(elsewhere) > 0 {
		return cmp.Or(err, error(&UnknownReleaseError{l.options.Release, l.options.Namespace, elsewhere}))
	}
	if slices.ContainsFunc(labelled, func(head objectmeta.LiveMetadata) bool { return head.IsOf(l.options.Release) }) {
		return nil
	}
	last, err := l.lock().Last(ctx)
	if err != nil || last != nil {
		return err
	}
	return &UnknownReleaseError{l.options.Release, l.options.Namespace, nil}
}

// keepHolders keeps the Namespaces and definitions that contain objects which the uninstall does not delete.
func (l *looker) keepHolders(ctx context.Context, s *selection) error {
	remainders, err := dependents.Remaining(ctx, l.cluster, s.containers(), s.deleted)
	if err != nil {
		return err
	}
	ofRecord := kinds.NewID(kinds.ConfigMap, l.options.Namespace, lock.Name(l.options.Release))
	isOfRecord := func(id kinds.ID) bool {
		isSecret := id.GroupKind() == kinds.Secret
		return id == ofRecord || isSecret &&
			l.copies().Has(types.NamespacedName{Namespace: id.Namespace, Name: id.Name})
	}
	for uid, remainder := range remainders {
		remainder.Objects = slices.DeleteFunc(remainder.Objects, isOfRecord)
		remainders[uid] = remainder
	}
	s.keepFor(remainders)
	return nil
}

// copies returns the store of the copies of the release's files.
func (l *looker) copies() files.Store {
	return files.Store{Cluster: l.cluster, Namespace: l.options.Namespace, Release: l.options.Release}
}

// pending returns the objects that do not have the label of the release and whose deletes, which the release has
// requested before, are not done.
func (l *looker) pending(ctx context.Context, known *record.Record,
	labelled []objectmeta.LiveMetadata) ([]objectmeta.LiveMetadata, error) {
	var found []objectmeta.LiveMetadata
	for _, item := range precondition.ObserveDeletes(ctx, l.cluster, known.Tombstones) {
		hasLabel := slices.ContainsFunc(labelled, func(head objectmeta.LiveMetadata) bool {
			return head.UID == item.Seen.UID
		})
		switch {
		case item.Seen.State == tombstone.Unknown:
			return nil, fmt.Errorf("cannot find out whether %s, which the release has deleted, still exists: %w",
				item.ID, item.Seen.Err)
		case item.Seen.State != tombstone.Terminating || hasLabel:
			continue
		}
		head, err := l.read(ctx, item.ID)
		if err != nil {
			return nil, err
		}
		if head != nil {
			found = append(found, *head)
		}
	}
	return found, nil
}

// splitNamespace returns the Namespace of the record apart from other objects.
func splitNamespace(objects []objectmeta.LiveMetadata, namespace string) (others, last []objectmeta.LiveMetadata) {
	for _, head := range objects {
		if head.ID.GroupKind() == kinds.Namespace && head.ID.Name == namespace {
			last = append(last, head)
		} else {
			others = append(others, head)
		}
	}
	return others, last
}

// addNotes adds the lifecycle hooks that do not run, and notes about an earlier uninstall and about missing objects.
func (p *Plan) addNotes(labelled []objectmeta.LiveMetadata) {
	for _, head := range labelled {
		if head.IsOf(p.Release) && head.Object().GetAnnotations()[deploymenthook.Annotation] != "" {
			p.Hooks = append(p.Hooks, head.ID)
		}
	}
	if p.Begun != nil {
		p.Notes = append(p.Notes,
			"continues the uninstall that began at "+p.Begun.Since.UTC().Format(time.RFC3339))
		return
	}
	if missing := p.applied.Missing(p.knownObjects(labelled)); missing > 0 {
		p.Notes = append(p.Notes,
			printable.Count(missing, "object")+" of the release not found: objects that lost its label are not deleted")
	}
}

// knownObjects returns the objects that exist, and the Jobs that finished: their TTL may have removed them.
func (p *Plan) knownObjects(labelled []objectmeta.LiveMetadata) iter.Seq[kinds.ID] {
	return func(yield func(kinds.ID) bool) {
		for _, head := range labelled {
			if !yield(head.ID) {
				return
			}
		}
		for _, job := range p.record.Jobs {
			if !yield(job.ID) {
				return
			}
		}
	}
}
