package session_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/pkg/graph"
)

const hatKind = `
-- 0000_10_kinds_10_hats.yaml --
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: hats.NS.example.com}
spec:
  group: NS.example.com
  names: {kind: Hat, plural: hats}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {size: {type: integer}}}}}]
`

const boutique = settings + prices + `
-- 0000_20_shop_10_web.yaml --
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: NS}
spec:
  replicas: 0
  selector: {matchLabels: {app: it}}
  template:
    metadata: {labels: {app: it}}
    spec: {containers: [{name: it, image: registry.example/it}]}
-- 0000_20_shop_20_secret.yaml --
{apiVersion: v1, kind: Secret, metadata: {name: key, namespace: NS}, stringData: {a: b}}
-- 0000_20_shop_30_hat.yaml --
{apiVersion: NS.example.com/v1, kind: Hat, metadata: {name: hat, namespace: NS}, size: 3}
`

// A user with a Role in one namespace, without the right to list all its kinds, can apply like
// an admin. Objects that can be listed are not read again one by one.
func TestARoleInOneNamespaceIsEnough(t *testing.T) {
	t.Parallel()
	admin := newRelease(t)
	kinds := admin
	kinds.name += "-kinds"
	kinds.must("1.0.0", hatKind)

	verbs := []string{"get", "list", "watch", "create", "update", "patch", "delete"}
	user := admin
	user.config = test.Account(t, admin.namespace, "user",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: verbs},
		rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: verbs},
		rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: verbs},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
		rbacv1.PolicyRule{
			APIGroups: []string{""},
			Resources: []string{"secrets"},
			Verbs:     []string{"get", "create", "patch", "delete"},
		},
		rbacv1.PolicyRule{
			APIGroups: []string{admin.namespace + ".example.com"},
			Resources: []string{"hats"},
			Verbs:     verbs,
		},
	)
	awaitRights(t, user, boutique)
	sent := &traffic{}
	user = user.through(sent.note)
	first := user.must("1.0.0", boutique)
	if first.Mode != graph.Install || len(first.Notes) != 1 {
		t.Errorf("%s, notes %q", first.Mode, first.Notes)
	}
	sent.take()
	// The user may not list Secrets: the gate gets the Secret, and the apply gets it again. The user may not read
	// the definition of Hat: it is requested, and the Hat is always applied. The user may not list Namespaces: the
	// Namespace is requested, since it may be terminating.
	want := []string{"get customresourcedefinitions /hats.NS.example.com", "get namespaces /NS", "get secrets NS/key",
		"get secrets NS/key", "patch hats NS/hat"}
	for range 2 {
		again := user.must("1.0.0", boutique)
		if got := done(again); again.Mode != graph.Reconcile ||
			got != "unchanged prices, unchanged settings, unchanged web, unchanged key, unchanged hat" {
			t.Errorf("%s: %s", again.Mode, got)
		}
		if len(again.Notes) != 1 ||
			!strings.Contains(again.Notes[0], "may not list these kinds in the whole cluster") ||
			strings.Count(again.Notes[0], "ConfigMap") != 1 {
			t.Errorf("the notes are %q", again.Notes)
		}
		all := sent.take()
		if diff := cmp.Diff(want,
			strings.Split(strings.ReplaceAll(strings.Join(alone(all), "\n"), admin.namespace, "NS"),
				"\n")); diff != "" {
			t.Errorf("requests (-want +got)\n%s", diff)
		}
		if len(again.Report.Warnings) != 1 { // one warning on autoscalers
			t.Errorf("got warnings %v", again.Report.Warnings)
		}
	}

	maps := test.Client(t).CoreV1().ConfigMaps(admin.namespace)
	if _, err := maps.Patch(t.Context(), "settings", types.MergePatchType, []byte(`{"metadata":{"labels":null}}`),
		metav1.PatchOptions{FieldManager: "bob"}); err != nil {
		t.Fatal(err)
	}
	if got := done(user.must("1.0.0", boutique)); !strings.HasPrefix(got, "unchanged prices, configured settings") {
		t.Errorf("what somebody changed: %s", got)
	}
	if orphans := user.must("1.1.0", strings.Replace(boutique, prices, "", 1)).Orphans; len(orphans) != 1 ||
		orphans[0].ID.Name != "prices" {
		t.Errorf("orphans are %v", orphans)
	}
}

// awaitRights waits until the server has taken notice of the rights that a release needs.
func awaitRights(t *testing.T, user release, files string) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			looked := session.Inspect(ctx, user.connect(), user.load("1.0.0", files),
				session.Options{Namespace: user.namespace})
			return looked.Err == nil && len(looked.Findings) == 0, nil
		})
	if err != nil {
		t.Fatal(err, session.Inspect(t.Context(), user.connect(), user.load("1.0.0", files),
			session.Options{Namespace: user.namespace}).Findings)
	}
}
