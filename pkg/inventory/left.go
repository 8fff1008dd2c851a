package inventory

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/pkg/kinds"
)

// Fingerprints also name the objects of a release, with what the last apply left: the UID, and the
// fields of our entry in managedFields. These get fewer when another manager changes or removes one,
// so that both can be told without the manifest.

// halfway is where the fingerprint of the fields ends, and that of the UID begins.
const halfway = len(fingerprint{}) / 2

// Expect takes in that the release has an object, and takes over from others what the last apply has
// left of it.
func (f *Fingerprints) Expect(from *Fingerprints, id kinds.ID) {
	f.leave(pair{name(id), from.leftOf(id)})
}

// Leave takes in an object as an apply leaves it.
func (f *Fingerprints) Leave(h Head) {
	f.leave(pair{name(h.ID), f.left(h.ID, h.UID, h.Entry)})
}

func (f *Fingerprints) leave(both pair) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.known, f.known[both[0]][1])
	f.put(both)
}

// Over returns the bytes of these fingerprints and of others, in which those of the same names are
// replaced.
func (f *Fingerprints) Over(others []byte) []byte {
	all := ReadFingerprints(others)
	for both := range f.pairs() {
		all.leave(both)
	}
	return all.Bytes()
}

// Has says whether the release has an object.
func (f *Fingerprints) Has(id kinds.ID) bool {
	_, found := f.find(name(id))
	return found
}

// WasApplied says whether an apply has left an object of that name. It has not if the object is only
// ever made.
func (f *Fingerprints) WasApplied(id kinds.ID) bool { return f.leftOf(id) != fingerprint{} }

// WasLeft says whether an object is the one that the last apply has left, whoever has changed it
// since.
func (f *Fingerprints) WasLeft(h Head) bool {
	left, now := f.leftOf(h.ID), f.left(h.ID, h.UID, h.Entry)
	return string(left[halfway:]) == string(now[halfway:])
}

// IsAsLeft says whether an object is as the last apply has left it, as far as its metadata tell.
func (f *Fingerprints) IsAsLeft(h Head) bool { return f.leftOf(h.ID) == f.left(h.ID, h.UID, h.Entry) }

// WasLeftWith says whether the last apply has left our entry of an object with some fields.
func (f *Fingerprints) WasLeftWith(id kinds.ID, fields []byte) bool {
	left, now := f.leftOf(id), f.left(id, "", Entry{fields: string(fields)})
	return string(left[:halfway]) == string(now[:halfway])
}

func (f *Fingerprints) leftOf(id kinds.ID) fingerprint {
	both, _ := f.find(name(id))
	return both[1]
}

func (f *Fingerprints) left(id kinds.ID, uid types.UID, as Entry) (left fingerprint) {
	fields, object := hash("fields", Text{}, id.String(), f.inOrder(as)), hash("object", Text{}, id.String(), string(uid))
	copy(left[:halfway], fields[:])
	copy(left[halfway:], object[:])
	return left
}

func name(id kinds.ID) fingerprint {
	return hash("name", Text{}, id.Group, id.Kind, id.Namespace, id.Name)
}
