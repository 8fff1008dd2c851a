// Package fingerprint remembers of the objects of a release, in 16 bytes each, what their metadata were when they
// were applied: so the next apply knows which objects can't have changed since, and asks only for the others.
//
// A Cache that is lost, broken or of another cluster knows no object, and costs requests, never
// correctness.
//
// Read is the call to start from.
package fingerprint

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/objectmeta"
)

// A Cache has the fingerprints of objects. It may be used by many goroutines at once.
//
// An object has two fingerprints. The exact one holds until the object is written. The other one
// holds as long as what is ours can't have changed: the generation counts changes of the body, our entry in
// managedFields says when we have applied the object last, and the rest of the metadata is compared with the
// manifest. An object that was ready has another one, which holds until the object is written.
type Cache struct {
	mu     sync.Mutex
	known  map[digest]pair   // by both
	newest map[kinds.ID]pair // nil if earlier pairs of an object are kept, too
}

// A digest is one fingerprint.
type digest [8]byte

// A pair is the two fingerprints of one object. That of an object that was ready is a pair of the same.
type pair [2]digest

func (p pair) isReadiness() bool { return p[0] == p[1] }

// pairSize is how many bytes a pair takes.
const pairSize = len(digest{}) * len(pair{})

// An AppliedFrom is what an object was applied from.
type AppliedFrom struct {
	Sum      [sha256.Size]byte // of the manifest
	Note     string            // of whatever else decided what was sent
	Metadata metav1.Object     // of the manifest
}

// Read reads what Bytes has written. Other bytes make a set that knows nothing.
func Read(data []byte) *Cache {
	s := &Cache{known: map[digest]pair{}}
	for chunk := range slices.Chunk(data, pairSize) {
		if len(chunk) == pairSize {
			s.put(pair{digest(chunk), digest(chunk[len(digest{}):])})
		}
	}
	return s
}

// KeepNewest makes the set forget an object's earlier fingerprints when new ones are added, for callers that add
// the same objects again and again.
func (s *Cache) KeepNewest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest = map[kinds.ID]pair{}
}

// Bytes returns all fingerprints, in an order that only depends on them.
func (s *Cache) Bytes() []byte {
	sorted := slices.SortedFunc(maps.Keys(s.pairs()), func(a, b pair) int {
		return cmp.Or(bytes.Compare(a[0][:], b[0][:]), bytes.Compare(a[1][:], b[1][:]))
	})
	data := make([]byte, 0, len(sorted)*pairSize)
	for _, both := range sorted {
		data = append(append(data, both[0][:]...), both[1][:]...)
	}
	return data
}

// pairs returns all pairs.
func (s *Cache) pairs() map[pair]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	unique := map[pair]bool{}
	for _, both := range s.known {
		unique[both] = true
	}
	return unique
}

// Update returns the bytes to keep in the place of others. If the set differs only in the versions of objects that
// were ready, the others are kept: else they would be written again after each run. More objects that are
// ready than before are worth a write.
func (s *Cache) Update(kept []byte) []byte {
	isReadiness := func(both pair, _ bool) bool { return both.isReadiness() }
	was, is := Read(kept).pairs(), s.pairs()
	areMore := len(is) > len(was)
	maps.DeleteFunc(was, isReadiness)
	maps.DeleteFunc(is, isReadiness)
	if maps.Equal(was, is) && !areMore {
		return kept
	}
	return s.Bytes()
}

func (s *Cache) put(both pair) { s.known[both[0]], s.known[both[1]] = both, both }

// Add adds an object as it is after it was applied. One without a resourceVersion, as an aggregated API may
// have, would seem never to have been written since, and is left out.
func (s *Cache) Add(m objectmeta.LiveMetadata, from AppliedFrom) {
	if m.ResourceVersion != "" {
		s.take(m.ID, pair{exact(m, from), ours(m, from)})
	}
}

// take adds the fingerprints of an object.
func (s *Cache) take(id kinds.ID, both pair) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.newest != nil {
		if before, found := s.newest[id]; found && before != both {
			delete(s.known, before[0])
			delete(s.known, before[1])
		}
		s.newest[id] = both
	}
	s.put(both)
}

// CarryOver adds the fingerprints that another set has of an object, and returns whether these say that the object
// can't have changed since it was applied from the same manifest. Whether the object's generation counts all
// changes of its body is only asked where that matters.
func (s *Cache) CarryOver(from *Cache, m objectmeta.LiveMetadata, origin AppliedFrom, countsChanges func() bool) bool {
	both, known := from.find(exact(m, origin))
	if !known && m.Generation != 0 && m.HasMetadataOf(origin.Metadata) && countsChanges() {
		both, known = from.find(ours(m, origin))
	}
	if known {
		s.take(m.ID, both)
	}
	return known
}

// AddReady adds that an object was ready as it is, by some standard.
func (s *Cache) AddReady(object metav1.Object, from AppliedFrom, standard string) {
	if object.GetResourceVersion() == "" {
		return
	}
	one := readiness(object, from, standard)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(pair{one, one})
}

// CarryOverReady adds that an object was ready as it is, if another set says so, and returns whether it does.
func (s *Cache) CarryOverReady(from *Cache, object metav1.Object, origin AppliedFrom, standard string) bool {
	_, wasReady := from.find(readiness(object, origin, standard))
	if wasReady {
		s.AddReady(object, origin, standard)
	}
	return wasReady
}

func (s *Cache) find(one digest) (pair, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	both, known := s.known[one]
	return both, known
}

// readiness returns the fingerprint of an object that was ready, and that was not written since.
func readiness(object metav1.Object, from AppliedFrom, standard string) digest {
	return hash("ready", from, standard, string(object.GetUID()), object.GetResourceVersion())
}

// exact returns the fingerprint of an object that was not written since.
func exact(m objectmeta.LiveMetadata, from AppliedFrom) digest {
	return hash("exact", from, m.ID.String(), string(m.UID), m.ResourceVersion)
}

// ours returns the fingerprint of an object in which what is ours has not changed.
func ours(m objectmeta.LiveMetadata, from AppliedFrom) digest {
	return hash("what counts", from, m.ID.String(), string(m.UID), fmt.Sprint(m.Generation), m.Entry.Since.UTC().String(), m.Entry.SortedFields())
}

// hash makes a fingerprint. A change of how one is made must change the first part, and so must a change of what is
// sent for the same manifest, or of what counts as ready: then earlier fingerprints are not found any more.
func hash(what string, from AppliedFrom, parts ...string) digest {
	sum := sha256.New()
	for _, part := range append([]string{"1", what, string(from.Sum[:]), from.Note}, parts...) {
		fmt.Fprintf(sum, "%d:%s", len(part), part)
	}
	return digest(sum.Sum(nil)[:len(digest{})])
}

// Fingerprints by name: the objects that a release has, with the UID and the fields of our entry in managedFields
// that the last apply has left. The fields get fewer when another manager changes or removes one, so a change is
// known without the manifest.

// halfway is where the fingerprint of the fields ends, and that of the UID begins.
const halfway = len(digest{}) / 2

// AddExpected adds that the release has an object, with what another set knows of the last apply.
func (s *Cache) AddExpected(from *Cache, id kinds.ID) { s.replace(pair{byName(id), from.leftOf(id)}) }

// AddApplied adds an object as an apply leaves it.
func (s *Cache) AddApplied(m objectmeta.LiveMetadata) {
	s.replace(pair{byName(m.ID), left(m.ID, m.UID, m.Entry)})
}

// replace adds a pair in the place of the one of the same name.
func (s *Cache) replace(both pair) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, s.known[both[0]][1])
	s.put(both)
}

// MergeInto returns the bytes of others, in which the fingerprints of this set replace those of the same names.
func (s *Cache) MergeInto(others []byte) []byte {
	all := Read(others)
	for both := range s.pairs() {
		all.replace(both)
	}
	return all.Bytes()
}

// Has returns whether the release has an object.
func (s *Cache) Has(id kinds.ID) bool {
	_, found := s.find(byName(id))
	return found
}

// WasApplied returns whether an apply has left an object of that name. An object that is only ever created was not
// applied.
func (s *Cache) WasApplied(id kinds.ID) bool { return s.leftOf(id) != digest{} }

// IsSameObject returns whether an object is the one that the last apply has left, changed or not.
func (s *Cache) IsSameObject(m objectmeta.LiveMetadata) bool {
	left, now := s.leftOf(m.ID), left(m.ID, m.UID, m.Entry)
	return string(left[halfway:]) == string(now[halfway:])
}

// IsUnchanged returns whether an object is as the last apply has left it, as far as its metadata tell.
func (s *Cache) IsUnchanged(m objectmeta.LiveMetadata) bool {
	return s.leftOf(m.ID) == left(m.ID, m.UID, m.Entry)
}

// HadFields returns whether the last apply has left our entry of an object with these fields.
func (s *Cache) HadFields(id kinds.ID, fields []byte) bool {
	left, now := s.leftOf(id), left(id, "", objectmeta.ApplyEntry{Fields: string(fields)})
	return string(left[:halfway]) == string(now[:halfway])
}

func (s *Cache) leftOf(id kinds.ID) digest {
	both, _ := s.find(byName(id))
	return both[1]
}

func left(id kinds.ID, uid types.UID, as objectmeta.ApplyEntry) (left digest) {
	fields, object := hash("fields", AppliedFrom{}, id.String(), as.SortedFields()), hash("object", AppliedFrom{}, id.String(), string(uid))
	copy(left[:halfway], fields[:])
	copy(left[halfway:], object[:])
	return left
}

func byName(id kinds.ID) digest {
	return hash("name", AppliedFrom{}, id.Group, id.Kind, id.Namespace, id.Name)
}
