// Package fingerprint remembers of the objects of a release, in 48 bytes each, what their metadata were when they
// were applied: so the next apply knows which objects can't have changed since, and asks only for the others.
//
// A Cache that is lost, broken or of another cluster knows no object, and costs requests, never
// correctness.
//
// Read is the call to start from.
package fingerprint

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// A Cache has the fingerprints of objects. It may be used by many goroutines at once.
type Cache struct {
	mu      sync.Mutex
	objects map[digest]prints // by name
}

// A digest is one fingerprint.
type digest [8]byte

// prints are the fingerprints of one object, at the places below; those that are not known are zero.
type prints [places]digest

const (
	exact  = iota // holds until the object is written
	ours          // holds as long as what is ours can't have changed
	ready         // the object was ready; holds until it is written
	fields        // the fields of our entry in managedFields that the last apply has left
	object        // the UID of the object that the last apply has left
	places
)

// entrySize is how many bytes an object takes: its name and its fingerprints.
const entrySize = len(digest{}) * (places + 1)

// An AppliedFrom is what an object was applied from.
type AppliedFrom struct {
	Sum      [sha256.Size]byte // of the manifest
	Note     string            // of whatever else decided what was sent
	Metadata metav1.Object     // of the manifest
}

// Read reads what Bytes has written. Other bytes make a set that knows nothing.
func Read(data []byte) *Cache {
	s := &Cache{objects: map[digest]prints{}}
	for chunk := range slices.Chunk(data, entrySize) {
		if len(chunk) < entrySize {
			break
		}
		var p prints
		for i := range p {
			p[i] = digest(chunk[(i+1)*len(digest{}):])
		}
		s.objects[digest(chunk)] = p
	}
	return s
}

// Bytes returns all fingerprints, in an order that only depends on them.
func (s *Cache) Bytes() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	data := make([]byte, 0, len(s.objects)*entrySize)
	for _, name := range slices.SortedFunc(maps.Keys(s.objects), func(a, b digest) int { return bytes.Compare(a[:], b[:]) }) {
		data = append(data, name[:]...)
		for _, item := range s.objects[name] {
			data = append(data, item[:]...)
		}
	}
	return data
}

// Update returns the bytes to keep in the place of others. If the set differs only in the versions of objects that
// were ready, the others are kept: else they would be written again after each run. More objects that are
// ready than before are worth a write.
func (s *Cache) Update(kept []byte) []byte {
	was, is := Read(kept), Read(s.Bytes())
	areMore := is.forgetReady() > was.forgetReady()
	if maps.Equal(was.objects, is.objects) && !areMore {
		return kept
	}
	return s.Bytes()
}

// forgetReady makes a set that is not shared forget which objects were ready, and returns how many that were.
func (s *Cache) forgetReady() (count int) {
	for name, p := range s.objects {
		if p[ready] != (digest{}) {
			count++
		}
		p[ready] = digest{}
		s.objects[name] = p
	}
	return count
}

// MergeInto returns the bytes of others, in which the fingerprints of this set replace those of the same objects. What an
// apply has not come to yet stays as it was.
func (s *Cache) MergeInto(others []byte) []byte {
	all := Read(others)
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, p := range s.objects {
		before := all.objects[name]
		for _, i := range []int{exact, ours, ready} {
			if p[i] == (digest{}) {
				p[i] = before[i]
			}
		}
		all.objects[name] = p
	}
	return all.Bytes()
}

// find returns the fingerprints of an object.
func (s *Cache) find(id kinds.ID) prints {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[byName(id)]
}

// change changes the fingerprints of an object, which is known from then on.
func (s *Cache) change(id kinds.ID, change func(*prints)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.objects[byName(id)]
	change(&p)
	s.objects[byName(id)] = p
}

// Add adds an object as it is after it was applied. One without a resourceVersion, as an aggregated API may
// have, would seem never to have been written since, and is left out.
func (s *Cache) Add(m objectmeta.LiveMetadata, from AppliedFrom) {
	if m.ResourceVersion != "" {
		s.change(m.ID, func(p *prints) { p[exact], p[ours] = exactOf(m, from), oursOf(m, from) })
	}
}

// CarryOver adds the fingerprints that another set has of an object, and returns whether these say that the object
// can't have changed since it was applied from the same manifest. Whether the object's generation counts all
// changes of its body is only asked where that matters.
func (s *Cache) CarryOver(from *Cache, m objectmeta.LiveMetadata, origin AppliedFrom, countsChanges func() bool) bool {
	was := from.find(m.ID)
	isKnown := was[exact] == exactOf(m, origin) ||
		m.Generation != 0 && was[ours] == oursOf(m, origin) && m.HasMetadataOf(origin.Metadata) && countsChanges()
	if isKnown {
		s.change(m.ID, func(p *prints) { p[exact], p[ours] = was[exact], was[ours] })
	}
	return isKnown
}

// AddReady adds that an object was ready as it is, by some standard.
func (s *Cache) AddReady(m objectmeta.LiveMetadata, from AppliedFrom, standard string) {
	if m.ResourceVersion != "" {
		s.change(m.ID, func(p *prints) { p[ready] = readinessOf(m, from, standard) })
	}
}

// CarryOverReady adds that an object was ready as it is, if another set says so, and returns whether it does.
func (s *Cache) CarryOverReady(from *Cache, m objectmeta.LiveMetadata, origin AppliedFrom, standard string) bool {
	wasReady := from.find(m.ID)[ready] == readinessOf(m, origin, standard)
	if wasReady {
		s.AddReady(m, origin, standard)
	}
	return wasReady
}

// AddExpected adds that the release has an object, with what another set knows of the last apply.
func (s *Cache) AddExpected(from *Cache, id kinds.ID) {
	was := from.find(id)
	s.change(id, func(p *prints) { p[fields], p[object] = was[fields], was[object] })
}

// AddApplied adds an object as an apply leaves it.
func (s *Cache) AddApplied(m objectmeta.LiveMetadata) {
	s.change(m.ID, func(p *prints) { p[fields], p[object] = fieldsOf(m.ID, m.Entry), objectOf(m) })
}

// Has returns whether the release has an object.
func (s *Cache) Has(id kinds.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, found := s.objects[byName(id)]
	return found
}

// WasApplied returns whether an apply has left an object of that name. An object that is only ever created was not
// applied.
func (s *Cache) WasApplied(id kinds.ID) bool { return s.find(id)[object] != digest{} }

// Missing returns how many of the objects that an apply has left are not among those of some names.
func (s *Cache) Missing(there iter.Seq[kinds.ID]) (count int) {
	found := map[digest]bool{}
	for id := range there {
		found[byName(id)] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, p := range s.objects {
		if p[object] != (digest{}) && !found[name] {
			count++
		}
	}
	return count
}

// IsSameObject returns whether an object is the one that the last apply has left, changed or not.
func (s *Cache) IsSameObject(m objectmeta.LiveMetadata) bool {
	return s.find(m.ID)[object] == objectOf(m)
}

// IsUnchanged returns whether an object is as the last apply has left it, as far as its metadata tell. The fields of our
// entry get fewer when another manager changes or removes one, so a change is known without the manifest.
func (s *Cache) IsUnchanged(m objectmeta.LiveMetadata) bool {
	return s.IsSameObject(m) && s.find(m.ID)[fields] == fieldsOf(m.ID, m.Entry)
}

// HadFields returns whether the last apply has left our entry of an object with these fields.
func (s *Cache) HadFields(id kinds.ID, owned []byte) bool {
	return s.find(id)[fields] == fieldsOf(id, objectmeta.ApplyEntry{Fields: string(owned)})
}

// exactOf returns the fingerprint of an object that was not written since.
func exactOf(m objectmeta.LiveMetadata, from AppliedFrom) digest {
	return hash("exact", from, m.ID.String(), string(m.UID), m.ResourceVersion)
}

// oursOf returns the fingerprint of an object in which what is ours has not changed: the generation counts changes of the
// body, and our entry in managedFields says when we have applied the object last. The rest of the metadata is compared
// with the manifest.
func oursOf(m objectmeta.LiveMetadata, from AppliedFrom) digest {
	return hash("what counts", from, m.ID.String(), string(m.UID), fmt.Sprint(m.Generation), m.Entry.Since.UTC().String(), m.Entry.SortedFields())
}

// readinessOf returns the fingerprint of an object that was ready, and that was not written since.
func readinessOf(m objectmeta.LiveMetadata, from AppliedFrom, standard string) digest {
	return hash("ready", from, standard, string(m.UID), m.ResourceVersion)
}

func fieldsOf(id kinds.ID, as objectmeta.ApplyEntry) digest {
	return hash("fields", AppliedFrom{}, id.String(), as.SortedFields())
}

func objectOf(m objectmeta.LiveMetadata) digest {
	return hash("object", AppliedFrom{}, m.ID.String(), string(m.UID))
}

func byName(id kinds.ID) digest {
	return hash("name", AppliedFrom{}, id.Group, id.Kind, id.Namespace, id.Name)
}

// hash makes a fingerprint. A change of how one is made must change the first part, and so must a change of what is
// sent for the same manifest, or of what counts as ready: then earlier fingerprints are not found any more.
func hash(what string, from AppliedFrom, parts ...string) digest {
	sum := sha256.New()
	for _, part := range append([]string{"2", what, string(from.Sum[:]), from.Note}, parts...) {
		fmt.Fprintf(sum, "%d:%s", len(part), part)
	}
	return digest(sum.Sum(nil)[:len(digest{})])
}
