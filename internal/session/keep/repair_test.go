package keep_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/session/keep"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// things are manifests of most sorts of objects.
var things = map[string]string{
	"ConfigMap": `
apiVersion: v1
kind: ConfigMap
metadata:
  name: NAME
  namespace: NS
  labels: {tier: back}
  annotations: {team: shop}
  finalizers: [example.com/ours]
  ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: kube-root-ca.crt, uid: UID}]
data: {colour: red, size: "7"}
`,
	"Secret":  `{apiVersion: v1, kind: Secret, metadata: {name: NAME, namespace: NS}, stringData: {token: pssst}}`,
	"Service": `{apiVersion: v1, kind: Service, metadata: {name: NAME, namespace: NS}, spec: {selector: {app: web}, ports: [{name: a, port: 80}, {name: b, port: 81}]}}`,
	"Deployment.apps": `
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME, namespace: NS}
spec:
  replicas: 0
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "registry.example/web:1"}, {name: log, image: "registry.example/log:1"}]}
`,
	"Role.rbac.authorization.k8s.io": `{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: NAME, namespace: NS}, rules: [{apiGroups: [""], resources: [pods], verbs: [get, list]}]}`,
	"PodDisruptionBudget.policy":     `{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: NAME, namespace: NS}, spec: {maxUnavailable: 1, selector: {matchLabels: {app: web}}}}`,
}

// A drift is a change by another client: a merge patch, or a delete if the patch is empty.
type drift struct{ kind, patch string }

const role = "Role.rbac.authorization.k8s.io"

var drifts = map[string]drift{
	"a value is changed":          {"ConfigMap", `{"data":{"colour":"blue"}}`},
	"a value is taken away":       {"ConfigMap", `{"data":{"size":null}}`},
	"all values are taken away":   {"ConfigMap", `{"data":null}`},
	"a label is changed":          {"ConfigMap", `{"metadata":{"labels":{"tier":"front"}}}`},
	"an annotation is taken away": {"ConfigMap", `{"metadata":{"annotations":{"team":null}}}`},
	"an owner is taken away":      {"ConfigMap", `{"metadata":{"ownerReferences":null}}`},
	"a finalizer is taken away":   {"ConfigMap", `{"metadata":{"finalizers":null}}`},
	"our label is taken away":     {"ConfigMap", `{"metadata":{"labels":{"runlevel.dev/release":null}}}`},
	"all labels are taken away":   {"ConfigMap", `{"metadata":{"labels":null}}`},
	"a secret value is changed":   {"Secret", `{"data":{"token":"YWJj"}}`},
	"an item is taken away":       {"Service", `{"spec":{"ports":[{"name":"a","port":80}]}}`},
	"an item is changed":          {"Service", `{"spec":{"ports":[{"name":"a","port":80},{"name":"c","port":81}]}}`},
	"a whole list is changed":     {role, `{"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["*"]}]}`},
	"a deep field is changed": {"Deployment.apps",
		`{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"registry.example/evil:1"},{"name":"log","image":"registry.example/log:1"}]}}}}`},
	"a container is taken away": {"Deployment.apps",
		`{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"registry.example/web:1"}]}}}}`},
	"a number is changed":          {"Deployment.apps", `{"spec":{"replicas":1}}`},
	"the limit is changed":         {"PodDisruptionBudget.policy", `{"spec":{"maxUnavailable":2}}`},
	"the limit is another one":     {"PodDisruptionBudget.policy", `{"spec":{"maxUnavailable":null,"minAvailable":1}}`},
	"a Secret is deleted":          {"Secret", ""},
	"a Service is deleted":         {"Service", ""},
	"a Deployment is deleted":      {"Deployment.apps", ""},
	"a Role is deleted":            {role, ""},
	"a disruption budget goes":     {"PodDisruptionBudget.policy", ""},
	"a ConfigMap is made to leave": {"ConfigMap", `{"metadata":{"finalizers":null,"labels":null},"data":null}`},
}

// TestDriftIsRepaired changes objects in the ways of other clients, all at the same time, and expects that all are
// repaired.
func TestDriftIsRepaired(t *testing.T) {
	t.Parallel()
	name := test.Namespace(t)
	owner := ownerIn(t, name)
	var files strings.Builder
	names := map[string]string{}
	for what, drift := range drifts {
		names[what] = strings.ToLower(strings.ReplaceAll(what, " ", "-"))
		manifest := strings.NewReplacer("NAME", names[what], "UID", owner).Replace(things[drift.kind])
		fmt.Fprintf(&files, "-- 0000_10_shop_%s.yaml --\n%s\n", names[what], manifest)
	}
	s := keepAs(t, name, files.String())
	before := map[string]map[string]any{}
	for what, drift := range drifts {
		before[what] = body(s.get(drift.kind, names[what]))
	}
	for what, drift := range drifts {
		if drift.patch == "" {
			s.delete(drift.kind, names[what])
		} else {
			s.patch(drift.kind, names[what], drift.patch)
		}
	}
	for what, drift := range drifts {
		s.until(what+", and repaired", func() bool { return len(s.of(keep.Repaired, drift.kind, names[what])) > 0 })
		if diff := cmp.Diff(before[what], body(s.get(drift.kind, names[what]))); diff != "" {
			t.Errorf("%s: the object has changed (-want +got):\n%s", what, diff)
		}
		want, by := object.Configured, "bob" // a delete does not show its client
		if drift.patch == "" {
			want = object.Created
		}
		if drift.patch == "" || strings.Contains(what, "taken away") || strings.Contains(what, "to leave") {
			by = ""
		}
		reported := s.of(keep.Repaired, drift.kind, names[what])
		if len(reported) != 1 || reported[0].Action != want || !strings.Contains(reported[0].Message, by) ||
			reported[0].File == "" {
			t.Errorf("%s: reported %+v", what, reported)
		}
	}
	if all := strings.Join(s.lines(), "\n"); strings.Contains(all, "pssst") || strings.Contains(all, "YWJj") ||
		strings.Contains(all, "cHNzc3Q") {
		t.Errorf("the value of a Secret is reported:\n%s", all)
	}
	if all := strings.Join(s.lines(), "\n"); strings.Contains(all, "kube-controller-manager") {
		t.Errorf("who writes a status is blamed:\n%s", all)
	}
	s.quiet()
	if got := len(s.all(keep.Repaired)); got != len(drifts) {
		t.Errorf("%d repairs of %d drifts", got, len(drifts))
	}
}

// ownerIn waits for the ConfigMap that each namespace has, and returns its UID.
func ownerIn(t *testing.T, namespace string) string {
	t.Helper()
	found := awaitMap(t, namespace+"/kube-root-ca.crt", func(object *unstructured.Unstructured) bool {
		return object != nil
	})
	return string(found.GetUID())
}

// Repairs are reported with the changed fields and their managers.
func TestRepairsNameFieldsAndManagers(t *testing.T) {
	t.Parallel()
	s := keepIn(t, `
-- 0000_10_shop_10.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: NS}, data: {colour: red, size: "7"}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: prices, namespace: NS}, data: {apple: "1"}}
`)
	s.patchAs("bob", "ConfigMap", "settings", `{"data":{"colour":"blue"}}`)
	s.patchAs("eve", "ConfigMap", "prices", `{"data":{"apple":null,"pear":"2"}}`)
	s.until("both are repaired", func() bool { return len(s.all(keep.Repaired)) == 2 })
	got := s.lines()[1:]
	slices.Sort(got)
	want := []string{
		"repaired ConfigMap NS/prices configured data.apple (eve)",
		"repaired ConfigMap NS/settings configured data.colour (bob)",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// If another client has deleted an object and created it again, and no watch has shown it, the object is adopted as in
// an apply.
func TestRecreatedObjectIsAdopted(t *testing.T) {
	t.Parallel()
	s := keepIn(t, `
-- 0000_10_shop_10.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: NS}, data: {colour: red}}
`)
	resume := s.keeping.stall()
	s.delete("ConfigMap", "settings")
	s.make(`{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: NS}, data: {colour: blue, more: "1"}}`, "kubectl-client-side-apply")
	resume()
	s.until("it is repaired", func() bool { return len(s.all(keep.Repaired)) == 1 })
	got := s.get("ConfigMap", "settings")
	if data, _, _ := unstructured.NestedStringMap(got.Object, "data"); data["colour"] != "red" ||
		got.GetLabels()["runlevel.dev/release"] != s.name {
		t.Errorf("got object %v", got.Object)
	}
}

// An object that another release owns is not repaired, as in an apply, and is reported. It is repaired when the other
// release gives it up.
func TestObjectOfAnotherReleaseIsNotRepaired(t *testing.T) {
	t.Parallel()
	s := keepIn(t, `
-- 0000_10_shop_10.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: NS}, data: {colour: red, size: "7"}}
`)
	s.patch("ConfigMap", "settings",
		`{"metadata":{"labels":{"runlevel.dev/release":"other"}},"data":{"colour":"blue"}}`)
	s.until("it is reported", func() bool { return len(s.all(keep.Failing)) == 1 })
	reported := s.all(keep.Failing)[0]
	if reported.Message != "already owned by release other" ||
		reported.Object.Name != "settings" || reported.Reason == "" {
		t.Errorf("reported %+v", reported)
	}
	if got := s.problems(); len(got) != 1 || !reflect.DeepEqual(got[0], reported) {
		t.Errorf("the problems are %+v, want %+v", got, reported)
	}
	s.patch("ConfigMap", "settings", `{"metadata":{"labels":{"runlevel.dev/release":"NS"}}}`)
	s.until("it is repaired", func() bool { return len(s.all(keep.Repaired)) == 1 })
	if got, _, _ := unstructured.NestedString(s.get("ConfigMap", "settings").Object, "data", "colour"); got != "red" {
		t.Errorf("the colour is %s", got)
	}
	s.until("the end of the problem is reported", func() bool {
		return len(s.of(keep.Recovered, "ConfigMap", "settings")) == 1
	})
	if got := s.problems(); len(got) > 0 {
		t.Errorf("the problems are %+v", got)
	}
	// The next problem is reported, too.
	s.patch("ConfigMap", "settings", `{"metadata":{"labels":{"runlevel.dev/release":"other"}}}`)
	s.until("it is reported again", func() bool { return len(s.all(keep.Failing)) == 2 })
}
