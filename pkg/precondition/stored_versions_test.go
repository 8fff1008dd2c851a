package precondition_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// ships is a definition whose objects are stored in v1.
const ships = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ships.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Ship, plural: ships}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
`

func TestServerDefinitionWithoutAStoredVersion(t *testing.T) {
	c, namespace := testbed.Connect(t), testbed.Namespace(t)
	older := strings.ReplaceAll(ships, "example.com", "stored.example.com")
	newer := strings.ReplaceAll(older, "storage: true", "storage: false") +
		"  - {name: v2, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}\n"
	made := sandboxtest.Apply(t, c, newer)
	definitions, err := c.FindKind(t.Context(), made.GroupVersionKind().GroupKind())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Delete(context.Background(), definitions, "", made.GetName(), made.GetUID()) })
	judge := func(definition string, known *record.Record) string {
		payload := in(t, namespace, map[string]string{"0000_10_web_ships.yaml": definition})
		if known != nil {
			known.History[0].Hash = payload.Hash
		}
		found := precondition.Evaluate(gather(t, c, precondition.Input{Payload: payload, Record: known}))
		return shown(slices.DeleteFunc(found, func(f precondition.Finding) bool {
			return f.Check != precondition.StoredVersions && f.Check != precondition.NarrowedDefinitions
		}))
	}
	const want = "Blocks StoredVersions: 0000_10_web_ships.yaml: CustomResourceDefinition ships.stored.example.com " +
		"lacks v2, in which the cluster may have stored objects: the API server refuses it; " +
		"resolve by: keeping v2 in its versions, or rewriting its objects in another version, and taking v2 out of " +
		"its status.storedVersions | CustomResourceDefinition ships.stored.example.com | 0000_10_web_ships.yaml"
	if got := judge(older, nil); got != want {
		t.Errorf("the older definition:\n%s\nwant\n%s", got, want)
	}
	if got := judge(newer, nil); got != "" {
		t.Errorf("the newer definition: %s", got)
	}
	for _, annotation := range []string{tombstoneAnnotation, `release.openshift.io/create-only: "true"`} {
		annotated := strings.ReplaceAll(older, "{name: ships.stored.example.com}",
			"{name: ships.stored.example.com, annotations: {"+annotation+"}}")
		if got := judge(annotated, nil); got != "" {
			t.Errorf("a definition with %s, which is not changed: %s", annotation, got)
		}
	}
	if got := judge(older, history("4.6.0...")); got != want {
		t.Errorf("files that were begun last: %s", got)
	}
	if got := judge(older, history("4.6.0")); got != "" {
		t.Errorf("files that were completely applied last: %s", got)
	}
}
