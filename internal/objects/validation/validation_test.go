package validation_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/objects/validation"
)

// TestValidObjects checks objects that look odd and are valid. A test of internal/review/mistakes asks an API server
// about them.
func TestValidObjects(t *testing.T) {
	text, err := os.ReadFile("testdata/valid.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			t.Fatal(err)
		}
		for _, refusal := range validation.Check(t.Context(), object) {
			t.Errorf("%s %s: %s", object.GetKind(), object.GetName(), refusal.Message)
		}
		if !validation.Knows(object) {
			t.Errorf("kind %s is not checked", object.GetKind())
		}
	}
}

// TestRefusedObjects has objects with the refusals of each: a field's path and the problem. Lint's pages have more,
// which a test compares with a real API server.
func TestRefusedObjects(t *testing.T) {
	for name, test := range map[string]struct{ object, path, message string }{
		"a field of a pod": {
			"{apiVersion: batch/v1, kind: Job, metadata: {name: a, namespace: b}, spec: {template: {spec: " +
				"{restartPolicy: Never, containers: [{name: c}]}}}}",
			"spec template spec containers 0 image", "spec.template.spec.containers[0].image: Required value",
		},
		"labels of a template": {
			"{apiVersion: apps/v1, kind: Deployment, metadata: {name: a, namespace: b}, spec: {selector: " +
				"{matchLabels: {x: w}}, template: {metadata: {labels: {x: w, z: not one}}, spec: {containers: " +
				"[{name: c, image: d}]}}}}",
			"spec template metadata labels", `spec.template.metadata.labels: Invalid value: "not one"`,
		},
		"a value of a Secret": {
			"{apiVersion: v1, kind: Secret, metadata: {name: a, namespace: b}, type: kubernetes.io/dockerconfigjson, " +
				"stringData: {.dockerconfigjson: hunter2}}",
			"data .dockerconfigjson", `data[.dockerconfigjson]: Invalid value: "<secret contents redacted>"`,
		},
		"a structure": {
			"{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: a, namespace: b}, spec: " +
				"{minAvailable: 1, maxUnavailable: 1}}",
			"spec", "spec: Invalid value: minAvailable and maxUnavailable cannot be both set",
		},
		"no mistake":   {"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: b}}", "", ""},
		"no namespace": {"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}", "", ""},
		"privileged": {"{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: b}, spec: {containers: " +
			"[{name: c, image: d, securityContext: {privileged: true}}]}}", "", ""},
		"a kind of others": {"{apiVersion: shop.example/v1, kind: Widget, metadata: {name: A_B}}", "", ""},
		"an old version": {"{apiVersion: autoscaling/v1, kind: HorizontalPodAutoscaler, metadata: {name: A_B, " +
			"namespace: b}, spec: {maxReplicas: 2, scaleTargetRef: {kind: Deployment, name: c}}}", "metadata name",
			`metadata.name: Invalid value: "A_B"`},
		"a removed version": {"{apiVersion: apps/v1beta2, kind: Deployment, metadata: {name: A_B}}", "", ""},
		"a version of none": {"{apiVersion: apps/v9, kind: Deployment, metadata: {name: A_B}}", "", ""},
		"of the wrong type": {"{apiVersion: apps/v1, kind: Deployment, metadata: {name: A_B, namespace: b}, spec: " +
			"{replicas: x}}", "", ""},
		"a generated address": {"{apiVersion: v1, kind: Service, metadata: {name: a, namespace: b}, spec: {ports: " +
			"[{port: 80}]}}", "", ""},
	} {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(test.object), &object.Object); err != nil {
			t.Fatal(err)
		}
		before := object.DeepCopy()
		path, message := "", ""
		if refusals := validation.Check(t.Context(), object); len(refusals) > 0 {
			path, message = strings.Join(refusals[0].Path, " "), refusals[0].Message
		}
		if path != test.path || !strings.HasPrefix(message, test.message) || (message == "") != (test.message == "") {
			t.Errorf("%s: %q: %s", name, path, message)
		}
		if diff := cmp.Diff(before, object); diff != "" {
			t.Errorf("%s: the object is changed: %s", name, diff)
		}
	}
}
