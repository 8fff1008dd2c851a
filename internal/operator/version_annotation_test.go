package operator_test

import (
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// TestNothingIsKnownButTheObjects: the record, its copy and the ClusterVersion were deleted. If the own release of the
// operator is older than the annotations of the objects, it applies nothing. It applies a newer release.
func TestNothingIsKnownButTheObjects(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	s := begin(t, "1.1.0", shop)
	s.until("installed", isAt("1.1.0"))
	s.must(s.end())
	record := metav1.ObjectMeta{Namespace: system, Name: "runlevel-release-default"}
	s.must(s.client.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: record}))
	s.must(s.client.Delete(t.Context(), &coordinationv1.Lease{ObjectMeta: record}))
	s.must(s.client.Delete(t.Context(), &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "version"}}))

	s.options.Payload = s.push("1.0.0", shop)
	s.start()
	s.until("the older one is refused", func(v *configv1.ClusterVersion) bool {
		c := find(v, "ReleaseAccepted")
		return c.Status == configv1.ConditionFalse && c.Reason == "PreconditionChecks" &&
			strings.Contains(c.Message, "1.0.0 is older than 1.1.0")
	})
	if got := s.settings().Data["version"]; got != "1.1.0" {
		t.Errorf("the settings are of %s", got)
	}
	s.update(s.push("1.1.1", shop))
	s.untilSettings("1.1.1")
	s.until("the newer one is applied", isAt("1.1.1"))
}
