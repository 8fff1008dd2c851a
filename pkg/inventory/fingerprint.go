package inventory

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/runlevel/runlevel/pkg/kinds"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Fingerprints tell which objects can't have changed since they were applied, from their
// metadata alone. They are a cache: one that is lost, broken or of another cluster knows no
// object, and costs requests. They may be used by many at once.
//
// Of each object there are two. The exact one holds as long as nobody has written it. The
// other one holds as long as nobody can have changed what is ours: its generation counts
// changes of its body, our entry in managedFields says when we applied it last, and what
// metadata is to be is compared with what it is.
//
// One that was seen to be ready has another one, that holds as long as nobody has written it.
// What they say by the name of an object alone is in left.go.
type Fingerprints struct {
	mu      sync.Mutex
	known   map[fingerprint]pair // by both
	newest  map[kinds.ID]pair    // nil if those before it are kept, too
	ordered map[string]string    // fields of entries, by how they are written: most objects of a kind have the same
}

// KeepNewest makes it forget what was known of an object as soon as more is: for those who
// take in the same objects again and again.
func (f *Fingerprints) KeepNewest() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.newest = map[kinds.ID]pair{}
}

// A fingerprint is one fingerprint.
type fingerprint [8]byte

// A pair is the fingerprints of one object: the exact one, and the one of what counts. That
// it was ready stands alone, and is a pair of the same.
type pair [2]fingerprint

func (p pair) isReadiness() bool { return p[0] == p[1] }

// pairSize is how many bytes a pair takes.
const pairSize = len(fingerprint{}) * len(pair{})

// A Text is what an object was applied from.
type Text struct {
	Sum      [sha256.Size]byte // of the manifest
	Note     string            // of whatever else decided what was sent
	Metadata metav1.Object     // of the manifest
}

// ReadFingerprints reads what Bytes has written. What is not that, knows nothing.
func ReadFingerprints(data []byte) *Fingerprints {
	f := &Fingerprints{known: map[fingerprint]pair{}}
	for chunk := range slices.Chunk(data, pairSize) {
		if len(chunk) == pairSize {
			f.put(pair{fingerprint(chunk), fingerprint(chunk[len(fingerprint{}):])})
		}
	}
	return f
}

// Bytes are all fingerprints, in an order that only depends on them.
func (f *Fingerprints) Bytes() []byte {
	unique := f.pairs()
	ordered := slices.SortedFunc(maps.Keys(unique), func(a, b pair) int {
		return cmp.Or(bytes.Compare(a[0][:], b[0][:]), bytes.Compare(a[1][:], b[1][:]))
	})
	data := make([]byte, 0, len(ordered)*pairSize)
	for _, both := range ordered {
		data = append(append(data, both[0][:]...), both[1][:]...)
	}
	return data
}

// pairs are all that there are.
func (f *Fingerprints) pairs() map[pair]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	unique := map[pair]bool{}
	for _, both := range f.known {
		unique[both] = true
	}
	return unique
}

// Update is what to keep where others are kept. If nothing has changed but how objects were
// when they were seen to be ready, those are kept: they would have to be written again and
// again. If more are known to be ready than before, that is worth it.
func (f *Fingerprints) Update(kept []byte) []byte {
	isReadiness := func(both pair, _ bool) bool { return both.isReadiness() }
	was, is := ReadFingerprints(kept).pairs(), f.pairs()
	areMore := len(is) > len(was)
	maps.DeleteFunc(was, isReadiness)
	maps.DeleteFunc(is, isReadiness)
	if maps.Equal(was, is) && !areMore {
		return kept
	}
	return f.Bytes()
}

func (f *Fingerprints) put(both pair) { f.known[both[0]], f.known[both[1]] = both, both }

// Add takes in an object as it is after it was applied. One without a version, as servers of
// their own kinds may have, would seem never to have been written since.
func (f *Fingerprints) Add(h Head, from Text) {
	if h.ResourceVersion == "" {
		return
	}
	f.take(h.ID, pair{h.exact(from), f.ofWhatCounts(h, from)})
}

// take takes in what is known of an object.
func (f *Fingerprints) take(id kinds.ID, both pair) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.newest != nil {
		if before, found := f.newest[id]; found && before != both {
			delete(f.known, before[0])
			delete(f.known, before[1])
		}
		f.newest[id] = both
	}
	f.put(both)
}

// Move takes the fingerprints of an object over from others, and says whether these say
// that it can't have changed since it was applied from the same text. Whether its
// generation counts all changes of its body is only asked where that matters.
func (f *Fingerprints) Move(from *Fingerprints, h Head, text Text, countsChanges func() bool) bool {
	both, known := from.find(h.exact(text))
	if !known && h.Generation != 0 && h.Says(text.Metadata) && countsChanges() {
		both, known = from.find(f.ofWhatCounts(h, text))
	}
	if known {
		f.take(h.ID, both)
	}
	return known
}

// AddReady notes that an object was ready as it is, by some standard.
func (f *Fingerprints) AddReady(object metav1.Object, from Text, standard string) {
	if object.GetResourceVersion() == "" {
		return
	}
	one := readiness(object, from, standard)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.put(pair{one, one})
}

// MoveReady takes over from others that an object was ready as it is, and says whether they
// say so.
func (f *Fingerprints) MoveReady(from *Fingerprints, object metav1.Object, text Text, standard string) bool {
	_, wasReady := from.find(readiness(object, text, standard))
	if wasReady {
		f.AddReady(object, text, standard)
	}
	return wasReady
}

// readiness is the fingerprint of an object that was ready, and that nobody has written since.
func readiness(object metav1.Object, from Text, standard string) fingerprint {
	return hash("ready", from, standard, string(object.GetUID()), object.GetResourceVersion())
}

func (f *Fingerprints) find(one fingerprint) (pair, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	both, known := f.known[one]
	return both, known
}

// exact is the fingerprint of an object that nobody has written since.
func (h Head) exact(from Text) fingerprint {
	return hash("exact", from, h.ID.String(), string(h.UID), h.ResourceVersion)
}

// ofWhatCounts is the fingerprint of an object in which nobody has changed what is ours.
func (f *Fingerprints) ofWhatCounts(h Head, from Text) fingerprint {
	return hash("what counts", from, h.ID.String(), string(h.UID), fmt.Sprint(h.Generation), h.Entry.Since.UTC().String(), f.inOrder(h.Entry))
}

// mostOrdered is how many entries' fields are remembered.
const mostOrdered = 1000

// inOrder are the fields of an entry, in the same order whoever has written them.
func (f *Fingerprints) inOrder(e Entry) string {
	f.mu.Lock()
	ordered, isKnown := f.ordered[e.fields]
	f.mu.Unlock()
	if isKnown {
		return ordered
	}
	ordered = e.inOrder()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ordered == nil || len(f.ordered) >= mostOrdered {
		f.ordered = map[string]string{}
	}
	f.ordered[e.fields] = ordered
	return ordered
}

// hash makes a fingerprint. A change of how it is made must change its first part, and so must
// one of what is sent for the same manifest, or of what counts as ready: what was made before
// is then known no more.
func hash(what string, from Text, parts ...string) fingerprint {
	sum := sha256.New()
	for _, part := range append([]string{"1", what, string(from.Sum[:]), from.Note}, parts...) {
		fmt.Fprintf(sum, "%d:%s", len(part), part)
	}
	return fingerprint(sum.Sum(nil)[:len(fingerprint{})])
}

// inOrder are the fields of an entry, in the same order whoever has written them.
func (e Entry) inOrder() string {
	var fields any
	if json.Unmarshal([]byte(e.fields), &fields) != nil {
		return e.fields
	}
	ordered, err := json.Marshal(fields)
	if err != nil {
		return e.fields
	}
	return string(ordered)
}

// Says says whether the metadata of an object has all that a manifest's has.
func (h Head) Says(wanted metav1.Object) bool {
	return isWithin(wanted.GetLabels(), h.object.GetLabels()) && isWithin(wanted.GetAnnotations(), h.object.GetAnnotations()) &&
		areWithin(wanted.GetFinalizers(), h.object.GetFinalizers()) && areWithin(wanted.GetOwnerReferences(), h.object.GetOwnerReferences())
}

func isWithin(wanted, there map[string]string) bool {
	for key, value := range wanted {
		if is, found := there[key]; !found || is != value {
			return false
		}
	}
	return true
}

func areWithin[T any](wanted, there []T) bool {
	return !slices.ContainsFunc(wanted, func(one T) bool {
		return !slices.ContainsFunc(there, func(other T) bool { return reflect.DeepEqual(one, other) })
	})
}
