package uninstall_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/session/keep"
	"github.com/runlevel/runlevel/internal/session/uninstall"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// base has the files of each release.
const base = `
-- 0000_10_base_00_namespace.yaml --
{apiVersion: v1, kind: Namespace, metadata: {name: NS}}
-- 0000_20_base_10_config.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: one, namespace: NS}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: two, namespace: NS}}
`

// whole has kinds of each stage.
const whole = base + `
-- 0000_15_kinds_10_ships.crd.yaml --
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ships.NS.example.com}
spec:
  group: NS.example.com
  names: {kind: Ship, plural: ships}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {mast: {type: integer}}}}}}}]
-- 0000_16_kinds_20_ship.yaml --
{apiVersion: NS.example.com/v1, kind: Ship, metadata: {name: mine, namespace: NS}, spec: {mast: 3}}
-- 0000_20_rights_10.yaml --
{apiVersion: v1, kind: ServiceAccount, metadata: {name: web, namespace: NS}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: web, namespace: NS}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: web, namespace: NS}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: web}, subjects: [{kind: ServiceAccount, name: web, namespace: NS}]}
-- 0000_30_web_20_web.yaml --
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: NS}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {serviceAccountName: web, terminationGracePeriodSeconds: 0, containers: [{name: web, image: "registry.example/web:1"}]}
-- 0000_30_web_30_service.yaml --
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: NS}, spec: {selector: {app: web}, ports: [{port: 443}]}}
-- 0000_40_calls_10_webhook.yaml --
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: NS}
webhooks:
- name: web.NS.example.com
  clientConfig: {service: {name: web, namespace: NS, path: /}}
  rules: [{apiGroups: [none.example.com], apiVersions: [v1], resources: [none], operations: [CREATE]}]
  sideEffects: None
  admissionReviewVersions: [v1]
  failurePolicy: Ignore
`

var (
	configOne = kinds.ID{Kind: "ConfigMap", Name: "one"}
	configTwo = kinds.ID{Kind: "ConfigMap", Name: "two"}
)

// unready applies without waiting: some objects do not become ready here.
func unready(o *session.Options) { o.Apply.NoWait = true }

func TestUsersAreDeletedBeforeTheirDependencies(t *testing.T) {
	t.Parallel()
	var log deleteLog
	s := newShop(t)
	s.must(whole, unready)
	report := s.through(log.note).mustUninstall()
	want := []string{
		"ships", "validatingwebhookconfigurations", "deployments", "configmaps", "configmaps", "services",
		"rolebindings", "roles", "serviceaccounts",
		"customresourcedefinitions", "namespaces", "configmaps", "leases",
	}
	slices.Sort(log.sent[3:6]) // each stage is deleted at the same time
	slices.Sort(log.sent[7:9])
	if diff := cmp.Diff(want, log.sent); diff != "" {
		t.Errorf("deletes (-want +got):\n%s", diff)
	}
	if existing := s.remaining(); len(existing) > 0 || !s.isForgotten() {
		t.Errorf("left: %v, forgotten: %t", existing, s.isForgotten())
	}
	if len(report.Deleted) != 11 || len(report.Kept) > 0 {
		t.Errorf("deleted %v, kept %v", report.Deleted, report.Kept)
	}
	if err := s.uninstall().Err; !errors.As(err, new(*uninstall.UnknownReleaseError)) {
		t.Errorf("a second uninstall: %v", err)
	}
}

func TestSharedObjectsAreKept(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.must(whole+`
-- 0000_50_data_10.yaml --
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: NS}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: scratch, namespace: NS}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: annotated, namespace: NS, annotations: {runlevel.dev/keep: "true"}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: taken, namespace: NS}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: NS}, rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}
`, unready)
	c := s.connect()
	sandboxtest.Apply(t, c,
		strings.ReplaceAll(`{apiVersion: NS.example.com/v1, kind: Ship, metadata: {name: theirs, namespace: default}, spec: {mast: 1}}`, "NS", s.name))
	s.patch(kinds.ID{Kind: "ConfigMap", Name: "taken"}, `{"metadata": {"managedFields": [{}]}}`)
	s.patch(kinds.ID{Group: rbacv1.GroupName, Kind: "ClusterRole", Name: s.name},
		`{"metadata": {"labels": {"runlevel.dev/release": "another"}}}`)

	report := s.mustUninstall(func(o *uninstall.Options) {
		o.Choice = uninstall.Choice{Keep: s.patterns("sa/web"), DeleteData: s.patterns("pvc/NS/scratch")}
	})
	want := []string{
		"ClusterRole NS: TakenOver", "ConfigMap NS/annotated: Annotated", "ConfigMap NS/taken: TakenOver",
		"CustomResourceDefinition ships.NS.example.com: HoldsForeignObjects", "Namespace NS: HoldsKeptObjects",
		"PersistentVolumeClaim NS/data: Data", "ServiceAccount NS/web: Requested",
	}
	if diff := cmp.Diff(want, s.kept(report)); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
	wantLeft := []string{
		"ConfigMap NS/annotated", "ConfigMap NS/taken", "CustomResourceDefinition ships.NS.example.com", "Namespace NS",
		"PersistentVolumeClaim NS/data", "ServiceAccount NS/web",
	}
	if diff := cmp.Diff(wantLeft, s.remaining()); diff != "" || !s.isForgotten() {
		t.Errorf("remaining (-want +got), forgotten: %t\n%s", s.isForgotten(), diff)
	}
	s.must(whole, unready) // adopts the kept objects
	if known := s.record(); known == nil {
		t.Error("the release has no record after another apply")
	}
}

func TestANamespaceWithForeignObjectsIsKept(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.must(base)
	sandboxtest.Apply(t, s.connect(),
		strings.ReplaceAll(`{apiVersion: v1, kind: Secret, metadata: {name: theirs, namespace: NS}}`, "NS", s.name))
	report := s.mustUninstall()
	if len(report.Kept) != 1 ||
		s.text(report.Kept[0].Message) !=
			"deleting it would also delete 1 object that the release does not own: Secret NS/theirs" {
		t.Errorf("kept %+v", report.Kept)
	}
	if diff := cmp.Diff([]string{"Namespace NS"}, s.remaining()); diff != "" {
		t.Error(diff)
	}
}

// If a finalizer is not removed, the report names it. The record has the progress, and the next uninstall continues.
func TestHeldObjectIsReported(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.must(base)
	s.hold(configOne)
	report := s.uninstall(func(o *uninstall.Options) { o.Timeout = 2 * time.Second })
	if report.Err == nil || report.Done || !strings.Contains(report.Err.Error(), "2 objects not deleted after 2s") {
		t.Fatalf("%v", report.Err)
	}
	if len(report.Left) != 2 || !strings.Contains(report.Left[0].Message, "held by finalizer example.com/hold") {
		t.Errorf("left: %+v", report.Left)
	}
	if known := s.record(); known == nil || known.Uninstall == nil || known.Uninstall.Left != 2 {
		t.Errorf("record: %+v", known)
	}
	if err := s.apply(base).Err; err == nil || !strings.Contains(err.Error(), precondition.BeingUninstalled) {
		t.Errorf("an apply of the release: %v", err)
	}
	// Nothing else of the gate ends the keeping.
	keeping := s.apply(base, func(o *session.Options) { o.Keep = &keep.Options{} })
	if keeping.Err == nil || !strings.Contains(keeping.Err.Error(), precondition.BeingUninstalled) {
		t.Errorf("an apply that keeps the release in place: %v", keeping.Err)
	}
	s.unhold(configOne)
	s.mustUninstall()
	if existing := s.remaining(); len(existing) > 0 || !s.isForgotten() {
		t.Errorf("left: %v, forgotten: %t", existing, s.isForgotten())
	}
}

// If an object is written after it was read, it is read again: the release may no longer own it, or a user may want to
// keep it.
func TestObjectWrittenDuringUninstall(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.must(base)
	var once sync.Once
	report := s.through(func(request *http.Request) error {
		if parsed, _ := sandboxtest.ParseRequest(request); request.Method == http.MethodDelete && parsed.Name == "one" {
			once.Do(func() { s.patch(configOne, `{"metadata": {"annotations": {"runlevel.dev/keep": "true"}}}`) })
		}
		return nil
	}).mustUninstall()
	if diff := cmp.Diff([]string{"ConfigMap NS/one: Annotated", "Namespace NS: HoldsKeptObjects"},
		s.kept(report)); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"ConfigMap NS/one", "Namespace NS"}, s.remaining()); diff != "" {
		t.Error(diff)
	}
}

// A delete that an update has requested is awaited, although the release has never applied the object.
func TestPendingDeleteOfAnEarlierApply(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.must(base)
	old := kinds.ID{Kind: "ConfigMap", Name: "old"}
	if _, err := test.Client(t).CoreV1().ConfigMaps(s.name).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "old"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.hold(old)
	s.must(base+`
-- 0000_30_old_10.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: old, namespace: NS, annotations: {release.openshift.io/delete: "true"}}}
`, func(o *session.Options) { o.Apply.Mode, o.Force = graph.Update, true })
	report := s.uninstall(func(o *uninstall.Options) { o.Timeout = 2 * time.Second })
	if report.Err == nil || len(report.Left) == 0 || s.text(report.Left[0].Object.String()) != "ConfigMap NS/old" {
		t.Errorf("%v, left: %+v", report.Err, report.Left)
	}
	s.unhold(old)
	s.mustUninstall()
}

func TestAForcedApplyEndsAnUninstall(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.must(base)
	s.hold(configTwo)
	if report := s.uninstall(func(o *uninstall.Options) { o.Timeout = time.Second }); report.Err == nil {
		t.Fatal("the uninstall has not failed")
	}
	s.unhold(configTwo)
	s.must(base, func(o *session.Options) { o.Force = true })
	if known := s.record(); known == nil || known.Uninstall != nil || known.Newest().Mode != "update" {
		t.Errorf("record: %+v", known)
	}
	want := []string{"ConfigMap NS/one", "ConfigMap NS/two", "Namespace NS"}
	if diff := cmp.Diff(want, s.remaining()); diff != "" {
		t.Error(diff)
	}
}

func TestOneUninstallAtATime(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.must(base)
	s.hold(configOne)
	begun, first := make(chan struct{}, 20), make(chan *uninstall.Report)
	c, o := s.connect(), s.options(func(o *uninstall.Options) {
		o.OnEvent = func(uninstall.Event) { begun <- struct{}{} }
	})
	ctx := t.Context()
	go func() { first <- uninstallOf(ctx, c, o) }()
	<-begun
	if err := s.uninstall().Err; !errors.As(err, new(*lock.HeldError)) {
		t.Errorf("a second one: %v", err)
	}
	s.unhold(configOne)
	if report := <-first; report.Err != nil {
		t.Error(report.Err)
	}
	if !s.isForgotten() {
		t.Error("the record or the Lease exists")
	}
}

// The pods of a workload end after it. Until then, they have their configuration and their rights.
func TestPodsHaveTheirConfigurationToTheEnd(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.must(whole, unready)
	var pod kinds.ID
	sandboxtest.Eventually(t, "the Deployment has no pod", func(ctx context.Context) bool {
		found, err := test.Client(t).CoreV1().Pods(s.name).List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
		if err == nil && len(found.Items) > 0 {
			pod = kinds.ID{Kind: "Pod", Name: found.Items[0].Name}
		}
		return pod.Name != ""
	})
	s.hold(pod)
	report := s.uninstall(func(o *uninstall.Options) { o.Timeout = 10 * time.Second })
	if report.Err == nil || len(report.Left) == 0 || report.Left[0].Object.Name != pod.Name {
		t.Errorf("%v, left: %+v", report.Err, report.Left)
	}
	existing := strings.Join(s.remaining(), ", ")
	if strings.Contains(existing, "Deployment") || !strings.Contains(existing, "ConfigMap NS/one") ||
		!strings.Contains(existing, "RoleBinding NS/web") {
		t.Errorf("remaining: %s", existing)
	}
	s.unhold(pod)
	s.mustUninstall()
}

// The API server refuses a delete for good: the uninstall ends, and what comes later stays.
func TestRefusedDeleteEndsUninstall(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.must(base)
	c := s.connect()
	for _, manifest := range []string{
		`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: NS}, spec: {
			matchConstraints: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS}}, resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [DELETE]}]},
			validations: [{expression: "oldObject.metadata.name != 'one'", message: it is needed}]}}`,
		`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: NS}, spec: {policyName: NS, validationActions: [Deny]}}`,
	} {
		object := sandboxtest.ParseObject(t, strings.ReplaceAll(manifest, "NS", s.name))
		made := sandboxtest.ApplyObject(t, c, object)
		resource, err := c.FindKind(t.Context(), made.Object.GroupVersionKind().GroupKind())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Delete(context.Background(), resource, "", s.name, made.Object.GetUID()) })
	}
	dryRun := metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
	sandboxtest.Eventually(t, "the policy is not enforced", func(ctx context.Context) bool {
		return test.Client(t).CoreV1().ConfigMaps(s.name).Delete(ctx, "one", dryRun) != nil
	})
	plan, err := uninstall.Look(t.Context(), c, s.options())
	if err != nil {
		t.Fatal(err)
	}
	if report := uninstall.DryRun(t.Context(), c, plan); report.Err == nil || len(report.Left) != 1 {
		t.Errorf("the dry run: %v, %+v", report.Err, report.Left)
	}
	report := s.uninstall()
	if report.Err == nil || !strings.Contains(s.text(report.Err.Error()),
		"the delete of ConfigMap NS/one is refused") || !strings.Contains(report.Err.Error(), "it is needed") {
		t.Errorf("%v", report.Err)
	}
	if diff := cmp.Diff([]string{"ConfigMap NS/one", "Namespace NS"}, s.remaining()); diff != "" {
		t.Error(diff)
	}
}

// A user who may not delete one of the objects deletes none.
func TestMissingRights(t *testing.T) {
	t.Parallel()
	var log deleteLog
	s := newShop(t)
	s.must(base)
	admin := s
	s.config = test.Account(t, s.name, "user", rbacv1.PolicyRule{
		APIGroups: []string{""},
		Resources: []string{"configmaps"},
		Verbs:     []string{"get", "list", "delete"},
	})
	grantReading(t, s.name)
	s = s.through(log.note)
	want := "system:serviceaccount:NS:user lacks rights that the uninstall of release NS needs; nothing was " +
		"deleted; missing: " +
		"delete configmaps in namespace uninstall-records; delete leases.coordination.k8s.io in namespace " +
		"uninstall-records; " +
		"update configmaps in namespace uninstall-records; update leases.coordination.k8s.io in namespace " +
		"uninstall-records"
	sandboxtest.EventuallySucceeds(t, func(context.Context) error { // the server needs a moment to know of the rights
		err := s.uninstall().Err
		if err == nil || s.text(err.Error()) != want {
			return fmt.Errorf("failed with: %w", err)
		}
		return nil
	})
	if len(log.sent) > 0 || len(admin.remaining()) < 3 {
		t.Errorf("deletes: %v", log.sent)
	}
	admin.mustUninstall()
}

// grantReading lets an account read everything.
func grantReading(t *testing.T, namespace string) {
	t.Helper()
	rbac := test.Client(t).RbacV1()
	meta := metav1.ObjectMeta{Name: namespace + "-reads"}
	role := &rbacv1.ClusterRole{
		ObjectMeta: meta,
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"*"},
			Resources: []string{"*"},
			Verbs:     []string{"get", "list"},
		}},
	}
	if _, err := rbac.ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := rbac.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "user"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = rbac.ClusterRoleBindings().Delete(context.Background(), meta.Name, metav1.DeleteOptions{})
		_ = rbac.ClusterRoles().Delete(context.Background(), meta.Name, metav1.DeleteOptions{})
	})
}

func TestADryRunWritesNothing(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.must(whole, unready)
	before := s.remaining()
	c := sandboxtest.Connect(t, sandboxtest.ReadOnly(t, s.config))
	plan, err := uninstall.Look(t.Context(), c, s.options())
	if err != nil {
		t.Fatal(err)
	}
	if report := uninstall.DryRun(t.Context(), c, plan); report.Err != nil || len(report.Deleted) != 11 {
		t.Errorf("%d objects, %v", len(report.Deleted), report.Err)
	}
	if diff := cmp.Diff(before, s.remaining()); diff != "" {
		t.Error(diff)
	}
	s.mustUninstall()
}

// A process that keeps the release in place would recreate deleted objects.
func TestReleaseKeptInPlaceIsRefused(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.must(base)
	held, err := lock.Lock{
		Client:    test.Client(t),
		Namespace: records,
		Release:   s.name,
	}.Acquire(t.Context(), lock.Options{Keeps: true, Holder: "ana@host:7"})
	if err != nil {
		t.Fatal(err)
	}
	err = s.uninstall(func(o *uninstall.Options) { o.Lock.Wait = true }).Err
	if err == nil || !strings.Contains(err.Error(), "ana@host:7 (watching) keeps release "+s.name+" in place") {
		t.Errorf("%v", err)
	}
	if err := held.Release(nil); err != nil {
		t.Fatal(err)
	}
	s.mustUninstall()
}

// If a pattern does not match an object, the uninstall could delete the object that the user wants to keep.
func TestUnmatchedPatternsAreRefused(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.must(base)
	err := s.uninstall(func(o *uninstall.Options) { o.Choice.Keep = s.patterns("configmap/three") }).Err
	if !errors.As(err, new(*uninstall.PatternError)) {
		t.Errorf("%v", err)
	}
	s.mustUninstall()
}

// The record is lost, with its copy: the objects are found by their label.
func TestUninstallWithALostRecord(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.must(base)
	if err := test.Client(t).CoreV1().ConfigMaps(records).Delete(t.Context(), lock.Name(s.name),
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := test.Client(t).CoordinationV1().Leases(records).Delete(t.Context(), lock.Name(s.name),
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if report := s.mustUninstall(); len(report.Deleted) != 3 {
		t.Errorf("deleted %v", report.Deleted)
	}
}

// The Namespace of the record is the release's: it ends after the record.
func TestNamespaceOfTheRecordIsDeletedLast(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.must(base, func(o *session.Options) { o.Namespace = s.name })
	report := s.mustUninstall(func(o *uninstall.Options) { o.Namespace = s.name })
	if len(report.Deleted) != 3 || report.Deleted[2].Kind != "Namespace" || len(s.remaining()) > 0 {
		t.Errorf("deleted %v, remaining %v", report.Deleted, s.remaining())
	}
}
