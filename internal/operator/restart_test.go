package operator_test

import (
	"encoding/json"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/session/why"
)

// TestRestartedOperatorAppliesTheOthersOfAHeldObject: a finalizer holds one object of the current release. The
// restarted operator repairs the others, and applies an update without that object.
func TestRestartedOperatorAppliesTheOthersOfAHeldObject(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	s := begin(t, "1.0.0", shop+old)
	s.until("installed", isAt("1.0.0"))
	s.hold("prices", `["example.com/hold"]`)
	s.must(s.client.Delete(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "prices"}}))
	s.must(s.end())
	s.must(s.editSettings("by-hand"))
	s.start()
	s.untilSettings("1.0.0")
	kept := s.version()
	if accepted := find(kept, "ReleaseAccepted"); accepted.Status != configv1.ConditionTrue {
		t.Errorf("the current release is not accepted: %+v", accepted)
	}

	other := s.push("1.0.0", shop+old+once)
	s.update(other)
	s.until("other content under the same version is refused",
		has("ReleaseAccepted", configv1.ConditionFalse, "PreconditionChecks"))
	s.must(s.end())
	s.update(s.push("1.0.1", shop))
	s.start()
	s.until("the update that drops it is applied", isAt("1.0.1"))
}

// TestUnreadableRecordIsAFailure: if the operator can't read the record, it reports a failure, and continues to keep
// the release in place.
func TestUnreadableRecordIsAFailure(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	s := begin(t, "1.0.0", shop)
	s.until("installed", isAt("1.0.0"))
	var record corev1.ConfigMap
	s.must(s.client.Get(t.Context(), client.ObjectKey{Namespace: system, Name: "runlevel-release-default"}, &record))
	readable := record.Data["record.json"]
	write := func(text string) {
		patch := client.MergeFrom(record.DeepCopy())
		record.Data["record.json"] = text
		s.must(s.client.Patch(t.Context(), &record, patch))
	}
	write("{")
	s.ask(nil)
	edit := []byte(`{"spec": {"channel": "stable"}}`) // triggers a read of the record
	s.must(s.client.Patch(t.Context(), s.version(), client.RawPatch("application/merge-patch+json", edit)))
	s.until("the failure is reported while the release is kept in place", func(v *configv1.ClusterVersion) bool {
		c := find(v, "Failing")
		return c.Status == configv1.ConditionTrue && c.Reason == "ReleaseRecordUnreadable" &&
			strings.Contains(c.Message, "restore it from a backup")
	})
	s.must(s.editSettings("by-hand"))
	s.untilSettings("1.0.0")
	var events corev1.EventList
	s.must(s.client.List(t.Context(), &events))
	if !slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
		return e.Reason == "ReleaseRecordUnreadable" && e.Type == corev1.EventTypeWarning
	}) {
		t.Error("there is no event about the record")
	}
	write(readable)
	s.until("all is well again", has("Failing", configv1.ConditionFalse, ""))

	s.must(s.end())
	write(`{"format": 99}`)
	s.start()
	s.until("the status reports that the release is not kept in place", func(v *configv1.ClusterVersion) bool {
		c := find(v, "Failing")
		return c.Status == configv1.ConditionTrue && strings.HasPrefix(c.Message, "1.0.0 is not kept in place: ") &&
			strings.Contains(c.Message, "a newer runlevel wrote it, in format 99")
	})
	s.until("nor is it accepted", has("ReleaseAccepted", configv1.ConditionFalse, "RetrievePayload"))
	s.must(s.editSettings("by-hand"))
	write(readable)
	s.untilSettings("1.0.0")
	s.until("all is well once more", has("Failing", configv1.ConditionFalse, ""))
}

// TestARestartAfterItsOwnReleaseHasLeftTheHistory continues with the release that was begun last: histories end after a
// hundred updates.
func TestARestartAfterItsOwnReleaseHasLeftTheHistory(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	s := begin(t, "1.0.0", shop)
	s.until("installed", isAt("1.0.0"))
	s.update(s.push("1.0.1", shop))
	s.until("updated", isAt("1.0.1"))
	s.must(s.end())
	s.ask(nil)
	s.editRecord(func(known map[string]any) { known["history"] = known["history"].([]any)[:1] })
	v := s.version()
	patch := client.MergeFrom(v.DeepCopy())
	v.Status.History = v.Status.History[:1]
	s.must(s.client.Status().Patch(t.Context(), v, patch))
	s.must(s.editSettings("by-hand"))
	s.start()
	s.untilSettings("1.0.1")
	if version := s.version().Status.Desired.Version; version != "1.0.1" {
		t.Errorf("version is %s, want 1.0.1", version)
	}
}

// TestAnotherImageOfTheSameContentIsTheOneOfTheRecord: a release may be built again. The operator applies nothing, and
// the record has the requested image.
func TestAnotherImageOfTheSameContentIsTheOneOfTheRecord(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	s := begin(t, "1.0.0", shop)
	s.until("installed", isAt("1.0.0"))
	rebuilt := s.push("1.0.0", shop+"-- README.txt --\nbuilt again\n")
	if rebuilt == s.options.Payload {
		t.Fatal("the image is the same")
	}
	s.update(rebuilt)
	isAsked := func(v *configv1.ClusterVersion) bool { return v.Status.Desired.Image == rebuilt && isAt("1.0.0")(v) }
	s.until("the other image counts", isAsked)
	s.must(s.end())
	s.ask(nil)
	source := ""
	s.editRecord(func(known map[string]any) {
		source = known["history"].([]any)[0].(map[string]any)["source"].(string)
	})
	if source != rebuilt {
		t.Errorf("the record has the image %s, want %s", source, rebuilt)
	}
	s.start()
	s.until("accepted again", func(v *configv1.ClusterVersion) bool {
		return v.Status.ObservedGeneration == v.Generation
	})
	s.until("a restart keeps it", isAsked)
}

// editRecord changes the record of the release.
func (s *stage) editRecord(change func(known map[string]any)) {
	s.t.Helper()
	var config corev1.ConfigMap
	s.must(s.client.Get(s.t.Context(), client.ObjectKey{Namespace: system, Name: "runlevel-release-default"}, &config))
	known := map[string]any{}
	s.must(json.Unmarshal([]byte(config.Data["record.json"]), &known))
	change(known)
	text, err := json.Marshal(known)
	s.must(err)
	patch := client.MergeFrom(config.DeepCopy())
	config.Data["record.json"] = string(text)
	s.must(s.client.Patch(s.t.Context(), &config, patch))
}

// TestUnresponsiveRegistry: a new operator can't read its release, so no report claims that the release is kept
// in place.
func TestUnresponsiveRegistry(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	s := begin(t, "1.0.0", shop)
	s.until("installed", isAt("1.0.0"))
	if report := s.explain(); !report.Done {
		t.Errorf("NotKept of the current release is %q, want none", report.NotKept)
	}
	s.must(s.end())
	s.images.Close()
	silent, err := net.Listen("tcp", s.registry)
	s.must(err)
	t.Cleanup(func() { _ = silent.Close() })
	s.options.CacheDir = filepath.Join(t.TempDir(), "empty")
	s.start()
	s.await("the report has the unread release", func() bool {
		report := s.explain()
		return report.NotKept != nil && report.NotKept.Reason == why.ReasonNotRead &&
			strings.HasSuffix(report.NotKept.Message, ", and has not read it yet")
	})
}

// TestAnInterruptedApplyIsNotKept has the operator before be interrupted while it applied the release again: the one
// that can't read the release does not keep it in place either.
func TestAnInterruptedApplyIsNotKept(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	s := begin(t, "1.0.0", shop)
	s.until("installed", isAt("1.0.0"))
	s.must(s.end())
	s.images.Close()
	s.editRecord(func(known map[string]any) {
		known["run"] = map[string]any{"told": "2026-01-01T00:00:00Z", "ended": true, "error": "interrupted"}
	})
	s.must(s.client.DeleteAllOf(t.Context(), &corev1.Secret{}, client.InNamespace(system),
		client.HasLabels{"runlevel.dev/files"}))
	s.options.CacheDir = filepath.Join(t.TempDir(), "empty")
	s.start()
	s.await("the report has the unreadable release", func() bool {
		report := s.explain()
		return report.NotKept != nil && report.NotKept.Reason == why.ReasonNotRead &&
			strings.Contains(report.NotKept.Message, "can't read it: ")
	})
}

// explain returns the state of the release, as people see it.
func (s *stage) explain() *why.ReleaseAnswer {
	s.t.Helper()
	c, err := cluster.Connect(s.sandbox.Config)
	s.must(err)
	known, _, err := record.NewStore(c.Client, system, "default").Load(s.t.Context())
	s.must(err)
	return why.GatherRelease(s.t.Context(), c, known, system).Explain(s.t.Context(), c, system)
}
