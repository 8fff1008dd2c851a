package operator_test

import (
	"slices"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// TestAnInvalidClusterID is reported, and does not block updates.
func TestAnInvalidClusterID(t *testing.T) {
	t.Parallel()
	s := begin(t, "1.0.0", shop)
	s.until("installed", isAt("1.0.0"))
	identify := func(id configv1.ClusterID) {
		v := s.version()
		patch := client.MergeFrom(v.DeepCopy())
		v.Spec.ClusterID = id
		s.must(s.client.Patch(t.Context(), v, patch))
	}
	for id, wrong := range map[configv1.ClusterID]string{
		"shop":                                 "must be an RFC4122-variant UUID",
		"3b1f1c1e-7f2a-1b6e-9c1d-2a3b4c5d6e7f": "must be a version-4 UUID",
	} {
		identify(id)
		s.until("the ID is invalid", func(v *configv1.ClusterVersion) bool {
			c := find(v, "Invalid")
			return c.Reason == "InvalidClusterVersion" &&
				strings.Contains(c.Message, `spec.clusterID: Invalid value: "`+string(id)+`": `+wrong)
		})
	}
	s.update(s.push("1.0.1", shop))
	s.untilSettings("1.0.1")
	identify("3b1f1c1e-7f2a-4b6e-9c1d-2a3b4c5d6e7f")
	s.until("it is valid again", func(v *configv1.ClusterVersion) bool {
		return find(v, "Invalid").Type == "" && isAt("1.0.1")(v)
	})
}

// TestAnotherArchitecture is reported as invalid: "oc adm upgrade --to-multi-arch" requests it with the current
// version.
func TestAnotherArchitecture(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	s := begin(t, "1.0.0", shop)
	s.until("installed", isAt("1.0.0"))
	s.ask(&configv1.Update{Version: "1.0.0", Architecture: configv1.ClusterVersionArchitectureMulti})
	v := s.until("it is invalid", func(v *configv1.ClusterVersion) bool {
		return strings.Contains(find(v, "Invalid").Message,
			"spec.desiredUpdate.architecture: Runlevel does not change the architecture of a cluster: name an image")
	})
	if len(v.Status.History) != 1 ||
		slices.ContainsFunc(v.Status.History, func(h configv1.UpdateHistory) bool {
			return h.State != configv1.CompletedUpdate
		}) {
		t.Errorf("the history is %+v", v.Status.History)
	}
	s.ask(nil)
	s.until("it is taken back", func(v *configv1.ClusterVersion) bool {
		return find(v, "Invalid").Type == "" && isAt("1.0.0")(v)
	})
}
