package apply_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/pkg/apply"
)

// replaced replaces an object as another manager, without the fields that the text lacks.
func replaced(t *testing.T, namespace, text string) {
	t.Helper()
	manifest := load(t, namespace, namespace, one(text)).Manifests[0]
	c := connect(t)
	var resource cluster.Resource
	sandboxtest.Eventually(t, "its kind is not served", func(ctx context.Context) (isServed bool) {
		c.Refresh()
		var err error
		resource, err = c.Find(ctx, manifest.GroupVersionKind())
		return err == nil
	})
	must(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error { // controllers write the object at the same time
		live, err := c.In(resource, manifest.Object().GetNamespace()).Get(t.Context(), manifest.Object().GetName(),
			metav1.GetOptions{})
		must(t, err)
		object := manifest.Object().DeepCopy()
		object.SetResourceVersion(live.GetResourceVersion())
		object.SetLabels(live.GetLabels())
		_, err = c.In(resource, object.GetNamespace()).Update(t.Context(), object,
			metav1.UpdateOptions{FieldManager: "bob"})
		return err
	}))
}

// A union is an object with a placeholder, and two fields for its place that exclude each other.
type union struct{ object, ours, theirs string }

func withPod(kind, spec, pod string) string {
	return "{apiVersion: apps/v1, kind: " + kind + ", metadata: {name: it, namespace: NS}, spec: {" + spec +
		"selector: {matchLabels: {app: it}}, template: {metadata: {labels: {app: it}}, spec: {" + pod + "}}}}"
}

func inContainer(fields string) string {
	return withPod("Deployment", "", "containers: [{name: side, image: registry.example/it, "+fields+
		"}, {name: it, image: registry.example/it, "+fields+"}]")
}

const (
	containers = "containers: [{name: it, image: registry.example/it}]"
	request    = "httpGet: {port: 80}"
	command    = "exec: {command: [a]}"
	hookOf     = "{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: " +
		"{name: NS}, webhooks: [{name: it.example.com, sideEffects: None, " +
		"admissionReviewVersions: [v1], failurePolicy: Ignore, rules: [{apiGroups: [NS.example.com], apiVersions: " +
		"[v1], resources: [hats], operations: [CREATE]}], clientConfig: {XX}}]}"
	definitionOf = "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: " +
		"hats.NS.example.com}, spec: {group: NS.example.com, scope: Namespaced, " +
		"names: {kind: Hat, plural: hats}, conversion: {XX}, versions: [{name: v1, served: true, storage: true, " +
		"schema: {openAPIV3Schema: {type: object}}}]}}"
	toService = "strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {service: {name: a, " +
		"namespace: NS}}}"
	toURL = "strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {url: " +
		"\"https://it.example.com\"}}"
	budget = "{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: it, namespace: NS}, spec: " +
		"{selector: {matchLabels: {a: b}}, XX}}"
	ingress = "{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: it, namespace: NS}, spec: " +
		"{defaultBackend: {XX}}}"
	apiOf = "{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.NS.example.com}, " +
		"spec: {group: NS.example.com, version: v1, " +
		"groupPriorityMinimum: 1, versionPriority: 1, service: {name: a, namespace: NS}, XX}}"
	cron = "{apiVersion: batch/v1, kind: CronJob, metadata: {name: it, namespace: NS}, spec: {schedule: \"0 0 1 1 " +
		"*\", jobTemplate: {spec: {template: {spec: {restartPolicy: Never, " +
		containers + ", volumes: [{name: v, XX}]}}}}}}"
	serviceOf = "{apiVersion: v1, kind: Service, metadata: {name: it, namespace: NS}, spec: {XX}}"
)

// unions has unions that keep members of both managers after a server-side apply, and a few that the API server itself
// corrects. An apply sets the member of the manifest in each, whatever another manager has set.
var unions = map[string]union{
	"strategy of a Deployment": {withPod("Deployment", "strategy: {XX}, ", containers), "type: Recreate",
		"type: RollingUpdate, rollingUpdate: {maxSurge: 3}"},
	"strategy of a StatefulSet": {withPod("StatefulSet", "serviceName: it, updateStrategy: {XX}, ", containers),
		"type: OnDelete", "type: RollingUpdate, rollingUpdate: {partition: 1}"},
	"no conversion":           {definitionOf, "strategy: None", toService},
	"conversion by a URL":     {definitionOf, toURL, toService},
	"conversion by a Service": {definitionOf, toService, toURL},
	"volume of a Secret": {withPod("Deployment", "",
		containers+", volumes: [{name: v, XX}, {name: w, configMap: {name: a}}]"), "secret: {secretName: a}",
		"configMap: {name: a}"},
	"volume of a claim": {withPod("Deployment", "", containers+", volumes: [{name: w, emptyDir: {}}, {name: v, XX}]"),
		"persistentVolumeClaim: {claimName: a}", "hostPath: {path: /a}"},
	"empty volume": {withPod("StatefulSet", "serviceName: it, ",
		containers+", volumes: [{name: v, XX}]"), "emptyDir: {}", "projected: {sources: [{secret: {name: a}}]}"},
	"volume of a CronJob": {cron, "configMap: {name: a}", "secret: {secretName: a}"},
	"probe by a command":  {inContainer("livenessProbe: {XX}"), command, request},
	"probe by a request":  {inContainer("readinessProbe: {XX}"), request, command},
	"probe by gRPC": {inContainer("startupProbe: {XX}"), "grpc: {port: 80}",
		"tcpSocket: {port: 80}"},
	"hook of a container": {inContainer("lifecycle: {preStop: {XX}}"), command, request},
	"value of a variable": {inContainer("env: [{name: B, value: c}, {name: A, XX}]"), "value: b",
		"valueFrom: {fieldRef: {fieldPath: metadata.name}}"},
	"variable from a field": {inContainer("env: [{name: A, XX}]"), "valueFrom: {fieldRef: {fieldPath: metadata.name}}",
		"value: b"},
	"variable from a Secret": {inContainer("env: [{name: A, valueFrom: {XX}}]"),
		"secretKeyRef: {name: a, key: b}", "fieldRef: {fieldPath: metadata.name}"},
	"seccomp profile": {withPod("Deployment", "", containers+", securityContext: {seccompProfile: {XX}}"),
		"type: RuntimeDefault", "type: Localhost, localhostProfile: a"},
	"webhook at a URL": {hookOf, "url: \"https://it.example.com\"",
		"service: {name: a, namespace: NS}"},
	"webhook at a Service": {hookOf, "service: {name: a, namespace: NS}", "url: \"https://it.example.com\""},
	"budget":               {budget, "minAvailable: 1", "maxUnavailable: 1"},
	"backend of an Ingress": {ingress, "service: {name: a, port: {number: 80}}",
		"resource: {apiGroup: a.b, kind: C, name: d}"},
	"certificate of an API": {apiOf, "caBundle: YQ==", "insecureSkipTLSVerify: true"},
	"key of a ConfigMap": {"{apiVersion: v1, kind: ConfigMap, metadata: {name: it, namespace: NS}, XX}",
		"data: {a: b}", "binaryData: {a: Yg==}"},
	"Service of type ExternalName": {serviceOf, "type: ExternalName, externalName: a.example.com, ports: [{port: 80}]",
		"type: NodePort, ports: [{port: 80}]"},
	"Service of type ClusterIP, before LoadBalancer": {serviceOf, "type: ClusterIP, ports: [{port: 80}]",
		"type: LoadBalancer, externalTrafficPolicy: Local, loadBalancerSourceRanges: [10.0.0.0/8], ports: [{port: 80}]"},
	"Service of type ClusterIP, before NodePort": {serviceOf, "type: ClusterIP, ports: [{port: 80}]",
		"type: NodePort, ports: [{port: 80}]"},
	"Service without sessions": {serviceOf, "sessionAffinity: None, ports: [{port: 80}]",
		"sessionAffinity: ClientIP, ports: [{port: 80}]"},
}

// After another manager or the release itself has set another member of a union, an apply restores the object, and the
// preview reports that.
func TestAnApplySetsUnions(t *testing.T) {
	for name, u := range unions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := test.Namespace(t)
			theirs := strings.ReplaceAll(u.object, "XX", u.theirs)
			ours := load(t, namespace, namespace, one(strings.ReplaceAll(u.object, "XX", u.ours)))
			must(t, run(t, t.Context(), ours, apply.Options{NoWait: true}).Err)
			want := whatCounts(liveOf(t, ours.Manifests[0]))
			check := func(who string) {
				t.Helper()
				saw := preview(t, t.Context(), test.Sandbox(t).Config, ours, apply.Options{})
				did := run(t, t.Context(), ours, apply.Options{NoWait: true})
				if saw.Err != nil || did.Err != nil || saw.actions() != did.actions() {
					t.Fatalf("after a change by %s: got preview %s%v and apply %s%v", who, saw.actions(),
						saw.Err, did.actions(), did.Err)
				}
				if diff := cmp.Diff(want, whatCounts(saw.Changes[0].Look.Would)); diff != "" {
					t.Errorf("after a change by %s, the preview differs from the original object: %s", who, diff)
				}
				if diff := cmp.Diff(want, whatCounts(liveOf(t, ours.Manifests[0]))); diff != "" {
					t.Errorf("after a change by %s, the applied object differs from the original: %s", who, diff)
				}
				if diff := cmp.Diff(saw.Changes[0].Lost, did.Changes[0].Lost); diff != "" {
					t.Error("lost fields of the preview and of the apply differ:", diff)
				}
			}
			replaced(t, namespace, theirs)
			check("another manager")
			must(t, run(t, t.Context(), load(t, namespace, namespace, one(theirs)), apply.Options{NoWait: true}).Err)
			check("the release")
		})
	}
}

// An apply sets unions of objects that it has not applied before.
func TestAnApplySetsUnionsOfOtherTools(t *testing.T) {
	budgetOf := func(spec string) string { return strings.ReplaceAll(budget, "XX", spec) }
	const want = "configured PodDisruptionBudget NS/it"
	runAll(t, map[string]previewCase{
		"of a controller": {
			prepare: create("bob", budgetOf("minAvailable: 1")),
			files:   one(budgetOf("maxUnavailable: 1")),
			want:    want + ", spec.minAvailable of bob\n",
		},
		"of a tool": {
			prepare: create("helm", budgetOf("minAvailable: 1")),
			files:   one(budgetOf("maxUnavailable: 1")),
			want:    want + ", adopted from helm\n",
		},
		"strategy of a tool": {
			prepare: create("helm", withPod("Deployment", "", containers)),
			files:   one(withPod("Deployment", "strategy: {type: Recreate}, ", containers)),
			want:    "configured Deployment NS/it, adopted from helm\n",
		},
		"strategy of another manager": {
			prepare: create("bob", withPod("Deployment", "", containers)),
			files:   one(withPod("Deployment", "strategy: {type: Recreate}, ", containers)),
			want:    "configured Deployment NS/it, spec.strategy.type of bob, spec.strategy.rollingUpdate of bob\n",
		},
	})
}

// The definition of a custom resource defines its unions, by a schema or by a rule.
func TestAnApplySetsUnionsOfCustomResources(t *testing.T) {
	const source = `source: {type: object, properties: {git: {type: string}, image: {type: string}}, `
	theirs := hat(`source: {image: b}`)
	then := func(t *testing.T, namespace string) {
		replaced(t, namespace, strings.SplitN(theirs, "\n", 2)[1])
		forget(t, namespace)
	}
	cases := map[string]previewCase{}
	for name, definition := range map[string]string{
		"by a schema": hatDefinition(source + `oneOf: [{required: [git]}, {required: [image]}]}`),
		"by a rule": hatDefinition(source +
			`x-kubernetes-validations: [{rule: "has(self.git) != has(self.image)"}]}`),
	} {
		files := definition + hat(`source: {git: a}`)
		cases[name] = previewCase{
			given: files,
			then:  then,
			files: files,
			want:  "unchanged " + ofHats + "\nconfigured Hat NS/hat, spec.source.image of bob\n",
		}
	}
	runAll(t, cases)
}

// An apply keeps the fields that other managers have set beside a union, and reports those that it has to remove.
func TestAnApplyRemovesOnlyOtherUnionMembers(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	build := func(how string) string { return strings.ReplaceAll(inContainer("livenessProbe: {XX}"), "XX", how) }
	ours := load(t, namespace, namespace, one(build(command)))
	must(t, run(t, t.Context(), ours, apply.Options{NoWait: true}).Err)
	replaced(t, namespace, build(request+", periodSeconds: 7, timeoutSeconds: 3"))
	did := run(t, t.Context(), ours, apply.Options{NoWait: true})
	must(t, did.Err)
	want := `[{bob spec.template.spec.containers[name="it"].livenessProbe.httpGet} {bob spec.template.spec.containers[name="side"].livenessProbe.httpGet}]`
	if got := fmt.Sprint(did.Changes[0].Lost); got != want {
		t.Errorf("got lost fields %s, want %s", got, want)
	}
	all, _, _ := unstructured.NestedSlice(liveOf(t, ours.Manifests[0]).Object, "spec", "template", "spec", "containers")
	probe, _, _ := unstructured.NestedMap(all[0].(map[string]any), "livenessProbe")
	if probe["periodSeconds"] != int64(7) || probe["timeoutSeconds"] != int64(3) {
		t.Error("got probe", probe)
	}
}

// If the manifest itself is invalid, the server refuses it, and the apply removes no field.
func TestAnApplyOfAnInvalidManifestRemovesNothing(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	must(t, run(t, t.Context(), load(t, namespace, namespace, one(withPod("Deployment", "", containers))),
		apply.Options{NoWait: true}).Err)
	bad := load(t, namespace, namespace,
		one(withPod("Deployment", "strategy: {type: Recreate}, minReadySeconds: -1, ", containers)))
	before := liveOf(t, bad.Manifests[0]).GetManagedFields()
	did := run(t, t.Context(), bad, apply.Options{NoWait: true})
	if did.Err == nil || !strings.Contains(did.Err.Error(), "spec.minReadySeconds: Invalid value: -1") {
		t.Error(did.Err)
	}
	if diff := cmp.Diff(before[0], liveOf(t, bad.Manifests[0]).GetManagedFields()[0]); diff != "" {
		t.Error("ownership has changed:", diff)
	}
}
