// Package fingerprint keeps hashes of the metadata of a release's objects, 48 bytes each, from when they
// were applied: so the next apply knows which objects can't have changed since, and reads only the others.
//
// A lost or broken Cache, or the Cache of another cluster, knows no object: this costs requests, but never
// correctness.
//
// Start with Read.
package fingerprint

import (
	"bytes"
	"crypto/sha256"
	"iter"
	"maps"
	"slices"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// A Cache contains the fingerprints of objects. It is safe for concurrent use.
type Cache struct {
	mu      sync.Mutex
	objects map[digest]prints // keyed by name
	// sorted fields by unsorted ones: sorting is slow, and most objects of a kind have the same fields
	sortedFields map[string]string
}

// A digest is one fingerprint.
type digest [8]byte

// prints are the fingerprints of one object, at the places below; those that are not known are zero.
type prints [places]digest

const (
	exact  = iota // holds until the object is written
	ours          // holds as long as our fields can't have changed
	ready         // the object was ready; holds until it is written
	fields        // the fields of our entry in managedFields that the last apply has left
	object        // the UID of the object that the last apply has left
	places
)

// maxSortedFields limits the memory of a long run.
const maxSortedFields = 1000

// entrySize is the size of the entry of an object in bytes: its name and its fingerprints.
const entrySize = len(digest{}) * (places + 1)

// An AppliedFrom is the source of an applied object.
type AppliedFrom struct {
	Sum      [sha256.Size]byte // checksum of the manifest
	Note     string            // anything else that changed the request
	Metadata metav1.Object     // metadata of the manifest
}

// Read parses the result of Bytes. Other bytes make an empty cache.
func Read(data []byte) *Cache {
	s := &Cache{objects: map[digest]prints{}, sortedFields: map[string]string{}}
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

// Bytes returns all fingerprints, in a stable order.
func (c *Cache) Bytes() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	data := make([]byte, 0, len(c.objects)*entrySize)
	for _, name := range slices.SortedFunc(maps.Keys(c.objects), func(a, b digest) int {
		return bytes.Compare(a[:], b[:])
	}) {
		data = append(data, name[:]...)
		for _, item := range c.objects[name] {
			data = append(data, item[:]...)
		}
	}
	return data
}

// Update returns the bytes to store instead of kept. If the caches differ only in the versions of objects that
// were ready, it returns kept: otherwise each run would write them again. They are also written if more objects
// are ready than before.
func (c *Cache) Update(kept []byte) []byte {
	before, current := Read(kept), Read(c.Bytes())
	areMore := current.forgetReady() > before.forgetReady()
	if maps.Equal(before.objects, current.objects) && !areMore {
		return kept
	}
	return c.Bytes()
}

// forgetReady removes the readiness of all objects from an unshared cache, and returns how many were ready.
func (c *Cache) forgetReady() (count int) {
	for name, p := range c.objects {
		if p[ready] != (digest{}) {
			count++
		}
		p[ready] = digest{}
		c.objects[name] = p
	}
	return count
}

// MergeInto returns the bytes of others, in which the fingerprints of this cache replace those of the same objects.
// Objects that an apply has not reached yet keep theirs.
func (c *Cache) MergeInto(others []byte) []byte {
	all := Read(others)
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, p := range c.objects {
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
func (c *Cache) find(id kinds.ID) prints {
	name := byName(id)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.objects[name]
}

// change changes the fingerprints of an object, and adds the object if it is not known.
func (c *Cache) change(id kinds.ID, change func(*prints)) {
	name := byName(id)
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.objects[name]
	change(&p)
	c.objects[name] = p
}

// Add adds an object as it is after it was applied. An object without a resourceVersion, as an aggregated API may
// have, is left out: it would seem never to have been written since.
func (c *Cache) Add(m objectmeta.LiveMetadata, from AppliedFrom) {
	if m.ResourceVersion != "" {
		asWritten, asOurs := exactOf(m, from), c.oursOf(m, from)
		c.change(m.ID, func(p *prints) { p[exact], p[ours] = asWritten, asOurs })
	}
}

// CarryOver copies the fingerprints of an object from another cache if they show that the object can't have changed
// since it was applied from the same manifest, and reports whether they do. It calls countsChanges, whether the
// object's generation counts all changes of its body, only if that matters.
func (c *Cache) CarryOver(from *Cache, m objectmeta.LiveMetadata, origin AppliedFrom, countsChanges func() bool) bool {
	before := from.find(m.ID)
	isKnown := before[exact] == exactOf(m, origin) ||
		m.Generation != 0 && before[ours] == c.oursOf(m, origin) && m.HasMetadataOf(origin.Metadata) && countsChanges()
	if isKnown {
		c.change(m.ID, func(p *prints) { p[exact], p[ours] = before[exact], before[ours] })
	}
	return isKnown
}

// AddReady adds that an object was ready as it is, by some standard.
func (c *Cache) AddReady(m objectmeta.LiveMetadata, from AppliedFrom, standard string) {
	if m.ResourceVersion != "" {
		c.change(m.ID, func(p *prints) { p[ready] = readinessOf(m, from, standard) })
	}
}

// CarryOverReady marks an unchanged object as ready if it was ready in another cache, and reports whether it was.
func (c *Cache) CarryOverReady(from *Cache, m objectmeta.LiveMetadata, origin AppliedFrom, standard string) bool {
	wasReady := from.find(m.ID)[ready] == readinessOf(m, origin, standard)
	if wasReady {
		c.AddReady(m, origin, standard)
	}
	return wasReady
}

// AddExpected adds that the release has an object, with another cache's fingerprints of the last apply.
func (c *Cache) AddExpected(from *Cache, id kinds.ID) {
	before := from.find(id)
	c.change(id, func(p *prints) { p[fields], p[object] = before[fields], before[object] })
}

// AddApplied adds an object as an apply leaves it.
func (c *Cache) AddApplied(m objectmeta.LiveMetadata) {
	asFields, asObject := c.fieldsOf(m.ID, m.Entry), objectOf(m)
	c.change(m.ID, func(p *prints) { p[fields], p[object] = asFields, asObject })
}

// Has reports whether the release has an object.
func (c *Cache) Has(id kinds.ID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, found := c.objects[byName(id)]
	return found
}

// WasApplied reports whether an object of that name was applied. A create-only object was not
// applied.
func (c *Cache) WasApplied(id kinds.ID) bool { return c.find(id)[object] != digest{} }

// Missing returns how many of the applied objects are not among the live ones.
func (c *Cache) Missing(live iter.Seq[kinds.ID]) (count int) {
	found := map[digest]bool{}
	for id := range live {
		found[byName(id)] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, p := range c.objects {
		if p[object] != (digest{}) && !found[name] {
			count++
		}
	}
	return count
}

// IsSameObject reports whether an object is the one that was applied last, changed or not.
func (c *Cache) IsSameObject(m objectmeta.LiveMetadata) bool {
	return c.find(m.ID)[object] == objectOf(m)
}

// IsUnchanged reports whether an object is as the last apply has left it, as far as its metadata show. Our entry loses
// a field when another manager changes or removes it, so a change is known without the manifest.
func (c *Cache) IsUnchanged(m objectmeta.LiveMetadata) bool {
	return c.IsSameObject(m) && c.find(m.ID)[fields] == c.fieldsOf(m.ID, m.Entry)
}

// HadFields reports whether our entry of an object had these fields after the last apply.
func (c *Cache) HadFields(id kinds.ID, owned []byte) bool {
	return c.find(id)[fields] == c.fieldsOf(id, objectmeta.ApplyEntry{Fields: string(owned)})
}

// exactOf returns the fingerprint of an object that was not written since.
func exactOf(m objectmeta.LiveMetadata, from AppliedFrom) digest {
	return hash("exact", from, m.ID.String(), string(m.UID), m.ResourceVersion)
}

// oursOf returns the fingerprint of an object in which our fields have not changed: the generation counts changes of
// the body, and our entry in managedFields has the time of our last apply. The rest of the metadata is compared
// with the manifest.
func (c *Cache) oursOf(m objectmeta.LiveMetadata, from AppliedFrom) digest {
	return hash("what counts", from, m.ID.String(), string(m.UID), strconv.FormatInt(m.Generation, 10),
		m.Entry.Since.UTC().String(), c.sorted(m.Entry))
}

// readinessOf returns the fingerprint of an object that was ready, and that was not written since.
func readinessOf(m objectmeta.LiveMetadata, from AppliedFrom, standard string) digest {
	return hash("ready", from, standard, string(m.UID), m.ResourceVersion)
}

func (c *Cache) fieldsOf(id kinds.ID, as objectmeta.ApplyEntry) digest {
	return hash("fields", AppliedFrom{}, id.String(), c.sorted(as))
}

// sorted returns the sorted fields of an entry.
func (c *Cache) sorted(entry objectmeta.ApplyEntry) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	sorted, isKnown := c.sortedFields[entry.Fields]
	if !isKnown {
		if len(c.sortedFields) == maxSortedFields {
			clear(c.sortedFields)
		}
		sorted = entry.SortedFields()
		c.sortedFields[entry.Fields] = sorted
	}
	return sorted
}

func objectOf(m objectmeta.LiveMetadata) digest {
	return hash("object", AppliedFrom{}, m.ID.String(), string(m.UID))
}

func byName(id kinds.ID) digest {
	return hash("name", AppliedFrom{}, id.Group, id.Kind, id.Namespace, id.Name)
}

// hash computes a fingerprint. The first part must change when the computation of fingerprints, the request for a
// manifest, or the definition of ready changes: then earlier fingerprints no longer match.
func hash(label string, from AppliedFrom, parts ...string) digest {
	text := make([]byte, 0, 1024) // on the stack
	for _, part := range append([]string{"2", label, string(from.Sum[:]), from.Note}, parts...) {
		text = strconv.AppendInt(text, int64(len(part)), 10)
		text = append(append(text, ':'), part...)
	}
	sum := sha256.Sum256(text)
	return digest(sum[:len(digest{})])
}
