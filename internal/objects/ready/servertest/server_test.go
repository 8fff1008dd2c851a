// Package servertest checks the rules of package ready on a control plane. The tests of ready itself need none.
package servertest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/cluster/objectwatch"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

var cluster = sandboxtest.New(sandbox.Options{})

func TestMain(m *testing.M) { os.Exit(cluster.Run(m)) }

var (
	namespaces   = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	pods         = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	quotas       = schema.GroupVersionResource{Version: "v1", Resource: "resourcequotas"}
	services     = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	deployments  = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	daemonSets   = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}
	statefulSets = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}
	replicaSets  = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}
	jobs         = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
	definitions  = schema.GroupVersionResource{
		Group:    "apiextensions.k8s.io",
		Version:  "v1",
		Resource: "customresourcedefinitions",
	}
	apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
)

// workload is the beginning of workloads whose simulated pods behave as their annotations request.
const workload = `
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, annotations: {%s}}
    spec: {containers: [{name: web, image: "registry.example/web:1"}]}
`

func workloadOf(version, kind string, annotations ...string) string {
	return fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {name: web}}", version, kind) + "\n---" +
		fmt.Sprintf(workload, strings.Join(annotations, ", "))
}

func annotation(name, value string) string {
	return fmt.Sprintf("sandbox.runlevel.dev/%s: %q", name, value)
}

func TestServerVerdictsOfARollout(t *testing.T) {
	late := annotation("start-after", "1s")
	tests := map[string]struct {
		resource schema.GroupVersionResource
		object   string
		change   string // a patch that begins another rollout
		message  string // message at some time before it is ready
	}{
		"a Deployment": {
			deployments, workloadOf("apps/v1", "Deployment", late),
			`{"spec":{"replicas":2,"template":{"metadata":{"labels":{"new":"1"}}}}}`, "of 1 replicas are available",
		},
		"a StatefulSet": {
			statefulSets, workloadOf("apps/v1", "StatefulSet", late),
			`{"spec":{"replicas":2,"template":{"metadata":{"labels":{"new":"1"}}}}}`, "of 1 replicas are ",
		},
		"a StatefulSet with a partition": {
			statefulSets, workloadOf("apps/v1", "StatefulSet", late) +
				"  replicas: 2\n  updateStrategy: {rollingUpdate: {partition: 1}}\n",
			`{"spec":{"template":{"metadata":{"labels":{"new":"1"}}}}}`, "of 2 replicas are available",
		},
		"a StatefulSet with OnDelete": {
			statefulSets, workloadOf("apps/v1", "StatefulSet", late) + "  updateStrategy: {type: OnDelete}\n",
			`{"spec":{"template":{"metadata":{"labels":{"new":"1"}}}}}`, "of 1 replicas are available",
		},
		"a DaemonSet": {
			daemonSets, workloadOf("apps/v1", "DaemonSet", late),
			`{"spec":{"template":{"metadata":{"labels":{"new":"1"}}}}}`, "0 of 1 pods are available",
		},
		"a ReplicaSet": {
			replicaSets, workloadOf("apps/v1", "ReplicaSet", late),
			`{"spec":{"replicas":2}}`, "0 of 1 replicas are available",
		},
		"a Job": {
			jobs, job(late), "", "0 of 1 pods have succeeded",
		},
		"a Pod": {
			pods, "{apiVersion: v1, kind: Pod, metadata: {name: web, annotations: {" + late +
				"}}, spec: {containers: [{name: web, image: registry.example/web}]}}", "",
			"it is not ready: its containers have not started yet",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := client(t, test.resource, cluster.Namespace(t))
			messages := awaitVerdict(t, client, "web", withState(ready.Ready), func() {
				create(t, client, test.object)
			})
			if !slices.ContainsFunc(messages, func(message string) bool {
				return strings.Contains(message, test.message)
			}) {
				t.Errorf("until it was ready: got %q, want %q", messages, test.message)
			}
			if test.change == "" {
				return
			}
			changed, err := client.Patch(t.Context(), "web", types.StrategicMergePatchType, []byte(test.change),
				metav1.PatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if verdict := ready.Check(changed, ready.Full, ready.Related{}); verdict.State != ready.Waiting {
				t.Errorf("just after the change: got verdict %+v, want the state %s", verdict, ready.Waiting)
			}
			awaitVerdict(t, client, "web", withState(ready.Ready), nil)
		})
	}
}

func job(annotations ...string) string {
	return "{apiVersion: batch/v1, kind: Job, metadata: {name: web}}\n---\nspec:\n  backoffLimit: 0\n  " +
		"template:\n    metadata: {annotations: {" +
		strings.Join(annotations, ", ") +
		"}}\n    spec: {restartPolicy: Never, containers: [{name: web, image: registry.example/web}]}\n"
}

func TestServerVerdictsOfFailingWorkloads(t *testing.T) {
	deployment := workloadOf("apps/v1", "Deployment", annotation("pod", "hang"))
	tests := map[string]struct {
		resource schema.GroupVersionResource
		object   string
		state    ready.State
		message  string
		upstream ready.State
	}{
		"a Job that fails": {
			jobs, job(annotation("pod", "fail")), ready.Failed,
			"BackoffLimitExceeded: job has reached the specified backoff limit", ready.Failed,
		},
		"a suspended Job": {
			jobs, job() + "  suspend: true\n", ready.Waiting, "it is suspended", ready.Ready,
		},
		"a late Deployment": {
			deployments, deployment + "  progressDeadlineSeconds: 1\n", ready.Failed,
			"it made no progress within 1 second: 0 of 1 replicas are available", ready.Failed,
		},
		"a paused Deployment": {
			deployments, deployment + "  paused: true\n", ready.Waiting, "it is paused: 0 of 1 replicas are updated",
			ready.Ready,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := client(t, test.resource, cluster.Namespace(t))
			create(t, client, test.object)
			awaitVerdict(t, client, "web", withMessage(test.state, test.message), nil)
			seen, err := client.Get(t.Context(), "web", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got := ready.Check(seen, ready.Upstream, ready.Related{}); got.State != test.upstream {
				t.Errorf("by upstream's criteria: got %+v, want the state %s", got, test.upstream)
			}
		})
	}
}

func TestServerQuotaInVerdicts(t *testing.T) {
	t.Parallel()
	namespace := cluster.Namespace(t)
	create(t, client(t, quotas, namespace),
		`{apiVersion: v1, kind: ResourceQuota, metadata: {name: none}, spec: {hard: {pods: "0"}}}`)
	sandboxtest.Await(t, cluster, quotas, namespace+"/none", func(q *corev1.ResourceQuota) bool {
		return q != nil && len(q.Status.Hard) > 0
	})

	ofDeployment := client(t, deployments, namespace)
	create(t, ofDeployment, workloadOf("apps/v1", "Deployment"))
	awaitVerdict(t, ofDeployment, "web",
		withMessage(ready.Waiting, "exceeded quota: none, requested: pods=1, used: pods=0, limited: pods=0"), nil)
	awaitProblem(t, namespace, "can't make pods: pods \"web-")
	create(t, client(t, daemonSets, namespace), workloadOf("apps/v1", "DaemonSet"))
	problem := awaitProblem(t, namespace, "DaemonSet "+namespace+"/web: can't make pods: ")
	if !strings.Contains(problem, "exceeded quota: none") {
		t.Errorf("got %s, want the quota", problem)
	}
}

func TestServerPodProblems(t *testing.T) {
	huge := "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}}\n---" +
		strings.Replace(fmt.Sprintf(workload, ""), `web:1"`, `web:1", resources: {requests: {cpu: "100000"}}`, 1)
	tests := map[string]struct{ object, message string }{
		"no image": {workloadOf("apps/v1", "Deployment", annotation("pod", "image-pull")) + "  replicas: 2\n",
			"container web can't pull image registry.example/web:1: back-off pulling image " +
				"\"registry.example/web:1\": not found (2 pods like this)"},
		"crashes": {workloadOf("apps/v1", "Deployment", annotation("pod", "crash"), annotation("run-for", "10ms")),
			"container web crashes: exit code 1, "},
		"hangs": {workloadOf("apps/v1", "Deployment", annotation("pod", "hang")),
			"its containers are not created yet, and node "},
		"unschedulable": {huge, "it has no node: 0/1 nodes are available: 1 Insufficient cpu"},
		"a Job's pod":   {job(annotation("pod", "fail")), "container web ended with exit code 1 [log of web]"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace, resource := cluster.Namespace(t), deployments
			if strings.Contains(test.object, "kind: Job") {
				resource = jobs
			}
			create(t, client(t, resource, namespace), test.object)
			awaitProblem(t, namespace, test.message)
		})
	}
}

func TestServerVerdictsOfAPIExtensions(t *testing.T) {
	namespace := cluster.Namespace(t)
	if messages := awaitVerdict(t, client(t, namespaces, ""), namespace, withState(ready.Ready),
		nil); len(messages) > 1 {
		t.Errorf("a new Namespace: got the messages %q, want none", messages)
	}

	ofDefinitions := client(t, definitions, "")
	made := create(t, ofDefinitions,
		`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: verdicts.ready.example.com},
		spec: {group: ready.example.com, scope: Cluster, names: {plural: verdicts, kind: Verdict},
			versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}`)
	if verdict := ready.Check(made, ready.Upstream, ready.Related{}); verdict.State != ready.Waiting {
		t.Errorf("a definition that was just created: got %+v, want the state %s", verdict, ready.Waiting)
	}
	awaitVerdict(t, ofDefinitions, "verdicts.ready.example.com", withState(ready.Ready), nil)
	create(t, ofDefinitions,
		`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: others.ready.example.com},
		spec: {group: ready.example.com, scope: Cluster, names: {plural: others, kind: Verdict},
			versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}`)
	awaitVerdict(t, ofDefinitions, "others.ready.example.com",
		withMessage(ready.Waiting, `its names are not accepted: "VerdictList" is already in use`), nil)

	ofAPIServices := client(t, apiServices, "")
	awaitVerdict(t, ofAPIServices, "v1.apps", withState(ready.Ready), nil)
	create(t, ofAPIServices,
		`{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.aggregated.ready.example.com},
		spec: {group: aggregated.ready.example.com, version: v1, groupPriorityMinimum: 1000, versionPriority: 10, insecureSkipTLSVerify: true,
			service: {namespace: `+namespace+`, name: aggregated, port: 443}}}`)
	awaitVerdict(t, ofAPIServices, "v1.aggregated.ready.example.com",
		withMessage(ready.Waiting, `it is not available: service/aggregated in "`+namespace+`" is not present`), nil)
	port := serveAPI(t)
	create(t, client(t, services, namespace),
		`{apiVersion: v1, kind: Service, metadata: {name: aggregated}, spec: {type: ExternalName, externalName: localhost, ports: [{port: `+port+`}]}}`)
	patch := `{"spec":{"service":{"port":` + port + `}}}`
	if _, err := ofAPIServices.Patch(t.Context(), "v1.aggregated.ready.example.com", types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitVerdict(t, ofAPIServices, "v1.aggregated.ready.example.com", withState(ready.Ready), nil)
}

func client(t *testing.T, resource schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	t.Helper()
	all, err := dynamic.NewForConfig(cluster.Sandbox(t).Config)
	if err != nil {
		t.Fatal(err)
	}
	if namespace == "" {
		return all.Resource(resource)
	}
	return all.Resource(resource).Namespace(namespace)
}

// create creates an object from the parts of its text, and deletes it after the test.
func create(t *testing.T, client dynamic.ResourceInterface, parts string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{}}
	for _, part := range strings.Split(parts, "\n---") {
		for key, value := range fieldsOf(t, part) {
			object.Object[key] = value
		}
	}
	made, err := client.Create(t.Context(), object, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		background := metav1.DeletePropagationBackground
		_ = client.Delete(context.Background(), made.GetName(), metav1.DeleteOptions{PropagationPolicy: &background})
	})
	return made
}

func withState(state ready.State) func(ready.Verdict) bool {
	return func(v ready.Verdict) bool { return v.State == state }
}

func withMessage(state ready.State, text string) func(ready.Verdict) bool {
	return func(v ready.Verdict) bool { return v.State == state && strings.Contains(v.Message, text) }
}

// awaitVerdict watches an object until it has the wanted verdict, and returns the messages of all
// verdicts. If the object does not exist yet, begin creates it after the watch has started, so that
// no message is missed.
func awaitVerdict(t *testing.T, client dynamic.ResourceInterface, name string, wanted func(ready.Verdict) bool,
	begin func()) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var messages []string
	_, err := objectwatch.Await(ctx, client, name, func(object *unstructured.Unstructured) bool {
		verdict := ready.Check(object, ready.Full, ready.Related{})
		messages = append(messages, verdict.Message)
		if object == nil && begin != nil {
			begin()
			begin = nil
		}
		return wanted(verdict)
	})
	messages = slices.Compact(messages)
	if err != nil {
		t.Fatalf("%v; got %q", err, messages)
	}
	t.Logf("%s: %q", name, messages)
	return messages
}

// awaitProblem reads the pod problems of a namespace until a problem has a message.
func awaitProblem(t *testing.T, namespace, withMessage string) string {
	t.Helper()
	core, found, last := cluster.Client(t).CoreV1(), "", []string(nil)
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 5*time.Minute, true,
		func(ctx context.Context) (bool, error) {
			pods, err := core.Pods(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, err
			}
			events, err := core.Events(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, err
			}
			last = nil
			for _, problem := range ready.PodProblems(pods.Items, events.Items, ready.Dependencies{}) {
				last = append(last, show(problem))
				if strings.Contains(show(problem), withMessage) {
					found = show(problem)
				}
			}
			return found != "", nil
		})
	if err != nil {
		t.Fatalf("want %q, got %q: %v", withMessage, last, err)
	}
	t.Log(found)
	return found
}

func show(problem ready.PodProblem) string {
	text := problem.Object + ": " + problem.Message
	if problem.WantsLog {
		text += " [log of " + problem.Container + "]"
	}
	return text
}

// serveAPI serves an aggregated API on this machine, and returns its port.
func serveAPI(t *testing.T) string {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w,
			`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"aggregated.ready.example.com/v1","resources":[]}`)
	}))
	t.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func fieldsOf(t *testing.T, text string) map[string]any {
	t.Helper()
	fields := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &fields); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return fields
}
