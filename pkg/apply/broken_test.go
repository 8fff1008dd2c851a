package apply_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/graph"
)

var (
	configMaps  = corev1.SchemeGroupVersion.WithResource("configmaps")
	jobs        = batchv1.SchemeGroupVersion.WithResource("jobs")
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	statefuls   = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}
	daemons     = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}
	endpoints   = discoveryv1.SchemeGroupVersion.WithResource("endpointslices")
)

// last is what a run can't end before: it is ready when the test says so.
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

// barrier makes what is before and after it nodes of their own: two components side by side.
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

// What was ready may break while something else is waited for. Then the run is not done.
func TestWhatBreaksAfterItWasReadyIsWaitedForAgain(t *testing.T) {
	for name, c := range map[string]struct {
		files, object, says string
		resource            schema.GroupVersionResource
		key, breaks, mends  string
	}{
		"Deployment": {
			strings.ReplaceAll(workload("Deployment", "web", "run", ""), "minReadySeconds: 300", "replicas: 1"), "Deployment NS/web",
			"waiting: 0 of 1 replicas are available", deployments, "web", `{"spec":{"minReadySeconds":300}}`, `{"spec":{"minReadySeconds":0}}`,
		},
		"StatefulSet": {
			strings.ReplaceAll(workload("StatefulSet", "web", "run", ""), "minReadySeconds: 300", "replicas: 1"), "StatefulSet NS/web",
			"waiting: 0 of 1 replicas are available", statefuls, "web", `{"spec":{"minReadySeconds":300}}`, `{"spec":{"minReadySeconds":0}}`,
		},
		"DaemonSet": {
			strings.ReplaceAll(workload("DaemonSet", "web", "run", ""), "minReadySeconds: 300", "revisionHistoryLimit: 1"), "DaemonSet NS/web",
			"waiting: 0 of 1 pods are available", daemons, "web", `{"spec":{"minReadySeconds":300}}`, `{"spec":{"minReadySeconds":0}}`,
		},
		"webhook": {
			webhookConfiguration + hook, "ValidatingWebhookConfiguration NS", "waiting: nothing serves Service NS/hook yet",
			endpoints, "hook-1", `{"endpoints":[{"addresses":["10.1.2.3"],"conditions":{"ready":false}}]}`, `{"endpoints":[{"addresses":["10.1.2.3"]}]}`,
		},
		"expression": {
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: web, namespace: NS, annotations: {runlevel.dev/ready: self.data.state == "on"}}, data: {state: "on"}}`,
			"ConfigMap NS/web", `waiting: self.data.state == "on" is not true yet`, configMaps, "web", `{"data":{"state":"off"}}`, `{"data":{"state":"on"}}`,
		},
		"label that somebody takes away": {
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: web, namespace: NS, annotations: {runlevel.dev/ready: self.data.state == "on"}}, data: {state: "on"}}`,
			"ConfigMap NS/web", `waiting: self.data.state == "on" is not true yet`, configMaps, "web",
			`{"metadata":{"labels":{"runlevel.dev/release":null}},"data":{"state":"off"}}`, `{"data":{"state":"on"}}`,
		},
		"custom resource": {
			gadgets, "Gadget NS/web", "waiting: it lost its battery", schema.GroupVersionResource{Group: "NS.example.com", Version: "v1", Resource: "gadgets"}, "web",
			`{"status":{"conditions":[{"type":"Ready","status":"False","reason":"Broken","message":"it lost its battery"}]}}`, `{"status":{"conditions":[]}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace, cluster := test.Namespace(t), connect(t)
			c.resource.Group = strings.ReplaceAll(c.resource.Group, "NS", namespace)
			release := load(t, namespace, namespace, "-- 0000_10_web_web.yaml --\n"+c.files+barrier+last)
			told, isCreated, isLastWaitedFor, isMended := 0, false, false, false
			audience := &spectator{}
			audience.hears = func(about, text string) {
				switch {
				case about == "ConfigMap NS/last" && text == "created":
					isCreated = true
					merge(t, cluster, c.resource, namespace+"/"+c.key, c.breaks)
				case about == "ConfigMap NS/last" && strings.HasPrefix(text, "waiting"):
					isLastWaitedFor = true
				case !isCreated || about != c.object || text != c.says:
				case told < 2:
					if told++; told == 2 { // the first may be about before it was ready
						merge(t, cluster, configMaps, namespace+"/last", `{"data":{"state":"on"}}`)
					}
				case isLastWaitedFor:
					isLastWaitedFor = false // unless it is told so once more
				case !isMended:
					isMended = true
					merge(t, cluster, c.resource, namespace+"/"+c.key, c.mends)
				}
			}
			did := run(t, t.Context(), release, apply.Options{TellWaits: quickly, Tell: audience.tell(namespace)})
			if did.Err != nil || !isMended {
				t.Errorf("told %d times, mended: %t, and the run ended with %v; said last: %s", told, isMended, did.Err, audience.last)
			}
		})
	}
}

const gadgets = `
{apiVersion: NS.example.com/v1, kind: Gadget, metadata: {name: web, namespace: NS}}
-- 0000_00_web_gadgets.yaml --
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

// The end of time comes as said, with all that is left.
func TestTimeoutListsEverything(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	release := load(t, namespace, namespace, "-- 0000_10_web_web.yaml --"+workload("Deployment", "web", "hang", "")+"-- 0000_10_job_job.yaml --"+job("hang")+last)
	did := run(t, t.Context(), release, apply.Options{Mode: graph.Install, Timeout: 4 * time.Second})
	if !errors.Is(did.Err, apply.ErrTimeout) || did.Err.Error() != "the time is up after 4s: 3 objects not ready" {
		t.Errorf("it ended with: %v", did.Err)
	}
	var waits strings.Builder
	for _, wait := range did.Waits {
		waits.WriteString(said(namespace, apply.Event{Message: wait.ID.String() + ": " + wait.For, Why: wait.Why}) + "\n")
	}
	want := `Job NS/job: 0 of 1 pods have succeeded
Pod NS/job-POD: its containers are not created yet, and node node-0 does not say why
Deployment NS/web: 0 of 1 replicas are available
Pod NS/web-POD: its containers are not created yet, and node node-0 does not say why
ConfigMap NS/last: self.?data.state.orValue("") == "on" is not true yet
`
	if diff := cmp.Diff(want, waits.String()); diff != "" {
		t.Error(diff)
	}
}

// A Job that is done stays done when it is removed, as its time to live would, in this run
// and in the next. Another one runs.
func TestJobIsRunOnce(t *testing.T) {
	t.Parallel()
	namespace, cluster := test.Namespace(t), connect(t)
	files := "-- 0000_10_web_job.yaml --" + job("run") + last
	files = strings.Replace(files, "pod: run", "pod: complete", 1)
	audience := &spectator{hears: func(about, text string) {
		if about != "ConfigMap NS/last" || text != "created" {
			return
		}
		if err := cluster.Client.BatchV1().Jobs(namespace).Delete(t.Context(), "job", metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)}); err != nil {
			t.Error(err)
		}
		sandboxtest.Await(t, test, jobs, namespace+"/job", func(j *batchv1.Job) bool { return j == nil })
		merge(t, cluster, configMaps, namespace+"/last", `{"data":{"state":"on"}}`)
	}}
	release := load(t, namespace, namespace, files)
	did := run(t, t.Context(), release, apply.Options{Tell: audience.tell(namespace)})
	if did.Err != nil {
		t.Fatal(did.Err)
	}
	did = run(t, t.Context(), release, apply.Options{})
	if did.Err != nil || !strings.Contains(did.actions(), "kept Job "+namespace+"/job") {
		t.Errorf("again: %v\n%s", did.Err, did.actions())
	}
	changed := load(t, namespace, namespace, strings.ReplaceAll(files, "registry.example/job", "registry.example/other"))
	did = run(t, t.Context(), changed, apply.Options{})
	if did.Err != nil || !strings.Contains(did.actions(), "created Job "+namespace+"/job") {
		t.Errorf("with another image: %v\n%s", did.Err, did.actions())
	}
}

// An object that somebody deletes is waited for: somebody may bring it back.
func TestWhatIsDeletedMeanwhileIsSaid(t *testing.T) {
	t.Parallel()
	namespace, cluster := test.Namespace(t), connect(t)
	release := load(t, namespace, namespace, last)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	audience := &spectator{hears: func(_, text string) {
		switch text {
		case "created":
			if err := cluster.Client.CoreV1().ConfigMaps(namespace).Delete(ctx, "last", metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		case "waiting: somebody has deleted it after it was applied":
			cancel()
		}
	}}
	did := run(t, ctx, release, apply.Options{Mode: graph.Install, TellWaits: quickly, Tell: audience.tell(namespace)})
	if !errors.Is(did.Err, context.Canceled) {
		t.Errorf("%v; said last: %s", did.Err, audience.last)
	}
}
