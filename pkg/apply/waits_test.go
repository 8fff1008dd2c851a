package apply_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/payload"
)

// restarts differ with the time that a test takes.
var restarts = regexp.MustCompile(`\d+ restarts?`)

// waitText returns a wait or a failure as a user reads it, with NS for the namespace.
func waitText(namespace string, event apply.Event) string {
	text := strings.Join(append([]string{event.Message}, event.Why...), "\n")
	text = restarts.ReplaceAllString(strings.ReplaceAll(text, namespace, "NS"), "some restarts")
	return podSuffix.ReplaceAllString(text, "${1}POD")
}

// quickly is the interval between reports of waits in tests.
const quickly = 50 * time.Millisecond

// podSuffix matches the generated names of pods and ReplicaSets.
var podSuffix = regexp.MustCompile(`((?:Pod NS/|ReplicaSet NS/|pods ")(?:web|job)-)[a-z0-9]+(?:-[a-z0-9]{5})?`)

// An eventObserver calls a function with each event about an object.
type eventObserver struct {
	mu        sync.Mutex
	last      map[string]string // the last message, by object
	onMessage func(object, text string)
}

func (o *eventObserver) observe(namespace string) func(apply.Event) {
	return func(event apply.Event) {
		if event.Object == nil {
			return
		}
		text := string(event.Type)
		if event.Type == apply.Waiting || event.Type == apply.Failing {
			text += ": " + waitText(namespace, event)
		} else if event.Action != "" {
			text = string(event.Action)
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.last == nil {
			o.last = map[string]string{}
		}
		object := strings.ReplaceAll(event.Object.String(), namespace, "NS")
		o.last[object] = text
		o.onMessage(object, text)
	}
}

// runUntil applies a payload until the wanted message about an object is reported. If the message ends with "…", a
// prefix is enough. If it is never reported, the failure has the last message.
func runUntil(t *testing.T, namespace string, release *payload.Payload, options apply.Options, object,
	wanted string) applied {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	isReported := false
	observer := &eventObserver{onMessage: func(about, text string) {
		start, isOpen := strings.CutSuffix(wanted, "…")
		if about == object && (text == wanted || isOpen && strings.HasPrefix(text, start)) {
			isReported = true
			cancel()
		}
	}}
	options.ReportWaits, options.OnEvent = quickly, observer.observe(namespace)
	did := run(t, ctx, release, options)
	if !isReported {
		t.Errorf("never reported for %s: %s\nlast message:\n%s\nerror of the run: %v", object, wanted,
			observer.last[object],
			did.Err)
	}
	return did
}

// merge patches an object as another client.
func merge(t *testing.T, c *cluster.Cluster, resource schema.GroupVersionResource, key, body string,
	subresource ...string) {
	t.Helper()
	namespace, name, _ := strings.Cut(key, "/")
	if _, err := c.Objects.Resource(resource).Namespace(namespace).Patch(t.Context(), name, types.MergePatchType,
		[]byte(body), metav1.PatchOptions{FieldManager: "somebody"}, subresource...); err != nil {
		t.Error(err)
	}
}

// workload returns a workload whose pods do something, such as "run" or "hang".
func workload(kind, name, does, more string) string {
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: %s
metadata: {name: %s, namespace: NS}
spec:
  minReadySeconds: 300
  selector: {matchLabels: {app: %s}}
  template:
    metadata: {labels: {app: %s}, annotations: {sandbox.runlevel.dev/pod: %s}}
    spec: {containers: [{name: main, image: registry.example/web%s}]}
`, kind, name, name, name, does, more)
}

func job(does string) string {
	return `
apiVersion: batch/v1
kind: Job
metadata: {name: job, namespace: NS}
spec:
  backoffLimit: 0
  template:
    metadata: {annotations: {sandbox.runlevel.dev/pod: ` + does + `}}
    spec: {restartPolicy: Never, containers: [{name: main, image: registry.example/job}]}
`
}

// Each object never becomes ready, and the run reports the reason.
func TestWaitsReportTheirReasons(t *testing.T) {
	for name, c := range map[string]struct{ files, object, message string }{
		"image that can't be pulled": {
			workload("Deployment", "web", "image-pull", ""), "Deployment NS/web",
			`waiting: 0 of 1 replicas are available
Pod NS/web-POD: container main can't pull image registry.example/web: back-off pulling image "registry.example/web": not found`,
		},
		"crash loop": {
			workload("DaemonSet", "web", "crash", ""), "DaemonSet NS/web", `waiting: 0 of 1 pods are available
Pod NS/web-POD: container main crashes: exit code 1, some restarts
  | simulated by kwok`,
		},
		"pod that fits no node": {
			workload("StatefulSet", "web", "run", `, resources: {requests: {cpu: "5000"}}`), "StatefulSet NS/web",
			`waiting: 0 of 1 replicas are available
Pod NS/web-POD: it has no node: 0/1 nodes are available: 1 Insufficient cpu`,
		},
		"quota": {
			"{apiVersion: v1, kind: ResourceQuota, metadata: {name: none, namespace: NS, annotations: " +
				"{runlevel.dev/ready: has(self.status.used)}}, spec: {hard: {pods: 0}}}\n-- 0000_20_web_web.yaml --" +
				workload("Deployment", "web", "run", ""),
			"Deployment NS/web",
			`waiting: 0 of 1 replicas are updated: pods "web-POD" is forbidden: exceeded quota: none, requested: pods=1, used: pods=0, limited: pods=0
ReplicaSet NS/web-POD: can't make pods: pods "web-POD" is forbidden: exceeded quota: none, requested: pods=1, used: pods=0, limited: pods=0`,
		},
		"job that fails": {
			job("fail"), "Job NS/job", `failed: BackoffLimitExceeded: job has reached the specified backoff limit
Pod NS/job-POD: container main ended with exit code 1
  | simulated by kwok`,
		},
		"webhook without endpoints": {
			webhookConfiguration + "---\n{apiVersion: v1, kind: Service, metadata: {name: hook, namespace: NS}, " +
				"spec: {selector: {app: hook}, ports: [{port: 443}]}}",
			"ValidatingWebhookConfiguration NS", `waiting: nothing serves Service NS/hook yet
Service NS/hook: it has no endpoints: no pod has the labels that it selects, app=hook`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := test.Namespace(t)
			release := load(t, namespace, namespace, "-- 0000_10_web_web.yaml --\n"+c.files)
			did := runUntil(t, namespace, release, apply.Options{}, c.object, c.message)
			if did.Err == nil {
				t.Error("got no error, want an unready or failed object")
			}
		})
	}
}

const webhookConfiguration = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: NS}
webhooks:
- name: hook.NS.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig: {service: {namespace: NS, name: hook}}
  rules: [{apiGroups: [NS.example.com], apiVersions: [v1], operations: [CREATE], resources: [widgets]}]
`

// The end of each reported wait is reported, and no wait for the object after that.
func TestEachWaitEnds(t *testing.T) {
	namespace := test.Namespace(t)
	var files strings.Builder
	for i := range 40 {
		name := fmt.Sprint("web-", i)
		fmt.Fprintf(&files, "-- 0000_10_%s_10.yaml --\n%s", name,
			strings.Replace(workload("Deployment", name, "run", ""), "minReadySeconds: 300", "replicas: 1", 1))
	}
	open := map[string]bool{}
	did := run(t, t.Context(), load(t, "ends", namespace, files.String()),
		apply.Options{Options: installMode, ReportWaits: time.Millisecond, OnEvent: func(event apply.Event) {
			switch event.Type {
			case apply.Waiting:
				open[event.Object.Name] = true
			case apply.BeReady:
				delete(open, event.Object.Name)
			}
		}})
	if did.Err != nil || len(open) > 0 {
		t.Errorf("got error %v; waits without a reported end: %v", did.Err, open)
	}
}
