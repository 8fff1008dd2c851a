package apply_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/pkg/apply"
)

// shop has objects that are ready at once, objects that are ready later, and custom resources whose definition comes
// later by name.
const shop = `
-- 0000_10_shop_00_namespace.yaml --
{apiVersion: v1, kind: Namespace, metadata: {name: NS-shop}}
-- 0000_10_shop_05_item.yaml --
{apiVersion: NS.example.com/v1, kind: Item, metadata: {name: hat, namespace: NS-shop}, spec: {price: 3}}
-- 0000_10_shop_10_items.crd.yaml --
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: items.NS.example.com}
spec:
  group: NS.example.com
  names: {kind: Item, plural: items}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {price: {type: integer}}}
-- 0000_20_shop_settings.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: NS-shop}, data: {colour: red}}
-- 0000_30_shop_web.yaml --
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: NS-shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: registry.example/web}]}
`

func TestInstallThenNothingToDoThenUpdate(t *testing.T) {
	namespace := test.Namespace(t)
	release := load(t, namespace, namespace, shop)
	did := run(t, t.Context(), release, apply.Options{Options: installMode})
	if did.Err != nil {
		t.Fatal(did.Err)
	}
	want := strings.ReplaceAll(`created Namespace NS-shop
created Item NS-shop/hat
created CustomResourceDefinition items.NS.example.com
created ConfigMap NS-shop/settings
created Deployment NS-shop/web
`, "NS", namespace)
	if diff := cmp.Diff(want, did.actions()); diff != "" {
		t.Error(diff)
	}
	did = run(t, t.Context(), release, apply.Options{Options: reconcileMode})
	if diff := cmp.Diff(strings.ReplaceAll(want, "created", "unchanged"), did.actions()); diff != "" || did.Err != nil {
		t.Error(did.Err, diff)
	}
	next := load(t, namespace, namespace, strings.ReplaceAll(shop, "colour: red", "colour: blue"))
	did = run(t, t.Context(), next, apply.Options{Options: updateMode})
	want = strings.ReplaceAll(want, "created", "unchanged")
	want = strings.ReplaceAll(want, "unchanged ConfigMap", "configured ConfigMap")
	if diff := cmp.Diff(want, did.actions()); diff != "" || did.Err != nil {
		t.Error(did.Err, diff)
	}
}
