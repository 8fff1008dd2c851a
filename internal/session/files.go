package session

import (
	"cmp"
	"context"
	"slices"

	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/files"
)

// DefaultHistoryMax is the number of versions whose files are kept.
const DefaultHistoryMax = 5

// FileOptions configure the copies of the files of applied versions.
type FileOptions struct {
	Packed     *files.Packed // the files of this version; nil if no copy is stored
	NotKept    string        // the reason why no copy is stored, for the record
	HistoryMax int           // the number of versions that have a copy; 0 for DefaultHistoryMax
}

func (o FileOptions) most() int { return cmp.Or(o.HistoryMax, DefaultHistoryMax) }

// fileCopies are the copies of the release's files on the cluster, before this apply.
type fileCopies struct {
	store    files.Store
	stored   []files.Copy    // the newest first
	needed   map[string]bool // keyed by digest
	recorded map[string]bool // keyed by digest; as recorded before this apply
	most     int             // how many versions are needed
	warnings []string
}

// listCopies lists the copies of the release on the cluster, if the record names one, or the apply is to write one.
func listCopies(ctx context.Context, store files.Store, options FileOptions, known *record.Record) *fileCopies {
	c := &fileCopies{store: store}
	if options.Packed == nil && len(filesOf(known)) == 0 {
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

// storeFiles stores the files of a version, unless the cluster has a copy, and returns the entry for the record. An
// apply that continues the newest entry keeps its revision. If the files can't be stored, the apply continues with a
// warning.
func (c *fileCopies) storeFiles(ctx context.Context, options FileOptions, version string, known *record.Record,
	isContinued bool) *record.KeptFiles {
	packed := options.Packed
	switch {
	case packed == nil && options.NotKept == "":
		return nil
	case packed == nil:
		return &record.KeptFiles{NotKept: options.NotKept}
	case len(c.warnings) > 0:
		return &record.KeptFiles{NotKept: c.warnings[0]}
	}
	for _, entry := range known.History {
		if entry.Files != nil && entry.Files.Digest == packed.Digest && c.has(entry.Files) {
			return &record.KeptFiles{Digest: entry.Files.Digest, Pieces: entry.Files.Pieces}
		}
	}
	revision := max(c.nextRevision(), known.LastRevision+1)
	if isContinued {
		revision = known.Newest().Revision
	}
	pieces, err := c.store.Write(ctx, packed, version, revision)
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
