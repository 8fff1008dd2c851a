package record

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// KeptFiles are the copy of the files of an update, which package files has written, or why there is none.
type KeptFiles struct {
	Digest  string      `json:"digest,omitempty"`
	Pieces  []types.UID `json:"pieces,omitempty"`  // UIDs of the Secrets, in order
	NotKept string      `json:"notKept,omitempty"` // why no copy exists
}

// Or returns the files of an update after it was applied again: a copy that exists already counts, if the last apply
// has not written one.
func (k *KeptFiles) Or(last *KeptFiles) *KeptFiles {
	if last == nil || last.Digest == "" && k != nil && k.Digest != "" {
		return k
	}
	return last
}

// number gives a revision to each entry of a record that has none, the oldest first: an older program drops the
// numbers.
func number(r *Record) {
	last := 0
	for _, entry := range slices.Backward(r.History) {
		last = max(last+1, entry.Revision)
	}
	shift := 0
	// entries in the middle of a long history are dropped
	if newest := r.Newest(); newest != nil && newest.Revision == 0 {
		shift = max(0, r.LastRevision-last)
	}
	last = shift
	for i := len(r.History) - 1; i >= 0; i-- {
		last = max(last+1, r.History[i].Revision)
		r.History[i].Revision = last
	}
	r.LastRevision = max(r.LastRevision, last)
}

// maxNamed bounds how many revisions an error names.
const maxNamed = 8

// FindRevision returns an update by its revision or by its version, of which the newest counts. An empty text is the
// newest update. The error names the updates that there are.
func (r *Record) FindRevision(text string) (*HistoryEntry, error) {
	number, err := strconv.Atoi(text)
	isNumber := err == nil
	index := slices.IndexFunc(r.History, func(e HistoryEntry) bool {
		return text == "" || isNumber && e.Revision == number || !isNumber && e.Version == text
	})
	if index >= 0 {
		return &r.History[index], nil
	}
	what := "version"
	if isNumber {
		what = "revision"
	}
	var has []string
	for _, entry := range r.History[:min(maxNamed, len(r.History))] {
		has = append(has, fmt.Sprintf("%d (%s)", entry.Revision, cmp.Or(entry.Version, "without a version")))
	}
	if more := len(r.History) - len(has); more > 0 {
		has = append(has, fmt.Sprintf("%d older ones", more))
	}
	return nil, fmt.Errorf("release %s has no %s %s: it has %s", r.Release, what, text,
		printable.Line(strings.Join(has, ", ")))
}

// KeepFiles returns the digests of the copies to keep: those of the newest updates, as many as most, of the update that
// is applied, and of the one that was applied before it. The other updates lose theirs.
func (h History) KeepFiles(most int) map[string]bool {
	kept, applied := map[string]bool{}, 0
	for i := range h {
		entry := &h[i]
		isNeeded := i < most
		if isCompleted(*entry) {
			applied++
			isNeeded = isNeeded || applied <= 2
		}
		switch {
		case entry.Files == nil || entry.Files.Digest == "":
		case isNeeded:
			kept[entry.Files.Digest] = true
		default:
			entry.Files = &KeptFiles{
				NotKept: fmt.Sprintf("it is not among the last %d versions, whose files are kept", most),
			}
		}
	}
	return kept
}

// HasFiles reports whether files of any version were kept.
func (h History) HasFiles() bool {
	return slices.ContainsFunc(h, func(entry HistoryEntry) bool {
		return entry.Files != nil && entry.Files.Digest != ""
	})
}
