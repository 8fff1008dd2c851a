package apply_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// Consecutive levels of one component each share a node of the graph. Each level still waits until the previous level
// is ready.
func TestLevelsOfOneComponentWaitForEachOther(t *testing.T) {
	namespace := test.Namespace(t)
	release := load(t, namespace, namespace, `
-- 0000_10_base_gate.yaml --
apiVersion: v1
kind: ConfigMap
metadata: {name: gate, namespace: NS, annotations: {runlevel.dev/ready: "false"}}
-- 0000_10_base_other.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: other, namespace: NS}}
-- 0000_20_web_settings.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: NS}}
`)
	did := run(t, t.Context(), release, apply.Options{Options: updateMode, Timeout: 2 * time.Second})
	want := strings.ReplaceAll(`created ConfigMap NS/gate
created ConfigMap NS/other
not done ConfigMap NS/settings
`, "NS", namespace)
	if diff := cmp.Diff(want, did.actions()); diff != "" {
		t.Error(diff)
	}
	if did.Err == nil || did.Err.Error() != "the time is up after 2s: 1 object not applied, 1 object not ready" {
		t.Error(did.Err)
	}
	if why := did.Changes[2].Message; why != "after ConfigMap "+namespace+"/gate, which is not ready" {
		t.Error(why)
	}
	did = run(t, t.Context(), release, apply.Options{Options: updateMode, NoWait: true})
	if did.Err != nil || did.Changes[2].Action != object.Created {
		t.Error(did.Err, did.actions())
	}
}

// In an install, a custom resource waits only for its own definition. This definition is never established, because
// another definition has the same short name.
func TestUnfinishedStepsOfAnInstallNameTheirNeeds(t *testing.T) {
	namespace := test.Namespace(t)
	definition := `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: PLURAL.NS.example.com}
spec:
  group: NS.example.com
  scope: Namespaced
  names: {plural: PLURAL, kind: KIND, shortNames: [w]}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`
	widgets := "-- 0000_10_first_crd.yaml --" +
		strings.NewReplacer("PLURAL", "widgets", "KIND", "Widget").Replace(definition)
	gadgets := "-- 0000_20_second_crd.yaml --" +
		strings.NewReplacer("PLURAL", "gadgets", "KIND", "Gadget").Replace(definition)
	if did := run(t, t.Context(), load(t, namespace, namespace, widgets),
		apply.Options{Options: installMode}); did.Err != nil {
		t.Fatal(did.Err)
	}
	did := run(t, t.Context(), load(t, namespace, namespace, gadgets+`
-- 0000_30_third_gadget.yaml --
{apiVersion: NS.example.com/v1, kind: Gadget, metadata: {name: mine, namespace: NS}}
`), apply.Options{Options: installMode, Timeout: 2 * time.Second})
	want := "after CustomResourceDefinition gadgets." + namespace + ".example.com, which is not ready"
	if last := did.Changes[1]; last.Action != object.NotDone || last.Message != want {
		t.Errorf("%s, %s", last.Message, did.actions())
	}
	_, step, _ := apply.StateOf(did.Left).Find(did.Changes[1].ID)
	if step.Awaits == nil || *step.Awaits != did.Changes[0].ID {
		t.Errorf("the recorded step awaits %v", step.Awaits)
	}
}
