package operator_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/pkg/payload"
)

// unservedFeature is an object of a feature set whose kind is not served.
const unservedFeature = `
-- 0000_30_shop_30_thing.yaml --
{apiVersion: example.com/v1, kind: Thing, metadata: {name: thing, namespace: shop, annotations: {` + included +
	`, release.openshift.io/feature-set: DevPreviewNoUpgrade}}}
`

// chooseFeatures chooses a feature set.
func (s *stage) chooseFeatures(set configv1.FeatureSet) {
	s.t.Helper()
	var gate configv1.FeatureGate
	s.must(s.client.Get(s.t.Context(), client.ObjectKey{Name: "cluster"}, &gate))
	patch := client.MergeFrom(gate.DeepCopy())
	gate.Spec.FeatureSet = set
	s.must(s.client.Patch(s.t.Context(), &gate, patch))
}

// TestOtherFeaturesAreProgress from the moment when ReleaseAccepted names them, before the record has their apply. If
// the gate refuses them, the status is a failure: the release does not match the features of the cluster.
func TestOtherFeaturesAreProgress(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	s := newStage(t)
	s.options.Profile = "ha"
	s.prepare("1.0.0", preview+featureGates+unservedFeature)
	var isHeld atomic.Bool
	release := make(chan struct{})
	s.run(sandboxtest.Before(s.sandbox.Config, func(r *http.Request) error {
		if isHeld.Load() && r.Method == http.MethodPut &&
			strings.HasSuffix(r.URL.Path, "/configmaps/"+lock.Name(payload.DefaultName)) {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
		return nil
	}), s.options)
	s.until("installed", isAt("1.0.0"))
	isHeld.Store(true)
	s.chooseFeatures(configv1.TechPreviewNoUpgrade)
	accepted := s.until("the feature set is accepted", func(v *configv1.ClusterVersion) bool {
		return strings.HasSuffix(find(v, "ReleaseAccepted").Message, ` featureSet="TechPreviewNoUpgrade"`)
	})
	progressing := find(accepted, configv1.OperatorProgressing)
	if progressing.Status != configv1.ConditionTrue || progressing.Message != "Working towards 1.0.0" {
		t.Errorf("Progressing is %s: %s", progressing.Status, progressing.Message)
	}
	if variant := s.of("variant"); variant != "default" {
		t.Errorf("before the record has the apply, the variant is %q", variant)
	}
	close(release)
	s.until("complete", isAt("1.0.0"))
	if variant := s.of("variant"); variant != "preview" {
		t.Errorf("complete with the variant %q", variant)
	}

	s.chooseFeatures("DevPreviewNoUpgrade")
	refused := s.until("the feature set is refused", func(v *configv1.ClusterVersion) bool {
		return find(v, "ReleaseAccepted").Status == configv1.ConditionFalse
	})
	failing, progressing := find(refused, "Failing"), find(refused, configv1.OperatorProgressing)
	if failing.Status != configv1.ConditionTrue || !strings.Contains(failing.Message, "UnservedKinds") {
		t.Errorf("Failing is %s: %s", failing.Status, failing.Message)
	}
	if want := "Error while reconciling 1.0.0: it may not be safe to apply this update"; progressing.Status != configv1.ConditionFalse || progressing.Message != want {
		t.Errorf("Progressing is %s: %s", progressing.Status, progressing.Message)
	}
	s.chooseFeatures(configv1.TechPreviewNoUpgrade)
	s.until("no longer failing", func(v *configv1.ClusterVersion) bool {
		return isAt("1.0.0")(v) && find(v, "Failing").Status == configv1.ConditionFalse
	})
}
