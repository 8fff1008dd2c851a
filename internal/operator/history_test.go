package operator_test

import (
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/session/why"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/payload"
)

// states returns the states of a history, newest first, as VERSION=STATE.
func states[T any](history []T, build func(T) (version, state string)) string {
	var all []string
	for _, entry := range history {
		version, state := build(entry)
		all = append(all, version+"="+state)
	}
	return strings.Join(all, " ")
}

// checkHistories fails the test unless the ClusterVersion and the record have the same history.
func (s *stage) checkHistories(want string) {
	s.t.Helper()
	c, err := cluster.Connect(s.sandbox.Config)
	s.must(err)
	known, _, err := record.NewStore(c.Client, session.DefaultNamespace, payload.DefaultName).Load(s.t.Context())
	s.must(err)
	recorded := states(known.History, func(e record.HistoryEntry) (string, string) {
		return e.Version, string(e.State)
	})
	reported := states(s.version().Status.History, func(e configv1.UpdateHistory) (string, string) {
		return e.Version, string(e.State)
	})
	if recorded != want || reported != want {
		s.t.Errorf("the record has %q, and the ClusterVersion %q, want %q", recorded, reported, want)
	}
}

// TestAnInstallWithADegradedOperator continues with later objects, and is not complete: neither in the ClusterVersion,
// nor in the record, which the command line reads. After an update, its entry in both stays Partial.
func TestAnInstallWithADegradedOperator(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	const late = `
-- 0000_50_late_10_config.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: late, namespace: shop}, data: {version: VERSION}}
`
	degraded := func(o *configv1.ClusterOperatorStatus) {
		o.Conditions = append(o.Conditions[:1], condition(configv1.OperatorDegraded, configv1.ConditionTrue))
	}
	s := begin(t, "1.0.0", shop+till+late)
	s.report("till", "1.0.0", degraded)
	s.await("what comes after the operator is applied", func() bool { return s.of("late") == "1.0.0" })
	s.until("it is reported", has("Failing", configv1.ConditionTrue, "ClusterOperatorDegraded"))
	s.checkHistories("1.0.0=Partial")
	if v := s.version(); find(v, configv1.OperatorAvailable).Status != configv1.ConditionFalse {
		t.Errorf("release is available:\n%s", s.text())
	}
	s.restart()
	s.update(s.push("1.0.1", shop+till+late))
	s.until("the update has begun", func(v *configv1.ClusterVersion) bool {
		return v.Status.Desired.Version == "1.0.1"
	})
	s.report("till", "1.0.1")
	s.until("updated", isAt("1.0.1"))
	s.checkHistories("1.0.1=Completed 1.0.0=Partial")
}

// TestBackToThePatchBefore: a downgrade to the patch before needs no force, also after a restart without an update
// service.
func TestBackToThePatchBefore(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	s := begin(t, "1.0.0", shop)
	installed := s.until("installed", isAt("1.0.0"))
	s.update(s.push("1.0.1", shop))
	s.until("updated", isAt("1.0.1"))
	s.restart()
	s.must(s.editSettings("by-hand"))
	s.untilSettings("1.0.1") // so that the operator has taken over the status of the one before
	s.update(installed.Status.Desired.Image)
	back := s.until("back at 1.0.0", isAt("1.0.0"))
	s.checkHistories("1.0.0=Completed 1.0.1=Completed 1.0.0=Completed")
	if risks := back.Status.History[0].AcceptedRisks; risks != "" {
		t.Errorf("risks were accepted: %s", risks)
	}
	s.update(s.push("0.9.9", shop))
	s.until("older versions are refused", func(v *configv1.ClusterVersion) bool {
		c := find(v, "ReleaseAccepted")
		return c.Status == configv1.ConditionFalse && strings.Contains(c.Message, "OlderVersion")
	})
}

// TestTheCommandLineAppliesWhileTheOperatorIsStopped: the operator reports the release of the cluster, whose source it
// can't read, and adopts it without force when an image with the same files is requested.
func TestTheCommandLineAppliesWhileTheOperatorIsStopped(t *testing.T) {
	t.Parallel()
	s := begin(t, "1.0.0", shop)
	s.until("installed", isAt("1.0.0"))
	s.must(s.end())
	c, err := cluster.Connect(s.sandbox.Config)
	s.must(err)
	release, _, err := payload.Load(t.Context(), s.release("1.0.1", shop), payload.Options{Name: payload.DefaultName})
	s.must(err)
	s.must(session.Run(t.Context(), c, release,
		session.Options{Source: "./shop", Apply: apply.Options{Options: object.Options{Standard: ready.Upstream}}}).Err)
	s.start()
	unread := s.until("it reports the release that it can't read",
		has("Failing", configv1.ConditionTrue, "RetrievePayloadFailed"))
	want := "1.0.1 is not kept in place: 1.0.1 was applied from ./shop, which the operator can't read: request an " +
		"image with the same files in spec.desiredUpdate"
	if got := find(unread, "Failing").Message; got != want {
		t.Errorf("Failing: %s\nwant: %s", got, want)
	}
	if got, want := find(unread, configv1.OperatorProgressing).Message, "Error while reconciling 1.0.1: it is not "+
		"kept in place"; got != want || unread.Status.Desired.Version != "1.0.1" {
		t.Errorf("Progressing: %s, want %s", got, want)
	}
	s.checkHistories("1.0.1=Completed 1.0.0=Completed")
	if newest := unread.Status.History[0]; newest.Image != "" || unread.Status.Desired.Image != "" {
		t.Errorf("a folder is the image %q in the history, and %q is desired", newest.Image,
			unread.Status.Desired.Image)
	}

	checkUnread := func() {
		t.Helper()
		isUnread := func(n *why.NotKept) bool {
			return n != nil && strings.HasSuffix(n.Message, "can't read it: it was applied from ./shop") &&
				strings.HasPrefix(n.Resolution, "request an image")
		}
		if report := s.explain(); !isUnread(report.NotKept) {
			t.Errorf("the status of a release from a folder: %s", report.NotKept)
		}
	}
	checkUnread()
	s.update(s.registry + "/team/missing@sha256:" + strings.Repeat("1", 64))
	s.until("it can't be retrieved", func(v *configv1.ClusterVersion) bool {
		return strings.Contains(find(v, "ReleaseAccepted").Message, "missing") &&
			find(v, "ReleaseAccepted").Status == configv1.ConditionFalse
	})
	checkUnread()
	s.update(s.push("1.0.2", shop))
	s.until("another release is refused", func(v *configv1.ClusterVersion) bool {
		c := find(v, "ReleaseAccepted")
		return c.Status == configv1.ConditionFalse && c.Reason == "PreconditionChecks" &&
			strings.Contains(c.Message, "ReleaseNotReadable")
	})
	s.update(s.push("1.0.2", shop), func(u *configv1.Update) { u.Mode = configv1.UpdateModePreflight })
	s.until("its preflight waits for the current release", func(v *configv1.ClusterVersion) bool {
		c := find(v, "PreflightPassed")
		return c.Status == configv1.ConditionFalse &&
			strings.Contains(c.Message,
				"failure=not checked: the current release is not accepted: 1.0.1 was applied from ")
	})
	image := s.push("1.0.1", shop)
	s.update(image)
	adopted := s.until("adopted", isAt("1.0.1"))
	s.checkHistories("1.0.1=Completed 1.0.0=Completed")
	if newest := adopted.Status.History[0]; newest.Image != image || newest.AcceptedRisks != "" {
		t.Errorf("the history has %+v", newest)
	}
	s.must(s.editSettings("by-hand"))
	s.untilSettings("1.0.1")
	s.restart()
	s.must(s.editSettings("by-hand"))
	s.untilSettings("1.0.1")
}
