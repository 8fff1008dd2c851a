package releasetest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/session/releasetest"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/payload"
)

var test = sandboxtest.New(sandbox.Options{})

func TestMain(m *testing.M) { os.Exit(test.Run(m)) }

// patience is far longer than a test that passes takes.
const patience = 5 * time.Minute

// records is the namespace of the records of all these releases.
const records = "test-records"

// A shop is a release with a namespace of its own, which NS stands for in its files.
type shop struct {
	testing.TB
	name string
	*cluster.Cluster
}

func newShop(t *testing.T) shop {
	t.Helper()
	t.Parallel()
	s := shop{t, "shop-" + rand.String(6), test.Connect(t)}
	sandboxtest.Apply(t, s.Cluster, fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s}}", s.name))
	return s
}

// load reads files of the release, in txtar.
func (s shop) load(files string) *payload.Payload {
	s.Helper()
	return s.version("1.0.0", files)
}

func (s shop) version(version, files string) *payload.Payload {
	s.Helper()
	return sandboxtest.LoadRelease(s, s.name, files, payload.Options{Name: s.name, Version: version})
}

// apply applies a release that can be applied.
func (s shop) apply(release *payload.Payload) {
	s.Helper()
	o := session.Options{Namespace: records, Apply: apply.Options{Timeout: patience}, Lock: lock.Options{Wait: true}}
	if outcome := session.Run(s.Context(), s.Cluster, release, o); outcome.Err != nil {
		s.Fatal(outcome.Err)
	}
}

// run runs the tests of a release.
func (s shop) run(release *payload.Payload, o releasetest.Options) *releasetest.Report {
	s.Helper()
	return releasetest.Run(s.Context(), s.Cluster, release, release.Tests, o)
}

// jobs returns the names of the existing Jobs.
func (s shop) jobs() []string {
	s.Helper()
	list, err := s.Client.BatchV1().Jobs(s.name).List(context.WithoutCancel(s.Context()), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	var names []string
	for _, job := range list.Items {
		if job.DeletionTimestamp == nil {
			names = append(names, job.Name)
		}
	}
	return names
}

// job returns the manifest of a test Job, with more annotations and variables.
func job(name, annotations, variables string) string {
	return fmt.Sprintf(`-- 0000_50_shop_%s.yaml --
apiVersion: batch/v1
kind: Job
metadata: {name: %[1]s, namespace: NS, annotations: {runlevel.dev/test: "true", %s}}
spec:
  backoffLimit: 0
  template: {spec: {restartPolicy: Never, containers: [{name: a, image: registry.example/a, env: [%s]}]}}
`, name, annotations, variables)
}

// configMap is the manifest of an object that an apply does not leave out.
const configMap = "-- 0000_10_shop_a.yaml --\n{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NS}}\n"

// fails makes a pod fail.
const fails = `{name: SANDBOX_EXIT_CODE, value: "7"}`

// Helm's annotation hook-delete-policy decides whether a test is deleted.
func TestHelmDeletePolicies(t *testing.T) {
	s := newShop(t)
	release := s.load(job("passes", "", "") + job("fails", "", fails) +
		job("passes-kept", "helm.sh/hook-delete-policy: before-hook-creation", "") +
		job("passes-deleted", "helm.sh/hook-delete-policy: hook-succeeded", "") +
		job("fails-deleted", `helm.sh/hook-delete-policy: "before-hook-creation, hook-failed"`, fails))
	report := s.run(release, releasetest.Options{})
	if want := []string{"fails", "passes-kept"}; !slices.Equal(s.jobs(), want) {
		t.Errorf("%v are left, want %v", s.jobs(), want)
	}
	if report.Passed != 3 || report.Failed != 2 || report.Done || report.Interrupted != nil {
		t.Errorf("%+v", report)
	}
	s.run(release, releasetest.Options{Keep: true})
	if len(s.jobs()) != 5 {
		t.Errorf("%v are kept, want all", s.jobs())
	}
}

func TestAnInterruptedTestIsLeftAsItIs(t *testing.T) {
	s := newShop(t)
	release := s.load(job("a-runs", "helm.sh/hook-delete-policy: hook-failed", `{name: SANDBOX_POD, value: hang}`) +
		job("b-next", "", ""))
	ctx, interrupt := context.WithCancelCause(t.Context())
	report := releasetest.Run(ctx, s.Cluster, release, release.Tests,
		releasetest.Options{OnEvent: func(event releasetest.Event) {
			if len(event.Waits) > 0 {
				interrupt(reason.ErrInterrupted)
			}
		}})
	if !errors.Is(report.Interrupted, reason.ErrInterrupted) || report.NotRun != 2 || report.Done {
		t.Errorf("%+v", report)
	}
	if first, second := report.Tests[0], report.Tests[1]; first.State != releasetest.Interrupted || !first.IsLeft ||
		second.State != releasetest.NotRun || second.IsLeft {
		t.Errorf("%+v", report.Tests)
	}
	if want := []string{"a-runs"}; !slices.Equal(s.jobs(), want) {
		t.Errorf("%v are left, want %v", s.jobs(), want)
	}
}

// A version may make a test of a Job that an earlier one has applied.
func TestAnAppliedJobBecomesATest(t *testing.T) {
	s := newShop(t)
	s.apply(s.load(strings.ReplaceAll(job("smoke", "", ""), `runlevel.dev/test: "true", `, "")))
	release := s.version("1.1.0", configMap+job("smoke", "", ""))
	s.apply(release)
	if want := []string{"smoke"}; !slices.Equal(s.jobs(), want) {
		t.Fatalf("after the apply there are %v, want %v", s.jobs(), want)
	}
	if report := s.run(release, releasetest.Options{}); !report.Done {
		t.Errorf("%+v", report)
	}
}

func TestDeletedTestFails(t *testing.T) {
	s := newShop(t)
	release := s.load(job("smoke", "", `{name: SANDBOX_POD, value: image-pull}`))
	var waits []string
	report := s.run(release, releasetest.Options{OnEvent: func(event releasetest.Event) {
		if len(event.Waits) == 0 {
			return
		}
		waits = append(waits, event.Waits...)
		background := metav1.DeletePropagationBackground
		if err := s.Client.BatchV1().Jobs(s.name).Delete(t.Context(), "smoke",
			metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
			t.Error(err)
		}
	}})
	if result := report.Tests[0]; result.State != releasetest.Failed ||
		result.Message != "it was deleted while it ran" {
		t.Errorf("%+v", result)
	}
	if text := strings.Join(waits, "\n"); !strings.Contains(text, "container a can't pull image registry.example/a") {
		t.Errorf("the test waited for %s", text)
	}
}

// TestPodWithAnInjectedContainer has a pod end with the containers of its manifest: a webhook may have added one that
// never ends.
func TestPodWithAnInjectedContainer(t *testing.T) {
	s := newShop(t)
	release := s.load(`-- 0000_50_shop_smoke.yaml --
apiVersion: v1
kind: Pod
metadata: {name: smoke, namespace: NS, annotations: {runlevel.dev/test: "true"}}
spec:
  restartPolicy: Never
  containers: [{name: a, image: registry.example/a, env: [{name: SANDBOX_POD, value: hang}]}, {name: b, image: registry.example/b}]
`)
	ended := 0
	end := func(states ...string) {
		ended++
		status := fmt.Sprintf(`{"status": {"phase": "Running", "containerStatuses": [%s]}}`, strings.Join(states, ","))
		if _, err := s.Client.CoreV1().Pods(s.name).Patch(t.Context(), "smoke", types.MergePatchType, []byte(status),
			metav1.PatchOptions{}, "status"); err != nil {
			t.Error(err)
		}
	}
	const runs = `{"name": "a", "image": "a", "imageID": "", "ready": true, "restartCount": 0, "state": {"running": {}}}`
	exits := func(name string) string {
		return fmt.Sprintf(`{"name": %q, "image": "a", "imageID": "", "ready": false, "restartCount": 0, "state": {"terminated": {"exitCode": 0}}}`, name)
	}
	report := s.run(release, releasetest.Options{OnEvent: func(event releasetest.Event) {
		switch {
		case len(event.Waits) == 0:
		case ended == 0:
			end(runs, exits("b"))
		default:
			end(exits("a"), exits("b"), strings.Replace(runs, `"a"`, `"proxy"`, 1))
		}
	}})
	if ended != 2 || !report.Done {
		t.Errorf("after %d changes: %+v", ended, report)
	}
}

func TestRefusedTestFails(t *testing.T) {
	s := newShop(t)
	release := s.load(strings.ReplaceAll(job("smoke", "", ""), "namespace: NS", "namespace: NS-missing"))
	if result := s.run(release, releasetest.Options{}).Tests[0]; result.State != releasetest.Failed ||
		!strings.Contains(result.Message, "could not be created: ") || result.IsLeft {
		t.Errorf("%+v", result)
	}
}

// A process that keeps a release in place does not prevent its tests, as long as the release is applied completely.
func TestTestsDoNotRunDuringAnApply(t *testing.T) {
	s := newShop(t)
	release := s.load(configMap + job("smoke", "", ""))
	s.apply(release)
	check := func() string {
		note, err := releasetest.Check(t.Context(), s.Cluster, records, release.Name, release.Tests)
		return fmt.Sprint(note, err)
	}
	if got := check(); got != "<nil>" {
		t.Error(got)
	}
	for _, keeps := range []bool{false, true} {
		held, err := lock.Lock{
			Client:    s.Client,
			Namespace: records,
			Release:   s.name,
		}.Acquire(t.Context(), lock.Options{Keeps: keeps, Holder: "ana@host:7"})
		if err != nil {
			t.Fatal(err)
		}
		got := check()
		if err := held.Release(nil); err != nil {
			t.Fatal(err)
		}
		if keeps && got != "<nil>" || !keeps && !strings.Contains(got, "is locked by ana@host:7 since ") {
			t.Errorf("keeps %t: %s", keeps, got)
		}
	}
}

func TestMissingRights(t *testing.T) {
	s := newShop(t)
	release := s.load(configMap + job("smoke", "", ""))
	s.apply(release)
	config := test.Account(t, s.name, "user", rbacv1.PolicyRule{
		APIGroups: []string{"batch"},
		Resources: []string{"jobs"},
		Verbs:     []string{"get", "list", "watch"},
	})
	for _, manifest := range []string{
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: NS, namespace: test-records}, " +
			"rules: [{apiGroups: ['', coordination.k8s.io], resources: [configmaps, leases], verbs: [get]}]}",
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: NS, namespace: " +
			"test-records}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: NS}, subjects: [{kind: " +
			"ServiceAccount, name: user, namespace: NS}]}",
	} {
		sandboxtest.Apply(t, s.Cluster, strings.ReplaceAll(manifest, "NS", s.name))
	}
	limited := sandboxtest.Connect(t, config)
	const want = "this user lacks rights that the tests need: create jobs in namespace NS; delete jobs in namespace NS"
	// the server needs a moment to know of the rights
	sandboxtest.EventuallySucceeds(t, func(ctx context.Context) error {
		_, err := releasetest.Check(ctx, limited, records, release.Name, release.Tests)
		if err == nil || strings.ReplaceAll(err.Error(), s.name, "NS") != want {
			return fmt.Errorf("failed with: %w", err)
		}
		return nil
	})
}
