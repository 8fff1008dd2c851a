package inventory_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/pkg/inventory"
)

func TestWhatAnApplyHasLeft(t *testing.T) {
	object, _ := thing()
	whole := []byte(`{"f:spec":{"f:colour":{},"f:size":{}}}`)
	known := inventory.ReadFingerprints(nil)
	if known.Has(head(object).ID) {
		t.Error("an object is known that nobody has named")
	}
	known.Expect(known, head(object).ID)
	if !known.Has(head(object).ID) || known.WasApplied(head(object).ID) {
		t.Error("an object that is expected is named, and not applied")
	}
	known.Leave(head(object))
	read := inventory.ReadFingerprints(known.Bytes())
	next := inventory.ReadFingerprints(nil)
	next.Expect(read, head(object).ID)
	for _, f := range []*inventory.Fingerprints{known, read, next} {
		if !f.WasApplied(head(object).ID) || !f.WasLeft(head(object)) || !f.WasLeftWith(head(object).ID, whole) {
			t.Error("what was left is not known")
		}
	}
	object.ManagedFields[0].FieldsV1 = metav1.NewFieldsV1(`{"f:spec":{"f:colour":{}}}`)
	if !read.WasLeft(head(object)) || read.WasLeftWith(head(object).ID, object.ManagedFields[0].FieldsV1.GetRawBytes()) {
		t.Error("an object that has lost a field is the same, without the field")
	}
	object.UID = "other"
	if read.WasLeft(head(object)) {
		t.Error("another object is no other")
	}
}

// What is written over other fingerprints replaces what those say of the same object, and nothing else.
func TestFingerprintsOverOthers(t *testing.T) {
	object, text := thing()
	before := inventory.ReadFingerprints(nil)
	before.Add(head(object), text)
	before.Leave(head(object))
	object.ManagedFields[0].FieldsV1 = metav1.NewFieldsV1(`{"f:spec":{"f:colour":{}}}`)
	now := inventory.ReadFingerprints(nil)
	now.Leave(head(object))
	all := inventory.ReadFingerprints(now.Over(before.Bytes()))
	if !all.WasLeftWith(head(object).ID, object.ManagedFields[0].FieldsV1.GetRawBytes()) {
		t.Error("what was left before counts")
	}
	object, text = thing()
	if !inventory.ReadFingerprints(nil).Move(all, head(object), text, func() bool { return false }) {
		t.Error("another fingerprint is lost")
	}
}
