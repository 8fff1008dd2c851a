package pages_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const shop = `
-- 0000_10_config_settings.yaml --
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: NS}
data: {colour: blue}
-- 0000_10_config_key.yaml --
apiVersion: v1
kind: Secret
metadata: {name: key, namespace: NS}
stringData: {password: hunter2hunter2}
-- 0000_20_web_deployment.yaml --
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: NS}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: registry.example/web, envFrom: [{configMapRef: {name: settings}}]}
`

func TestTheObjectPageShowsDriftWithItsManager(t *testing.T) {
	r := newRelease(t)
	r.must("1.0.0", shop)
	site := r.site()
	contains(t, r.object(site, "ConfigMap", "settings"), "the cluster matches the release")
	_, err := test.Client(r).CoreV1().ConfigMaps(r.namespace).Patch(t.Context(), "settings", types.MergePatchType,
		[]byte(`{"data":{"colour":"red"}}`), metav1.PatchOptions{FieldManager: "painter"})
	if err != nil {
		t.Fatal(err)
	}
	contains(t, r.object(site, "ConfigMap", "settings"), "data.colour", "red", "blue", "overwrites painter",
		"changed since it was applied")
}

func TestNoPageHasTheValueOfASecret(t *testing.T) {
	r := newRelease(t)
	r.must("1.0.0", shop)
	site := r.site()
	const value, encoded = "hunter2hunter2", "aHVudGVyMmh1bnRlcjI="
	_, err := test.Client(r).CoreV1().Secrets(r.namespace).Patch(t.Context(), "key", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+corev1.LastAppliedConfigAnnotation+`":"`+value+`"}},
			"data":{"password":"bW9yZW1vcmVtb3Jl"}}`), metav1.PatchOptions{FieldManager: "painter"})
	if err != nil {
		t.Fatal(err)
	}
	page := r.object(site, "Secret", "key")
	contains(t, page, "data.password", "***")
	for _, page := range []string{page, r.page(site, "objects")} {
		lacks(t, page, value, encoded, "bW9yZW1vcmVtb3Jl", "moremoremore")
	}
}

func TestTheObjectPageLinksToReferencesInBothDirections(t *testing.T) {
	r := newRelease(t)
	r.must("1.0.0", shop)
	site := r.site()
	contains(t, r.object(site, "Deployment.apps", "web"), "kind=ConfigMap&amp;name=settings",
		"spec.template.spec.containers[0].envFrom[0].configMapRef.name")
	contains(t, r.object(site, "ConfigMap", "settings"), "kind=Deployment.apps&amp;name=web",
		"0000_10_config_settings.yaml:1")
}
