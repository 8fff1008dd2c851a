package fingerprint_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/cluster/fingerprint"
)

func TestAppliedObjectsAreKnown(t *testing.T) {
	object, _ := thing()
	whole := []byte(`{"f:spec":{"f:colour":{},"f:size":{}}}`)
	known := fingerprint.Read(nil)
	if known.Has(head(object).ID) {
		t.Error("an empty cache has an object")
	}
	known.AddExpected(known, head(object).ID)
	if !known.Has(head(object).ID) || known.WasApplied(head(object).ID) {
		t.Error("the cache does not have the expected object, or has it as applied")
	}
	known.AddApplied(head(object))
	read := fingerprint.Read(known.Bytes())
	next := fingerprint.Read(nil)
	next.AddExpected(read, head(object).ID)
	for _, f := range []*fingerprint.Cache{known, read, next} {
		if !f.WasApplied(head(object).ID) || !f.IsSameObject(head(object)) || !f.HadFields(head(object).ID, whole) {
			t.Error("the cache does not know the applied object and its fields")
		}
	}
	object.ManagedFields[0].FieldsV1 = metav1.NewFieldsV1(`{"f:spec":{"f:colour":{}}}`)
	if !read.IsSameObject(head(object)) ||
		read.HadFields(head(object).ID, object.ManagedFields[0].FieldsV1.GetRawBytes()) {
		t.Error("an object that has lost a field is not the same object, or still has the field")
	}
	object.UID = "other"
	if read.IsSameObject(head(object)) {
		t.Error("an object with another UID counts as the same object")
	}
}

// Merged fingerprints replace earlier fingerprints of the same object, and keep all others.
func TestFingerprintsOverOthers(t *testing.T) {
	object, text := thing()
	before := fingerprint.Read(nil)
	before.Add(head(object), text)
	before.AddApplied(head(object))
	object.ManagedFields[0].FieldsV1 = metav1.NewFieldsV1(`{"f:spec":{"f:colour":{}}}`)
	now := fingerprint.Read(nil)
	now.AddApplied(head(object))
	all := fingerprint.Read(now.MergeInto(before.Bytes()))
	if !all.HadFields(head(object).ID, object.ManagedFields[0].FieldsV1.GetRawBytes()) {
		t.Error("the earlier fields of the object still count")
	}
	object, text = thing()
	if !fingerprint.Read(nil).CarryOver(all, head(object), text, func() bool { return false }) {
		t.Error("a fingerprint of another kind is lost")
	}
}
