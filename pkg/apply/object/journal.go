package object

import (
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster/fingerprint"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A Journal is the record of a release during a run. Goroutines may share it.
type Journal struct {
	store *record.Store

	mu     sync.Mutex
	record *record.Record
}

// NewJournal continues a record.
func NewJournal(store *record.Store, known *record.Record) *Journal {
	return &Journal{store: store, record: known}
}

// Note changes the record, and saves it in the cluster. Only the holder of the release's lock writes the record.
// An administrator may have edited it by hand all the same, and those changes stay.
func (j *Journal) Note(ctx context.Context, change func(*record.Record)) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	const tries = 5
	for try := 1; ; try++ {
		change(j.record)
		err := j.store.Save(ctx, j.record)
		if !errors.Is(err, record.ErrChanged) || try == tries {
			return err
		}
		theirs, _, err := j.store.Load(ctx)
		if err != nil {
			return err // the change stays in memory: the next note may be able to load the record
		}
		for _, leftover := range j.record.Left { // edited since the last write
			theirs.Leave(leftover)
		}
		j.record = theirs
	}
}

// edit changes the record in memory. The next note saves that, so that each of many deletes does not write the record.
// If the run is killed before, the next apply observes the same: an object does not exist, is terminating, or its
// delete has not reached it.
func (j *Journal) edit(change func(*record.Record)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	change(j.record)
}

// Read looks at the record, which must not be changed or kept.
func (j *Journal) Read(look func(*record.Record)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	look(j.record)
}

// fingerprints returns the recorded fingerprints of applied objects.
func (j *Journal) fingerprints() (known *fingerprint.Cache) {
	j.Read(func(r *record.Record) { known = fingerprint.Read(r.Fingerprints) })
	return known
}

// hasFinished reports whether the Job of the present manifest has finished.
func (j *Journal) hasFinished(m *payload.Manifest) (finished bool) {
	j.Read(func(r *record.Record) {
		job, found := r.FindJob(m.ID())
		finished = found && job.Sum == sumOf(m)
	})
	return finished
}

// RememberJob notes in the record that a Job has finished.
func (j *Journal) RememberJob(ctx context.Context, job *payload.Manifest, uid types.UID) error {
	return j.Note(ctx, func(known *record.Record) {
		known.RememberJob(record.Job{ID: job.ID(), UID: uid, Sum: sumOf(job)})
	})
}

// requestedDelete returns the recorded delete of an object, if one is pending.
func (j *Journal) requestedDelete(id kinds.ID) (requested record.Tombstone, isRequested bool) {
	j.Read(func(r *record.Record) {
		if i := slices.IndexFunc(r.Tombstones, func(tombstone record.Tombstone) bool {
			return tombstone.ID == id
		}); i >= 0 {
			requested, isRequested = r.Tombstones[i], true
		}
	})
	return requested, isRequested
}

// HasDeleted reports whether the version that was applied last has deleted an object completely. An
// install has tombstones as well, and deletes nothing.
func (j *Journal) HasDeleted(id kinds.ID) (hasDeleted bool) {
	_, isPending := j.requestedDelete(id)
	j.Read(func(r *record.Record) {
		applied := r.Applied()
		hasDeleted = !isPending && applied != nil && applied.Mode == string(graph.Update) &&
			slices.Contains(applied.Tombstones, id)
	})
	return hasDeleted
}

// sumOf returns a checksum of a manifest.
func sumOf(m *payload.Manifest) string {
	sum := m.Sum()
	return hex.EncodeToString(sum[:])
}
