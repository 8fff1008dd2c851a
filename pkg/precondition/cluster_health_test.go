package precondition_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// workload returns a Deployment, whose pods request a number of CPUs.
func workload(name, cpu, replicas string) string {
	return strings.NewReplacer("NAME", name, "CPU", cpu, "REPLICAS", replicas).Replace(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME, namespace: HERE}
spec:
  replicas: REPLICAS
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME, tier: back}}
    spec: {containers: [{name: c, image: registry.example/c, resources: {limits: {cpu: CPU}}}]}
`)
}

// healthOf returns the findings of a release about the cluster, without those of other checks.
func healthOf(t *testing.T, c *cluster.Cluster, input precondition.Input) []precondition.Finding {
	t.Helper()
	return slices.DeleteFunc(precondition.Evaluate(gather(t, c, input)), func(f precondition.Finding) bool {
		return !slices.Contains([]string{
			precondition.NodeNotReady, precondition.NodeCapacity, precondition.DisruptionBudget,
			precondition.DeprecatedAPIs, precondition.NarrowedDefinitions,
		}, f.Check)
	})
}

// messages returns the messages of findings, line by line.
func messages(findings []precondition.Finding) string {
	var lines []string
	for _, f := range findings {
		lines = append(lines, f.Check+": "+f.Message)
	}
	return strings.Join(lines, "\n")
}

// busyRelease has workloads that are new, changed, unchanged and deleted on the cluster of startBusy.
var busyRelease = map[string]string{
	"0000_10_web_big.yaml":   workload("big", "20", "3"),
	"0000_10_web_small.yaml": workload("small", "1", "3"),
	"0000_10_web_busy.yaml":  strings.ReplaceAll(busy, "registry.example/c", "registry.example/new"),
	"0000_10_web_still.yaml": workload("still", "30", "1"),
	"0000_10_web_ssd.yaml": strings.ReplaceAll(workload("ssd", "1", "1"), "spec: {containers",
		"spec: {nodeSelector: {disk: ssd}, containers"),
	"0000_10_web_urgent.yaml": strings.ReplaceAll(workload("urgent", "60", "1"), "spec: {containers",
		"spec: {priorityClassName: system-cluster-critical, containers"),
	"0000_10_web_agent.yaml": strings.NewReplacer("kind: Deployment", "kind: DaemonSet", "  replicas: 1\n", "",
		"spec: {containers", "spec: {nodeSelector: {disk: ssd}, containers").Replace(workload("agent", "1", "1")),
	"0000_10_web_old.yaml": strings.ReplaceAll(workload("old", "99", "1"), "namespace: HERE",
		"namespace: HERE, annotations: {"+tombstoneAnnotation+"}"),
}

// busy takes most of two Nodes.
var busy = strings.ReplaceAll(workload("busy", "40", "2"), "spec:\n  replicas",
	"spec:\n  strategy: {rollingUpdate: {maxUnavailable: 0}}\n  replicas")

// startBusy starts a cluster of two Nodes with two Deployments, one of which has no room, and three budgets. It returns
// the namespace.
func startBusy(t *testing.T) (*sandboxtest.SharedSandbox, string) {
	t.Helper()
	own := sandboxtest.New(sandbox.Options{Nodes: 2, NodeGrace: 15 * time.Second})
	s := own.Sandbox(t)
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error("stop:", err)
		}
	})
	admin, namespace := own.Connect(t), own.Namespace(t)
	sandboxtest.Apply(t, admin, strings.ReplaceAll(busy, "HERE", namespace))
	sandboxtest.Eventually(t, "the Nodes are busy", func(ctx context.Context) bool {
		deployment, err := own.Client(t).AppsV1().Deployments(namespace).Get(ctx, "busy", metav1.GetOptions{})
		return err == nil && deployment.Status.AvailableReplicas == 2
	})
	sandboxtest.Apply(t, admin, strings.ReplaceAll(workload("still", "30", "1"), "HERE", namespace))
	sandboxtest.Eventually(t, "all pods exist", func(ctx context.Context) bool {
		pods, err := own.Client(t).CoreV1().Pods(namespace).List(ctx, listOf("tier=back"))
		return err == nil && len(pods.Items) == 3
	})
	polls := 0
	sandboxtest.Eventually(t, "the budgets count the pods", func(ctx context.Context) bool {
		healthy, expected := int64(0), int64(0)
		polls++ // where two budgets select a pod, its changes update only one: so each poll changes both
		for name, spec := range map[string]string{
			"never": "{minAvailable: 2, selector: {matchLabels: {app: busy}}}",
			"both":  "{maxUnavailable: 1, selector: {matchLabels: {tier: back}}}",
			"other": "{maxUnavailable: 1, selector: {matchLabels: {app: other}}}",
		} {
			budget := sandboxtest.Apply(t, admin, fmt.Sprintf("{apiVersion: policy/v1, kind: PodDisruptionBudget, "+
				"metadata: {name: %s, namespace: %s, annotations: {polls: %q}}, spec: %s}", name, namespace,
				strconv.Itoa(polls), spec))
			current, _, _ := unstructured.NestedInt64(budget.Object, "status", "currentHealthy")
			pods, _, _ := unstructured.NestedInt64(budget.Object, "status", "expectedPods")
			healthy, expected = healthy+current, expected+pods
		}
		return healthy == 4 && expected == 5
	})
	return own, namespace
}

// varying matches the parts of messages that differ from run to run.
var varying = regexp.MustCompile(`Node node-[01],|such as busy-[^ ]*:|since 20[^ \n]*`)

// stateOfBusy has the messages about busyRelease, as the cluster's own release.
const stateOfBusy = `NodeCapacity: 0000_10_web_big.yaml: Deployment HERE/big: 2 ready Nodes have room for 2 of 3 new pods: each requests cpu 20, and VARYING the closest, has cpu 24 left
NodeCapacity: 0000_10_web_busy.yaml: Deployment HERE/busy: 2 ready Nodes have room for 0 of 1 new pod: each requests cpu 40, and VARYING the closest, has cpu 24 left
NodeCapacity: 0000_10_web_ssd.yaml: Deployment HERE/ssd: of 2 ready Nodes, its node selector, affinity and tolerations leave none
PodDisruptionBudget: PodDisruptionBudget HERE/both: allows no evictions: 2 of 3 pods are healthy, and 2 must be, VARYING
PodDisruptionBudget: PodDisruptionBudget HERE/never: never allows an eviction: 2 of 2 pods must be healthy, VARYING
PodDisruptionBudget: PodDisruptionBudget HERE/both: selects pods of PodDisruptionBudget HERE/never, too, VARYING the API server evicts no pod of two budgets`

func TestServerNodesAndBudgets(t *testing.T) {
	own, namespace := startBusy(t)
	var lists []string
	c := sandboxtest.Connect(t, sandboxtest.Before(own.Sandbox(t).Config, func(r *http.Request) error {
		resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		if slices.Contains([]string{"nodes", "pods", "poddisruptionbudgets", "metrics"}, resource) {
			lists = append(lists, resource)
		}
		return nil
	}))
	update := precondition.Input{Payload: in(t, namespace, busyRelease), Record: history("4.5.0")}
	update.Record.Release = payload.DefaultName
	got := varying.ReplaceAllString(messages(healthOf(t, c, update)), "VARYING")
	if diff := cmp.Diff(stateOfBusy, strings.ReplaceAll(got, namespace, "HERE")); diff != "" {
		t.Error(diff)
	}
	slices.Sort(lists)
	// pods are those of each Node, and of the two pairs of budgets that may overlap
	if got := strings.Join(lists, " "); got != "metrics nodes poddisruptionbudgets pods pods pods pods" {
		t.Errorf("the gate has sent %s", got)
	}
	if got := healthOf(t, own.ConnectAs(t, "nobody"), update); len(got) > 0 {
		t.Errorf("without rights: %s", messages(got))
	}
	update.Record.Release = "web"
	if got := messages(healthOf(t, c, update)); strings.Contains(got, "Budget") || !strings.Contains(got, "big") {
		t.Errorf("an application, whose update drains no Nodes: %s", got)
	}
	update.Payload = in(t, namespace, map[string]string{"0000_10_web_machines.yaml": "{apiVersion: " +
		"cluster.x-k8s.io/v1beta2, kind: MachineDeployment, metadata: {name: workers, namespace: HERE}}"})
	if got := messages(healthOf(t, c, update)); strings.Count(got, "PodDisruptionBudget: ") != 3 ||
		strings.Contains(got, "Capacity") {
		t.Errorf("a release with machines: %s", got)
	}
	update.Payload, lists = in(t, namespace, busyRelease), nil
	update.Record = history("4.6.0")
	update.Record.History[0].Hash = update.Payload.Hash
	if got := healthOf(t, c, update); len(got)+len(lists) > 0 {
		t.Errorf("files that were completely applied last: %s; requests %v", shown(got), lists)
	}
	checkSilentNodes(t, own, c, namespace)
}

// checkSilentNodes checks the finding about Nodes that send no heartbeats.
func checkSilentNodes(t *testing.T, own *sandboxtest.SharedSandbox, c *cluster.Cluster, namespace string) {
	t.Helper()
	if err := own.Sandbox(t).Kill(sandbox.Kwok); err != nil { // which sends the heartbeats
		t.Fatal(err)
	}
	sandboxtest.Eventually(t, "no Node is ready", func(ctx context.Context) bool {
		nodes, err := own.Client(t).CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		return err == nil && !slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool {
			return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
				return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
			})
		})
	})
	judge := func(manifest string) []precondition.Finding {
		return healthOf(t, c, precondition.Input{Payload: in(t, namespace,
			map[string]string{"0000_10_web_a.yaml": manifest})})
	}
	found := judge(workload("small", "1", "3"))
	if len(found) != 1 || found[0].Since == nil || *found[0].Object != kinds.NewID(kinds.Node, "", "node-0") ||
		!strings.HasPrefix(found[0].Message, "Node node-0 and 1 more: not ready (NodeStatusUnknown), so pods ") {
		t.Errorf("silent Nodes: %s", shown(found))
	}
	if got := judge(configMap("a", "")); len(got) > 0 {
		t.Errorf("a release without pods: %s", shown(got))
	}
}

// boats is a definition with a deprecated version.
const boats = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.narrow.example.com}
spec:
  group: narrow.example.com
  scope: Namespaced
  names: {kind: Boat, plural: boats}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {sails: {type: integer}, crew: {type: string}}}}
  - {name: v1beta1, served: true, deprecated: true, storage: false, schema: {openAPIV3Schema: {type: object}}}
`

func TestServerNarrowedDefinition(t *testing.T) {
	c, namespace := testbed.Connect(t), testbed.Namespace(t)
	made := sandboxtest.Apply(t, c, boats)
	definitions, err := c.FindKind(t.Context(), made.GroupVersionKind().GroupKind())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Delete(context.Background(), definitions, "", made.GetName(), made.GetUID()) })
	served := schema.GroupVersionResource{Group: "narrow.example.com", Version: "v1", Resource: "boats"}
	sandboxtest.EventuallySucceeds(t, func(ctx context.Context) error {
		_, err := c.Objects.Resource(served).List(ctx, metav1.ListOptions{})
		return err
	})
	for name, fields := range map[string]string{"full": "sails: 2, crew: ana", "lost": "crew: bo", "old": "sails: 3"} {
		boat := sandboxtest.ParseObject(t, "{apiVersion: narrow.example.com/v1, kind: Boat, metadata: {name: "+name+
			", namespace: "+namespace+"}, "+fields+"}")
		if _, err := c.Objects.Resource(served).Namespace(namespace).Create(t.Context(), boat,
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	judge := func(c *cluster.Cluster, definition, name string) string {
		update := precondition.Input{Record: history("4.5.0"), Payload: in(t, namespace, map[string]string{
			"0000_10_web_boats.yaml": definition,
		})}
		update.Record.Release = name
		return messages(healthOf(t, c, update))
	}
	if got := judge(c, boats, "web"); got != "" {
		t.Errorf("the same definition: %s", got)
	}
	unserved := boats[:strings.Index(boats, "  - {name: v1beta1")]
	const removed = "NarrowedDefinition: 0000_10_web_boats.yaml: CustomResourceDefinition boats.narrow.example.com allows " +
		"less than the one on the cluster: version v1beta1 is removed"
	if got := judge(c, unserved, "web"); got != removed {
		t.Errorf("without a version that nobody has requested: %s", got)
	}
	served.Version = "v1beta1"
	if _, err := c.Objects.Resource(served).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	const used = "DeprecatedAPI: clients have requested boats in narrow.example.com/v1beta1, which " +
		"0000_10_web_boats.yaml stops serving"
	if got := judge(c, unserved, "web"); got != removed+"\n"+used {
		t.Errorf("without a version that clients use: %s", got)
	}
	narrower := strings.ReplaceAll(boats, "properties: {sails: {type: integer}, crew: {type: string}}",
		"required: [sails], properties: {sails: {type: integer}}")
	const lacking = "NarrowedDefinition: 0000_10_web_boats.yaml: CustomResourceDefinition boats.narrow.example.com allows " +
		"less than the one on the cluster: fields that its objects may have are removed: crew (v1); fields that its " +
		"objects may lack are required: sails (v1); of 3 objects, 2 would not be allowed, such as Boat HERE/full " +
		"(loses crew)"
	if got := judge(c, narrower, "web"); strings.ReplaceAll(got, namespace, "HERE") != lacking {
		t.Errorf("a narrower schema: %s", got)
	}
	unlike := strings.ReplaceAll(boats, "crew: {type: string}", "crew: {type: string, enum: [ana, bo]}")
	if got := judge(c, unlike, "web"); !strings.HasSuffix(got,
		"crew (v1: one of a list, and was any string); 3 objects would be allowed") {
		t.Errorf("a schema that is narrower than its objects: %s", got)
	}
	judgeRemoved(t, judge, unserved)
}

// judgeRemoved checks the finding about an API that Kubernetes removes. This API server serves none by default, so one
// is added to its metrics.
func judgeRemoved(t *testing.T, judge func(c *cluster.Cluster, definition, name string) string, unserved string) {
	t.Helper()
	const metric = "\napiserver_requested_deprecated_apis{"
	removing := sandboxtest.Connect(t, sandboxtest.Tap(testbed.Sandbox(t).Config,
		func(r *http.Request, send http.RoundTripper) (*http.Response, error) {
			response, err := send.RoundTrip(r)
			if err == nil && r.URL.Path == "/metrics" {
				metrics, err := io.ReadAll(response.Body)
				if err != nil {
					return nil, err
				}
				metrics = bytes.Replace(metrics, []byte(metric), []byte(metric+`group="flowcontrol.apiserver.k8s.io",`+
					`removed_release="1.45",resource="flowschemas",subresource="",version="v1beta3"} 1`+metric), 1)
				response.Body = io.NopCloser(bytes.NewReader(metrics))
			}
			return response, err
		}))
	const removed = "DeprecatedAPI: clients have requested flowschemas in flowcontrol.apiserver.k8s.io/v1beta3, which " +
		"Kubernetes 1.45 removes"
	if got := judge(removing, boats, payload.DefaultName); got != removed {
		t.Errorf("the release of the cluster: %s", got)
	}
	if got := judge(removing, unserved, "web"); strings.Contains(got, "flowschemas") ||
		!strings.Contains(got, "boats in") {
		t.Errorf("an application: %s", got)
	}
}
