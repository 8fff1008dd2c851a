package session

import (
	"cmp"
	"context"
	"slices"

	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/files"
	"github.com/runlevel/runlevel/pkg/graph"
)

// DefaultHistoryMax is of how many versions the files are kept.
const DefaultHistoryMax = 5

// FileOptions are how the files of an applied version are kept.
type FileOptions struct {
	Packed     *files.Packed // nil if they are not kept
	NotKept    string        // why not, for the record
	HistoryMax int           // of how many versions they are kept; DefaultHistoryMax if it is 0
}

func (o FileOptions) most() int { return cmp.Or(o.HistoryMax, DefaultHistoryMax) }

// keptCopies are the copies of the release on the cluster, before this apply.
type keptCopies struct {
	store    files.Store
	stored   []files.Copy    // the newest first
	needed   map[string]bool // by digest
	dropped  map[string]bool
	most     int
	warnings []string
}

// listCopies reads which copies of a release are on the cluster, if there may be some, or its apply is to write one.
func listCopies(ctx context.Context, r *run) *keptCopies {
	k := &keptCopies{store: files.Store{
		Cluster:   r.cluster,
		Namespace: r.options.Namespace,
		Release:   r.payload.Name,
	}}
	if r.options.Files.Packed == nil && len(filesOf(r.record)) == 0 {
		return k
	}
	var err error
	if k.stored, err = k.store.List(ctx); err != nil {
		k.warnings = append(k.warnings, err.Error())
	}
	return k
}

// nextRevision returns the number after those of all copies: a record that was lost does not know them.
func (k *keptCopies) nextRevision() int {
	next := 0
	for _, of := range k.stored {
		next = max(next, of.Revision+1)
	}
	return next
}

// write writes the files of the version that is applied, unless the cluster has them, and returns what the record is to
// know of the copy. A failure costs the copy only.
func (k *keptCopies) write(ctx context.Context, r *run) *record.KeptFiles {
	o, known := r.options.Files, r.record
	switch {
	case o.Packed == nil && o.NotKept == "":
		return nil
	case o.Packed == nil:
		return &record.KeptFiles{NotKept: o.NotKept}
	case len(k.warnings) > 0:
		return &record.KeptFiles{NotKept: k.warnings[0]}
	}
	for _, entry := range known.History {
		isStored := func(of files.Copy) bool {
			return of.Digest == o.Packed.Digest && of.IsComplete() && slices.Equal(of.Pieces, entry.Files.Pieces)
		}
		if entry.Files != nil && entry.Files.Digest == o.Packed.Digest && slices.ContainsFunc(k.stored, isStored) {
			return &record.KeptFiles{Digest: entry.Files.Digest, Pieces: entry.Files.Pieces}
		}
	}
	revision := max(k.nextRevision(), known.LastRevision+1)
	if newest := known.Newest(); r.outcome.IsSame &&
		(r.outcome.Mode == graph.Reconcile || newest.State == record.Partial) {
		revision = newest.Revision // which goes on
	}
	pieces, err := k.store.Write(ctx, o.Packed, r.payload.Version, revision)
	if err != nil {
		k.warnings = append(k.warnings, err.Error())
		return &record.KeptFiles{NotKept: err.Error()}
	}
	return &record.KeptFiles{Digest: o.Packed.Digest, Pieces: pieces}
}

// sort decides which copies are needed, by the record with the version that is applied.
func (k *keptCopies) sort(known *record.Record, most int) {
	k.dropped, k.most = filesOf(known), most
	k.needed = known.History.KeepFiles(most)
}

// collect removes the copies that are not needed, and returns the warnings. Copies that the record does not know,
// because it was lost, stay as long as there are no more than are kept.
func (k *keptCopies) collect(ctx context.Context) []string {
	left := k.most - len(k.needed)
	for _, of := range k.stored {
		if k.needed[of.Digest] {
			continue
		}
		if !k.dropped[of.Digest] {
			if left--; left >= 0 {
				continue
			}
		}
		if err := k.store.Remove(ctx, of); err != nil {
			k.warnings = append(k.warnings, "the files of an older version stay: "+err.Error())
		}
	}
	return k.warnings
}

// filesOf returns the digests of all copies that a record knows.
func filesOf(known *record.Record) map[string]bool {
	digests := map[string]bool{}
	for _, entry := range known.History {
		if entry.Files != nil && entry.Files.Digest != "" {
			digests[entry.Files.Digest] = true
		}
	}
	return digests
}
