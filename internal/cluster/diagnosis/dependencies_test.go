package diagnosis_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/cluster/diagnosis"
	"github.com/runlevel/runlevel/internal/cluster/objectwatch"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

var testbed = sandboxtest.New(sandbox.Options{Nodes: 3})

func TestMain(m *testing.M) { os.Exit(testbed.Run(m)) }

// create creates an object from YAML.
func create(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	object, c := &unstructured.Unstructured{}, testbed.Connect(t)
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		t.Fatal(err)
	}
	resource, err := c.Find(t.Context(), object.GroupVersionKind())
	if err != nil {
		t.Fatal(err)
	}
	made, err := c.In(resource, object.GetNamespace()).Create(t.Context(), object, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.In(resource, made.GetNamespace()).Delete(context.Background(), made.GetName(), metav1.DeleteOptions{})
	})
	return made
}

// deployment makes a Deployment; the template gets the fields.
func deployment(t *testing.T, namespace, replicas, annotations, fields string) *unstructured.Unstructured {
	t.Helper()
	return create(t, strings.NewReplacer("NS", namespace, "REPLICAS", replicas, "ANNOTATIONS", annotations, "FIELDS",
		fields).Replace(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: NS}
spec:
  replicas: REPLICAS
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, annotations: {ANNOTATIONS}}
    spec: {FIELDS, containers: [{name: web, image: registry.example/web}]}
`))
}

// await explains the object until the lines have all the parts.
func await(t *testing.T, object *unstructured.Unstructured, parts ...string) string {
	t.Helper()
	var last string
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 5*time.Minute, true,
		func(ctx context.Context) (bool, error) {
			lines, err := (&diagnosis.Diagnoser{Cluster: testbed.Connect(t)}).Explain(ctx, object)
			last = strings.Join(lines, "\n")
			for _, part := range parts {
				if !strings.Contains(last, part) {
					return false, err
				}
			}
			return true, err
		})
	if err != nil {
		t.Fatalf("%v: the lines are\n%s\nwant %q", err, last, parts)
	}
	return last
}

func patchNode(t *testing.T, name, patch string) {
	t.Helper()
	if _, err := testbed.Client(t).CoreV1().Nodes().Patch(t.Context(), name, types.StrategicMergePatchType,
		[]byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestCordonedAndTaintedNodesAreNamed(t *testing.T) {
	patchNode(t, "node-1", `{"spec":{"unschedulable":true}}`)
	for _, name := range []string{"node-0", "node-2"} {
		patchNode(t, name, `{"spec":{"taints":[{"key":"dedicated","value":"gpu","effect":"NoSchedule"}]}}`)
		defer patchNode(t, name, `{"spec":{"taints":null}}`)
	}
	defer patchNode(t, "node-1", `{"spec":{"unschedulable":false}}`)
	web := deployment(t, testbed.Namespace(t), "2", "", "hostNetwork: false")
	await(t, web, "it has no node: 0/3 nodes are available: ", "; cordoned: node-1 since 20",
		"; taint dedicated=gpu:NoSchedule: node-0, node-2 (2 pods like this)")
}

func TestAStorageClassThatDoesNotExistIsNamed(t *testing.T) {
	namespace := testbed.Namespace(t)
	create(t, "{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: gold}, provisioner: "+
		"example.com/none}")
	create(t, "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: "+namespace+
		"}, spec: {storageClassName: fast, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}")
	web := deployment(t, namespace, "1", "", "volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]")
	await(t, web, "PersistentVolumeClaim "+namespace+
		"/data: it is not bound: StorageClass fast does not exist; there are gold, sandbox")
}

func TestAPullSecretThatDoesNotExistIsNamed(t *testing.T) {
	namespace := testbed.Namespace(t)
	create(t, "{apiVersion: v1, kind: Secret, metadata: {name: there, namespace: "+namespace+"}}")
	web := deployment(t, namespace, "2", "sandbox.runlevel.dev/pod: image-pull",
		"imagePullSecrets: [{name: regcred}, {name: there}]")
	text := await(t, web, "Secret "+namespace+"/regcred: does not exist; needed to pull the images of 2 pods",
		"can't pull image")
	if strings.Contains(text, "Secret "+namespace+"/there") {
		t.Error(text)
	}
	// Without the right to read Secrets, the other problems are reported.
	config := testbed.Account(t, namespace, "narrow",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods", "events"}, Verbs: []string{"list"}})
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 5*time.Minute, true,
		func(ctx context.Context) (bool, error) {
			lines, err := (&diagnosis.Diagnoser{Cluster: sandboxtest.Connect(t, config)}).Explain(ctx, web)
			text = strings.Join(lines, "\n")
			return err != nil && strings.Contains(err.Error(),
				"this user may not get secrets in namespace "+namespace) &&
				strings.Contains(text, "can't pull image"), nil
		})
	if err != nil {
		t.Errorf("%v: the lines are %s", err, text)
	}
}

// TestANodeThatIsNotReadyIsNamed comes last: it ends the program that plays the nodes. The node
// controller takes 50 seconds to miss them.
func TestANodeThatIsNotReadyIsNamed(t *testing.T) {
	web := deployment(t, testbed.Namespace(t), "7", "", "nodeSelector: {kubernetes.io/hostname: node-0}")
	c := testbed.Connect(t)
	resource, err := c.Find(t.Context(), web.GroupVersionKind())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if _, err := objectwatch.Await(ctx, c.In(resource, web.GetNamespace()), "web",
		func(o *unstructured.Unstructured) bool {
			return o != nil && ready.Check(o, ready.Full, ready.Related{}).State == ready.Ready
		}); err != nil {
		t.Fatal(err)
	}
	if err := testbed.Sandbox(t).Kill(sandbox.Kwok); err != nil {
		t.Fatal(err)
	}
	await(t, web, "Node node-0: it has been NotReady since 20", "; 7 of its pods count as not ready")
}
