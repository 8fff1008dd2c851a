package apply_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
)

// A rollout that has exceeded its progress deadline before this run gets a new deadline.
func TestRolloutThatHasFailedBeforeGetsANewDeadline(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	text := "-- 0000_10_web_web.yaml --" +
		strings.ReplaceAll(workload("Deployment", "web", "hang", ""), "minReadySeconds: 300",
			"progressDeadlineSeconds: 2")
	const late = "it made no progress within 2 seconds: 0 of 1 replicas are available\n" +
		"Pod NS/web-POD: its containers are not created yet, and node node-0 reports no reason"
	release := load(t, namespace, namespace, text)
	did := run(t, t.Context(), release, apply.Options{})
	if did.Err == nil || !strings.HasSuffix(waitText(namespace, apply.Event{Message: did.Err.Error()}),
		strings.ReplaceAll(late, "\n", "\n  ")) {
		t.Errorf("the first time: %v", did.Err)
	}
	did = runUntil(t, namespace, release, apply.Options{}, "Deployment NS/web", "waiting: "+late)
	if did.Err == nil {
		t.Error("got no error, want a failed rollout")
	}
	runUntil(t, namespace, release, apply.Options{}, "Deployment NS/web", "failed: "+late)
	fixed := load(t, namespace, namespace, strings.ReplaceAll(text, "pod: hang", "pod: run"))
	if did := run(t, t.Context(), fixed, apply.Options{}); did.Err != nil {
		t.Errorf("fixed: %v", did.Err)
	}
}

// A create-only object may have existed before without Runlevel's label. The run waits for it all the same.
func TestExistingCreateOnlyObjectIsAwaited(t *testing.T) {
	t.Parallel()
	namespace, c := test.Namespace(t), connect(t)
	there := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name:        "last",
		Annotations: map[string]string{"runlevel.dev/ready": `self.?data.state.orValue("") == "on"`},
	}}
	_, err := c.Client.CoreV1().ConfigMaps(namespace).Create(t.Context(), there, metav1.CreateOptions{})
	must(t, err)
	release := load(t, namespace, namespace,
		strings.Replace(last, "annotations:", "annotations:\n    release.openshift.io/create-only: \"true\"", 1))
	observer := &eventObserver{onMessage: func(_, text string) {
		if text == `waiting: self.?data.state.orValue("") == "on" is not true yet` {
			merge(t, c, configMaps, namespace+"/last", `{"data":{"state":"on"}}`)
		}
	}}
	did := run(t, t.Context(), release, apply.Options{ReportWaits: quickly, OnEvent: observer.observe(namespace)})
	if did.Err != nil || did.Changes[0].Action != object.Kept {
		t.Errorf("%v, %s", did.Err, did.actions())
	}
}

// If a Namespace stays terminating, the run reports that, and creates nothing in it.
func TestNamespaceThatStaysTerminatingIsReported(t *testing.T) {
	t.Parallel()
	namespace, c := test.Namespace(t), connect(t)
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "held", Finalizers: []string{"example.com/never"}}}
	_, err := c.Client.CoreV1().ConfigMaps(namespace).Create(t.Context(), held, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { // the test's own context has ended by now
		_, _ = c.Client.CoreV1().ConfigMaps(namespace).Patch(context.Background(), "held", types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	})
	must(t, c.Client.CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}))
	release := load(t, namespace, namespace,
		"-- 0000_10_web_ns.yaml --\n{apiVersion: v1, kind: Namespace, metadata: {name: NS}}"+last)
	did := runUntil(t, namespace, release, apply.Options{}, "Namespace NS",
		"waiting: it is terminating, and can be recreated only after that: terminating since …")
	if !strings.HasSuffix(did.actions(), "not done ConfigMap "+namespace+"/last\n") {
		t.Error(did.actions())
	}
}

const operatorDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clusteroperators.config.openshift.io, annotations: {api-approved.kubernetes.io: unapproved}}
spec:
  group: config.openshift.io
  names: {kind: ClusterOperator, plural: clusteroperators}
  scope: Cluster
  versions:
  - {name: v1, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

const operator = `
apiVersion: config.openshift.io/v1
kind: ClusterOperator
metadata: {name: NS}
status: {versions: [{name: operator, version: 1.2.3}]}
`

// A ClusterOperator is checked in the order of the cluster-version operator, and each unmet condition is reported.
func TestClusterOperatorIsAwaited(t *testing.T) {
	t.Parallel()
	namespace, c := test.Namespace(t), connect(t)
	step := map[string]string{
		"waiting: it is not available: it has not reported Available=True yet": `{"status":{"conditions":[{"type":"Available","status":"True"},{"type":"Degraded","status":"True","reason":"Ill","message":"a cold"}]}}`,
		"waiting: it is degraded: Ill: a cold":                                 `{"status":{"conditions":[{"type":"Available","status":"True"},{"type":"Degraded","status":"False"}]}}`,
		"waiting: operator is not yet at 1.2.3":                                `{"status":{"versions":[{"name":"operator","version":"1.2.2"}]}}`,
		"waiting: operator is at 1.2.2, not yet at 1.2.3":                      `{"status":{"versions":[{"name":"operator","version":"1.2.3"}]}}`,
	}
	observer := &eventObserver{}
	observer.onMessage = func(about, text string) {
		if body, found := step[text]; found && about == "ClusterOperator NS" {
			delete(step, text)
			merge(t, c, operators, "/"+namespace, body, "status")
		}
	}
	release := load(t, namespace, namespace, prepare(t, c, namespace, "-- 0000_10_web_operator.yaml --"+operator))
	did := run(t, t.Context(), release, apply.Options{ReportWaits: quickly, OnEvent: observer.observe(namespace)})
	if did.Err != nil || len(step) > 0 {
		t.Errorf("got error %v; never reported: %v; last messages: %v", did.Err, step, observer.last)
	}
	// In an install, the cluster-version operator reports a degraded operator, and continues.
	merge(t, c, operators, "/"+namespace, `{"status":{"conditions":[]}}`, "status")
	observer.onMessage = func(about, text string) {
		if about == "ClusterOperator NS" && strings.HasPrefix(text, "waiting: it is not available") {
			merge(t, c, operators, "/"+namespace,
				`{"status":{"conditions":[{"type":"Available","status":"True"},{"type":"Degraded","status":"True","message":"a cold"}]}}`, "status")
		}
	}
	did = run(t, t.Context(), release, apply.Options{
		Options:     object.Options{Mode: graph.Install, Standard: ready.Upstream},
		ReportWaits: quickly, OnEvent: observer.observe(namespace),
		Timeout: 2 * time.Second,
	})
	if !errors.Is(did.Err, apply.ErrTimeout) || len(did.Waits) != 1 || did.Waits[0].For != "it is degraded: a cold" {
		t.Errorf("%v, reported %v", did.Err, did.Waits)
	}
}

// Times are by the server's clock, however wrong this machine's clock is, and no wait begins in the future.
func TestWaitsAreDatedByTheServer(t *testing.T) {
	for name, wrong := range map[string]time.Duration{"an hour ahead": time.Hour, "an hour behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := test.Namespace(t)
			c := sandboxtest.Connect(t, sandboxtest.ShiftClock(test.Sandbox(t).Config, wrong))
			did := runOn(t, t.Context(), c, load(t, namespace, namespace, last),
				apply.Options{Timeout: 2 * time.Second, ReportWaits: quickly})
			waits := 0
			for _, event := range did.events {
				if off := time.Until(event.Time) - wrong; off.Abs() > patience {
					t.Errorf("got event %s at %s", event.Type, event.Time)
				}
				if event.Since == nil {
					continue
				}
				waits++
				if age := event.Time.Sub(*event.Since); age < 0 || age > patience {
					t.Errorf("got a wait of %s", age)
				}
			}
			if waits == 0 || len(did.Waits) != 1 {
				t.Errorf("got %d events with waits, and waits %v at the end", waits, did.Waits)
			}
		})
	}
}

// All reports of a wait have the same begin, which is not before the begin of the apply.
func TestAWaitHasOneAge(t *testing.T) {
	t.Parallel()
	namespace, c := test.Namespace(t), connect(t)
	began := c.Now()
	did := runOn(t, t.Context(), c, load(t, namespace, namespace, last),
		apply.Options{Timeout: 2 * time.Second, ReportWaits: quickly})
	moments := map[string]time.Time{} // start of each wait, keyed by cause
	note := func(cause string, since time.Time) {
		since = since.Round(0)
		if before, isKnown := moments[cause]; isKnown && !before.Equal(since) {
			t.Errorf("%q began at %s, and at %s", cause, before, since)
		}
		if moments[cause] = since; since.Before(began) {
			t.Errorf("got a wait since %s of an apply that began at %s", since, began)
		}
	}
	for _, event := range did.events {
		if event.Since != nil {
			note(event.Message, *event.Since)
		}
	}
	for _, wait := range did.Waits {
		note(wait.For, wait.Since)
	}
	if len(moments) == 0 {
		t.Error("got no waits")
	}
}
