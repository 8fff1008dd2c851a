package fields_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/objects/fields"
)

func TestWithoutServers(t *testing.T) {
	object := func(metadata map[string]any) map[string]any {
		return map[string]any{"kind": "ConfigMap", "metadata": metadata, "data": map[string]any{"uid": "1"}}
	}
	whole := func() map[string]any {
		return map[string]any{
			"name": "a", "labels": map[string]any{"uid": "1"}, "uid": "1", "resourceVersion": "1",
			"generation":        int64(1),
			"creationTimestamp": nil, "selfLink": "/", "managedFields": []any{},
		}
	}
	given := object(whole())
	want := object(map[string]any{"name": "a", "labels": map[string]any{"uid": "1"}})
	if diff := cmp.Diff(want, fields.WithoutServers(given)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(object(whole()), given); diff != "" {
		t.Error("the argument was changed (-want +got):", diff)
	}
	for _, odd := range []map[string]any{nil, {"metadata": nil}, {"metadata": "a"}} {
		if diff := cmp.Diff(odd, fields.WithoutServers(odd)); diff != "" {
			t.Error(diff)
		}
	}
}
