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

// TestAReplacedPodNeedsNoRegistry to keep its release in place: the files are on the cluster. An update does, and so
// does a release whose copy is lost.
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
	s.must(s.client.DeleteAllOf(t.Context(), &corev1.Secret{}, client.InNamespace(system),
		client.MatchingLabels{"runlevel.dev/files": "default"}))
	s.options.CacheDir = filepath.Join(t.TempDir(), "of-a-third-node")
	s.start()
	s.until("the message names the missing copy", func(v *configv1.ClusterVersion) bool {
		c := find(v, "ReleaseAccepted")
		return c.Status == configv1.ConditionFalse &&
			strings.Contains(c.Message,
				"its copy on the cluster: Secret runlevel-system/runlevel-release-default-files-")
	})
}

// TestAForgedRecordIsNotApplied has an account that may only write ConfigMaps and Secrets in the namespace of the
// record name another copy, or another image, as the release that was applied last.
func TestAForgedRecordIsNotApplied(t *testing.T) {
	t.Parallel()
	s := begin(t, "1.0.0", shop)
	s.until("installed", isAt("1.0.0"))
	s.update(s.push("1.0.1", shop))
	s.until("updated", isAt("1.0.1"))
	forged := s.push("1.0.2", shop)
	s.must(s.end())
	s.ask(nil)
	var newest, before map[string]any
	edit := func(change func()) {
		s.editRecord(func(known map[string]any) {
			history := known["history"].([]any)
			newest, before = history[0].(map[string]any), history[1].(map[string]any)
			change()
		})
	}

	var source, kept any
	edit(func() { source, newest["source"], newest["version"] = newest["source"], forged, "1.0.2" })
	s.must(s.editSettings("by-hand"))
	s.start()
	s.until("an image that only the record has is reported", func(v *configv1.ClusterVersion) bool {
		c := find(v, "Failing")
		return c.Status == configv1.ConditionTrue &&
			strings.Contains(c.Message, "by the record, 1.0.2 was applied last, from "+forged+
				", but the ClusterVersion does not confirm it: to apply it, request this image")
	})
	s.must(s.end())
	if got := s.version().Status.History; len(got) != 2 || got[0].Version != "1.0.1" {
		t.Errorf("the ClusterVersion has the history of the record: %+v", got)
	}

	edit(func() {
		newest["source"], newest["version"], kept, newest["files"] = source, "1.0.1", newest["files"], before["files"]
	})
	s.images.Close()
	s.options.CacheDir = filepath.Join(t.TempDir(), "of-another-node")
	s.start()
	s.until("a copy of other files is reported", func(v *configv1.ClusterVersion) bool {
		c := find(v, "Failing")
		return c.Status == configv1.ConditionTrue &&
			strings.Contains(c.Message,
				"its copy on the cluster is not applied, since it is not the one that was accepted")
	})
	if got := s.settings().Data["version"]; got != "by-hand" {
		t.Errorf("%s was applied", got)
	}
	s.must(s.end())
	edit(func() { newest["files"] = kept })
	s.start()
	s.untilSettings("1.0.1")
}
