package payload_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/pkg/payload"
)

const injected = `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: web
  annotations: {config.openshift.io/inject-proxy: "web,init", runlevel.dev/inject-api-server: web}
spec:
  template:
    spec:
      initContainers: [{name: init}]
      containers:
      - {name: other, env: [{name: A, value: "1"}]}
      - {name: web, env: [{name: NO_PROXY, value: mine}, {name: B, value: "2"}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: web, namespace: web, annotations: {config.openshift.io/inject-tls: "true"}}
data:
  config.yaml: |
    # a comment
    apiVersion: operator.openshift.io/v1alpha1
    kind: GenericOperatorConfig
    servingInfo: {bindNetwork: tcp, minTLSVersion: VersionTLS10}
  controller.yaml: |
    apiVersion: config.openshift.io/v1
    kind: GenericControllerConfig
  other.yaml: |
    kind: Other
`

// TestSettingsOfTheCluster are put into manifests that ask for them, and nowhere else.
func TestSettingsOfTheCluster(t *testing.T) {
	settings := payload.Injection{
		HTTPSProxy: "http://proxy:3128", NoProxy: ".svc", MinTLSVersion: "VersionTLS13",
		CipherSuites: []string{"TLS_AES_128_GCM_SHA256"},
		APIHost:      "api-int.example", APIPort: "6443",
	}
	files := fstest.MapFS{"0000_10_web_web.yaml": {Data: []byte(injected)}}
	load := func(with payload.Injection) *payload.Payload {
		t.Helper()
		p, _, err := payload.Load(t.Context(), files, payload.Options{Injection: with})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	plain, changed := load(payload.Injection{}), load(settings)
	var texts []string
	for _, m := range changed.Manifests {
		text, err := m.YAML()
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	want := `      containers:
      - env:
        - name: A
          value: "1"
        name: other
      - env:
        - name: B
          value: "2"
        - name: HTTPS_PROXY
          value: http://proxy:3128
        - name: HTTP_PROXY
          value: ""
        - name: NO_PROXY
          value: .svc
        - name: KUBERNETES_SERVICE_HOST
          value: api-int.example
        - name: KUBERNETES_SERVICE_PORT
          value: "6443"
        name: web
      initContainers:
      - env:
        - name: HTTPS_PROXY
          value: http://proxy:3128
        - name: HTTP_PROXY
          value: ""
        - name: NO_PROXY
          value: .svc
        name: init
`
	if _, got, _ := strings.Cut(texts[0], "    spec:\n"); got != want {
		t.Error(cmp.Diff(want, got))
	}
	want = `  config.yaml: |
    # a comment
    apiVersion: operator.openshift.io/v1alpha1
    kind: GenericOperatorConfig
    servingInfo: {bindNetwork: tcp, minTLSVersion: VersionTLS13, cipherSuites: [TLS_AES_128_GCM_SHA256]}
  controller.yaml: |
    apiVersion: config.openshift.io/v1
    kind: GenericControllerConfig
    servingInfo:
        minTLSVersion: VersionTLS13
        cipherSuites:
            - TLS_AES_128_GCM_SHA256
  other.yaml: |
    kind: Other
`
	if _, got, _ := strings.Cut(texts[1], "data:\n"); !strings.HasPrefix(got, want) {
		t.Error(cmp.Diff(want, got))
	}
	if plain.Hash == changed.Hash || plain.Content != changed.Content {
		t.Error("other settings make another payload of the same files")
	}
	if same := load(settings); same.Hash != changed.Hash {
		t.Error("the same settings make another payload")
	}
}

// TestMissingContainer: the manifest is refused.
func TestMissingContainer(t *testing.T) {
	files := fstest.MapFS{"0000_10_web_web.yaml": {Data: []byte(strings.Replace(injected, "web,init", "web,inti", 1))}}
	_, _, err := payload.Load(t.Context(), files, payload.Options{Injection: payload.Injection{NoProxy: ".svc"}})
	if err == nil || !strings.Contains(err.Error(), `0000_10_web_web.yaml`) ||
		!strings.Contains(err.Error(),
			`metadata.annotations[config.openshift.io/inject-proxy]: the pod template has no container "inti"`) {
		t.Error(err)
	}
}
