package fingerprint_test

import (
	"bytes"
	"crypto/sha256"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/fingerprint"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
)

// thing returns an applied object, and the manifest that it was applied from.
func thing() (object *metav1.PartialObjectMetadata, text fingerprint.AppliedFrom) {
	manifest := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: "it", Labels: map[string]string{"mood": "good"}, Annotations: map[string]string{"tone": "high"},
		Finalizers:      []string{"example.com/cleanup"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "o"}},
	}}
	object = manifest.DeepCopy()
	object.UID, object.ResourceVersion, object.Generation = "u", "7", 3
	object.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: cluster.FieldManager, Operation: metav1.ManagedFieldsOperationApply,
		Time:     &metav1.Time{Time: time.Unix(1000, 0)},
		FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:size":{},"f:colour":{}}}`),
	}}
	return object, fingerprint.AppliedFrom{Sum: sha256.Sum256([]byte("1.0")), Note: "definition", Metadata: manifest}
}

func head(object *metav1.PartialObjectMetadata) objectmeta.LiveMetadata {
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}
	return objectmeta.Of(cluster.Resource{
		GroupVersionResource: kind.GroupVersion().WithResource("things"),
		Kind:                 kind.Kind,
	}, object)
}

func TestFingerprintsKnowWhatCantHaveChanged(t *testing.T) {
	ours := func(o *metav1.PartialObjectMetadata) *metav1.ManagedFieldsEntry { return &o.ManagedFields[0] }
	for name, item := range map[string]struct {
		since  func(*metav1.PartialObjectMetadata)
		text   func(*fingerprint.AppliedFrom)
		exact  bool // known of any kind
		counts bool // known of a kind whose generation counts
	}{
		"nothing": {exact: true, counts: true},
		"a write": {
			since:  func(o *metav1.PartialObjectMetadata) { o.ResourceVersion = "8" },
			counts: true,
		},
		"a write, and a generation": {since: func(o *metav1.PartialObjectMetadata) {
			o.ResourceVersion, o.Generation = "8", 4
		}},
		"a write, and no generation": {since: func(o *metav1.PartialObjectMetadata) {
			o.ResourceVersion, o.Generation = "8", 0
		}},
		"another object": {since: func(o *metav1.PartialObjectMetadata) { o.UID = "v" }},
		"another name":   {since: func(o *metav1.PartialObjectMetadata) { o.Name = "them" }},
		"our entry is younger": {since: func(o *metav1.PartialObjectMetadata) {
			o.ResourceVersion = "8"
			ours(o).Time.Time = time.Unix(1001, 0)
		}},
		"our entry is of another zone": {since: func(o *metav1.PartialObjectMetadata) {
			o.ResourceVersion = "8"
			ours(o).Time.Time = time.Unix(1000, 0).In(time.FixedZone("", 3600))
		}, counts: true},
		"our entry has no time": {since: func(o *metav1.PartialObjectMetadata) {
			o.ResourceVersion = "8"
			ours(o).Time = nil
		}},
		"our entry in another order": {since: func(o *metav1.PartialObjectMetadata) {
			o.ResourceVersion = "8"
			ours(o).FieldsV1 = metav1.NewFieldsV1(`{"f:spec":{"f:colour":{},"f:size":{}}}`)
		}, counts: true},
		"our entry has lost a field": {since: func(o *metav1.PartialObjectMetadata) {
			o.ResourceVersion = "8"
			ours(o).FieldsV1 = metav1.NewFieldsV1(`{"f:spec":{"f:colour":{}}}`)
		}},
		"our entry was removed": {since: func(o *metav1.PartialObjectMetadata) {
			o.ResourceVersion = "8"
			o.ManagedFields = nil
		}},
		"our entry is of an update": {since: func(o *metav1.PartialObjectMetadata) {
			o.ResourceVersion = "8"
			ours(o).Operation = metav1.ManagedFieldsOperationUpdate
		}},
		"an entry of another manager": {since: func(o *metav1.PartialObjectMetadata) {
			o.ResourceVersion = "8"
			o.ManagedFields = append(o.ManagedFields, metav1.ManagedFieldsEntry{Manager: "bob", Operation: "Apply"})
		}, counts: true},
		"a label": {since: func(o *metav1.PartialObjectMetadata) {
			o.ResourceVersion = "8"
			o.Labels["mood"] = "bad"
		}},
		"no label": {since: func(o *metav1.PartialObjectMetadata) { o.ResourceVersion = "8"; o.Labels = nil }},
		"a label of another manager": {
			since:  func(o *metav1.PartialObjectMetadata) { o.ResourceVersion = "8"; o.Labels["theirs"] = "" },
			counts: true,
		},
		"an annotation": {since: func(o *metav1.PartialObjectMetadata) {
			o.ResourceVersion = "8"
			o.Annotations["tone"] = ""
		}},
		"no finalizer": {since: func(o *metav1.PartialObjectMetadata) {
			o.ResourceVersion = "8"
			o.Finalizers = nil
		}},
		"a finalizer of another manager": {since: func(o *metav1.PartialObjectMetadata) {
			o.ResourceVersion = "8"
			o.Finalizers = append(o.Finalizers, "example.com/theirs")
		}, counts: true},
		"an owner": {since: func(o *metav1.PartialObjectMetadata) {
			o.ResourceVersion = "8"
			o.OwnerReferences[0].UID = "p"
		}},
		"another text":       {text: func(x *fingerprint.AppliedFrom) { x.Sum = sha256.Sum256([]byte("1.1")) }},
		"another definition": {text: func(x *fingerprint.AppliedFrom) { x.Note = "" }},
	} {
		t.Run(name, func(t *testing.T) {
			object, text := thing()
			known := fingerprint.Read(nil)
			known.Add(head(object), text)
			known = fingerprint.Read(known.Bytes()) // the next process does the same
			if item.since != nil {
				item.since(object)
			}
			if item.text != nil {
				item.text(&text)
			}
			for counts, want := range map[bool]bool{false: item.exact, true: item.counts} {
				kept := fingerprint.Read(nil)
				if got := kept.CarryOver(known, head(object), text, func() bool { return counts }); got != want {
					t.Errorf("where its generation counts is %t: known is %t", counts, got)
				}
				if isKept := bytes.Equal(kept.Bytes(), known.Bytes()); isKept != want {
					t.Errorf("where its generation counts is %t: kept is %t", counts, isKept)
				}
			}
		})
	}
}

// Servers of their own kinds may give their objects no versions.
func TestNothingIsKnownOfAnObjectWithoutAVersion(t *testing.T) {
	object, text := thing()
	object.ResourceVersion = ""
	known := fingerprint.Read(nil)
	known.Add(head(object), text)
	known.AddReady(head(object), text, "full")
	if fingerprint.Read(nil).CarryOver(known, head(object), text, func() bool { return true }) ||
		len(known.Bytes()) > 0 {
		t.Errorf("%d bytes are known", len(known.Bytes()))
	}
}

// The record is not written because a status has changed, but is where more is ready.
func TestFingerprintsAreUpdatedWhereItPays(t *testing.T) {
	object, text := thing()
	applied := func(ready ...string) *fingerprint.Cache {
		all := fingerprint.Read(nil)
		all.Add(head(object), text)
		for _, version := range ready {
			seen := object.DeepCopy()
			seen.ResourceVersion = version
			all.AddReady(head(seen), text, "full")
		}
		return all
	}
	for name, row := range map[string]struct {
		was, is   *fingerprint.Cache
		isWritten bool
	}{
		"nothing":          {applied("7"), applied("7"), false},
		"a status":         {applied("7"), applied("8"), false},
		"less is ready":    {applied("7"), applied(), false},
		"more is ready":    {applied(), applied("7"), true},
		"nothing is known": {applied("7"), fingerprint.Read(nil), true},
	} {
		t.Run(name, func(t *testing.T) {
			kept := row.was.Bytes()
			want := kept
			if row.isWritten {
				want = row.is.Bytes()
			}
			if got := row.is.Update(kept); !bytes.Equal(got, want) {
				t.Errorf("the cache has %x, want %x", got, want)
			}
		})
	}
}

// If a cache is truncated at any byte, or lacks a byte, it has fewer objects, and never an object that was not stored.
func TestBrokenFingerprintsKnowLess(t *testing.T) {
	object, text := thing()
	known := fingerprint.Read(nil)
	for _, name := range []string{"a", "b", "c"} {
		object.Name = name
		known.Add(head(object), text)
	}
	whole := known.Bytes()
	object.Name, object.ResourceVersion, object.Generation = "other", "8", 4
	for index := range len(whole) {
		broken := [][]byte{whole[:index], whole[index:], append(bytes.Clone(whole[:index]), whole[index+1:]...),
			append(append(bytes.Clone(whole[:index]), 'x'), whole[index:]...)}
		for _, data := range broken {
			read := fingerprint.Read(data)
			if len(read.Bytes()) > len(data) {
				t.Errorf("read %d of %d bytes", len(read.Bytes()), len(data))
			}
			if fingerprint.Read(nil).CarryOver(read, head(object), text, func() bool { return true }) {
				t.Errorf("broken at %d, the cache knows an object that was never applied", index)
			}
		}
		if got := len(fingerprint.Read(whole[:index]).Bytes()); got != index/48*48 {
			t.Errorf("read %[2]d of the first %[1]d bytes", index, got)
		}
	}
}

// Whatever stands in the record is read, never grows, and knows nothing that was not applied.
func FuzzReadFingerprints(f *testing.F) {
	object, text := thing()
	known := fingerprint.Read(nil)
	known.Add(head(object), text)
	f.Add([]byte(nil))
	f.Add(known.Bytes())
	f.Add(bytes.Repeat(known.Bytes()[:8], 5))
	f.Add([]byte("0123456789abcdef0123456701234567abcdefgh0123456789"))
	object.ResourceVersion, object.Generation = "8", 4
	f.Fuzz(func(t *testing.T, data []byte) {
		read := fingerprint.Read(data)
		written := read.Bytes()
		if again := fingerprint.Read(written).Bytes(); len(written) > len(data) || len(again) > len(written) {
			t.Errorf("%x grows to %x, and to %x", data, written, again)
		}
		if fingerprint.Read(nil).CarryOver(read, head(object), text, func() bool { return true }) {
			t.Error("the cache knows an object that was never applied")
		}
	})
}

// Servers before a kind got generations left them 0, which counts nothing.
func TestNoGenerationCountsNothing(t *testing.T) {
	object, text := thing()
	object.Generation = 0
	known := fingerprint.Read(nil)
	known.Add(head(object), text)
	object.ResourceVersion = "8"
	if fingerprint.Read(nil).CarryOver(known, head(object), text, func() bool { return true }) {
		t.Error("the cache knows an object that may have been written")
	}
}
