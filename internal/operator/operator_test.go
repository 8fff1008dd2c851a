package operator_test

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

const shop = `
-- 0000_10_base_00_namespace.yaml --
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
-- 0000_20_shop_10_settings.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: shop}, data: {version: VERSION}}
`

const old = `
-- 0000_30_old_10_prices.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: prices, namespace: shop}}
`

const oldDeleted = `
-- 0000_30_old_10_prices.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: prices, namespace: shop, annotations: {release.openshift.io/delete: "true"}}}
`

const till = `
-- 0000_40_till_10_operator.yaml --
apiVersion: config.openshift.io/v1
kind: ClusterOperator
metadata: {name: till}
status:
  versions: [{name: operator, version: VERSION}]
  relatedObjects: [{group: "", resource: namespaces, name: shop}, {group: admissionregistration.k8s.io, resource: mutatingwebhookconfigurations}]
`

func condition(kind configv1.ClusterStatusConditionType,
	got configv1.ConditionStatus) configv1.ClusterOperatorStatusCondition {
	return configv1.ClusterOperatorStatusCondition{
		Type:               kind,
		Status:             got,
		LastTransitionTime: metav1.Now(),
		Reason:             "AsExpected",
		Message:            "all is well",
	}
}

// has returns a test of a condition's status and reason.
func has(kind configv1.ClusterStatusConditionType, got configv1.ConditionStatus,
	reason string) func(*configv1.ClusterVersion) bool {
	return func(v *configv1.ClusterVersion) bool {
		c := find(v, kind)
		return c.Status == got && c.Reason == reason
	}
}

// find returns a condition; an empty one if there is none.
func find(v *configv1.ClusterVersion,
	kind configv1.ClusterStatusConditionType) configv1.ClusterOperatorStatusCondition {
	for _, c := range v.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return configv1.ClusterOperatorStatusCondition{}
}

// isAt returns a test of a release being complete.
func isAt(version string) func(*configv1.ClusterVersion) bool {
	return func(v *configv1.ClusterVersion) bool {
		c := find(v, configv1.OperatorProgressing)
		return c.Status == configv1.ConditionFalse && c.Message == "Cluster version is "+version &&
			len(v.Status.History) > 0 &&
			v.Status.History[0].Version == version && v.Status.History[0].State == configv1.CompletedUpdate
	}
}

// TestADeleteHoldsBackTheNextMinorVersion runs an install, a patch with a tombstone, and the next minor update. The
// minor update is blocked until the delete is complete, also by another process than the one that requested the delete.
func TestADeleteHoldsBackTheNextMinorVersion(t *testing.T) {
	t.Parallel()
	s := begin(t, "1.0.0", shop+old+till)
	s.until("it waits for the ClusterOperator", func(v *configv1.ClusterVersion) bool {
		return strings.Contains(find(v, configv1.OperatorProgressing).Message, "till")
	})
	s.report("till", "1.0.0")
	installed := s.until("installed", isAt("1.0.0"))
	if got := find(installed, configv1.OperatorUpgradeable); got.Type != "" {
		t.Errorf("after the install: %+v", got)
	}
	var operator configv1.ClusterOperator
	s.must(s.client.Get(t.Context(), client.ObjectKey{Name: "till"}, &operator))
	related := []configv1.ObjectReference{{Resource: "namespaces", Name: "shop"},
		{Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations"}}
	if diff := cmp.Diff(related, operator.Status.RelatedObjects); diff != "" {
		t.Errorf("the related objects of the ClusterOperator (-want +got):\n%s", diff)
	}
	for _, object := range []client.Object{&operator, s.settings()} {
		if owners := object.GetOwnerReferences(); len(owners) > 0 {
			t.Errorf("%s has owners, so garbage collection would delete it: %v", object.GetName(), owners)
		}
	}

	s.hold("prices", `["example.com/hold"]`)
	s.update(s.push("1.0.1", shop+oldDeleted+till))
	s.until("the update is a risk",
		has(configv1.OperatorUpgradeable, configv1.ConditionFalse, "MultipleReasons"))
	s.report("till", "1.0.1")
	s.until("the patch is applied", isAt("1.0.1"))
	s.until("the delete is pending",
		has(configv1.OperatorUpgradeable, configv1.ConditionFalse, "ResourceDeletionInProgress"))

	s.restart()
	next := s.push("1.1.0", shop+till)
	s.update(next)
	refused := s.until("the minor version is refused",
		has("ReleaseAccepted", configv1.ConditionFalse, "PreconditionChecks"))
	if got := find(refused, "ReleaseAccepted").Message; !strings.Contains(got, "shop/prices") ||
		!strings.Contains(got, "example.com/hold") {
		t.Errorf("message is %q, want the risk that holds the update back", got)
	}
	if got := find(refused, configv1.OperatorUpgradeable); got.Reason != "ResourceDeletionInProgress" ||
		s.settings().Data["version"] != "1.0.1" {
		t.Errorf("%+v, and the settings are of %s", got, s.settings().Data["version"])
	}

	s.hold("prices", "null")
	s.report("till", "1.1.0")
	done := s.until("the minor version is applied", isAt("1.1.0"))
	var history []string
	for _, h := range done.Status.History {
		history = append(history, string(h.State)+" "+h.Version)
	}
	if diff := cmp.Diff([]string{"Completed 1.1.0", "Completed 1.0.1", "Completed 1.0.0"}, history); diff != "" {
		t.Errorf("the history (-want +got):\n%s", diff)
	}
	if done.Status.Desired.Image != next {
		t.Errorf("the image is %s, want %s", done.Status.Desired.Image, next)
	}
}

// TestTheClusterVersionMayBeDeleted: objects of the release are not deleted with it or with its definition, and the
// operator recreates both.
func TestTheClusterVersionMayBeDeleted(t *testing.T) {
	t.Parallel()
	s := begin(t, "1.0.0", shop)
	first := s.until("installed", isAt("1.0.0"))
	uid := s.settings().UID
	s.must(s.client.Delete(t.Context(), first))
	second := s.until("recreated", func(v *configv1.ClusterVersion) bool {
		return v.UID != first.UID && isAt("1.0.0")(v)
	})
	if got := second.Status.History; len(got) != 1 || got[0].Image != s.options.Payload {
		t.Errorf("the history is %+v, want %+v", got, first.Status.History)
	}
	definition := &unstructured.Unstructured{}
	definition.SetGroupVersionKind(kinds.CustomResourceDefinition.WithVersion("v1"))
	definition.SetName("clusterversions.config.openshift.io")
	s.must(s.client.Delete(t.Context(), definition))
	s.until("recreated with its definition", func(v *configv1.ClusterVersion) bool {
		return v.UID != second.UID && isAt("1.0.0")(v)
	})
	if now := s.settings(); now == nil || now.UID != uid {
		t.Errorf("settings were deleted too: %v", now)
	}
}

// TestARefusedReleaseLeavesTheCurrentOneInPlace requests releases that can't be accepted, and cancels the requests. The
// operator repairs objects of the current release meanwhile.
func TestARefusedReleaseLeavesTheCurrentOneInPlace(t *testing.T) {
	t.Parallel()
	s := begin(t, "1.0.0", shop)
	s.until("installed", isAt("1.0.0"))
	repository, _, _ := strings.Cut(s.options.Payload, "@")
	s.update(repository + "@sha256:" + strings.Repeat("c", 64))
	s.until("the image is not there", has("ReleaseAccepted", configv1.ConditionFalse, "RetrievePayload"))
	s.restart()
	s.must(s.editSettings("edited"))
	s.untilSettings("1.0.0")
	s.update(s.push("1.0.1", shop), func(u *configv1.Update) { u.Version = "1.0.2" })
	s.until("the version is another", has("ReleaseAccepted", configv1.ConditionFalse, "VerifyPayloadVersion"))
	s.ask(&configv1.Update{Version: "9.9.9"})
	invalid := s.until("the version is not offered", has("Invalid", configv1.ConditionTrue, "InvalidClusterVersion"))
	if got := find(invalid, configv1.OperatorProgressing).
		Message; got != "Stopped at 1.0.0: the cluster version is invalid" {
		t.Errorf("message is %q", got)
	}
	s.ask(nil)
	back := s.until("taken back", func(v *configv1.ClusterVersion) bool {
		return has("ReleaseAccepted", configv1.ConditionTrue, "PayloadLoaded")(v) && find(v, "Invalid").Type == ""
	})
	if len(back.Status.History) != 1 {
		t.Errorf("after the request is withdrawn: got status %+v", back.Status)
	}
}

// TestABegunMinorUpdateContinues after a restart, although a ClusterOperator now has Upgradeable=False. A new override
// takes effect, too.
func TestABegunMinorUpdateContinues(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	s := begin(t, "1.0.0", shop+till)
	s.report("till", "1.0.0")
	s.until("installed", isAt("1.0.0"))
	refuses := func(o *configv1.ClusterOperatorStatus) {
		o.Conditions = append(o.Conditions, condition(configv1.OperatorUpgradeable, configv1.ConditionFalse))
	}
	s.report("till", "1.0.0", refuses)
	s.until("the ClusterOperator holds back minor updates", func(v *configv1.ClusterVersion) bool {
		return find(v, configv1.OperatorUpgradeable).Status == configv1.ConditionFalse
	})
	next := s.push("1.1.0", shop+till)
	s.update(next)
	s.until("refused", has("ReleaseAccepted", configv1.ConditionFalse, "PreconditionChecks"))
	s.update(next, func(u *configv1.Update) { u.Force = true })
	s.until("begun by force", func(v *configv1.ClusterVersion) bool { return v.Status.Desired.Version == "1.1.0" })
	s.update(next)
	s.restart()
	v := s.version()
	patch := client.MergeFrom(v.DeepCopy())
	v.Spec.Overrides = []configv1.ComponentOverride{{
		Group:     "config.openshift.io",
		Kind:      "ClusterOperator",
		Name:      "till",
		Unmanaged: true,
	}}
	s.must(s.client.Patch(t.Context(), v, patch))
	done := s.until("updated", isAt("1.1.0"))
	if got := done.Status.History[0].AcceptedRisks; got == "" {
		t.Errorf("newest entry of the history is %+v, want the overridden risk", done.Status.History[0])
	}
}

// TestAnUpdateIsRetargeted: while one update waits for its ClusterOperator, another one takes its place.
func TestAnUpdateIsRetargeted(t *testing.T) {
	t.Parallel()
	s := begin(t, "1.0.0", shop+till)
	s.report("till", "1.0.0")
	s.until("installed", isAt("1.0.0"))
	s.update(s.push("1.0.1", shop+till))
	s.until("it waits for the ClusterOperator", func(v *configv1.ClusterVersion) bool {
		return strings.HasSuffix(find(v, configv1.OperatorProgressing).Message, "waiting on till")
	})
	s.update(s.push("1.0.2", shop+till))
	s.report("till", "1.0.2")
	done := s.until("the other one is applied", isAt("1.0.2"))
	if got := done.Status.History[1]; got.Version != "1.0.1" || got.State != configv1.PartialUpdate ||
		got.CompletionTime == nil {
		t.Errorf("the history has %+v", got)
	}
	if got := s.settings().Data["version"]; got != "1.0.2" {
		t.Errorf("the settings are of %s", got)
	}
}

// TestForcedUpdateContinues: a forced update continues after a restart, even if force was unset and the gate would
// refuse it.
func TestForcedUpdateContinues(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	s := begin(t, "1.0.0", shop+till)
	s.report("till", "1.0.0")
	s.until("installed", isAt("1.0.0"))
	s.update(s.push("1.3.0", shop+till), func(u *configv1.Update) { u.Force = true })
	s.until("it waits for the ClusterOperator", func(v *configv1.ClusterVersion) bool {
		return v.Status.Desired.Version == "1.3.0" &&
			strings.Contains(find(v, configv1.OperatorProgressing).Message, "till")
	})
	s.ask(nil)
	s.restart()
	s.report("till", "1.3.0")
	s.until("updated", isAt("1.3.0"))
}

// TestUnstartedUpdateIsNotInTheHistory: an update was accepted, but the operator could not write its record. The
// history has the same entries as the record, with which the next operator continues.
func TestUnstartedUpdateIsNotInTheHistory(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	s := newStage(t)
	s.prepare("1.0.0", shop)
	var isFull atomic.Bool
	s.run(sandboxtest.Before(s.sandbox.Config, func(request *http.Request) error {
		if isFull.Load() && request.Method == http.MethodPut &&
			strings.HasSuffix(request.URL.Path, "/configmaps/runlevel-release-default") {
			return errors.New("the record can't be written")
		}
		return nil
	}), s.options)
	s.until("installed", isAt("1.0.0"))
	isFull.Store(true)
	s.update(s.push("1.0.1", shop))
	tried := s.until("the update can't begin", func(v *configv1.ClusterVersion) bool {
		return strings.HasPrefix(find(v, configv1.OperatorProgressing).Message, "Unable to apply 1.0.1: ") &&
			find(v, "Failing").Status == configv1.ConditionTrue
	})
	if len(tried.Status.History) != 1 || tried.Status.Desired.Version != "1.0.0" {
		t.Errorf("before it has begun, desired is %s, and the history %+v", tried.Status.Desired.Version,
			tried.Status.History)
	}
	s.update(s.options.Payload)
	s.until("the release before is accepted", func(v *configv1.ClusterVersion) bool {
		c := find(v, "ReleaseAccepted")
		return c.Status == configv1.ConditionTrue && strings.Contains(c.Message, s.options.Payload)
	})
	isFull.Store(false)
	done := s.until("it has stayed", isAt("1.0.0"))
	if len(done.Status.History) != 1 {
		t.Errorf("an update and a way back are in the history: %+v", done.Status.History)
	}
}
