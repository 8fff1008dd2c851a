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

// A standing is how the objects of a kind become ready, never do, and break after they were.
type standing struct {
	object  string
	becomes string // files with one that becomes ready
	helps   deed   // what it takes to, if that is more than time
	given   string // a file of another release, for those that never do
	never   string // files with one that does not; "" where there can be none
	says    string // then
	breaks  deed
	broken  string // what is said after
	fixes   deed   // nil if it stays broken, and the run is ended so
}

// A deed is what another client does in the namespace of a test.
type deed func(t *testing.T, c *cluster.Cluster, namespace string)

// patched is a deed that changes one object.
func patched(resource schema.GroupVersionResource, key, body string, subresource ...string) deed {
	return func(t *testing.T, c *cluster.Cluster, namespace string) {
		t.Helper()
		kind := resource
		kind.Group = strings.ReplaceAll(kind.Group, "NS", namespace)
		merge(t, c, kind, strings.ReplaceAll(key, "NS", namespace), body, subresource...)
	}
}

// runs is a workload whose pods are soon there.
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

// standings are all kinds that can be other than ready. Of what a Job says when it fails,
// and of what keeps pods, more is in TestWaitsReportTheirReasons.
var standings = map[string]standing{
	"deployment": {
		object: "Deployment NS/web", becomes: runs("Deployment"),
		never: workload("Deployment", "web", "hang", ""), says: "0 of 1 replicas are available" + slow,
		breaks: patched(deployments, "NS/web", forLong), broken: "0 of 1 replicas are available",
		fixes: patched(deployments, "NS/web", aBit),
	},
	"stateful": {
		object: "StatefulSet NS/web", becomes: runs("StatefulSet"),
		never: workload("StatefulSet", "web", "hang", ""), says: "0 of 1 replicas are available" + slow,
		breaks: patched(statefuls, "NS/web", forLong), broken: "0 of 1 replicas are available",
		fixes: patched(statefuls, "NS/web", aBit),
	},
	"daemons": {
		object: "DaemonSet NS/web", becomes: runs("DaemonSet"),
		never: workload("DaemonSet", "web", "hang", ""), says: "0 of 1 pods are available" + slow,
		breaks: patched(daemons, "NS/web", forLong), broken: "0 of 1 pods are available",
		fixes: patched(daemons, "NS/web", aBit),
	},
	"replicas": {
		object: "ReplicaSet NS/web", becomes: runs("ReplicaSet"),
		never: workload("ReplicaSet", "web", "hang", ""), says: "0 of 1 replicas are available" + slow,
		breaks: patched(replicaSets, "NS/web", forLong), broken: "0 of 1 replicas are available",
		fixes: patched(replicaSets, "NS/web", aBit),
	},
	"controller": {
		object: "ReplicationController NS/web", becomes: strings.Replace(controller, "DOES", "run", 1),
		never: strings.Replace(controller, "DOES", "hang", 1), says: "0 of 1 replicas are available",
		breaks: patched(controllers, "NS/web", forLong), broken: "0 of 1 replicas are available",
		fixes: patched(controllers, "NS/web", aBit),
	},
	"job": { // one that is done stays done: see TestJobIsRunOnce
		object: "Job NS/job", becomes: job("complete"),
		never: job("hang"), says: "0 of 1 pods have succeeded\nPod NS/job-POD: its containers are not created yet, " +
			"and node node-0 reports no reason",
	},
	"pod": {
		object: "Pod NS/web", becomes: strings.Replace(barePod, "DOES", "run", 1),
		never: strings.Replace(barePod, "DOES", "hang", 1),
		says: "it is not ready: ContainersNotReady\nPod NS/web: its containers are not created yet, and node " +
			"node-0 reports no reason",
		breaks: patched(pods, "NS/web",
			`{"status":{"conditions":[{"type":"Ready","status":"False","reason":"Sick","message":"it has a cold"}]}}`,
			"status"),
		broken: "it is not ready: it has a cold\nPod NS/web: it is not ready: it has a cold",
		fixes:  patched(pods, "NS/web", `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`, "status"),
	},
	"space": { // one that is not Active is being deleted: see TestNamespaceThatStaysTerminatingIsReported
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
		says:   `its names are not accepted: "GadgetList" is already in use`,
		breaks: patched(definitions, "/others.NS.example.com", `{"spec":{"names":{"shortNames":["gadget"]}}}`),
		broken: `its names are not accepted: "gadget" is already in use`,
		// to go back to none changes nothing for the server
		fixes: patched(definitions, "/others.NS.example.com", `{"spec":{"names":{"shortNames":["other-short"]}}}`),
	},
	"api": {
		object: "APIService v1.NS.example.com", becomes: api + "\n-- 0000_05_web_service.yaml --\n" + apiService,
		never:  api,
		says:   "it is not available: service/api in \"NS\" is not present\nService NS/api: it does not exist",
		breaks: removeService, broken: "it is not available: service/api in \"NS\" is not present\nService NS/api: " +
			"it does not exist",
	},
	"webhook": {
		object: "ValidatingWebhookConfiguration NS", becomes: webhookConfiguration + hook,
		never: webhookConfiguration, says: "nothing serves Service NS/hook yet\nService NS/hook: it does not exist",
		breaks: patched(endpoints, "NS/hook-1", `{"endpoints":[]}`),
		broken: "nothing serves Service NS/hook yet\nService NS/hook: it does not exist",
		fixes:  patched(endpoints, "NS/hook-1", `{"endpoints":[{"addresses":["10.1.2.3"]}]}`),
	},
	"mutating": {
		object:  "MutatingWebhookConfiguration NS",
		becomes: strings.Replace(webhookConfiguration, "Validating", "Mutating", 1) + hook,
		never:   strings.Replace(webhookConfiguration, "Validating", "Mutating", 1),
		says:    "nothing serves Service NS/hook yet\nService NS/hook: it does not exist",
		breaks: patched(endpoints, "NS/hook-1",
			`{"endpoints":[{"addresses":["10.1.2.3"],"conditions":{"ready":false}}]}`),
		broken: "nothing serves Service NS/hook yet\nService NS/hook: it does not exist",
		fixes:  patched(endpoints, "NS/hook-1", `{"endpoints":[{"addresses":["10.1.2.3"]}]}`),
	},
	"operator": {
		object: "ClusterOperator NS", becomes: operator, helps: patched(operators, "/NS", healthy, "status"),
		never: operator, says: "it is not available: it has not reported Available=True yet",
		breaks: patched(operators, "/NS",
			`{"status":{"conditions":[{"type":"Available","status":"True"},{"type":"Degraded","status":"True","reason":"Ill","message":"a cold"}]}}`, "status"),
		broken: "it is degraded: Ill: a cold", fixes: patched(operators, "/NS", healthy, "status"),
	},
	"conditions": {
		object: "Gadget NS/web", becomes: gadgets,
		never: strings.Replace(gadgets, "namespace: NS}}",
			"namespace: NS}, status: {conditions: [{type: Ready, status: \"False\", message: It has no battery.}]}}",
			1), says: "it has no battery",
		breaks: patched(gadgetsOfTheTest, "NS/web",
			`{"status":{"conditions":[{"type":"Ready","status":"False","reason":"Broken","message":"it lost its battery"}]}}`),
		broken: "it lost its battery", fixes: patched(gadgetsOfTheTest, "NS/web", `{"status":{"conditions":[]}}`),
	},
	"marked": {
		object: "Gadget NS/web", becomes: strings.Replace(gadgets, "namespace: NS}}", marked+`, status: {phase: "On"}}`,
			1),
		never:  strings.Replace(gadgets, "namespace: NS}}", marked+`}`, 1),
		says:   `self.status.phase == "On" is not true yet: no such key: status`,
		breaks: patched(gadgetsOfTheTest, "NS/web", `{"status":{"phase":"Off"}}`),
		broken: `self.status.phase == "On" is not true yet`,
		fixes:  patched(gadgetsOfTheTest, "NS/web", `{"status":{"phase":"On"}}`),
	},
	"expression": {
		object: "ConfigMap NS/web", becomes: expressed,
		never:  strings.Replace(expressed, `data: {state: "on"}`, `data: {state: "off"}`, 1),
		says:   `self.data.state == "on" is not true yet`,
		breaks: patched(configMaps, "NS/web", `{"data":{"state":"off"}}`),
		broken: `self.data.state == "on" is not true yet`,
		fixes:  patched(configMaps, "NS/web", `{"data":{"state":"on"}}`),
	},
	"unlabelled": { // another client removes our label, by which we watch
		object: "ConfigMap NS/web", becomes: expressed,
		breaks: patched(configMaps, "NS/web",
			`{"metadata":{"labels":{"runlevel.dev/release":null}},"data":{"state":"off"}}`),
		broken: `self.data.state == "on" is not true yet`,
		fixes:  patched(configMaps, "NS/web", `{"data":{"state":"on"}}`),
	},
}

// removeSpace deletes a Namespace that something is held in.
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

// prepare makes what files need beside the release: a server of their API, and the kind of
// ClusterOperators, which can't have another name for each test.
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

// defineOperators makes the definition, which stays for all tests.
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

// What was ready may break while something else is waited for. Then the run is not done.
func TestWhatBreaksAfterItWasReadyIsWaitedForAgain(t *testing.T) {
	for name, s := range standings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace, c := test.Namespace(t), connect(t)
			release := load(t, namespace, namespace,
				prepare(t, c, namespace, "-- 0000_10_web_web.yaml --\n"+s.becomes+barrier+last))
			b := &breaking{standing: s, t: t, cluster: c, namespace: namespace}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			b.end = cancel
			audience := &spectator{hears: b.hears}
			did := run(t, ctx, release, apply.Options{ReportWaits: quickly, OnEvent: audience.follow(namespace)})
			if !b.isOver || (did.Err != nil) != (s.breaks != nil && s.fixes == nil) {
				t.Errorf("told %d times, over: %t, and the run ended with %v; said last: %s", b.told, b.isOver, did.Err,
					audience.last)
			}
		})
	}
}

// breaking breaks an object after the barrier that it had to be ready for, and sees to it
// that it is then waited for alone, until it is fixed.
type breaking struct {
	standing
	t         *testing.T
	cluster   *cluster.Cluster
	namespace string
	end       func()

	told                                       int
	isHelped, isCreated, isLastAwaited, isOver bool
}

func (b *breaking) do(something deed) { something(b.t, b.cluster, b.namespace) }

func (b *breaking) hears(about, text string) {
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
	case b.told < 2:
		if b.told++; b.told == 2 { // the first may be about before it was ready
			b.finish()
		}
	case b.isLastAwaited:
		b.isLastAwaited = false // unless it is told so once more
	case !b.isOver:
		b.isOver = true
		if b.fixes == nil {
			b.end()
		} else {
			b.do(b.fixes)
		}
	}
}

// finish makes ready what the run can't end before.
func (b *breaking) finish() {
	merge(b.t, b.cluster, configMaps, b.namespace+"/last", `{"data":{"state":"on"}}`)
}

// What never becomes ready is all said when the time is up, which it is as was asked for.
func TestTimeoutListsEverything(t *testing.T) {
	t.Parallel()
	namespace, c := test.Namespace(t), connect(t)
	var files strings.Builder
	want, spaces := map[string]string{}, map[string]string{} // by object
	for name, s := range standings {
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
		want[object], spaces[object] = s.says, own
	}
	release := load(t, namespace, namespace, files.String())

	// Let them all come to their last word first, however long that takes.
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
		t.Errorf("never said: %v", missing)
	}

	began := time.Now()
	did := run(t, t.Context(), release, apply.Options{Options: installMode, Timeout: 8 * time.Second})
	if took := time.Since(began); took < 8*time.Second {
		t.Errorf("the time was up after %s", took)
	}
	if wanted := fmt.Sprintf("the time is up after 8s: %d objects not ready", len(want)); !errors.Is(did.Err,
		apply.ErrTimeout) || did.Err.Error() != wanted {
		t.Errorf("it ended with: %v", did.Err)
	}
	waits := map[string]string{}
	for _, wait := range did.Waits {
		waits[wait.ID.String()] = waitText(spaces[wait.ID.String()], apply.Event{Message: wait.For, Why: wait.Why})
	}
	if diff := cmp.Diff(want, waits); diff != "" {
		t.Error(diff)
	}
}
