package keep_test

import (
	"fmt"
	"strings"
	"testing"

	admission "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/session/keep"
	"github.com/runlevel/runlevel/pkg/graph"
)

// one is a payload of one object.
const one = `
-- 0000_10_shop_10.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: NS}, data: {colour: red}}
`

// web is a Deployment that runs nothing.
const web = `
-- 0000_10_shop_20.yaml --
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: NS}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: registry.example/web}]}}
`

// An object that a finalizer holds can't be created again: repairs wait until it is deleted.
func TestHeldObjectIsRecreatedAfterItsDeletion(t *testing.T) {
	t.Parallel()
	s := keepIn(t, one)
	s.patch("ConfigMap", "settings", `{"metadata":{"finalizers":["example.com/hold"]}}`)
	s.quiet()
	s.delete("ConfigMap", "settings")
	s.keeping.forget()
	s.patch("ConfigMap", "settings", `{"data":{"colour":"blue"}}`)
	s.quiet()
	if sent := s.keeping.all(isAny); len(sent) > 0 {
		t.Errorf("got requests %v while a finalizer holds the object", sent)
	}
	s.patch("ConfigMap", "settings", `{"metadata":{"finalizers":null}}`)
	s.until("it is recreated", func() bool { return len(s.all(keep.Repaired)) == 1 })
	if got := s.colour("settings"); got != "red" {
		t.Errorf("the colour is %q", got)
	}
	if got := s.keeping.all(isAny); len(got) != 2 { // a read, and a create
		t.Errorf("got requests %v", got)
	}
}

// colour returns the colour in a ConfigMap.
func (s *site) colour(name string) string {
	s.t.Helper()
	object := s.get("ConfigMap", name)
	if object == nil {
		return "none"
	}
	colour, _, _ := unstructured.NestedString(object.Object, "data", "colour")
	return colour
}

// The objects in a Namespace are deleted before it. Until then, repairs do not try to create objects in it.
func TestNamespaceIsDeletedWithItsObjects(t *testing.T) {
	t.Parallel()
	const maps = 30
	files := "-- 0000_10_shop_00.yaml --\n{apiVersion: v1, kind: Namespace, metadata: {name: NS-in}}\n"
	for i := range maps {
		files += fmt.Sprintf("-- 0000_20_shop_%02d.yaml --\n{apiVersion: v1, kind: ConfigMap, metadata: {name: "+
			"map-%d, namespace: NS-in}, data: {colour: red}}\n", i, i)
	}
	s := keepIn(t, files)
	s.keeping.forget()
	s.delete("Namespace", "NS-in")
	s.until("all are back", func() bool { return len(s.all(keep.Repaired)) >= maps+1 })
	s.quiet()
	if got := s.keeping.count(isWrite); got > 2*(maps+1) {
		t.Errorf("%d objects took %d writes", maps+1, got)
	}
	if got := len(s.all(keep.Repaired)); got != maps+1 {
		t.Errorf("%d repairs", got)
	}
	_ = s.stop()
	s.delete("Namespace", "NS-in")
}

// A create-only object is created again when it was deleted, and is never changed.
func TestCreateOnlyObjects(t *testing.T) {
	t.Parallel()
	s := keepIn(t, `
-- 0000_10_shop_10.yaml --
apiVersion: v1
kind: ConfigMap
metadata: {name: seed, namespace: NS, annotations: {release.openshift.io/create-only: "true"}}
data: {colour: red}
`)
	s.keeping.forget()
	s.patch("ConfigMap", "seed", `{"data":{"colour":"blue"}}`)
	s.quiet()
	if sent := s.keeping.all(isAny); len(sent) > 0 || s.colour("seed") != "blue" {
		t.Errorf("the colour is %s, got requests %v", s.colour("seed"), sent)
	}
	s.delete("ConfigMap", "seed")
	s.until("it is created again", func() bool { return len(s.all(keep.Repaired)) == 1 })
	if s.colour("seed") != "red" {
		t.Errorf("the colour is %s", s.colour("seed"))
	}
}

// A Job that has finished is not created again when its TTL has deleted it. A Job that has not finished is.
func TestAFinishedJobIsNotRunAgain(t *testing.T) {
	t.Parallel()
	s := keepIn(t, migration)
	s.until("the Job is deleted", func() bool { return s.get("Job.batch", "migrate") == nil })
	s.quiet()
	if got := s.all(keep.Repaired); len(got) > 0 || s.get("Job.batch", "migrate") != nil {
		t.Errorf("the Job runs again: %+v", got)
	}
	if sent := s.keeping.all(isWrite); len(sent) > 0 {
		t.Errorf("got requests %v", sent)
	}
}

// A Job that finishes after the apply is not created again either.
func TestAJobThatFinishesLaterIsNotRunAgain(t *testing.T) {
	t.Parallel()
	files := strings.ReplaceAll(migration, "restartPolicy: Never", "restartPolicy: Never, nodeSelector: {NS: here}")
	s := keepIn(t, files, func(p *plan) { p.apply.Standard = ready.Upstream })
	nodes := s.admin.Client.CoreV1().Nodes()
	all, err := nodes.List(t.Context(), metav1.ListOptions{Limit: 1})
	s.must(err)
	_, err = nodes.Patch(t.Context(), all.Items[0].Name, types.MergePatchType,
		[]byte(s.named(`{"metadata":{"labels":{"NS":"here"}}}`)), metav1.PatchOptions{})
	s.must(err)
	s.until("the Job is deleted", func() bool { return s.get("Job.batch", "migrate") == nil })
	s.quiet()
	if got := s.all(keep.Repaired); len(got) > 0 || s.get("Job.batch", "migrate") != nil {
		t.Errorf("the Job runs again: %+v", got)
	}
}

// migration is a payload of one Job, which is removed soon after its end.
const migration = `
-- 0000_10_shop_migrate.yaml --
apiVersion: batch/v1
kind: Job
metadata: {name: migrate, namespace: NS}
spec:
  ttlSecondsAfterFinished: 2
  template:
    metadata: {annotations: {sandbox.runlevel.dev/pod: complete}}
    spec: {restartPolicy: Never, terminationGracePeriodSeconds: 0, containers: [{name: it, image: registry.example/it}]}
`

// The replicas that an autoscaler sets are not repaired, also if the autoscaler is created later.
func TestReplicasOfAutoscalersAreNotRepaired(t *testing.T) {
	t.Parallel()
	s := keepIn(t, web)
	s.make(`
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: NS}
spec:
  minReplicas: 3
  maxReplicas: 9
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]
`, "bob")
	replicas := func() int64 {
		count, _, _ := unstructured.NestedInt64(s.get("Deployment.apps", "web").Object, "spec", "replicas")
		return count
	}
	s.until("it is scaled", func() bool { return replicas() == 3 })
	s.quiet()
	s.patchAs("kube-controller-manager", "Deployment.apps", "web", `{"spec":{"replicas":4}}`, "scale")
	s.quiet()
	if got := replicas(); got == 1 {
		t.Errorf("there are %d replicas", got)
	}
	s.patch("Deployment.apps", "web",
		`{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"registry.example/evil"}]}}}}`)
	s.until("the image is as it was", func() bool {
		containers, _, _ := unstructured.NestedSlice(s.get("Deployment.apps", "web").Object, "spec", "template", "spec",
			"containers")
		return containers[0].(map[string]any)["image"] == "registry.example/web"
	})
	if got := replicas(); got == 1 {
		t.Errorf("the repair of the image has set %d replicas", got)
	}
	for _, event := range s.all(keep.Repaired) {
		if strings.Contains(event.Message, "replicas") {
			t.Errorf("reported %+v", event)
		}
	}
}

const hats = `
-- 0000_05_kinds_10.yaml --
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: hats.NS.example.com}
spec:
  group: NS.example.com
  names: {kind: Hat, plural: hats}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {size: {type: integer}}}}}]
-- 0000_10_shop_10_hat.yaml --
{apiVersion: NS.example.com/v1, kind: Hat, metadata: {name: hat, namespace: NS}, size: 3}
`

// Controllers write the status of objects all the time, which causes no requests.
func TestStatusCostsNothing(t *testing.T) {
	t.Parallel()
	s := keepIn(t, hats+web)
	s.keeping.forget()
	for i := range 5 {
		s.patch("Hat.NS.example.com", "hat", fmt.Sprintf(`{"status":{"worn":%d}}`, i), "status")
		s.patch("Deployment.apps", "web", fmt.Sprintf(`{"status":{"collisionCount":%d}}`, i+1), "status")
	}
	s.quiet()
	if sent := s.keeping.all(isAny); len(sent) > 0 {
		t.Errorf("got requests %v", sent)
	}
	s.patch("Hat.NS.example.com", "hat", `{"size":4}`)
	s.until("it is repaired", func() bool { return len(s.all(keep.Repaired)) == 1 })
}

// Only an apply can find out whether a write of a ConfigMap has changed fields of the release. If another manager
// writes its own fields all the time, applies become rare, and nothing is reported.
func TestForeignFieldsAreNotRepaired(t *testing.T) {
	t.Parallel()
	s := keepIn(t, one)
	s.keeping.forget()
	s.patch("ConfigMap", "settings", `{"data":{"theirs":"0"}}`)
	s.until("it was looked at", func() bool { return s.keeping.count(of("configmaps", "settings")) == 1 })
	const writes = 200
	for i := range writes {
		s.patch("ConfigMap", "settings", fmt.Sprintf(`{"data":{"theirs":"%d"}}`, i+1))
	}
	s.quiet()
	if got := s.keeping.count(isWrite); got < 2 || got > writes/3 {
		t.Errorf("%d writes of others cost %d applies", writes, got)
	}
	if got := s.all(keep.Repaired); len(got) > 0 {
		t.Errorf("reported %+v", got)
	}
	s.patch("ConfigMap", "settings", `{"data":{"colour":"blue"}}`)
	s.until("it is repaired", func() bool { return s.colour("settings") == "red" })
}

// An object that a tombstone has deleted does not belong to the release any more.
func TestTombstonesAreNotRepaired(t *testing.T) {
	t.Parallel()
	s := keepIn(t, one+`
-- 0000_20_shop_20.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: old, namespace: NS, annotations: {release.openshift.io/delete: "true"}}}
`, func(p *plan) { p.apply.Mode = graph.Update })
	s.keeping.forget()
	s.make(`{apiVersion: v1, kind: ConfigMap, metadata: {name: old, namespace: NS, labels: {runlevel.dev/release: NS}}}`, "bob")
	s.patch("ConfigMap", "settings", `{"data":{"colour":"blue"}}`)
	s.until("the other is repaired", func() bool { return len(s.all(keep.Repaired)) == 1 })
	s.quiet()
	if got := s.keeping.count(of("configmaps", "old")); got > 0 || s.get("ConfigMap", "old") == nil {
		t.Errorf("%d requests for objects that the release does not have", got)
	}
}

// If a policy forbids a repair, the refusal is reported once. The repair is tried after growing pauses, however often
// others write the object, and succeeds after the policy was deleted.
func TestRepairIsForbiddenByPolicy(t *testing.T) {
	t.Parallel()
	s := keepIn(t, one+`
-- 0000_20_shop_20.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: prices, namespace: NS}, data: {apple: "1"}}
`)
	allow := s.forbidRed()
	s.keeping.forget()
	s.patch("ConfigMap", "settings", `{"data":{"colour":"blue"}}`)
	s.until("it is reported", func() bool { return len(s.all(keep.Failing)) == 1 })
	if reported := s.all(keep.Failing)[0]; !strings.Contains(reported.Message, "no red") ||
		reported.File != "0000_10_shop_10.yaml" {
		t.Errorf("reported %+v", reported)
	}
	for i := range 100 {
		s.patch("ConfigMap", "settings", fmt.Sprintf(`{"data":{"theirs":"%d"}}`, i))
		s.patch("ConfigMap", "prices", fmt.Sprintf(`{"data":{"apple":"%d0"}}`, i))
	}
	if got := s.keeping.count(of("configmaps", "settings")); got > 24 {
		t.Errorf("the failing repair was tried %d times", got)
	}
	allow()
	s.until("it is repaired", func() bool { return s.colour("settings") == "red" })
	if got := len(s.all(keep.Failing)); got != 1 {
		t.Errorf("%d failures are reported, want 1", got)
	}
}

// forbidRed creates a policy that forbids red ConfigMaps in the namespace, until its result is called.
func (s *site) forbidRed() (allow func()) {
	s.t.Helper()
	client := test.Client(s.t).AdmissionregistrationV1()
	rules := []admission.NamedRuleWithOperations{{RuleWithOperations: admission.RuleWithOperations{
		Operations: []admission.OperationType{admission.Create, admission.Update},
		Rule: admission.Rule{
			APIGroups:   []string{""},
			APIVersions: []string{"v1"},
			Resources:   []string{"configmaps"},
		},
	}}}
	named := metav1.ObjectMeta{Name: s.name}
	_, err := client.ValidatingAdmissionPolicies().Create(s.t.Context(),
		&admission.ValidatingAdmissionPolicy{ObjectMeta: named, Spec: admission.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admission.MatchResources{
				ResourceRules: rules,
				NamespaceSelector: &metav1.LabelSelector{
					MatchLabels: map[string]string{"kubernetes.io/metadata.name": s.name},
				},
			},
			Validations: []admission.Validation{{
				Expression: `!has(object.data) || !('colour' in object.data) || object.data.colour != 'red'`,
				Message:    "no red here",
			}},
		}}, metav1.CreateOptions{})
	s.must(err)
	_, err = client.ValidatingAdmissionPolicyBindings().Create(s.t.Context(),
		&admission.ValidatingAdmissionPolicyBinding{ObjectMeta: named,
			Spec: admission.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: s.name, ValidationActions: []admission.ValidationAction{admission.Deny},
			}}, metav1.CreateOptions{})
	s.must(err)
	red := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1",
		"kind":       "ConfigMap",
		"metadata":   map[string]any{"name": "probe", "namespace": s.name},
		"data":       map[string]any{"colour": "red"},
	}}
	s.until("the policy works", func() bool {
		_, err := s.at("ConfigMap").Create(s.t.Context(), red, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), "no red")
	})
	return func() {
		s.must(client.ValidatingAdmissionPolicyBindings().Delete(s.t.Context(), s.name, metav1.DeleteOptions{}))
		s.must(client.ValidatingAdmissionPolicies().Delete(s.t.Context(), s.name, metav1.DeleteOptions{}))
	}
}
