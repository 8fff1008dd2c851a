package apply_test

import (
	"strings"
	"testing"

	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// hatDefinition returns a definition whose schema has the properties.
func hatDefinition(properties string) string {
	return `
-- 0000_10_shop_10_hats.crd.yaml --
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: hats.NS.example.com}
spec:
  group: NS.example.com
  names: {kind: Hat, plural: hats}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {` + properties + `}}}}}}]
`
}

func hat(spec string) string {
	return "-- 0000_10_shop_50_hat.yaml --\n{apiVersion: NS.example.com/v1, kind: Hat, metadata: {name: hat, " +
		"namespace: NS}, spec: {" + spec + "}}\n"
}

const (
	price      = `price: {type: integer, minimum: 1}`
	ofHats     = "CustomResourceDefinition hats.NS.example.com"
	isNewToo   = ": " + ofHats + " is new, too: it was checked against that\n"
	notAllowed = "failed Hat NS/hat: UpdatePayloadResourceInvalid: its definition, which comes with this release, " +
		"does not allow it: "
	isAnother = ": the cluster has another version of its definition: it was checked against the one of this release\n"
)

func TestPreviewWithNewOrChangedDefinitions(t *testing.T) {
	withBrand := hatDefinition(price + `, brand: {type: string}`)
	runAll(t, map[string]previewCase{
		"new, and good": {
			files: hatDefinition(price) + hat("price: 3"),
			want:  "created " + ofHats + "\ncreated Hat NS/hat" + isNewToo,
		},
		"new, and bad": {
			files: hatDefinition(price) + hat("price: 0"),
			want:  "created " + ofHats + "\n" + notAllowed + "spec.price: 0 should be greater than or equal to 1\n",
			done:  "created " + ofHats + "\nfailed Hat NS/hat\n",
		},
		"new, and wrong": {
			files: hatDefinition(price) + hat("price: x"),
			want:  "created " + ofHats + "\n" + notAllowed + "spec.price: must be of type integer, not string\n",
			done:  "created " + ofHats + "\nfailed Hat NS/hat\n",
		},
		"new, and unknown field": {
			files: hatDefinition(price) + hat("prize: 3"), done: "nothing",
			want: "created " + ofHats + "\n" + notAllowed + "spec.prize: is not in the schema\n",
		},
		"new, and unknown field is dropped": {
			files: hatDefinition(price) + hat("prize: 3"), options: apply.Options{
				Options: object.Options{DropUnknownFields: true},
			},
			done: "nothing",
			want: "created " + ofHats + "\ncreated Hat NS/hat" + isNewToo,
		},
		"new, and other version": {
			files: hatDefinition(price) + strings.Replace(hat("price: 3"), "/v1", "/v2", 1), done: "nothing",
			want: "created " + ofHats + "\n" + notAllowed +
				"apiVersion: \"NS.example.com/v2\" is not served: write \"NS.example.com/v1\"\n",
		},
		"new, and in no namespace": {
			files: hatDefinition(price) + strings.Replace(hat("price: 3"), ", namespace: NS", "", 1),
			done:  "created " + ofHats + "\nfailed Hat hat\n",
			want: "created " + ofHats +
				"\nfailed Hat hat: UpdatePayloadResourceInvalid: the manifest has no namespace: set " +
				"metadata.namespace\n",
		},
		"unchanged, and new object": {
			given: hatDefinition(price),
			files: hatDefinition(price) + hat("price: 3"),
			want:  "unchanged " + ofHats + "\ncreated Hat NS/hat\n",
		},
		"unchanged, and bad object": {
			given: hatDefinition(price), files: hatDefinition(price) + hat("price: 0"),
			want: "unchanged " + ofHats +
				"\nfailed Hat NS/hat: UpdatePayloadResourceInvalid: Hat.NS.example.com \"hat\" is invalid: " +
				"spec.price: Invalid value: 0: spec.price in body should be greater than or equal to 1\n",
		},
		"unchanged, and unchanged": {
			given: hatDefinition(price) + hat("price: 3"),
			files: hatDefinition(price) + hat("price: 3"),
			want:  "unchanged " + ofHats + "\nunchanged Hat NS/hat\n",
		},
		"labelled, and unchanged": {
			given: hatDefinition(price) + hat("price: 3"),
			files: strings.Replace(hatDefinition(price), "{name: hats.", "{labels: {a: b}, name: hats.", 1) +
				hat("price: 3"),
			want: "configured " + ofHats + "\nunchanged Hat NS/hat\n",
		},
		"changed, and the object fits both": {
			given: hatDefinition(price) + hat("price: 3"),
			files: withBrand + hat("price: 3"),
			want:  "configured " + ofHats + "\nunchanged Hat NS/hat\n",
		},
		"changed, and the object changes": {
			given: hatDefinition(price) + hat("price: 3"),
			files: withBrand + hat("price: 4"),
			want:  "configured " + ofHats + "\nconfigured Hat NS/hat\n",
		},
		"changed, and the object fits only the new schema": {
			given: hatDefinition(price) + hat("price: 3"), files: withBrand + hat("price: 3, brand: a"),
			want: "configured " + ofHats + "\nconfigured Hat NS/hat" + isAnother,
		},
		"changed, and the object fits only the new schema, and unknown fields are dropped": {
			given: hatDefinition(price) + hat("price: 3"), files: withBrand + hat("price: 3, brand: a"),
			options: apply.Options{Options: object.Options{DropUnknownFields: true}},
			want:    "configured " + ofHats + "\nconfigured Hat NS/hat" + isAnother,
		},
		"changed, and a new object fits only the new schema": {
			given: hatDefinition(price), files: withBrand + hat("price: 3, brand: a"),
			want: "configured " + ofHats + "\ncreated Hat NS/hat" + isAnother,
		},
		"changed, and a value of the object fits only the new schema": {
			given: hatDefinition(price) + hat("price: 3"),
			files: hatDefinition(`price: {type: integer, minimum: 0}`) + hat("price: 0"),
			want:  "configured " + ofHats + "\nconfigured Hat NS/hat" + isAnother,
		},
		"changed, and the object fits only the old schema": {
			given: hatDefinition(price) + hat("price: 3"),
			files: hatDefinition(`price: {type: integer, minimum: 5}`) + hat("price: 4"),
			want:  "configured " + ofHats + "\n" + notAllowed + "spec.price: 4 should be greater than or equal to 5\n",
			done:  "nothing",
		},
		"changed, and a new object fits only the old schema": {
			given: hatDefinition(price), files: hatDefinition(`price: {type: integer, minimum: 5}`) + hat("price: 4"),
			want: "configured " + ofHats + "\n" + notAllowed + "spec.price: 4 should be greater than or equal to 5\n",
			done: "nothing",
		},
		"changed, and the object has a field that the new schema lacks": {
			given: withBrand + hat("price: 3, brand: a"), files: hatDefinition(price) + hat("price: 3, brand: a"),
			done: "nothing",
			want: "configured " + ofHats + "\n" + notAllowed + "spec.brand: is not in the schema\n",
		},
		"changed, and the object fits neither schema": {
			given: hatDefinition(price) + hat("price: 3"), files: withBrand + hat("price: 0"),
			want: "configured " + ofHats + "\n" + notAllowed + "spec.price: 0 should be greater than or equal to 1\n",
			done: "configured " + ofHats + "\nfailed Hat NS/hat\n",
		},
		"new, and a bad object with a Secret in it": {
			files: hatDefinition(`key: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true, properties: {stringData: {type: object, additionalProperties: {type: string, pattern: "^x$"}}}}`) +
				hat(`key: {apiVersion: v1, kind: Secret, metadata: {name: a}, stringData: {a: hunter2}}`),
			done: "nothing",
			want: "created " + ofHats + "\n" + notAllowed +
				"spec.key.stringData.a is wrong; its value is not shown, for it may be a Secret's\n",
		},
		"in a new version": {
			given: hatDefinition(price) + hat("price: 3"),
			files: strings.Replace(hatDefinition(price), "versions: [",
				"versions: [{name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object, "+
					"x-kubernetes-preserve-unknown-fields: true}}}, ", 1) +
				strings.Replace(hat("price: 3"), "/v1", "/v2", 1),
			want: "configured " + ofHats + "\nnot checkable Hat NS/hat" + isNewToo, done: "nothing",
		},
		"none": {
			files: strings.Replace(hatDefinition(price), "type: integer", "type: integr", 1) + hat("price: 3"),
			done:  "nothing",
			want: "failed " + ofHats +
				": UpdatePayloadResourceInvalid: CustomResourceDefinition.apiextensions.k8s.io " +
				"\"hats.NS.example.com\" is invalid: " +
				"spec.validation.openAPIV3Schema.properties[spec].properties[price].type: " +
				"Unsupported value: \"integr\": supported values: \"array\", \"boolean\", \"integer\", \"number\", " +
				"\"object\", \"string\"\n" +
				"failed Hat NS/hat: UpdatePayloadResourceInvalid: its definition, " + ofHats +
				", would not be applied\n",
		},
	})
}

const space = `
-- 0000_10_shop_00_space.yaml --
{apiVersion: v1, kind: Namespace, metadata: {name: NS-new}}
`

func inNew(text string) string { return strings.ReplaceAll(text, "namespace: NS", "namespace: NS-new") }

func TestPreviewOfObjectsThatNeedNewObjects(t *testing.T) {
	const needsSpace = ": it needs Namespace NS-new, which is new, too: it was tried in namespace kube-public\n"
	runAll(t, map[string]previewCase{
		"a namespace": {
			files: space + one(inNew(red)),
			want:  "created Namespace NS-new\ncreated ConfigMap NS-new/it" + needsSpace,
		},
		"a namespace, and a create-only object": {
			files: space + one(inNew(once)),
			want:  "created Namespace NS-new\ncreated ConfigMap NS-new/it" + needsSpace,
		},
		"a namespace, and an unknown field": {
			files: space + one(inNew(strings.Replace(red, "}, data:", "}, dada: {}, data:", 1))),
			want: "created Namespace NS-new\nfailed ConfigMap NS-new/it: UpdatePayloadResourceInvalid: " +
				"unknown field .dada: correct or remove it, or drop unknown fields\n",
		},
		"a namespace, and a custom resource": {
			files: space + hatDefinition(price) + inNew(hat("price: 3")),
			want:  "created Namespace NS-new\ncreated " + ofHats + "\ncreated Hat NS-new/hat" + isNewToo,
		},
		"a namespace, and a custom resource of a served kind": {
			given: hatDefinition(price), files: space + hatDefinition(price) + inNew(hat("price: 3")),
			want: "created Namespace NS-new\nunchanged " + ofHats + "\ncreated Hat NS-new/hat" + needsSpace,
		},
		"a namespace, and a bad custom resource of a served kind": {
			given: hatDefinition(price), files: space + hatDefinition(price) + inNew(hat("price: 0")), done: "nothing",
			want: "created Namespace NS-new\nunchanged " + ofHats +
				"\nfailed Hat NS-new/hat: UpdatePayloadResourceInvalid: Hat.NS.example.com \"hat\" is invalid: " +
				"spec.price: Invalid value: 0: spec.price in body should be greater than or equal to 1\n",
		},
		"a service account": {
			files: one(`{apiVersion: v1, kind: ServiceAccount, metadata: {name: app, namespace: NS}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: NS}, spec: {serviceAccountName: app, containers: [{name: web, image: registry.example/web}]}}`),
			want: "created ServiceAccount NS/app\ncreated Pod NS/web: it needs ServiceAccount NS/app, which is new, too\n",
		},
		"a priority": {
			files: one(`{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: NS-high}, value: 7}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: NS}, spec: {automountServiceAccountToken: false, priorityClassName: NS-high, containers: [{name: web, image: registry.example/web}]}}`),
			want: "created PriorityClass NS-high\ncreated Pod NS/web: it needs PriorityClass NS-high, which is new, too\n",
		},
		"a runtime": {
			files: one(`{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: NS-run}, handler: a}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: NS}, spec: {automountServiceAccountToken: false, runtimeClassName: NS-run, containers: [{name: web, image: registry.example/web}]}}`),
			want: "created RuntimeClass NS-run\ncreated Pod NS/web: it needs RuntimeClass NS-run, which is new, too\n",
		},
		"an API": {
			files: one(`{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.NS.example.com}, spec: {group: NS.example.com, version: v1, groupPriorityMinimum: 1, versionPriority: 1, service: {name: a, namespace: NS}}}
---
{apiVersion: NS.example.com/v1, kind: Thing, metadata: {name: it, namespace: NS}}
---
{apiVersion: NS.example.com/v2, kind: Thing, metadata: {name: other, namespace: NS}}`), done: "nothing",
			want: "created APIService v1.NS.example.com\ncreated Thing NS/it: its API is new, too: APIService " +
				"v1.NS.example.com\n" +
				"failed Thing NS/other: UpdatePayloadResourceTypeMissing: the cluster has no kind " +
				"Thing.NS.example.com: the cluster does not serve it\n",
		},
	})
}
