package diagnosis_test

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/cluster/diagnosis"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// refusal creates objects in a namespace until the server refuses one with a text, and returns the message.
func refusal(t *testing.T, namespace, object, text string) (schema.GroupKind, string) {
	t.Helper()
	made, c := &unstructured.Unstructured{}, testbed.Connect(t)
	if err := yaml.Unmarshal([]byte(object), &made.Object); err != nil {
		t.Fatal(err)
	}
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 5*time.Minute, true,
		func(ctx context.Context) (bool, error) {
			c.Refresh()
			resource, err := c.Find(ctx, made.GroupVersionKind())
			if err == nil {
				_, err = c.In(resource, namespace).Create(ctx, made.DeepCopy(),
					metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			}
			last = err
			return err != nil && strings.Contains(err.Error(), text), nil
		})
	if err != nil {
		t.Fatalf("the error is %v, want %q", last, text)
	}
	return made.GroupVersionKind().GroupKind(), last.Error()
}

// awaitCall explains a failed request until the lines are as wanted.
func awaitCall(t *testing.T, kind schema.GroupKind, message string, want ...string) {
	t.Helper()
	var lines []string
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 5*time.Minute, true,
		func(ctx context.Context) (bool, error) {
			var err error
			lines, err = (&diagnosis.Diagnoser{Cluster: testbed.Connect(t)}).ExplainCall(ctx, kind, message)
			return strings.HasPrefix(strings.Join(lines, "\n"), strings.Join(want, "\n")), err
		})
	if err != nil {
		t.Errorf("%v: the lines are\n%s\nwant\n%s", err, strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
}

func service(t *testing.T, namespace, port string) {
	t.Helper()
	create(t, "{apiVersion: v1, kind: Service, metadata: {name: gate, namespace: "+namespace+
		"}, spec: {selector: {app: web}, ports: [{port: "+port+"}]}}")
}

func TestAWebhookThatIsDownIsExplained(t *testing.T) {
	namespace := testbed.Namespace(t)
	create(t, strings.ReplaceAll(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: NS}
webhooks:
- name: gate.example.com
  clientConfig: {service: {name: gate, namespace: NS}}
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  sideEffects: None
  timeoutSeconds: 1
  admissionReviewVersions: [v1]
`, "NS", namespace))
	kind, message := refusal(t, namespace, "{apiVersion: v1, kind: ConfigMap, metadata: {name: it}}",
		`failed calling webhook "gate.example.com"`)
	head := "ValidatingWebhookConfiguration " + namespace +
		": its webhook gate.example.com is at port 443 of Service " + namespace + "/gate"
	prefix := "Service " + namespace + "/gate: "
	awaitCall(t, kind, message, head, prefix+"it does not exist")
	service(t, namespace, "443")
	awaitCall(t, kind, message, head, prefix+"it has no endpoints: no pod has the labels that it selects, app=web")
	create(t, "{apiVersion: v1, kind: ResourceQuota, metadata: {name: none, namespace: "+namespace+
		`}, spec: {hard: {pods: "0"}}}`)
	deployment(t, namespace, "1", "sandbox.runlevel.dev/pod: crash", "hostNetwork: false")
	awaitCall(t, kind, message, head, prefix+"it has no endpoints: no pod has the labels that it selects, app=web",
		"Deployment "+namespace+"/web: it creates such pods, and has 0 of 1", "ReplicaSet "+namespace+"/web-")
	if err := testbed.Client(t).CoreV1().ResourceQuotas(namespace).Delete(t.Context(), "none",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitCall(t, kind, message, head, prefix+"it has no ready endpoint, of 1 pod", "Pod "+namespace+"/web-")
}

func TestTheConfigurationOfAWebhookThatDeniesIsNamed(t *testing.T) {
	namespace := testbed.Namespace(t)
	create(t, strings.ReplaceAll(`
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: policy-NS}
webhooks:
- name: policy.NS.example.com
  clientConfig: {url: "https://policy.invalid"}
  objectSelector: {matchLabels: {never: matches}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  sideEffects: None
  admissionReviewVersions: [v1]
`, "NS", namespace))
	awaitCall(t, kinds.ConfigMap,
		`admission webhook "policy.`+namespace+`.example.com" denied the request: no hats`,
		"MutatingWebhookConfiguration policy-"+namespace+": its webhook policy."+namespace+
			".example.com has denied the request",
		`see "kubectl get mutatingwebhookconfigurations policy-`+namespace+` -o yaml"`)
}

func TestPortThatTheServiceDoesNotHaveIsReported(t *testing.T) {
	namespace := testbed.Namespace(t)
	create(t, strings.ReplaceAll(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: hats.NS.example.com}
spec:
  group: NS.example.com
  names: {kind: Hat, plural: hats}
  scope: Namespaced
  conversion: {strategy: Webhook, webhook: {clientConfig: {service: {name: gate, namespace: NS, port: 8443}}, conversionReviewVersions: [v1]}}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}
`, "NS", namespace))
	service(t, namespace, "443")
	kind, message := refusal(t, namespace,
		"{apiVersion: "+namespace+".example.com/v2, kind: Hat, metadata: {name: it}}", "conversion webhook for ")
	awaitCall(t, kind, message,
		"CustomResourceDefinition hats."+namespace+".example.com: its conversion webhook is at port 8443 of Service "+
			namespace+"/gate",
		"Service "+namespace+"/gate: it has no port 8443")
}

func TestAnAggregatedAPIThatIsDownIsExplained(t *testing.T) {
	namespace := testbed.Namespace(t)
	create(t, strings.ReplaceAll(`
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.NS.example.com}
spec: {group: NS.example.com, version: v1, groupPriorityMinimum: 100, versionPriority: 100, insecureSkipTLSVerify: true, service: {name: gate, namespace: NS}}
`, "NS", namespace))
	service(t, namespace, "443")
	kind, message := refusal(t, namespace,
		"{apiVersion: "+namespace+".example.com/v1, kind: Hat, metadata: {name: it}}", "discovery of kind ")
	awaitCall(t, kind, message, "APIService v1."+namespace+".example.com: it is not available: ")
	lines, err := (&diagnosis.Diagnoser{Cluster: testbed.Connect(t)}).ExplainCall(t.Context(), kind, message)
	if want := "Service " + namespace +
		"/gate: it has no endpoints: no pod has the labels that it selects, app=web"; err != nil ||
		lines[len(lines)-1] != want {
		t.Errorf("%v: the lines are %q, want %s", err, lines, want)
	}
}
