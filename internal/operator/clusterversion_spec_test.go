package operator_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// TestAnotherClusterVersionDoesNotCount: the operator ignores it, and sets its condition Invalid.
func TestAnotherClusterVersionDoesNotCount(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	s := begin(t, "1.0.0", shop)
	s.until("installed", isAt("1.0.0"))
	other := &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: configv1.ClusterVersionSpec{
		ClusterID:     "3b1f1c1e-7f2a-4b6e-9c1d-2a3b4c5d6e7f",
		DesiredUpdate: &configv1.Update{Image: s.push("1.0.1", shop)},
	}}
	s.must(s.client.Create(t.Context(), other))
	s.await("the other ClusterVersion is Invalid", func() bool {
		s.must(s.client.Get(t.Context(), client.ObjectKey{Name: "other"}, other))
		return strings.HasPrefix(find(other, "Invalid").Message, `only the ClusterVersion named "version" counts`)
	})
	if got := s.settings().Data["version"]; got != "1.0.0" {
		t.Errorf("the settings are of %s", got)
	}
}

// TestFailingRegistry: the registry is down, then sends bytes that do not match the digest, then never answers. The
// user cancels the update, and then the registry works. The previous release stays in place meanwhile.
func TestFailingRegistry(t *testing.T) {
	t.Parallel()
	s := begin(t, "1.0.0", shop)
	s.until("installed", isAt("1.0.0"))
	image := s.push("1.0.1", shop)
	registry, err := url.Parse("http://" + s.registry)
	s.must(err)
	forward := httputil.NewSingleHostReverseProxy(registry)
	var state atomic.Value
	state.Store("away")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch state.Load() {
		case "away":
			http.Error(w, "out of order", http.StatusServiceUnavailable)
		case "slow":
			<-r.Context().Done() // it never answers
		case "other bytes":
			fmt.Fprint(w, `{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json"}`)
		default:
			forward.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	image = strings.Replace(image, s.registry, strings.TrimPrefix(server.URL, "http://"), 1)
	s.update(image)
	existing := func(words string) func(*configv1.ClusterVersion) bool {
		return func(v *configv1.ClusterVersion) bool {
			c := find(v, "ReleaseAccepted")
			return c.Status == configv1.ConditionFalse && c.Reason == "RetrievePayload" &&
				strings.Contains(c.Message, words)
		}
	}
	s.until("the registry is away", existing("503"))
	state.Store("other bytes")
	s.until("the registry sends other bytes", existing("digest"))
	state.Store("slow")
	s.ask(nil)
	s.until("taken back", has("ReleaseAccepted", configv1.ConditionTrue, "PayloadLoaded"))
	s.update(image)
	s.until("the registry is slow", func(v *configv1.ClusterVersion) bool {
		c := find(v, "ReleaseAccepted")
		return c.Status == configv1.ConditionUnknown && strings.Contains(c.Message, "Retrieving")
	})
	s.ask(nil)
	s.until("it is not waited for", has("ReleaseAccepted", configv1.ConditionTrue, "PayloadLoaded"))
	s.update(image)
	if !isAt("1.0.0")(s.version()) {
		t.Errorf("the release before is not in place:\n%s", s.text())
	}
	state.Store("well")
	s.until("updated", isAt("1.0.1"))
}

// TestConstantlyEditedClusterVersion: edits neither disturb nor restart an update.
func TestConstantlyEditedClusterVersion(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	s := begin(t, "1.0.0", shop)
	s.until("installed", isAt("1.0.0"))
	image := s.push("1.0.1", shop+till)
	edits := 0
	s.update(image)
	s.until("edited while it waits for the ClusterOperator", func(v *configv1.ClusterVersion) bool {
		patch := fmt.Appendf(nil, `{"spec": {"channel": "stable-%d"}}`, edits)
		s.must(s.client.Patch(t.Context(), v, client.RawPatch("application/merge-patch+json", patch)))
		edits++
		return edits > 30 && strings.Contains(find(v, configv1.OperatorProgressing).Message, "till")
	})
	s.report("till", "1.0.1")
	done := s.until("updated", isAt("1.0.1"))
	if len(done.Status.History) != 2 {
		t.Errorf("the history is %+v", done.Status.History)
	}
	s.until("the last edit is observed", func(v *configv1.ClusterVersion) bool {
		return v.Status.ObservedGeneration == v.Generation
	})
}

// TestTheAdministratorOptsIn: a component's operator holds back the minor update while a deprecated feature is in use,
// with a link to its documentation. Then the update begins, with a tombstone that the release before had, too.
func TestTheAdministratorOptsIn(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.options.StrictTombstones = true
	s.beginWith("1.0.0", shop+old+till)
	s.report("till", "1.0.0")
	s.until("installed", isAt("1.0.0"))
	s.update(s.push("1.0.1", shop+oldDeleted+till))
	s.report("till", "1.0.1")
	s.until("the patch is applied", isAt("1.0.1"))
	const notes = "prices are in use: see https://example.com/notes/1.1"
	s.report("till", "1.0.1", func(o *configv1.ClusterOperatorStatus) {
		deprecated := condition(configv1.OperatorUpgradeable, configv1.ConditionFalse)
		deprecated.Message = notes
		o.Conditions = append(o.Conditions, deprecated)
	})
	next := s.push("1.1.0", shop+oldDeleted+till)
	s.update(next)
	s.until("the operator holds it back", func(v *configv1.ClusterVersion) bool {
		return strings.Contains(find(v, "ReleaseAccepted").Message, notes) &&
			strings.Contains(find(v, configv1.OperatorUpgradeable).Message, notes)
	})
	s.report("till", "1.0.1")
	s.until("the tombstone holds it back", func(v *configv1.ClusterVersion) bool {
		message := find(v, "ReleaseAccepted").Message
		return strings.Contains(message, "StaleTombstone") && !strings.Contains(message, notes)
	})
	s.update(next, func(u *configv1.Update) { u.Force = true })
	s.report("till", "1.1.0")
	s.until("updated", isAt("1.1.0"))
}

// TestOverriddenObjectIsIgnored: when the override is removed, the object is managed again.
func TestOverriddenObjectIsIgnored(t *testing.T) {
	t.Parallel()
	s := begin(t, "1.0.0", shop)
	s.until("installed", isAt("1.0.0"))
	override := func(overrides ...configv1.ComponentOverride) {
		v := s.version()
		patch := client.MergeFrom(v.DeepCopy())
		v.Spec.Overrides = overrides
		s.must(s.client.Patch(t.Context(), v, patch))
	}
	override(configv1.ComponentOverride{Kind: "ConfigMap", Namespace: "shop", Name: "settings", Unmanaged: true})
	s.until("minor updates are held back",
		has(configv1.OperatorUpgradeable, configv1.ConditionFalse, "ClusterVersionOverrides"))
	s.await("an edit stays", func() bool {
		s.must(s.editSettings("mine"))
		timer := time.NewTimer(time.Second) // repairs take some milliseconds
		<-timer.C
		return s.settings().Data["version"] == "mine"
	})
	override()
	s.untilSettings("1.0.0")
	v := s.until("nothing holds back minor updates", func(v *configv1.ClusterVersion) bool {
		return find(v, configv1.OperatorUpgradeable).Type == ""
	})
	if len(v.Status.History) != 1 {
		t.Errorf("the history is %+v", v.Status.History)
	}
}

// TestAnAdministratorAcknowledges a gate, which holds back minor updates and is a risk before one is requested. The
// update begins as soon as the gate is acknowledged.
func TestAnAdministratorAcknowledges(t *testing.T) {
	t.Parallel()
	const gate = `
-- 0000_30_gates_00_namespace.yaml --
{apiVersion: v1, kind: Namespace, metadata: {name: openshift-config-managed}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: openshift-config}}
-- 0000_30_gates_10_gates.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: admin-gates, namespace: openshift-config-managed}, data: {ack-1.0-prices: prices v1 goes}}
`
	s := begin(t, "1.0.0", shop+gate)
	s.until("installed", isAt("1.0.0"))
	s.until("minor updates are held back", func(v *configv1.ClusterVersion) bool {
		c := find(v, configv1.OperatorUpgradeable)
		return c.Reason == "AdminAck" &&
			strings.Contains(c.Message, `prices v1 goes (resolve by: setting ack-1.0-prices: "true"`)
	})
	s.update(s.push("1.0.1", shop+gate))
	s.until("a patch is applied", isAt("1.0.1"))
	s.update(s.push("1.1.0", shop+gate))
	s.until("the minor update is refused", func(v *configv1.ClusterVersion) bool {
		return strings.Contains(find(v, "ReleaseAccepted").Message, "AdminAck: ack-1.0-prices: prices v1 goes")
	})
	acks := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "openshift-config", Name: "admin-acks"},
		Data:       map[string]string{"ack-1.0-prices": "true"},
	}
	s.must(s.client.Create(t.Context(), acks))
	s.until("updated", isAt("1.1.0"))
	s.until("nothing holds back minor updates", func(v *configv1.ClusterVersion) bool {
		return find(v, configv1.OperatorUpgradeable).Type == ""
	})
}
