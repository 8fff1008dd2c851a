package rehearse_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/runlevel/runlevel/internal/rehearse"
	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/session/snapshot"
	"github.com/runlevel/runlevel/pkg/apply"
)

const shopOne = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Secret
metadata: {name: password, namespace: shop, annotations: {kapp.k14s.io/original: '{"data":{"password":"c3dvcmRmaXNo"}}'}}
stringData: {password: swordfish}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: registry.example/web:1}]}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: shop}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: old, namespace: shop}
`

// The cluster of the test has a policy and a webhook of others, and an administrator has scaled the Deployment.
const others = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: pinned-images}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments]}]
  validations:
  - expression: "object.spec.template.spec.containers.all(c, !c.image.endsWith(':latest'))"
    message: images have versions here
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: pinned-images}
spec: {policyName: pinned-images, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: costs}
webhooks:
- name: costs.platform.example
  sideEffects: None
  failurePolicy: Ignore
  timeoutSeconds: 1
  admissionReviewVersions: [v1]
  clientConfig: {url: "https://127.0.0.1:1/"}
  rules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments]}]
`

// TestRecordedCluster rehearses the update of a cluster from its snapshot: a policy of the cluster refuses it, its
// webhook can't run, and the objects of the old version that the record has are left behind.
func TestRecordedCluster(t *testing.T) {
	taken := snapshotOfCluster(t)
	if bytes.Contains(taken, []byte("swordfish")) || bytes.Contains(taken, []byte("c3dvcmRmaXNo")) {
		t.Error("the snapshot has the value of a Secret")
	}
	source, err := snapshot.Read(bytes.NewReader(taken))
	if err != nil {
		t.Fatal(err)
	}
	next := strings.Replace(shopOne[:strings.LastIndex(shopOne, "---")], "web:1", "web:latest", 1)
	input := lint.Input{Payload: parse(t, fstest.MapFS{"0000_10_shop_01_all.yaml": {Data: []byte(next)}}, "1.1.0")}
	report, err := rehearse.Run(t.Context(),
		rehearse.Options{New: input.Payload, From: source, Sandbox: sandbox.Options{Nodes: 1}})
	if err != nil {
		t.Fatal(err)
	}
	input.Rehearsal = &report.Rehearsal
	result, err := lint.Run(t.Context(), input)
	if err != nil {
		t.Fatal(err)
	}
	var found strings.Builder
	for _, finding := range result.Findings {
		found.WriteString(finding.String() + "\n")
	}
	if strings.Contains(found.String(), "PersistentVolumeClaim") || strings.Contains(found.String(), "Secret") {
		t.Errorf("findings about correct objects:\n%s", found.String())
	}
	for _, want := range []string{
		"0000_10_shop_01_all.yaml:11:1: error: Deployment shop/web: the API server refuses it: deployments.apps " +
			"\"web\" is forbidden: ValidatingAdmissionPolicy 'pinned-images' with binding 'pinned-images' denied " +
			"request: images have versions here [rehearsal-refused]",
		"ValidatingWebhookConfiguration costs: webhook costs.platform.example of the cluster can't run here, and is " +
			"called for deployments.apps",
		"ConfigMap shop/old: it is left behind",
	} {
		if !strings.Contains(found.String(), want) {
			t.Errorf("no problem has %q:\n%s", want, found.String())
		}
	}
}

// snapshotOfCluster applies the release to a cluster, and returns its snapshot.
func snapshotOfCluster(t *testing.T) []byte {
	t.Helper()
	server := sandboxtest.Start(t, sandbox.Options{Nodes: 1})
	c := sandboxtest.Connect(t, server.Config)
	release := parse(t, fstest.MapFS{"0000_10_shop_01_all.yaml": {Data: []byte(shopOne)}}, "1.0.0")
	if outcome := session.Run(t.Context(), c, release, session.Options{Apply: apply.Options{}}); outcome.Err != nil {
		t.Fatal(outcome.Err)
	}
	for manifest := range strings.SplitSeq(others, "---") {
		sandboxtest.Apply(t, c, manifest)
	}
	var taken bytes.Buffer
	sandboxtest.EventuallySucceeds(t, func(ctx context.Context) error {
		found, err := snapshot.Take(ctx, c, "shop", session.DefaultNamespace)
		if err != nil {
			return err
		}
		taken.Reset()
		return found.Write(&taken)
	})
	return taken.Bytes()
}
