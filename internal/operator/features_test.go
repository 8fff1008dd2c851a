package operator_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/operator"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// included is the annotation of the objects of a profile.
const included = `include.release.openshift.io/ha: "true"`

// preview are objects that depend on the features of a cluster, and a definition in variants.
const preview = `
-- 0000_10_base_00_namespace.yaml --
{apiVersion: v1, kind: Namespace, metadata: {name: shop, annotations: {` + included + `}}}
-- 0000_20_shop_10_settings.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: shop, annotations: {` + included +
	`}}, data: {version: VERSION}}
-- 0000_30_shop_10_default.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: variant, namespace: shop, annotations: {` + included +
	`, release.openshift.io/feature-set: Default}}, data: {version: default}}
-- 0000_30_shop_10_preview.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: variant, namespace: shop, annotations: {` + included +
	`, release.openshift.io/feature-set: TechPreviewNoUpgrade}}, data: {version: preview}}
-- 0000_30_shop_20_gate.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: gated, namespace: shop, annotations: {` + included +
	`, release.openshift.io/feature-gate: NewThing}}, data: {version: gated}}
`

// featureGates are the definition of FeatureGate, and the one of a cluster that has chosen no feature set.
const featureGates = `
-- 0000_10_config_10_featuregates.yaml --
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: featuregates.config.openshift.io, annotations: {api-approved.kubernetes.io: "https://github.com/openshift/api/pull/470", ` + included + `}}
spec:
  group: config.openshift.io
  names: {kind: FeatureGate, plural: featuregates}
  scope: Cluster
  versions: [{name: v1, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
-- 0000_10_config_20_cluster.yaml --
{apiVersion: config.openshift.io/v1, kind: FeatureGate, metadata: {name: cluster, annotations: {release.openshift.io/create-only: "true", ` + included + `}}, spec: {}}
`

// TestTheFeaturesOfTheCluster decide which manifests are applied: those of FeatureGate "cluster", which the release
// itself brings, and whose changes are applied while the operator runs.
func TestTheFeaturesOfTheCluster(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.options.Profile = "ha"
	s.beginWith("1.0.0", preview+featureGates)
	s.until("installed", isAt("1.0.0"))
	if variant, gated := s.of("variant"), s.of("gated"); variant != "default" || gated != "" {
		t.Errorf("a cluster without features has the variant %q and the gated object %q", variant, gated)
	}
	var gate configv1.FeatureGate
	s.must(s.client.Get(t.Context(), client.ObjectKey{Name: "cluster"}, &gate))
	patch := client.MergeFrom(gate.DeepCopy())
	gate.Spec.FeatureSet = configv1.TechPreviewNoUpgrade
	s.must(s.client.Patch(t.Context(), &gate, patch))
	s.await("the variant of the feature set is applied", func() bool { return s.of("variant") == "preview" })
	s.until("the status has the feature set", func(v *configv1.ClusterVersion) bool {
		return isAt("1.0.0")(v) &&
			strings.HasSuffix(find(v, "ReleaseAccepted").Message, ` featureSet="TechPreviewNoUpgrade"`)
	})
	if got := s.of("gated"); got != "" {
		t.Errorf("with its gate off, there is the gated object %q", got)
	}
	patch = client.MergeFrom(gate.DeepCopy())
	gate.Status.FeatureGates = []configv1.FeatureGateDetails{
		{Version: "0.9.0", Enabled: []configv1.FeatureGateAttributes{{Name: "OldThing"}}},
		{Version: "1.0.0", Enabled: []configv1.FeatureGateAttributes{{Name: "NewThing"}}},
	}
	s.must(s.client.Status().Patch(t.Context(), &gate, patch))
	s.await("the gated object is applied", func() bool { return s.of("gated") == "gated" })
	if v := s.until("complete again", isAt("1.0.0")); len(v.Status.History) != 1 {
		t.Errorf("the history has other entries:\n%s", s.text())
	}
}

// TestFeaturesOfTheFlags are those of a cluster without FeatureGate.
func TestFeaturesOfTheFlags(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	s := newStage(t)
	s.options.Profile, s.options.Features = "ha",
		operator.Features{Set: "TechPreviewNoUpgrade", Gates: []string{"NewThing"}}
	s.beginWith("1.0.0", preview)
	s.until("installed", isAt("1.0.0"))
	if variant, gated := s.of("variant"), s.of("gated"); variant != "preview" || gated != "gated" {
		t.Errorf("there is the variant %q and the gated object %q", variant, gated)
	}
}

// TestTheObservedGenerationIsThatOfTheConditions: at each moment when it is the generation, ReleaseAccepted is about
// the request of that generation.
func TestTheObservedGenerationIsThatOfTheConditions(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	s := begin(t, "1.0.0", shop)
	installed := s.until("installed", isAt("1.0.0"))
	watching, err := client.NewWithWatch(s.sandbox.Config, client.Options{Scheme: s.client.Scheme()})
	s.must(err)
	watched, err := watching.Watch(t.Context(), &configv1.ClusterVersionList{},
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: installed.ResourceVersion}})
	s.must(err)
	defer watched.Stop()
	image := func(digit string) string { return s.registry + "/team/missing@sha256:" + strings.Repeat(digit, 64) }
	isCalm := func() bool { // so that the next change of the status is written at once
		return !slices.ContainsFunc(s.version().ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
			return e.Subresource == "status" && time.Since(e.Time.Time) < 4*time.Second
		})
	}
	for _, next := range []string{image("1"), image("2"), ""} {
		s.await("the status was not written for a while", isCalm)
		if next == "" {
			s.ask(nil)
		} else {
			s.update(next)
		}
		requested := s.version().Generation
		isAnswered := false
		for event := range watched.ResultChan() {
			v, isVersion := event.Object.(*configv1.ClusterVersion)
			if !isVersion || v.Status.ObservedGeneration < requested {
				continue
			}
			accepted := find(v, "ReleaseAccepted")
			want := next
			if next == "" {
				want = installed.Status.Desired.Image
			}
			if !strings.Contains(accepted.Message, want) {
				t.Fatalf("observedGeneration is the one of the request of %q, and ReleaseAccepted is %s: %s", next,
					accepted.Status, accepted.Message)
			}
			if isAnswered = accepted.Status != configv1.ConditionUnknown; isAnswered {
				break
			}
		}
		if !isAnswered {
			t.Fatalf("the request of %q was not answered", next)
		}
	}
}
