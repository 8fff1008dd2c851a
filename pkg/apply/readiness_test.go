package apply_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectwatch"
	"github.com/runlevel/runlevel/pkg/apply"
)

// A readinessCase describes how an object of a kind becomes ready, never becomes ready, or breaks after it was ready.
type readinessCase struct {
	object  string
	becomes string       // files with an object that becomes ready
	helps   clientAction // makes the object ready; nil if it becomes ready without help
	given   string       // a file of another release, which is applied before never
	never   string       // files with an object that never becomes ready; "" if it always becomes ready
	message string       // message of the wait for never
	breaks  clientAction
	broken  string       // prefix of the message of the wait after breaks
	fixes   clientAction // nil if the object stays broken, and the run is cancelled
}

// A clientAction is a request of another client in the namespace of a test.
type clientAction func(t *testing.T, c *cluster.Cluster, namespace string)

// patched returns a clientAction that patches an object.
func patched(resource schema.GroupVersionResource, key, body string, subresource ...string) clientAction {
	return func(t *testing.T, c *cluster.Cluster, namespace string) {
		t.Helper()
		kind := resource
		kind.Group = strings.ReplaceAll(kind.Group, "NS", namespace)
		merge(t, c, kind, strings.ReplaceAll(key, "NS", namespace), body, subresource...)
	}
}

// runs returns a workload whose pods become ready.
func runs(kind string) string {
	return strings.Replace(workload(kind, "web", "run", ""), "minReadySeconds: 300", "minReadySeconds: 0", 1)
}

const (
	aBit    = `{"spec":{"minReadySeconds":0}}`
	forLong = `{"spec":{"minReadySeconds":300}}`
	slow    = "\nPod NS/web-POD: its containers are not created yet, and node node-0 reports no reason"

	barePod = "{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: NS, annotations: " +
		"{sandbox.runlevel.dev/pod: DOES}}, spec: {containers: [{name: web, image: registry.example/web}]}}"
	controller = `
apiVersion: v1
kind: ReplicationController
metadata: {name: web, namespace: NS}
spec:
  template:
    metadata: {labels: {app: web}, annotations: {sandbox.runlevel.dev/pod: DOES}}
    spec: {containers: [{name: main, image: registry.example/web}]}
`
	expressed  = `{apiVersion: v1, kind: ConfigMap, metadata: {name: web, namespace: NS, annotations: {runlevel.dev/ready: self.data.state == "on"}}, data: {state: "on"}}`
	api        = `{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.NS.example.com}, spec: {group: NS.example.com, version: v1, groupPriorityMinimum: 1, versionPriority: 1, insecureSkipTLSVerify: true, service: {namespace: NS, name: api, port: PORT}}}`
	apiService = `{apiVersion: v1, kind: Service, metadata: {name: api, namespace: NS}, spec: {type: ExternalName, externalName: localhost, ports: [{port: PORT}]}}`
	marked     = `namespace: NS, annotations: {runlevel.dev/ready: self.status.phase == "On"}}`
	healthy    = `{"status":{"versions":[{"name":"operator","version":"1.2.3"}],"conditions":[{"type":"Available","status":"True"},{"type":"Degraded","status":"False"}]}}`
	others     = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: others.NS.example.com}
spec:
  group: NS.example.com
  names: {kind: Other, plural: others}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
-- 0000_10_web_gadget.yaml --
`
)

var (
	pods             = corev1.SchemeGroupVersion.WithResource("pods")
	controllers      = corev1.SchemeGroupVersion.WithResource("replicationcontrollers")
	replicaSets      = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}
	gadgetsOfTheTest = schema.GroupVersionResource{Group: "NS.example.com", Version: "v1", Resource: "gadgets"}
	definitions      = schema.GroupVersionResource{
		Group:    "apiextensions.k8s.io",
		Version:  "v1",
		Resource: "customresourcedefinitions",
	}
	operators = schema.GroupVersionResource{Group: "config.openshift.io", Version: "v1", Resource: "clusteroperators"}
)

// readinessCases has all kinds whose objects may be unready. TestWaitsReportTheirReasons has more failures of Jobs and
// pods.
var readinessCases = map[string]readinessCase{
	"deployment": {
		object: "Deployment NS/web", becomes: runs("Deployment"),
		never: workload("Deployment", "web", "hang", ""), message: "0 of 1 replicas are available" + slow,
		breaks: patched(deployments, "NS/web", forLong), broken: "0 of 1 replicas are available",
		fixes: patched(deployments, "NS/web", aBit),
	},
	"stateful": {
		object: "StatefulSet NS/web", becomes: runs("StatefulSet"),
		never: workload("StatefulSet", "web", "hang", ""), message: "0 of 1 replicas are available" + slow,
		breaks: patched(statefuls, "NS/web", forLong), broken: "0 of 1 replicas are available",
		fixes: patched(statefuls, "NS/web", aBit),
	},
	"daemons": {
		object: "DaemonSet NS/web", becomes: runs("DaemonSet"),
		never: workload("DaemonSet", "web", "hang", ""), message: "0 of 1 pods are available" + slow,
		breaks: patched(daemons, "NS/web", forLong), broken: "0 of 1 pods are available",
		fixes: patched(daemons, "NS/web", aBit),
	},
	"replicas": {
		object: "ReplicaSet NS/web", becomes: runs("ReplicaSet"),
		never: workload("ReplicaSet", "web", "hang", ""), message: "0 of 1 replicas are available" + slow,
		breaks: patched(replicaSets, "NS/web", forLong), broken: "0 of 1 replicas are available",
		fixes: patched(replicaSets, "NS/web", aBit),
	},
	"controller": {
		object: "ReplicationController NS/web", becomes: strings.Replace(controller, "DOES", "run", 1),
		never: strings.Replace(controller, "DOES", "hang", 1), message: "0 of 1 replicas are available",
		breaks: patched(controllers, "NS/web", forLong), broken: "0 of 1 replicas are available",
		fixes: patched(controllers, "NS/web", aBit),
	},
	"job": { // a completed Job stays completed: see TestJobIsRunOnce
		object: "Job NS/job", becomes: job("complete"),
		never: job("hang"),
		message: "0 of 1 pods have succeeded\nPod NS/job-POD: its containers are not created yet, " +
			"and node node-0 reports no reason",
	},
	"pod": {
		object: "Pod NS/web", becomes: strings.Replace(barePod, "DOES", "run", 1),
		never: strings.Replace(barePod, "DOES", "hang", 1),
		message: "it is not ready: ContainersNotReady\nPod NS/web: its containers are not created yet, and node " +
			"node-0 reports no reason",
		breaks: patched(pods, "NS/web",
			`{"status":{"conditions":[{"type":"Ready","status":"False","reason":"Sick","message":"it has a cold"}]}}`,
			"status"),
		broken: "it is not ready: it has a cold\nPod NS/web: it is not ready: it has a cold",
		fixes:  patched(pods, "NS/web", `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`, "status"),
	},
	"space": { // a terminating Namespace: see TestNamespaceThatStaysTerminatingIsReported
		object: "Namespace NS-own",
		becomes: "{apiVersion: v1, kind: Namespace, metadata: {name: NS-own}}\n-- 0000_20_web_held.yaml " +
			"--\n{apiVersion: v1, kind: ConfigMap, metadata: {name: held, namespace: NS-own, finalizers: " +
			"[example.com/never]}}",
		breaks: removeSpace, broken: "it is being deleted",
	},
	"definition": {
		object: "CustomResourceDefinition others.NS.example.com", becomes: others + gadgets,
		given: gadgetDefinition, never: strings.Replace(others, "kind: Other,", "kind: Other, listKind: GadgetList,",
			1) + "{apiVersion: v1, kind: ConfigMap, metadata: {name: web, namespace: NS}}",
		message: `its names are not accepted: "GadgetList" is already in use`,
		breaks:  patched(definitions, "/others.NS.example.com", `{"spec":{"names":{"shortNames":["gadget"]}}}`),
		broken:  `its names are not accepted: "gadget" is already in use`,
		// The server ignores a change back to no short names.
		fixes: patched(definitions, "/others.NS.example.com", `{"spec":{"names":{"shortNames":["other-short"]}}}`),
	},
	"api": {
		object: "APIService v1.NS.example.com", becomes: api + "\n-- 0000_05_web_service.yaml --\n" + apiService,
		never:   api,
		message: "it is not available: service/api in \"NS\" is not present\nService NS/api: it does not exist",
		breaks:  removeService, broken: "it is not available: service/api in \"NS\" is not present\nService NS/api: " +
			"it does not exist",
	},
	"webhook": {
		object: "ValidatingWebhookConfiguration NS", becomes: webhookConfiguration + hook,
		never: webhookConfiguration, message: "nothing serves Service NS/hook yet\nService NS/hook: it does not exist",
		breaks: patched(endpoints, "NS/hook-1", `{"endpoints":[]}`),
		broken: "nothing serves Service NS/hook yet\nService NS/hook: it does not exist",
		fixes:  patched(endpoints, "NS/hook-1", `{"endpoints":[{"addresses":["10.1.2.3"]}]}`),
	},
	"mutating": {
		object:  "MutatingWebhookConfiguration NS",
		becomes: strings.Replace(webhookConfiguration, "Validating", "Mutating", 1) + hook,
		never:   strings.Replace(webhookConfiguration, "Validating", "Mutating", 1),
		message: "nothing serves Service NS/hook yet\nService NS/hook: it does not exist",
		breaks: patched(endpoints, "NS/hook-1",
			`{"endpoints":[{"addresses":["10.1.2.3"],"conditions":{"ready":false}}]}`),
		broken: "nothing serves Service NS/hook yet\nService NS/hook: it does not exist",
		fixes:  patched(endpoints, "NS/hook-1", `{"endpoints":[{"addresses":["10.1.2.3"]}]}`),
	},
	"operator": {
		object: "ClusterOperator NS", becomes: operator, helps: patched(operators, "/NS", healthy, "status"),
		never: operator, message: "it is not available: it has not reported Available=True yet",
		breaks: patched(operators, "/NS",
			`{"status":{"conditions":[{"type":"Available","status":"True"},{"type":"Degraded","status":"True","reason":"Ill","message":"a cold"}]}}`, "status"),
		broken: "it is degraded: Ill: a cold", fixes: patched(operators, "/NS", healthy, "status"),
	},
	"conditions": {
		object: "Gadget NS/web", becomes: gadgets,
		never: strings.Replace(gadgets, "namespace: NS}}",
			"namespace: NS}, status: {conditions: [{type: Ready, status: \"False\", message: It has no battery.}]}}",
			1), message: "it has no battery",
		breaks: patched(gadgetsOfTheTest, "NS/web",
			`{"status":{"conditions":[{"type":"Ready","status":"False","reason":"Broken","message":"it lost its battery"}]}}`),
		broken: "it lost its battery", fixes: patched(gadgetsOfTheTest, "NS/web", `{"status":{"conditions":[]}}`),
	},
	"marked": {
		object: "Gadget NS/web", becomes: strings.Replace(gadgets, "namespace: NS}}", marked+`, status: {phase: "On"}}`,
			1),
		never:   strings.Replace(gadgets, "namespace: NS}}", marked+`}`, 1),
		message: `self.status.phase == "On" is not true yet: no such key: status`,
		breaks:  patched(gadgetsOfTheTest, "NS/web", `{"status":{"phase":"Off"}}`),
		broken:  `self.status.phase == "On" is not true yet`,
		fixes:   patched(gadgetsOfTheTest, "NS/web", `{"status":{"phase":"On"}}`),
	},
	"expression": {
		object: "ConfigMap NS/web", becomes: expressed,
		never:   strings.Replace(expressed, `data: {state: "on"}`, `data: {state: "off"}`, 1),
		message: `self.data.state == "on" is not true yet`,
		breaks:  patched(configMaps, "NS/web", `{"data":{"state":"off"}}`),
		broken:  `self.data.state == "on" is not true yet`,
		fixes:   patched(configMaps, "NS/web", `{"data":{"state":"on"}}`),
	},
	"unlabelled": { // another client removes the label that the watch selects by
		object: "ConfigMap NS/web", becomes: expressed,
		breaks: patched(configMaps, "NS/web",
			`{"metadata":{"labels":{"runlevel.dev/release":null}},"data":{"state":"off"}}`),
		broken: `self.data.state == "on" is not true yet`,
		fixes:  patched(configMaps, "NS/web", `{"data":{"state":"on"}}`),
	},
}

// removeSpace deletes a Namespace with an object that a finalizer holds.
func removeSpace(t *testing.T, c *cluster.Cluster, namespace string) {
	t.Helper()
	must(t, c.Client.CoreV1().Namespaces().Delete(t.Context(), namespace+"-own", metav1.DeleteOptions{}))
	t.Cleanup(func() { // the test's own context has ended by now
		held := c.Objects.Resource(configMaps).Namespace(namespace + "-own")
		_, err := held.Patch(context.Background(), "held", types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		must(t, err)
	})
}

func removeService(t *testing.T, c *cluster.Cluster, namespace string) {
	t.Helper()
	must(t, c.Client.CoreV1().Services(namespace).Delete(t.Context(), "api", metav1.DeleteOptions{}))
}

// prepare creates the objects that files need beside the release: a server of their API, and the definition of
// ClusterOperators, which all tests share.
func prepare(t *testing.T, c *cluster.Cluster, namespace, files string) string {
	t.Helper()
	if strings.Contains(files, "kind: ClusterOperator") {
		defineOperators(t, c)
	}
	if !strings.Contains(files, "kind: APIService") {
		return files
	}
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"%s.example.com/v1","resources":[]}`,
			namespace)
	})
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	must(t, err)
	return strings.ReplaceAll(files, "PORT", port)
}

// defineOperators creates the definition of ClusterOperators, which stays for all tests.
func defineOperators(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	definition := &unstructured.Unstructured{}
	must(t, yaml.Unmarshal([]byte(operatorDefinition), &definition.Object))
	_, err := c.Objects.Resource(definitions).Create(t.Context(), definition, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		must(t, err)
	}
	_, err = objectwatch.Await(t.Context(), c.Objects.Resource(definitions), definition.GetName(),
		objectwatch.HasCondition("Established"))
	must(t, err)
}

// A ready object may break while the run waits for another object. Then the run waits for it again.
func TestRunWaitsAgainForAnObjectThatBreaks(t *testing.T) {
	for name, s := range readinessCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace, c := test.Namespace(t), connect(t)
			release := load(t, namespace, namespace,
				prepare(t, c, namespace, "-- 0000_10_web_web.yaml --\n"+s.becomes+barrier+last))
			b := &breaking{readinessCase: s, t: t, cluster: c, namespace: namespace}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			b.end = cancel
			observer := &eventObserver{onMessage: b.onMessage}
			did := run(t, ctx, release, apply.Options{ReportWaits: quickly, OnEvent: observer.observe(namespace)})
			if !b.isOver || (did.Err != nil) != (s.breaks != nil && s.fixes == nil) {
				t.Errorf("got %d waits, over: %t, error %v; last messages: %s", b.waits, b.isOver, did.Err,
					observer.last)
			}
		})
	}
}

// breaking breaks an object when the run has passed the barrier after it. Once the run waits for this object alone,
// breaking fixes the object.
type breaking struct {
	readinessCase
	t         *testing.T
	cluster   *cluster.Cluster
	namespace string
	end       func()

	waits                                      int
	isHelped, isCreated, isLastAwaited, isOver bool
}

func (b *breaking) do(action clientAction) { action(b.t, b.cluster, b.namespace) }

func (b *breaking) onMessage(about, text string) {
	switch {
	case about == "ConfigMap NS/last" && text == "created":
		b.isCreated = true
		if b.breaks == nil {
			b.isOver = true
			b.finish()
			return
		}
		b.do(b.breaks)
	case about == "ConfigMap NS/last" && strings.HasPrefix(text, "waiting"):
		b.isLastAwaited = true
	case about != b.object:
	case !b.isCreated && b.helps != nil && !b.isHelped && strings.HasPrefix(text, "waiting"):
		b.isHelped = true
		b.do(b.helps)
	case !b.isCreated || !strings.HasPrefix(text, "waiting: "+b.broken): // fields that break it may follow
	case b.waits < 2:
		if b.waits++; b.waits == 2 { // the first wait may have begun before the object was ready
			b.finish()
		}
	case b.isLastAwaited:
		b.isLastAwaited = false // reset until another wait for the object is reported
	case !b.isOver:
		b.isOver = true
		if b.fixes == nil {
			b.end()
		} else {
			b.do(b.fixes)
		}
	}
}

// finish makes the ConfigMap ready that the run waits for at its end.
func (b *breaking) finish() {
	merge(b.t, b.cluster, configMaps, b.namespace+"/last", `{"data":{"state":"on"}}`)
}

// At its timeout, a run reports all objects that are not ready.
func TestTimeoutReportsAllUnreadyObjects(t *testing.T) {
	t.Parallel()
	namespace, c := test.Namespace(t), connect(t)
	var files strings.Builder
	want, spaces := map[string]string{}, map[string]string{} // keyed by object
	for name, s := range readinessCases {
		if s.never == "" {
			continue
		}
		own := namespace + "-" + name
		if s.given != "" {
			given := run(t, t.Context(), load(t, own, own, "-- 0000_10_web_web.yaml --"+s.given), apply.Options{})
			must(t, given.Err)
		}
		text := "-- 0000_01_web_space.yaml --\n{apiVersion: v1, kind: Namespace, metadata: {name: NS}}\n-- " +
			"0000_10_web_web.yaml --\n" + s.never + "\n"
		text = strings.ReplaceAll(prepare(t, c, own, text), "NS", own)
		files.WriteString(strings.ReplaceAll(text, "_web_", "_"+name+"_"))
		object := strings.ReplaceAll(s.object, "NS", own)
		want[object], spaces[object] = s.message, own
	}
	release := load(t, namespace, namespace, files.String())

	// First wait until each object has its final message.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	missing := maps.Clone(want)
	run(t, ctx, release, apply.Options{Options: installMode, ReportWaits: quickly, OnEvent: func(event apply.Event) {
		if event.Type != apply.Waiting {
			return
		}
		if object := event.Object.String(); missing[object] == waitText(spaces[object], event) {
			delete(missing, object)
		}
		if len(missing) == 0 {
			cancel()
		}
	}})
	if len(missing) > 0 {
		t.Errorf("never reported: %v", missing)
	}

	began := time.Now()
	did := run(t, t.Context(), release, apply.Options{Options: installMode, Timeout: 8 * time.Second})
	if took := time.Since(began); took < 8*time.Second {
		t.Errorf("got a timeout after %s, want 8s", took)
	}
	if wanted := fmt.Sprintf("the time is up after 8s: %d objects not ready", len(want)); !errors.Is(did.Err,
		apply.ErrTimeout) || did.Err.Error() != wanted {
		t.Errorf("got error %v, want %s", did.Err, wanted)
	}
	waits := map[string]string{}
	for _, wait := range did.Waits {
		waits[wait.ID.String()] = waitText(spaces[wait.ID.String()], apply.Event{Message: wait.For, Why: wait.Why})
	}
	if diff := cmp.Diff(want, waits); diff != "" {
		t.Error(diff)
	}
}
