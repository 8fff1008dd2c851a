package operator_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	configv1 "github.com/openshift/api/config/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/session/state"
)

const web = `
-- 0000_30_web_10_web.yaml --
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "registry.example/web:VERSION"}]}
`

const refusedService = `
-- 0000_30_web_20_service.yaml --
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {selector: {app: web}, ports: [{port: 99999}]}}
`

// A writeGuard watches the requests of an operator.
type writeGuard struct {
	isClosed atomic.Bool  // every write fails the test, except of a ClusterVersion's status and of the lock
	isBroken atomic.Bool  // dry runs get no answer
	dryRuns  atomic.Int64 // of the Deployment
}

// guardWrites watches the requests of the operators of a stage.
func (s *stage) guardWrites() *writeGuard {
	guard := &writeGuard{}
	send := func(request *http.Request, next http.RoundTripper) (*http.Response, error) {
		isDry := request.URL.Query().Get("dryRun") != ""
		isOwn := strings.HasSuffix(request.URL.Path, "/clusterversions/version/status") ||
			strings.Contains(request.URL.Path, "/leases/") || strings.HasPrefix(request.URL.Path, "/apis/auth")
		switch {
		case isDry && guard.isBroken.Load():
			return nil, syscall.ECONNREFUSED
		case isDry && strings.HasSuffix(request.URL.Path, "/deployments/web"):
			guard.dryRuns.Add(1)
		case guard.isClosed.Load() && request.Method != http.MethodGet && !isDry && !isOwn &&
			!(request.Method == http.MethodDelete && request.Body != nil): // the dry run of a delete is in its body
			s.t.Errorf("unexpected write: %s %s", request.Method, request.URL)
		}
		return next.RoundTrip(request)
	}
	s.sandbox.Config = sandboxtest.Tap(s.sandbox.Config, send)
	return guard
}

// objectVersions returns the resourceVersions of the objects of the release, and of the record and its files.
func (s *stage) objectVersions() map[string]string {
	s.t.Helper()
	versions := map[string]string{}
	for _, kind := range []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("ConfigMap"), corev1.SchemeGroupVersion.WithKind("Secret"),
		corev1.SchemeGroupVersion.WithKind("Service"), corev1.SchemeGroupVersion.WithKind("Namespace"),
		appsv1.SchemeGroupVersion.WithKind("Deployment"), configv1.GroupVersion.WithKind("ClusterOperator"),
	} {
		var list metav1.PartialObjectMetadataList
		list.SetGroupVersionKind(kind)
		s.must(s.client.List(s.t.Context(), &list))
		for _, item := range list.Items {
			versions[kind.Kind+" "+item.Namespace+"/"+item.Name] = item.ResourceVersion
		}
	}
	return versions
}

const preflightPassed = "PreflightPassed"

// TestPreflight checks a release that the gate blocks, and which has a refused object, a delete and a restarted
// Deployment. The operator writes only its status, keeps the current release in place, and updates once the mode is
// removed.
func TestPreflight(t *testing.T) {
	t.Parallel()
	service := newGraphServer(t)
	s := newStage(t)
	guard := s.guardWrites()
	s.beginWith("1.0.0", shop+old+web+till)
	s.report("till", "1.0.0", func(status *configv1.ClusterOperatorStatus) {
		status.Conditions = append(status.Conditions, condition(configv1.OperatorUpgradeable, configv1.ConditionFalse))
	})
	s.until("installed", isAt("1.0.0"))
	next := s.push("1.1.0", shop+oldDeleted+web+refusedService+till)
	service.serve(s.options.Payload, s.push("1.0.1", shop+old+web+till), next)
	s.specify(func(spec *configv1.ClusterVersionSpec) {
		spec.Upstream, spec.Channel = configv1.URL(service.URL), "stable"
	})
	s.until("updates are listed", offers("1.0.1, 1.1.0 Recommended=False MultipleReasons"))
	before := s.objectVersions()
	guard.isClosed.Store(true)

	s.ask(&configv1.Update{Version: "1.1.0", Mode: configv1.UpdateModePreflight})
	checked := s.until("the preflight has a result",
		has(preflightPassed, configv1.ConditionFalse, "PreconditionChecks"))
	result := find(checked, preflightPassed)
	expectLines(t, result.Message,
		fmt.Sprintf("Preflight of version=%q image=%q: the gate blocks the update with 1 finding, and the cluster refuses "+
			"1 object. ", "1.1.0", next), "and deletes 1 (ConfigMap shop/prices).",
		"It replaces the pods of 1 (Deployment shop/web).",
		"* blocked by ClusterOperatorUpgradeable-till: ",
		"* fails with RefusedObject: release-manifests/0000_30_web_20_service.yaml: Service shop/web: the API server refuses it: ")
	if !isAt("1.0.0")(checked) || checked.Status.Desired.Version != "1.0.0" || len(checked.Status.History) != 1 ||
		!has("ReleaseAccepted", configv1.ConditionTrue, "PayloadLoaded")(checked) {
		t.Errorf("the preflight has changed more than its condition:\n%s", s.text())
	}
	s.expectPreflightInStatus(result)
	var risks []string
	for _, risk := range checked.Status.ConditionalUpdateRisks {
		risks = append(risks, risk.Name+" "+string(risk.Conditions[0].Status))
	}
	want := []string{"ClusterOperatorUpgradeable-till True", "PreflightRefusedObject True", "SlowDisks True"}
	if diff := cmp.Diff(want, risks); diff != "" {
		t.Errorf("conditionalUpdateRisks (-want +got)\n%s", diff)
	}
	if names := checked.Status.ConditionalUpdates[0].RiskNames; !slices.Contains(names, "PreflightRefusedObject") {
		t.Errorf("the update has the risks %q", names)
	}

	s.ask(&configv1.Update{Image: next, Force: true, Mode: configv1.UpdateModePreflight})
	forced := s.until("only the refused object stops a forced update",
		has(preflightPassed, configv1.ConditionFalse, "ObjectsRefused"))
	expectLines(t, find(forced, preflightPassed).Message,
		`Preflight of version="1.1.0" image=`, "the update would fail: the cluster refuses 1 object. ",
		"* blocked by ClusterOperatorUpgradeable-till: ")
	s.ask(&configv1.Update{Image: s.registry + "/team/release@sha256:" + strings.Repeat("0", 64),
		Mode: configv1.UpdateModePreflight})
	s.until("another image can't be retrieved", has(preflightPassed, configv1.ConditionFalse, "RetrievePayload"))
	if diff := cmp.Diff(before, s.objectVersions()); diff != "" {
		t.Errorf("objects were written (-before +after)\n%s", diff)
	}
	guard.isClosed.Store(false)

	s.ask(&configv1.Update{Version: "1.1.0", Mode: configv1.UpdateModePreflight})
	again := s.until("the preflight has a result again",
		has(preflightPassed, configv1.ConditionFalse, "PreconditionChecks"))
	result.LastTransitionTime = find(again, preflightPassed).LastTransitionTime
	s.must(s.end())
	runs := guard.dryRuns.Load()
	s.start()
	s.await("the preflight runs again after a restart", func() bool { return guard.dryRuns.Load() > runs })
	s.must(s.editSettings("by-hand"))
	s.untilSettings("1.0.0")
	for _, v := range []*configv1.ClusterVersion{again, s.version()} {
		if diff := cmp.Diff(result, find(v, preflightPassed)); diff != "" {
			t.Errorf("the result of another preflight of the release (-want +got)\n%s", diff)
		}
	}

	s.ask(&configv1.Update{Version: "1.0.1", Mode: configv1.UpdateModePreflight})
	s.until("the patch passes", has(preflightPassed, configv1.ConditionTrue, "UpdatePossible"))
	s.ask(&configv1.Update{Version: "1.0.1"})
	s.report("till", "1.0.1")
	done := s.until("the update begins without the mode", isAt("1.0.1"))
	if got := find(done, preflightPassed); got.Type != "" {
		t.Errorf("the result of the preflight is left after the update: %+v", got)
	}
	err := s.client.Patch(t.Context(), s.version(), client.RawPatch("application/merge-patch+json",
		[]byte(`{"spec": {"desiredUpdate": {"mode": "Preheat"}}}`)))
	if err == nil || !strings.Contains(err.Error(), `supported values: "Preflight"`) {
		t.Errorf("an unknown mode: %v", err)
	}
}

// expectPreflightInStatus checks that "runlevel status" and "runlevel why" show a preflight, and that the release is
// complete all the same.
func (s *stage) expectPreflightInStatus(result configv1.ClusterOperatorStatusCondition) {
	s.t.Helper()
	c, err := cluster.Connect(s.sandbox.Config)
	s.must(err)
	reader := state.Reader{Cluster: c, Namespace: system}
	status, err := reader.Status(s.t.Context(), "default")
	s.must(err)
	shown := status.ClusterVersion.Problems()
	if !status.Done || status.ClusterVersion.Requested != "" || len(shown) != 1 || shown[0].Message != result.Message {
		s.t.Errorf("%s: the status shows %+v", status.Title(), shown)
	}
	answers, err := reader.Explain(s.t.Context(), "default")
	s.must(err)
	last := answers[0].Messages[len(answers[0].Messages)-1]
	if !answers[0].Done || !strings.HasPrefix(last.Text, "PreflightPassed=False: Preflight of ") ||
		!strings.HasPrefix(last.Details[0], "* blocked by ClusterOperatorUpgradeable-till: ") {
		s.t.Errorf("the answer about the release ends with %+v", last)
	}
}

// TestPreflightOfUnsignedRelease: a preflight does not load an image without a required signature, unless it is forced,
// and stores no signatures. It is tried again after an outage in its middle.
func TestPreflightOfUnsignedRelease(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	s := newStage(t)
	guard, signer := s.guardWrites(), s.newSigner()
	s.beginWith("1.0.0", shop+signer.policy())
	s.until("installed", isAt("1.0.0"))
	next := s.push("1.0.1", shop+signer.policy())
	preflight := func(u *configv1.Update) { u.Mode = configv1.UpdateModePreflight }
	s.update(next, preflight)
	s.until("it is not signed", has(preflightPassed, configv1.ConditionFalse, "RetrievePayload"))
	s.update(next, preflight, func(u *configv1.Update) { u.Force = true })
	forced := s.until("forced", has(preflightPassed, configv1.ConditionTrue, "UpdatePossible"))
	expectLines(t, find(forced, preflightPassed).Message, "* Target release ", "cannot be verified")
	signer.sign(next)
	guard.isBroken.Store(true)
	s.update(next, preflight)
	s.until("the API server does not answer", func(v *configv1.ClusterVersion) bool {
		return has(preflightPassed, configv1.ConditionFalse, "PreconditionChecks")(v) &&
			strings.Contains(find(v, preflightPassed).Message, "the dry runs of the preflight did not end: ")
	})
	guard.isBroken.Store(false)
	s.until("signed", func(v *configv1.ClusterVersion) bool {
		return has(preflightPassed, configv1.ConditionTrue, "UpdatePossible")(v) &&
			!strings.Contains(find(v, preflightPassed).Message, "cannot be verified")
	})
	var kept corev1.ConfigMap
	err := s.client.Get(t.Context(), client.ObjectKey{Namespace: system, Name: "signatures-managed"}, &kept)
	if client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the signature of a preflight is stored: %v, %d signatures", err, len(kept.BinaryData))
	}
	if !isAt("1.0.0")(s.version()) {
		t.Errorf("the preflight has begun the update:\n%s", s.text())
	}
}
