package apply_test

import (
	"strings"
	"testing"
)

// If the server refuses an object in any namespace, the preview reports that before the namespace of the object exists.
// A refusal that may depend on the namespace is reported as not checkable.
func TestPreviewTriesObjectsOfNewNamespaces(t *testing.T) {
	const (
		isNew  = ": it needs Namespace NS-new, which is new, too"
		tried  = ": it was tried in namespace kube-public"
		badWeb = "-- 0000_20_shop_10_web.yaml --\n{apiVersion: v1, kind: Service, metadata: {name: web, namespace: " +
			"NS-new}, spec: {ports: [{port: 99999, targetPort: 1}]}}\n"
		noPort = "failed Service NS-new/web: UpdatePayloadResourceInvalid: Service \"web\" is invalid: " +
			"spec.ports[0].port: Invalid value: 99999: must be between 1 and 65535, inclusive\n"
		secret = "-- 0000_20_shop_10_web.yaml --\n{apiVersion: v1, kind: Secret, metadata: {name: web, namespace: " +
			"NS-new, labels: {a: hunter2 hunter2}}}\n"
	)
	inNew := func(metadata string) string {
		return "-- 0000_20_shop_10_web.yaml --\n{apiVersion: v1, kind: ConfigMap, metadata: {namespace: NS-new, " +
			metadata + "}}\n"
	}
	withHook := func(limit string) string {
		return `-- 0000_20_shop_10_web.yaml --
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: NS-new, annotations: {runlevel.dev/lifecycle-hooks: "pre: {failurePolicy: Abort, execNewPod: {containerName: web, command: [a]}, resources: {requests: {cpu: 2}, limits: {cpu: ` + limit + `}}}"}},
 spec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: registry.example/web}]}}}}
`
	}
	runAll(t, map[string]previewCase{
		"with a hook": {
			files: space + withHook("3"),
			want: "created Namespace NS-new\nran Deployment NS-new/web\ncreated Deployment NS-new/web" + isNew +
				tried + "\n",
			done: "nothing",
		},
		"with an invalid hook": {files: space + withHook("1"),
			want: "created Namespace NS-new\nfailed Deployment NS-new/web: UpdatePayloadResourceInvalid: Pod " +
				"\"NS-web-pre-HASH-1\" is invalid: spec.containers[0].resources.requests: " +
				"Invalid value: \"2\": must be less than or equal to cpu limit of 1\ncreated Deployment NS-new/web" +
				isNew + tried + "\n", done: "nothing"},
		"invalid": {
			files: space + badWeb,
			want:  "created Namespace NS-new\n" + noPort,
			done:  "created Namespace NS-new\nfailed Service NS-new/web\n",
		},
		"invalid and create-only": {
			files: space + strings.Replace(badWeb, "name: web,",
				"name: web, annotations: {release.openshift.io/create-only: \"true\"},", 1),
			want: "created Namespace NS-new\n" + noPort,
			done: "nothing",
		},
		"invalid, in a namespace that the release lacks": {files: badWeb, want: noPort, done: "nothing"},
		"valid, in a namespace that the release lacks": {
			files: inNew("name: web"), done: "nothing",
			want: "not checkable ConfigMap NS-new/web: namespace NS-new does not exist, and the release does " +
				"not have it: an " +
				"apply would wait for it" + tried + "\n",
		},
		"with a name in use in the other namespace": {
			files: space + inNew("name: kube-root-ca.crt, labels: {a: b}"),
			want:  "created Namespace NS-new\ncreated ConfigMap NS-new/kube-root-ca.crt" + isNew + tried + "\n",
			done:  "nothing",
		},
		"with an invalid name": {
			files: space + inNew("name: Web"), done: "nothing",
			want: "created Namespace NS-new\nfailed ConfigMap NS-new/Web: UpdatePayloadResourceInvalid: ConfigMap " +
				"\"Web\" is invalid: metadata.name: Invalid value: \"Web\": a lowercase RFC 1123 subdomain must " +
				"consist of lower case alphanumeric characters, '-' or '.', and must start and end with an " +
				"alphanumeric character (e.g. 'example.com', regex used for validation is " +
				"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')\n",
		},
		"with a Secret in it": {
			files: space + secret, done: "nothing",
			want: "created Namespace NS-new\nfailed Secret NS-new/web: UpdatePayloadResourceInvalid: the server " +
				"refuses it with 422 Invalid (invalid), for metadata.labels (FieldValueInvalid); its message is not " +
				"shown, since it may quote the Secret\n",
		},
		"denied in the other namespace": {
			prepare: func(t *testing.T, namespace string) {
				denyIn(t, namespace, "kube-public", map[string]string{"mine": namespace})
			},
			files: space + inNew("name: web, labels: {mine: NS}"), done: "nothing",
			want: "created Namespace NS-new\nnot checkable ConfigMap NS-new/web" + isNew + tried +
				", which refuses it, as its own one may or may not: " +
				"configmaps \"web\" is forbidden: ValidatingAdmissionPolicy 'NS' with binding 'NS' denied request: " +
				"no hats\n",
		},
		"with a new service account": {
			files: space + "-- 0000_20_shop_10_web.yaml --\n{apiVersion: v1, kind: ServiceAccount, metadata: {name: " +
				"app, namespace: NS-new}}\n---\n" +
				"{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: NS-new}, spec: {serviceAccountName: " +
				"app, containers: [{name: web, image: registry.example/web}]}}\n",
			want: "created Namespace NS-new\ncreated ServiceAccount NS-new/app" + isNew + tried +
				"\ncreated Pod NS-new/web" + isNew + "; it needs ServiceAccount NS-new/app, which is new, too\n",
		},
	})
}
