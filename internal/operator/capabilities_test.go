package operator_test

import (
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/install"
)

// optional are the objects of capabilities. The last is one that OpenShift does not know.
const optional = `
-- 0000_30_web_10_console.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: console, namespace: shop, annotations: {capability.openshift.io/name: Console}}, data: {version: VERSION}}
-- 0000_30_web_20_build.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: build, namespace: shop, annotations: {capability.openshift.io/name: Build}}, data: {version: VERSION}}
-- 0000_30_web_30_gifts.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: gifts, namespace: shop, annotations: {capability.openshift.io/name: Gifts}}, data: {version: VERSION}}
`

// of returns the version of a ConfigMap; empty if the ConfigMap does not exist.
func (s *stage) of(name string) string {
	var found corev1.ConfigMap
	_ = s.client.Get(s.t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, &found)
	return found.Data["version"]
}

// enableNone creates the ClusterVersion, which enables no capability.
func (s *stage) enableNone() {
	s.t.Helper()
	for _, definition := range install.Definitions() {
		s.must(s.client.Create(s.t.Context(), definition))
	}
	wanted := &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "version"}}
	wanted.Spec.ClusterID = "3b1f1c1e-7f2a-4b6e-9c1d-2a3b4c5d6e7f"
	wanted.Spec.Capabilities = &configv1.ClusterVersionCapabilitiesSpec{
		BaselineCapabilitySet: configv1.ClusterVersionCapabilitySetNone,
	}
	s.await("the ClusterVersion is made", func() bool {
		return s.client.Create(s.t.Context(), wanted.DeepCopy()) == nil
	})
}

// TestAllCapabilitiesAreEnabled where the ClusterVersion chooses none, also by an update. One that only the release
// knows stays enabled when others are chosen, though the ClusterVersion can't name it.
func TestAllCapabilitiesAreEnabled(t *testing.T) {
	t.Parallel()
	s := begin(t, "1.0.0", shop+optional)
	s.until("installed", isAt("1.0.0"))
	s.update(s.push("1.0.1", shop+optional))
	updated := s.until("updated", isAt("1.0.1"))
	for _, name := range []string{"console", "build", "gifts"} {
		if got := s.of(name); got != "1.0.1" {
			t.Errorf("%s is of %q", name, got)
		}
	}
	if len(updated.Status.Capabilities.EnabledCapabilities) < 10 {
		t.Errorf("after an update, only these are enabled: %v", updated.Status.Capabilities.EnabledCapabilities)
	}
	patch := client.MergeFrom(updated.DeepCopy())
	updated.Spec.Capabilities = &configv1.ClusterVersionCapabilitiesSpec{
		BaselineCapabilitySet: configv1.ClusterVersionCapabilitySetCurrent,
	}
	s.must(s.client.Patch(t.Context(), updated, patch))
	s.until("one is enabled that was not chosen", func(v *configv1.ClusterVersion) bool {
		return strings.Contains(find(v, "ImplicitlyEnabledCapabilities").Message, "Gifts")
	})
	s.restart()
	s.update(s.push("1.0.2", shop+optional))
	s.until("updated again", isAt("1.0.2"))
	if got := s.of("gifts"); got != "1.0.2" {
		t.Errorf("the gifts are of %q", got)
	}
}

// TestEnabledCapabilities: if the ClusterVersion no longer lists an enabled capability, the capability stays enabled.
func TestEnabledCapabilities(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.enableNone()
	enable := func(names ...configv1.ClusterVersionCapability) {
		v := s.version()
		patch := client.MergeFrom(v.DeepCopy())
		v.Spec.Capabilities.AdditionalEnabledCapabilities = names
		s.must(s.client.Patch(t.Context(), v, patch))
	}
	exists := func(name string) bool { return s.of(name) != "" }

	s.beginWith("1.0.0", shop+optional)
	installed := s.until("installed", isAt("1.0.0"))
	if len(installed.Status.Capabilities.EnabledCapabilities) > 0 || exists("console") || exists("build") {
		t.Errorf("of no capability, there is something:\n%s", s.text())
	}
	enable("Build")
	s.await("the enabled capability is applied", func() bool { return exists("build") })
	s.until("explicitly", has("ImplicitlyEnabledCapabilities", configv1.ConditionFalse, "AsExpected"))
	enable()
	s.until("it stays enabled",
		has("ImplicitlyEnabledCapabilities", configv1.ConditionTrue, "CapabilitiesImplicitlyEnabled"))
	s.restart()
	s.update(s.push("1.0.1", shop+optional))
	s.until("updated", isAt("1.0.1"))
	if !exists("build") || exists("console") || len(s.version().Status.Capabilities.EnabledCapabilities) != 1 {
		t.Errorf("after an update, other capabilities are enabled:\n%s", s.text())
	}
}
