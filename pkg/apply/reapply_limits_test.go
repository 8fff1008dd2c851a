package apply_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/pkg/apply"
)

var (
	configMaps  = corev1.SchemeGroupVersion.WithResource("configmaps")
	jobs        = batchv1.SchemeGroupVersion.WithResource("jobs")
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	statefuls   = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}
	daemons     = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}
	endpoints   = discoveryv1.SchemeGroupVersion.WithResource("endpointslices")
)

// last has a ConfigMap that a run waits for at its end. The test makes it ready.
const last = `
-- 0000_90_web_last.yaml --
apiVersion: v1
kind: ConfigMap
metadata:
  name: last
  namespace: NS
  annotations:
    runlevel.dev/ready: self.?data.state.orValue("") == "on"
`

// barrier has two components of one level, so the objects before and after it are in different nodes.
const barrier = `
-- 0000_80_left_side.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: left, namespace: NS}}
-- 0000_80_right_side.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: right, namespace: NS}}
`

const hook = `
-- 0000_05_web_slice.yaml --
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: hook-1, namespace: NS, labels: {kubernetes.io/service-name: hook}}
addressType: IPv4
endpoints: [{addresses: [10.1.2.3], conditions: {ready: true}}]
`

const gadgets = `
{apiVersion: NS.example.com/v1, kind: Gadget, metadata: {name: web, namespace: NS}}
-- 0000_00_web_gadgets.yaml --` + gadgetDefinition

const gadgetDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.NS.example.com}
spec:
  group: NS.example.com
  names: {kind: Gadget, plural: gadgets}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

// If a completed Job is deleted, as after ttlSecondsAfterFinished, neither this run nor the next one runs it again. A
// changed Job is run.
func TestJobIsRunOnce(t *testing.T) {
	t.Parallel()
	namespace, cluster := test.Namespace(t), connect(t)
	files := "-- 0000_10_web_job.yaml --" + job("run") + last
	files = strings.Replace(files, "pod: run", "pod: complete", 1)
	observer := &eventObserver{onMessage: func(about, text string) {
		if about != "ConfigMap NS/last" || text != "created" {
			return
		}
		if err := cluster.Client.BatchV1().Jobs(namespace).Delete(t.Context(), "job",
			metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)}); err != nil {
			t.Error(err)
		}
		sandboxtest.Await(t, test, jobs, namespace+"/job", func(j *batchv1.Job) bool { return j == nil })
		merge(t, cluster, configMaps, namespace+"/last", `{"data":{"state":"on"}}`)
	}}
	release := load(t, namespace, namespace, files)
	did := run(t, t.Context(), release, apply.Options{OnEvent: observer.observe(namespace)})
	if did.Err != nil {
		t.Fatal(did.Err)
	}
	did = run(t, t.Context(), release, apply.Options{})
	if did.Err != nil || !strings.Contains(did.actions(), "kept Job "+namespace+"/job") {
		t.Errorf("again: %v\n%s", did.Err, did.actions())
	}
	changed := load(t, namespace, namespace,
		strings.ReplaceAll(files, "registry.example/job", "registry.example/other"))
	did = run(t, t.Context(), changed, apply.Options{})
	if did.Err != nil || !strings.Contains(did.actions(), "created Job "+namespace+"/job") {
		t.Errorf("with another image: %v\n%s", did.Err, did.actions())
	}
}

// If an object is deleted repeatedly, it is applied again after growing pauses, which are reported as waits.
func TestRepeatedDeletesAreReported(t *testing.T) {
	t.Parallel()
	namespace, cluster := test.Namespace(t), connect(t)
	release := load(t, namespace, namespace, last)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	observer := &eventObserver{onMessage: func(_, text string) {
		switch text {
		case "created":
			_ = cluster.Client.CoreV1().ConfigMaps(namespace).Delete(ctx, "last", metav1.DeleteOptions{})
		case "waiting: it was deleted after it was applied":
			cancel()
		}
	}}
	did := run(t, ctx, release,
		apply.Options{Options: installMode, ReportWaits: quickly, OnEvent: observer.observe(namespace)})
	if !errors.Is(did.Err, context.Canceled) {
		t.Errorf("got error %v; last messages: %s", did.Err, observer.last)
	}
}
