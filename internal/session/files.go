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
	NotKept    string        // the reason why they are not kept, for the record
	HistoryMax int           // of how many versions they are kept; DefaultHistoryMax if it is 0
}

func (o FileOptions) most() int { return cmp.Or(o.HistoryMax, DefaultHistoryMax) }

// fileCopies are the copies of the release's files on the cluster, before this apply.
type fileCopies struct {
	store    files.Store
	stored   []files.Copy    // the newest first
	needed   map[string]bool // by digest
	recorded map[string]bool // by digest, before this apply
	most     int             // how many versions are needed
	warnings []string
}

// listCopies lists the copies of the release on the cluster, if there may be some, or the apply is to write one.
func (r *run) listCopies(ctx context.Context) *fileCopies {
	store := files.Store{Cluster: r.cluster, Namespace: r.options.Namespace, Release: r.payload.Name}
	c := &fileCopies{store: store}
	if r.options.Files.Packed == nil && len(filesOf(r.record)) == 0 {
		return c
	}
	var err error
	if c.stored, err = c.store.List(ctx); err != nil {
		c.warnings = append(c.warnings, err.Error())
	}
	return c
}

// nextRevision returns the number after those of all copies: a record that was lost does not have them.
func (c *fileCopies) nextRevision() int {
	next := 0
	for _, stored := range c.stored {
		next = max(next, stored.Revision+1)
	}
	return next
}

// storeFiles stores the files of the version, unless the cluster has them, and returns the entry for the record. If
// they can't be stored, the apply continues with a warning.
func (r *run) storeFiles(ctx context.Context, c *fileCopies) *record.KeptFiles {
	packed := r.options.Files.Packed
	switch {
	case packed == nil && r.options.Files.NotKept == "":
		return nil
	case packed == nil:
		return &record.KeptFiles{NotKept: r.options.Files.NotKept}
	case len(c.warnings) > 0:
		return &record.KeptFiles{NotKept: c.warnings[0]}
	}
	for _, entry := range r.record.History {
		if entry.Files != nil && entry.Files.Digest == packed.Digest && c.has(entry.Files) {
			return &record.KeptFiles{Digest: entry.Files.Digest, Pieces: entry.Files.Pieces}
		}
	}
	revision := max(c.nextRevision(), r.record.LastRevision+1)
	newest := r.record.Newest()
	if r.outcome.IsSame && (r.outcome.Mode == graph.Reconcile || newest.State == record.Partial) {
		revision = newest.Revision // the apply continues it
	}
	pieces, err := c.store.Write(ctx, packed, r.payload.Version, revision)
	if err != nil {
		c.warnings = append(c.warnings, err.Error())
		return &record.KeptFiles{NotKept: err.Error()}
	}
	return &record.KeptFiles{Digest: packed.Digest, Pieces: pieces}
}

// has reports whether the cluster has all pieces of a copy.
func (c *fileCopies) has(kept *record.KeptFiles) bool {
	return slices.ContainsFunc(c.stored, func(stored files.Copy) bool {
		return stored.Digest == kept.Digest && stored.IsComplete() && slices.Equal(stored.Pieces, kept.Pieces)
	})
}

// markNeeded marks the copies that are needed, by the record with the new version.
func (c *fileCopies) markNeeded(known *record.Record, most int) {
	c.recorded, c.most = filesOf(known), most
	c.needed = known.History.KeepFiles(most)
}

// collect removes the copies that are not needed, and returns the warnings. A copy that the record does not have, since
// the record was lost, stays while fewer versions than needed have one.
func (c *fileCopies) collect(ctx context.Context) []string {
	spare := c.most - len(c.needed)
	for _, stored := range c.stored {
		if c.needed[stored.Digest] {
			continue
		}
		if !c.recorded[stored.Digest] && spare > 0 {
			spare--
			continue
		}
		if err := c.store.Remove(ctx, stored); err != nil {
			c.warnings = append(c.warnings, "the files of an older version could not be removed: "+err.Error())
		}
	}
	return c.warnings
}

// filesOf returns the digests of all copies that a record has.
func filesOf(known *record.Record) map[string]bool {
	digests := map[string]bool{}
	for _, entry := range known.History {
		if entry.Files != nil && entry.Files.Digest != "" {
			digests[entry.Files.Digest] = true
		}
	}
	return digests
}
