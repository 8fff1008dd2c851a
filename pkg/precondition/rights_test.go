package precondition_test

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// everything has the files of a release that needs all kinds of rights. HERE is its namespace.
var everything = map[string]string{
	"0000_10_web_00_definition.yaml": `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.rights.example.com}
spec:
  group: rights.example.com
  scope: Namespaced
  names: {kind: Gadget, plural: gadgets}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`,
	"0000_10_web_01_config.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: HERE}\n",
	"0000_10_web_02_config.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b, namespace: HERE}\n",
	"0000_10_web_03_gadget.yaml": "apiVersion: rights.example.com/v1\nkind: Gadget\nmetadata: {name: g, namespace: HERE}\n",
	"0000_10_web_04_app.yaml": `
apiVersion: apps/v1
kind: Deployment
metadata: {name: app, namespace: HERE}
spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: registry.example/c}]}}}
`,
	"0000_10_web_05_made.yaml": "apiVersion: v1\nkind: LimitRange\nmetadata: {name: made, namespace: HERE, " +
		"annotations: {release.openshift.io/create-only: \"true\"}}\nspec: {limits: []}\n",
	"0000_10_web_06_secret.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: old, namespace: HERE, annotations: " +
		"{release.openshift.io/delete: \"true\"}}\n",
	"0000_10_web_07_secret.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: older, namespace: HERE, " +
		"annotations: {release.openshift.io/delete: \"true\"}}\n",
	"0000_10_web_08_hook.yaml": `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: hook}
webhooks: [{name: hook.example.com, sideEffects: None, admissionReviewVersions: [v1], clientConfig: {service: {namespace: HERE, name: hook}}}]
`,
}

// in returns a release in a namespace.
func in(t *testing.T, namespace string, manifests map[string]string) *payload.Payload {
	t.Helper()
	there := map[string]string{}
	for name, text := range manifests {
		there[name] = strings.ReplaceAll(text, "HERE", namespace)
	}
	return release(t, "4.6.0", there)
}

func rule(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}

// rights returns the findings about rights, with HERE for the namespace.
func rights(f *precondition.Facts, namespace string) string {
	findings := slices.DeleteFunc(precondition.Evaluate(f), func(f precondition.Finding) bool {
		return f.Check != precondition.MissingRights
	})
	return strings.ReplaceAll(shown(findings), namespace, "HERE")
}

func TestServerMissingRightsAreReportedTogether(t *testing.T) {
	namespace := testbed.Namespace(t)
	named := rule("", "secrets", "get", "delete")
	named.ResourceNames = []string{"old"}
	config, requests := counting(account(t, namespace, rule("", "configmaps", "get", "create", "patch"),
		rule("apps", "deployments", "get", "create", "patch", "list"), named))
	f := gather(t, sandboxtest.Connect(t, config), precondition.Input{
		Payload:   in(t, namespace, everything),
		Namespace: namespace,
		Lock:      &lock.Lock{Client: sandboxtest.Connect(t, config).Client, Namespace: namespace, Release: "web"},
	})

	const user, role, clusterRole = "Blocks MissingRights: system:serviceaccount:HERE:ci may not ",
		"; resolve by: granting it with a Role in namespace HERE",
		"; resolve by: granting it with a ClusterRole"
	wanted := strings.Join([]string{
		user + "update configmaps in namespace HERE, which the record of release web needs" + role,
		user +
			"get, update, create leases.coordination.k8s.io in namespace HERE, which the record of release web needs" +
			role,
		user + "get, create, patch, list, watch customresourcedefinitions.apiextensions.k8s.io, " +
			"validatingwebhookconfigurations.admissionregistration.k8s.io, which 0000_10_web_00_definition.yaml and " +
			"1 more manifest need" + clusterRole +
			" | CustomResourceDefinition gadgets.rights.example.com | 0000_10_web_00_definition.yaml",
		user + "get, create, patch, list, watch gadgets.rights.example.com in namespace HERE, which " +
			"0000_10_web_03_gadget.yaml needs" + role + " | Gadget HERE/g | 0000_10_web_03_gadget.yaml",
		user + "watch deployments.apps in namespace HERE, which 0000_10_web_04_app.yaml needs" + role +
			" | Deployment HERE/app | 0000_10_web_04_app.yaml",
		user + "get, create limitranges in namespace HERE, which 0000_10_web_05_made.yaml needs" + role +
			" | LimitRange HERE/made | 0000_10_web_05_made.yaml",
		user + "get, delete secrets in namespace HERE, which 0000_10_web_07_secret.yaml needs" + role +
			" | Secret HERE/older | 0000_10_web_07_secret.yaml",
		user + "list, watch services, endpointslices.discovery.k8s.io in namespace HERE, which " +
			"0000_10_web_08_hook.yaml needs" + role +
			" | ValidatingWebhookConfiguration hook | 0000_10_web_08_hook.yaml",
	}, "\n")
	if diff := cmp.Diff(wanted, rights(f, namespace)); diff != "" {
		t.Error(diff)
	}
	t.Logf("requests: %v", requests)
}

// hooked is a Deployment with a lifecycle hook.
const hooked = `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: app
  namespace: HERE
  annotations:
    runlevel.dev/lifecycle-hooks: |
      pre: {execNewPod: {containerName: c, command: [migrate]}}
spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: registry.example/c}]}}}
`

func TestServerRightsOfLifecycleHooks(t *testing.T) {
	namespace := testbed.Namespace(t)
	own := []rbacv1.PolicyRule{
		rule("", "configmaps", "get", "create", "update"),
		rule("coordination.k8s.io", "leases", "get", "create", "update"),
		rule("apps", "deployments", "get", "create", "patch", "list", "watch"),
		rule("", "pods", "get", "list", "watch"),
	}
	c := sandboxtest.Connect(t, account(t, namespace, own...))
	lacking := func(manifest string) string {
		return rights(gather(t, c, precondition.Input{
			Payload:   in(t, namespace, map[string]string{"0000_50_web_app.yaml": manifest}),
			Namespace: namespace,
		}), namespace)
	}
	if got := lacking(everything["0000_10_web_04_app.yaml"]); got != "" {
		t.Errorf("without hooks: %s", got)
	}
	const want = "Blocks MissingRights: system:serviceaccount:HERE:ci may not create, delete pods; get pods/log; " +
		"list replicasets.apps; patch deployments/status.apps; create events" +
		" in namespace HERE, which the lifecycle hooks of 0000_50_web_app.yaml need; resolve by: granting it " +
		"with a Role in namespace HERE | Deployment HERE/app | 0000_50_web_app.yaml"
	if diff := cmp.Diff(want, lacking(hooked)); diff != "" {
		t.Errorf("with a hook: %s", diff)
	}
	all := append(own, rule("", "pods", "create", "delete"), rule("", "pods/log", "get"),
		rule("apps", "replicasets", "list"), rule("apps", "deployments/status", "patch"), rule("", "events", "create"))
	other := testbed.Namespace(t)
	c = sandboxtest.Connect(t, account(t, other, all...))
	namespace = other
	if got := lacking(hooked); got != "" {
		t.Errorf("with all rights: %s", got)
	}
}

func TestServerRolesInOneNamespaceGiveNoRightsInAnother(t *testing.T) {
	namespace, other := testbed.Namespace(t), testbed.Namespace(t)
	c := sandboxtest.Connect(t,
		account(t, namespace, rule("", "configmaps", "*"), rule("coordination.k8s.io", "leases", "*")))
	config := map[string]string{
		"0000_10_web_a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: HERE}\n",
	}
	if got := rights(gather(t, c, precondition.Input{Payload: in(t, namespace, config), Namespace: namespace}),
		namespace); got != "" {
		t.Errorf("in its namespace: %s", got)
	}
	config["0000_10_web_b.yaml"] = strings.ReplaceAll(config["0000_10_web_a.yaml"], "name: a", "name: b")
	got := rights(gather(t, c, precondition.Input{Payload: in(t, other, config), Namespace: other}), other)
	for _, want := range []string{
		":ci may not get, update, create configmaps, leases.coordination.k8s.io in namespace HERE, which the record " +
			"of release web needs",
		":ci may not get, create, patch configmaps in namespace HERE, which 0000_10_web_a.yaml and 1 more manifest need",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("in another: want %q in\n%s", want, got)
		}
	}
}

// If the namespace of the record does not exist, the first apply creates it.
func TestServerNamespaceOfTheRecordMayHaveToBeCreated(t *testing.T) {
	namespace := testbed.Namespace(t)
	sees := rule("", "namespaces", "get")
	sees.ResourceNames = []string{"nowhere-yet", namespace}
	c := sandboxtest.Connect(t, accountOfCluster(t, namespace, sees))
	const want = "may not create namespaces, which the record of release web needs; resolve by: granting it " +
		"with a ClusterRole"
	for name, isMissing := range map[string]bool{namespace: false, "nowhere-yet": true} {
		f := gather(t, c, precondition.Input{Payload: release(t, "4.6.0", nil), Namespace: name})
		if got := rights(f, namespace); strings.Contains(got, want) != isMissing {
			t.Errorf("%s: %s", name, got)
		}
	}
	f := gather(t, c, precondition.Input{
		Payload:   release(t, "4.6.0", nil),
		Record:    history("4.5.3"),
		Namespace: "nowhere-yet",
	})
	if got := rights(f, namespace); strings.Contains(got, want) {
		t.Errorf("of a release that has a record: %s", got)
	}
}

// A role may give rights on objects by their names: the record's, too.
func TestServerRightsByName(t *testing.T) {
	namespace := testbed.Namespace(t)
	if err := record.NewStore(testbed.Client(t), namespace, "web").Save(t.Context(), history("4.5.3")); err != nil {
		t.Fatal(err)
	}
	kept, err := testbed.Client(t).CoreV1().ConfigMaps(namespace).List(t.Context(), listOf(lock.Label))
	if err != nil || len(kept.Items) != 1 {
		t.Fatalf("%d records, %v", len(kept.Items), err)
	}
	own, ours := rule("", "configmaps", "get", "update"), rule("", "configmaps", "get", "patch", "create")
	own.ResourceNames, ours.ResourceNames = []string{kept.Items[0].Name}, []string{"a"}
	lock := rule("coordination.k8s.io", "leases", "get", "update")
	lock.ResourceNames = own.ResourceNames
	c := sandboxtest.Connect(t, account(t, namespace, own, ours, lock))
	config := map[string]string{
		"0000_10_web_a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: HERE}\n",
	}
	got := rights(gather(t, c, precondition.Input{Payload: in(t, namespace, config), Namespace: namespace}),
		namespace)
	// The right to create a record or a lock can't be given by name.
	if want := "may not create configmaps, leases.coordination.k8s.io in namespace HERE, which the record"; !strings.Contains(got, want) {
		t.Errorf("want %q in\n%s", want, got)
	}
	if strings.Count(got, "may not ") != 1 {
		t.Errorf("rights that are given by name count as missing:\n%s", got)
	}
	sandboxtest.Apply(t, c, strings.ReplaceAll(config["0000_10_web_a.yaml"], "HERE", namespace)) // they do suffice
}

func TestServerReviewsAClusterAdminOnce(t *testing.T) {
	config, requests := counting(testbed.Sandbox(t).Config)
	namespace := testbed.Namespace(t)
	if got := rights(gather(t, sandboxtest.Connect(t, config),
		precondition.Input{Payload: in(t, namespace, everything)}), namespace); got != "" {
		t.Error(got)
	}
	if diff := cmp.Diff(map[string]int{"selfsubjectaccessreviews": 1}, requests); diff != "" {
		t.Error(diff)
	}
}

// The standard of the cluster-version operator awaits fewer objects, and so needs fewer rights.
func TestServerRightsToAwaitReadiness(t *testing.T) {
	namespace := testbed.Namespace(t)
	c := sandboxtest.Connect(t,
		account(t, namespace, rule("", "configmaps", "get", "create", "update", "patch"),
			rule("coordination.k8s.io", "leases", "get", "create", "update"),
			rule("rights.example.com", "gadgets", "get", "create", "patch")))
	gadget := map[string]string{
		"0000_10_web_03_gadget.yaml":     everything["0000_10_web_03_gadget.yaml"],
		"0000_10_web_00_definition.yaml": everything["0000_10_web_00_definition.yaml"],
	}
	for standard, wanted := range map[ready.Standard]bool{ready.Full: true, ready.Upstream: false} {
		got := rights(gather(t, c, precondition.Input{
			Payload:   in(t, namespace, gadget),
			Namespace: namespace,
			Standard:  standard,
		}), namespace)
		if strings.Contains(got, "may not list, watch gadgets.rights.example.com in namespace HERE") != wanted {
			t.Errorf("%s: %s", standard, got)
		}
	}
}

func TestServerUnknownRights(t *testing.T) {
	config := sandboxtest.Tap(testbed.Sandbox(t).Config,
		func(request *http.Request, send http.RoundTripper) (*http.Response, error) {
			if !strings.Contains(request.URL.Path, "selfsubjectaccessreviews") {
				return send.RoundTrip(request)
			}
			return &http.Response{
				StatusCode: http.StatusBadRequest,
				Header:     http.Header{},
				Request:    request,
				Body:       io.NopCloser(bytes.NewBufferString("not today")),
			}, nil
		})
	namespace := testbed.Namespace(t)
	got := rights(gather(t, sandboxtest.Connect(t, config),
		precondition.Input{Payload: in(t, namespace, everything)}), namespace)
	if !strings.HasPrefix(got,
		"Warns MissingRights: cannot determine whether this account has the rights that are needed: ") ||
		strings.Contains(got, "\n") {
		t.Error(got)
	}
}

// TestServerWritersOfASharedNamespace are reported, but for administrators and ourselves.
func TestServerWritersOfASharedNamespace(t *testing.T) {
	c, namespace := testbed.Connect(t), testbed.Namespace(t)
	writes := rule("", "configmaps", "patch")
	testbed.Account(t, namespace, "ci", writes)
	testbed.Account(t, namespace, "reader", rule("", "configmaps", "get"))
	config := testbed.Account(t, namespace, "applier", writes,
		rule("rbac.authorization.k8s.io", "rolebindings", "list"))
	shared := precondition.Input{Payload: release(t, "4.6.0", nil), Namespace: namespace, IsShareable: true}
	account := "system:serviceaccount:" + namespace + ":"
	if got, want := gather(t, c, shared).Writers, []string{account + "applier", account + "ci"}; !slices.Equal(got,
		want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := gather(t, sandboxtest.Connect(t, config), shared).Writers; len(got) > 0 {
		t.Errorf("an account that may not review the rights of others gets %v", got)
	}
	shared.IsShareable = false
	if got := gather(t, c, shared).Writers; len(got) > 0 {
		t.Errorf("of the namespace for records: %v", got)
	}
}
