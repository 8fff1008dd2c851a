package apply_test

import (
	"testing"

	"github.com/runlevel/runlevel/pkg/apply"
)

// A recreated object can't have the UID in a manifest that was copied from a cluster.
func TestManifestCopiedFromACluster(t *testing.T) {
	namespace := test.Namespace(t)
	release := load(t, namespace, namespace, `
-- 0000_10_copied.yaml --
apiVersion: v1
kind: ConfigMap
metadata:
  name: copied
  namespace: NS
  uid: 16bdcf3c-99e8-442d-a126-a4165d4735d9
  resourceVersion: "42"
  generation: 3
  creationTimestamp: "2026-01-01T00:00:00Z"
  managedFields: [{manager: somebody, operation: Apply, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {}}]
`)
	for _, action := range []string{"created", "unchanged"} {
		did := run(t, t.Context(), release, apply.Options{Options: installMode, OnEvent: func(event apply.Event) {
			if event.Type == apply.Failing || event.Type == apply.Retrying {
				t.Error(event.Message)
			}
		}})
		if want := action + " ConfigMap " + namespace + "/copied\n"; did.actions() != want || did.Err != nil {
			t.Errorf("want %s, have %s, %v", want, did.actions(), did.Err)
		}
	}
}
