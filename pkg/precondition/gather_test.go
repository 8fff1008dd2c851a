package precondition_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/pkg/precondition"
)

func listOf(label string) metav1.ListOptions { return metav1.ListOptions{LabelSelector: label} }

func manifest(apiVersion, kind, name, annotation string) string {
	return "apiVersion: " + apiVersion + "\nkind: " + kind + "\nmetadata: {name: " + name +
		", namespace: HERE, annotations: {" + annotation + "}}\n"
}

func TestServerKinds(t *testing.T) {
	namespace := testbed.Namespace(t)
	f := gather(t, testbed.Connect(t), precondition.Input{Payload: in(t, namespace, map[string]string{
		"0000_10_web_00_definition.yaml": everything["0000_10_web_00_definition.yaml"],
		"0000_10_web_01_service.yaml": `
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.ours.example.com}
spec: {group: ours.example.com, version: v1, groupPriorityMinimum: 1, versionPriority: 1, service: {namespace: HERE, name: ours}}
`,
		"0000_10_web_02_gone.yaml": `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: relics.example.com, annotations: {release.openshift.io/delete: "true"}}
spec: {group: example.com, scope: Namespaced, names: {kind: Relic, plural: relics}, versions: [{name: v1, served: true, storage: true}]}
`,
		"0000_10_web_03_a.yaml": manifest("rights.example.com/v1", "Gadget", "ours", ""),
		"0000_10_web_04_b.yaml": manifest("rights.example.com/v2", "Gadget", "ours-in-v2", ""),
		"0000_10_web_05_c.yaml": manifest("ours.example.com/v1", "Thing", "aggregated", ""),
		"0000_10_web_06_d.yaml": manifest("ours.example.com/v2", "Thing", "aggregated-in-v2", ""),
		"0000_10_web_07_e.yaml": manifest("batch/v1beta1", "CronJob", "old", ""),
		"0000_10_web_08_f.yaml": manifest("policy/v1beta1", "PodSecurityPolicy", "older", ""),
		"0000_10_web_09_g.yaml": manifest("example.com/v1", "Relic", "its-definition-goes", ""),
		"0000_10_web_10_h.yaml": manifest("nobody.example.com/v1", "Nothing", "to-go", tombstoneAnnotation),
		"0000_10_web_11_i.yaml": manifest("batch/v1beta1", "CronJob", "to-go", tombstoneAnnotation),
		"0000_10_web_12_j.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: withoutNamespace}}",
		"0000_10_web_13_k.yaml": "{apiVersion: rights.example.com/v1, kind: Gadget, metadata: {name: " +
			"withoutNamespace}}",
		"0000_10_web_14_l.yaml": "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: " +
			"everywhere}, value: 1}",
	})})
	wanted := strings.TrimSpace(`
Blocks UnservedKinds: 0000_10_web_04_b.yaml: the release defines no Gadget in rights.example.com/v2, only in rights.example.com/v1; resolve by: writing rights.example.com/v1 instead, or serving v2 too | Gadget HERE/ours-in-v2 | 0000_10_web_04_b.yaml
Blocks UnservedKinds: 0000_10_web_06_d.yaml: the cluster does not serve Thing in ours.example.com/v2, and the release does not define it; resolve by: installing its CustomResourceDefinition or APIService | Thing HERE/aggregated-in-v2 | 0000_10_web_06_d.yaml
Blocks UnservedKinds: 0000_10_web_07_e.yaml: the cluster does not serve CronJob in batch/v1beta1, only in batch/v1; resolve by: writing batch/v1 instead | CronJob HERE/old | 0000_10_web_07_e.yaml
Blocks UnservedKinds: 0000_10_web_08_f.yaml: the cluster does not serve PodSecurityPolicy in policy/v1beta1, and the release does not define it; resolve by: installing its CustomResourceDefinition or APIService | PodSecurityPolicy HERE/older | 0000_10_web_08_f.yaml
Blocks UnservedKinds: 0000_10_web_09_g.yaml: the cluster does not serve Relic in example.com/v1, and the release does not define it; resolve by: installing its CustomResourceDefinition or APIService | Relic HERE/its-definition-goes | 0000_10_web_09_g.yaml
Blocks NoNamespace: 0000_10_web_12_j.yaml and 1 more manifest: ConfigMap withoutNamespace and 1 more are in no namespace, and objects of their kinds are in one; resolve by: writing metadata.namespace | ConfigMap withoutNamespace | 0000_10_web_12_j.yaml`)
	if diff := cmp.Diff(wanted, strings.ReplaceAll(shown(precondition.Evaluate(f)), namespace, "HERE")); diff != "" {
		t.Error(diff)
	}
}

// A definition of the release takes precedence over the versions that the cluster serves now.
// Kinds that were added since the last discovery are found.
func TestServerDefinitionOfTheReleaseCounts(t *testing.T) {
	c, namespace := testbed.Connect(t), testbed.Namespace(t)
	if _, err := c.FindKind(t.Context(), kinds.Pod); err != nil { // the last look
		t.Fatal(err)
	}
	const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gauges.counts.example.com}
spec:
  group: counts.example.com
  scope: Namespaced
  names: {kind: Gauge, plural: gauges}
  versions:
  - {name: v2, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
  - {name: v1, served: SERVED, storage: false, schema: {openAPIV3Schema: {type: object}}}
`
	other := testbed.Connect(t)
	made := sandboxtest.Apply(t, other, strings.ReplaceAll(definition, "SERVED", "true"))
	definitions, err := other.FindKind(t.Context(), made.GroupVersionKind().GroupKind())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Delete(context.Background(), definitions, "", made.GetName(), made.GetUID()) })
	sandboxtest.Eventually(t, "the kind is served", func(ctx context.Context) bool {
		other.Refresh()
		_, err := other.Find(ctx, schema.GroupVersionKind{Group: "counts.example.com", Version: "v1", Kind: "Gauge"})
		return err == nil
	})
	gauge := map[string]string{"0000_10_web_gauge.yaml": manifest("counts.example.com/v1", "Gauge", "g", "")}
	if got := shown(precondition.Evaluate(
		gather(t, c, precondition.Input{Payload: in(t, namespace, gauge)}),
	)); got != "" {
		t.Errorf("as the cluster serves it: %s", got)
	}
	gauge["0000_10_web_00_definition.yaml"] = strings.ReplaceAll(definition, "SERVED", "false")
	got := shown(precondition.Evaluate(gather(t, c, precondition.Input{Payload: in(t, namespace, gauge)})))
	if want := "the release defines no Gauge in counts.example.com/v1, only in " +
		"counts.example.com/v2"; !strings.Contains(got, want) {
		t.Errorf("as the release will: %s", got)
	}
}

func TestServerKindOfAnUnavailableAPI(t *testing.T) {
	c, namespace := testbed.Connect(t), testbed.Namespace(t)
	down := sandboxtest.Apply(t, c, strings.ReplaceAll(`
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.down.example.com}
spec: {group: down.example.com, version: v1, groupPriorityMinimum: 1, versionPriority: 1, insecureSkipTLSVerify: true, service: {namespace: HERE, name: nowhere}}
`, "HERE", namespace))
	services, err := c.FindKind(t.Context(), down.GroupVersionKind().GroupKind())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Delete(context.Background(), services, "", down.GetName(), down.GetUID()) })
	sandboxtest.Eventually(t, "the kind of an unavailable API is known", func(ctx context.Context) bool {
		c.Refresh()
		_, err := c.FindKind(ctx, schema.GroupKind{Group: "down.example.com", Kind: "Thing"})
		return !errors.Is(err, cluster.ErrNotServed)
	})
	f := gather(t, c, precondition.Input{Payload: in(t, namespace, map[string]string{
		"0000_10_web_a.yaml": manifest("down.example.com/v1", "Thing", "a", ""),
		"0000_10_web_b.yaml": manifest("v1", "ConfigMap", "b", ""),
	})})
	got := shown(precondition.Evaluate(f))
	if want := "Warns UnservedKinds: 0000_10_web_a.yaml: cannot determine whether the cluster serves Thing in " +
		"down.example.com/v1: "; !strings.HasPrefix(got, want) || strings.Contains(got, "\n") {
		t.Errorf("%s\nwant one line that begins: %s", got, want)
	}
}

func TestServerPendingDelete(t *testing.T) {
	c, namespace := testbed.Connect(t), testbed.Namespace(t)
	config := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: old, namespace: " + namespace +
		", finalizers: [FINALIZER]}\n"
	made := sandboxtest.Apply(t, c, strings.ReplaceAll(config, "FINALIZER", "example.com/x"))
	resource, err := c.Find(t.Context(), made.GroupVersionKind())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), resource, namespace, "old", made.GetUID()); err != nil {
		t.Fatal(err)
	}
	known := history("4.5.3")
	known.RequestDelete(record.Tombstone{
		ID:      kinds.ID{Kind: "ConfigMap", Namespace: namespace, Name: "old"},
		UID:     made.GetUID(),
		Version: "4.5.3",
	})
	known.RequestDelete(record.Tombstone{
		ID:      kinds.ID{Kind: "ConfigMap", Namespace: namespace, Name: "absent"},
		UID:     "1",
		Version: "4.5.3",
	})
	judge := func() []precondition.Finding {
		return precondition.Evaluate(
			gather(t, c, precondition.Input{Payload: release(t, "4.6.0", nil), Record: known}),
		)
	}
	err = precondition.Refuse(judge())
	if err == nil || strings.Contains(err.Error(), "\n") {
		t.Fatalf("refused: %v", err)
	}
	for _, want := range []string{
		"PendingDelete: ConfigMap " + namespace + "/old, which 4.5.3 deletes, is terminating since ",
		", held by finalizer example.com/x: " +
			"the minor update from 4.5.3 to 4.6.0 does not begin before it is deleted; resolve by: waiting for the " +
			"holder of " +
			"finalizer example.com/x",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in %q", want, err)
		}
	}
	if _, err := c.In(resource, namespace).Patch(t.Context(), "old", types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	if err := precondition.Refuse(judge()); err != nil {
		t.Errorf("after the object is deleted: got error %v, want nil", err)
	}
}

func TestServerObjectsOfAnotherRelease(t *testing.T) {
	c, namespace := testbed.Connect(t), testbed.Namespace(t)
	labelled := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: NAME, namespace: " + namespace +
		", labels: {runlevel.dev/release: RELEASE}}\n"
	for name, text := range map[string]string{"theirs": "db", "to-go": "db", "ours": "web"} {
		sandboxtest.Apply(t, c, strings.NewReplacer("NAME", name, "RELEASE", text).Replace(labelled))
	}
	copied := sandboxtest.Apply(t, c, strings.NewReplacer("NAME", "copied", "RELEASE", "db").Replace(labelled))
	copied.SetManagedFields(nil)
	where, err := c.Find(t.Context(), copied.GroupVersionKind())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.In(where, namespace).Patch(t.Context(), "copied", types.JSONPatchType,
		[]byte(`[{"op":"replace","path":"/metadata/managedFields","value":[{}]}]`),
		metav1.PatchOptions{FieldManager: "somebody"}); err != nil {
		t.Fatal(err)
	}
	rel := in(t, namespace, map[string]string{
		"0000_10_web_a.yaml": manifest("v1", "ConfigMap", "theirs", ""),
		"0000_10_web_b.yaml": manifest("v1", "ConfigMap", "ours", ""),
		"0000_10_web_c.yaml": manifest("v1", "ConfigMap", "copied", ""),
		"0000_10_web_d.yaml": manifest("v1", "ConfigMap", "nobodys", ""),
		"0000_10_web_e.yaml": manifest("v1", "ConfigMap", "to-go", tombstoneAnnotation),
	})
	wanted := strings.TrimSpace(`
Blocks ForeignObject: 0000_10_web_a.yaml: ConfigMap HERE/theirs is of release db, and can't be applied by this one; resolve by: dropping it here or in release db | ConfigMap HERE/theirs | 0000_10_web_a.yaml
Blocks ForeignObject: 0000_10_web_e.yaml: ConfigMap HERE/to-go is of release db, and can't be deleted by this one; resolve by: dropping it here or in release db | ConfigMap HERE/to-go | 0000_10_web_e.yaml`)
	// A user who may not list the objects of a whole cluster gets the same findings.
	narrow := sandboxtest.Connect(t,
		account(t, namespace, rule("", "configmaps", "get", "create", "update", "patch", "delete"),
			rule("coordination.k8s.io", "leases", "get", "create", "update")))
	for name, c := range map[string]*cluster.Cluster{"an admin": c, "who may not list": narrow} {
		f := gather(t, c, precondition.Input{Payload: rel, Namespace: namespace})
		if diff := cmp.Diff(wanted,
			strings.ReplaceAll(shown(precondition.Evaluate(f)), namespace, "HERE")); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestServerRunningApply(t *testing.T) {
	c, namespace := testbed.Connect(t), testbed.Namespace(t)
	l := &lock.Lock{Client: c.Client, Namespace: namespace, Release: "web", Now: c.Now}
	question := precondition.Input{Payload: release(t, "4.6.0", nil), Namespace: namespace, Lock: l}
	hold, err := l.Acquire(t.Context(), lock.Options{Holder: "ana@host:7"})
	if err != nil {
		t.Fatal(err)
	}
	err = precondition.Refuse(precondition.Evaluate(gather(t, c, question)))
	if err == nil || !strings.HasPrefix(err.Error(),
		"ApplyRunning: ana@host:7 has been applying the release since 20") {
		t.Errorf("beside another: %v", err)
	}
	question.Lock = nil // the process that applies does the same
	err = precondition.Refuse(precondition.Evaluate(gather(t, c, question)))
	if err = hold.Release(err); err != nil {
		t.Errorf("in its own: %v", err)
	}
	question.Lock = l
	if err := precondition.Refuse(precondition.Evaluate(gather(t, c, question))); err != nil {
		t.Errorf("after it: %v", err)
	}
}

func TestServerCanceledContextIsNotAFact(t *testing.T) {
	c := testbed.Connect(t)
	f := gather(t, c, precondition.Input{Payload: release(t, "4.6.0", nil)}) // all kinds are known by now
	ended, end := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	end(enough)
	if _, err := precondition.Gather(ended, c, precondition.Input{
		Payload:   f.Payload,
		Record:    f.Record,
		Namespace: "runlevel",
	}); !errors.Is(err, enough) {
		t.Errorf("%v, want %v", err, enough)
	}
}

// TestServerTerminatingNamespaceWithoutTheRightToListNamespaces is about an account that may only get Namespaces.
func TestServerTerminatingNamespaceWithoutTheRightToListNamespaces(t *testing.T) {
	c, namespace := testbed.Connect(t), testbed.Namespace(t)
	sandboxtest.Apply(t, c, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: held, namespace: "+namespace+
		", finalizers: [example.com/x]}\n")
	configMaps, err := c.FindKind(t.Context(), kinds.ConfigMap)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = c.In(configMaps, namespace).Patch(context.Background(), "held", types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	})
	if err := c.Client.CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	home := testbed.Namespace(t)
	narrow := sandboxtest.Connect(t, accountOfCluster(t, home, rule("", "namespaces", "get")))
	payload := in(t, namespace, map[string]string{"0000_10_web_a.yaml": manifest("v1", "ConfigMap", "a", "")})
	for name, c := range map[string]*cluster.Cluster{"an admin": c, "who may only get": narrow} {
		findings := shown(precondition.Evaluate(gather(t, c, precondition.Input{Payload: payload, Namespace: home})))
		if want := "TerminatingObject: Namespace " + namespace +
			", which 0000_10_web_a.yaml needs, is terminating since "; !strings.Contains(findings, want) {
			t.Errorf("%s: %s\nwant %q", name, findings, want)
		}
	}
}
