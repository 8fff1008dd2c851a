package crdchange_test

import (
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/objects/crdchange"
)

// definition returns a definition with a schema.
func definition(t *testing.T, schema string) map[string]any {
	t.Helper()
	var read map[string]any
	text := `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, spec: {versions: [
		{name: v1, served: true, storage: true, schema: {openAPIV3Schema: ` + schema + `}}]}}`
	if err := yaml.Unmarshal([]byte(text), &read); err != nil {
		t.Fatal(err)
	}
	return read
}

// TestFieldsOfEveryObjectAreNeverLost drops and requires fields that each object has anyway.
func TestFieldsOfEveryObjectAreNeverLost(t *testing.T) {
	before := definition(t, `{type: object, properties: {apiVersion: {type: string}, kind: {type: string}, metadata: {type: object},
		size: {type: integer}}}`)
	after := definition(t, `{type: object, required: [metadata], properties: {size: {type: integer}}}`)
	if change := crdchange.Compare(before, after); change != nil && len(change.Effects()) > 0 {
		t.Errorf("got %+v, want no change", change)
	}
	lost := definition(t, `{type: object, properties: {metadata: {type: object}}}`)
	change := crdchange.Compare(before, lost)
	if change == nil || len(change.RemovedFields) != 1 || change.RemovedFields[0].Path != "size" {
		t.Errorf("got %+v, want the lost field size", change)
	}
}
