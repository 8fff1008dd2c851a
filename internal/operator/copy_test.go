package operator_test

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestAReplacedPodNeedsNoRegistry to keep its release in place: the files are on the cluster. An update does, and so does a release
// whose copy is lost.
func TestAReplacedPodNeedsNoRegistry(t *testing.T) {
	t.Parallel()
	s := begin(t, "1.0.0", shop)
	s.until("installed", isAt("1.0.0"))
	next := s.push("1.0.1", shop)
	s.must(s.end())
	s.images.Close()
	silent, err := net.Listen("tcp", s.registry)
	s.must(err)
	t.Cleanup(func() { _ = silent.Close() })
	s.options.CacheDir = filepath.Join(t.TempDir(), "of-another-node")
	s.must(s.editSettings("by-hand"))
	s.start()
	s.untilSettings("1.0.0")
	s.must(silent.Close())
	s.update(next)
	s.until("an update needs the registry", has("ReleaseAccepted", configv1.ConditionFalse, "RetrievePayload"))

	s.must(s.end())
	s.ask(nil)
	s.must(s.client.DeleteAllOf(t.Context(), &corev1.Secret{}, client.InNamespace(system), client.MatchingLabels{"runlevel.dev/files": "default"}))
	s.options.CacheDir = filepath.Join(t.TempDir(), "of-a-third-node")
	s.start()
	s.until("the message names what is missing", func(v *configv1.ClusterVersion) bool {
		c := find(v, "ReleaseAccepted")
		return c.Status == configv1.ConditionFalse && strings.Contains(c.Message, "its copy on the cluster: Secret runlevel-system/runlevel-release-default-files-")
	})
}
