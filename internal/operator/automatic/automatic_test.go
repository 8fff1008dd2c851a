package automatic_test

import (
	"cmp"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/operator/automatic"
	"github.com/runlevel/runlevel/internal/operator/clusterversion"
)

var now = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC) // a Tuesday

// newVersion returns a ClusterVersion with a history, the newest version first, "~" before partial ones, and with
// available updates, "?" before those that are not recommended. Each entry has begun an hour after the older one, and
// the newest one at noon.
func newVersion(history, available string, change ...func(*configv1.ClusterVersion)) *configv1.ClusterVersion {
	v := &configv1.ClusterVersion{}
	v.Annotations = map[string]string{automatic.UpdatesAnnotation: "patch"}
	for i, name := range strings.Fields(history) {
		entry := configv1.UpdateHistory{
			Version: strings.TrimPrefix(name, "~"), State: configv1.CompletedUpdate,
			StartedTime: metav1.NewTime(now.Add(-time.Duration(i) * time.Hour)),
		}
		entry.Image = "image-" + entry.Version
		if name != entry.Version {
			entry.State = configv1.PartialUpdate
		}
		v.Status.History = append(v.Status.History, entry)
	}
	for _, name := range strings.Fields(available) {
		release := configv1.Release{Version: strings.TrimPrefix(name, "?")}
		release.Image = "image-" + release.Version
		v.Status.AvailableUpdates = append(v.Status.AvailableUpdates, release)
		if name != release.Version {
			condition := metav1.Condition{Type: "Recommended", Status: metav1.ConditionUnknown}
			v.Status.ConditionalUpdates = append(v.Status.ConditionalUpdates,
				configv1.ConditionalUpdate{Release: release, Conditions: []metav1.Condition{condition}})
		}
	}
	for _, fn := range change {
		fn(v)
	}
	return v
}

// annotated sets an annotation.
func annotated(name, value string) func(*configv1.ClusterVersion) {
	return func(v *configv1.ClusterVersion) { v.Annotations[name] = value }
}

// asks requests a version as a field manager that sets some fields.
func asks(manager, version, fields string) func(*configv1.ClusterVersion) {
	return func(v *configv1.ClusterVersion) {
		if v.Spec.DesiredUpdate == nil {
			v.Spec.DesiredUpdate = &configv1.Update{}
		}
		if version != "" {
			v.Spec.DesiredUpdate.Version, v.Spec.DesiredUpdate.Image = version, "image-"+version
		}
		names := strings.ReplaceAll(`"f:`+strings.ReplaceAll(fields, ",", `":{},"f:`)+`":{}`, `"f:"`, `"."`)
		v.ManagedFields = append(v.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: manager, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:desiredUpdate":{` + names + `}}}`),
		})
	}
}

func own(version string) func(*configv1.ClusterVersion) {
	return asks(automatic.FieldManager, version, "version,image")
}

// fails sets Failing some time before noon.
func fails(since time.Duration) func(*configv1.ClusterVersion) {
	return func(v *configv1.ClusterVersion) {
		v.Status.Conditions = append(v.Status.Conditions, configv1.ClusterOperatorStatusCondition{
			Type: clusterversion.Failing, Status: configv1.ConditionTrue, Reason: "Broken", Message: "it broke",
			LastTransitionTime: metav1.NewTime(now.Add(-since)),
		})
	}
}

// preflights are words for the preflight of a version.
var preflights = map[string]clusterversion.Preflight{
	"running": {}, "passed": {Effects: &clusterversion.Effects{}},
	"failed": {Acceptance: clusterversion.Acceptance{
		Phase: clusterversion.Retrieving, Err: errors.New("it is not signed"),
	}},
}

// words change a ClusterVersion: its annotations, conditions, and the fields of the requested update.
var words = map[string]func(*configv1.ClusterVersion){
	"minor":    annotated(automatic.UpdatesAnnotation, "minor"),
	"off":      annotated(automatic.UpdatesAnnotation, "off"),
	"unset":    func(v *configv1.ClusterVersion) { v.Annotations = nil },
	"weekend":  annotated(automatic.WindowsAnnotation, "Sat,Sun 02:00-06:00 Europe/Berlin"),
	"midday":   annotated(automatic.WindowsAnnotation, "Tue 11:00-13:00"),
	"rollback": annotated(automatic.RollbackAnnotation, "1h"),
	"blocked": func(v *configv1.ClusterVersion) {
		v.Status.Conditions = append(v.Status.Conditions, configv1.ClusterOperatorStatusCondition{
			Type: configv1.OperatorUpgradeable, Status: configv1.ConditionFalse,
		})
	},
	"fails":       fails(0),
	"fails-later": fails(-time.Minute),
	"force":       func(v *configv1.ClusterVersion) { v.Spec.DesiredUpdate.Force = true },
	"preflight":   func(v *configv1.ClusterVersion) { v.Spec.DesiredUpdate.Mode = configv1.UpdateModePreflight },
	"unmanaged":   func(v *configv1.ClusterVersion) { v.ManagedFields = nil },
}

// tests are words for the tests of the newest version.
var tests = map[string]automatic.Tests{
	"untested": {}, "testing": {HasBegun: true}, "tests-failed": {HasBegun: true, Failure: "Job shop/smoke: it ended"},
}

// TestDecide decides on the cases of testdata/decisions.txt. Beside words, an input has after=DURATION, own=VERSION for
// a request of the operator, running=VERSION, passed=VERSION or failed=VERSION for its preflight, and
// MANAGER=VERSION:FIELDS for a request of a field manager.
func TestDecide(t *testing.T) {
	cases, err := os.ReadFile("testdata/decisions.txt")
	if err != nil {
		t.Fatal(err)
	}
	_, blocks, _ := strings.Cut(string(cases), "\n\n")
	for block := range strings.SplitSeq(strings.TrimSpace(blocks), "\n\n") {
		lines := strings.Split(block, "\n")
		input := strings.Split(lines[1], "|")
		v, decided := newVersion(input[0], input[1]), automatic.Input{Now: now, IsAnswered: true}
		decided.Version = v
		for word := range strings.FieldsSeq(input[2]) {
			name, value, _ := strings.Cut(word, "=")
			version, fields, _ := strings.Cut(value, ":")
			found, isTests := tests[word]
			preflight, isPreflight := preflights[name]
			switch change := words[word]; {
			case change != nil:
				change(v)
			case isTests:
				decided.Tests = &found
			case isPreflight:
				preflight.Release.Image = "image-" + value
				decided.Preflight = &preflight
			case name == "after":
				after, err := time.ParseDuration(value)
				if err != nil {
					t.Fatal(err)
				}
				decided.Now = now.Add(after)
			case name == "own":
				own(value)(v)
			default:
				asks(name, version, fields)(v)
			}
		}
		got := text(automatic.Decide(decided))
		if got = cmp.Or(strings.TrimSpace(got), "nothing"); got != lines[2] {
			t.Errorf("%s:\n got %s\nwant %s", lines[0], got, lines[2])
		}
	}
}

func text(d automatic.Decision) string {
	got := strings.TrimLeft(string(d.Action)+" "+d.Release.Version+" ", " ")
	if d.Action == "" {
		got = ""
	}
	if d.Action == automatic.Withdraw || d.Action == automatic.Test {
		got = string(d.Action) + " "
	}
	if d.Reason != "" {
		got += d.Reason + ": " + d.Message
	}
	if !d.ChangesAt.IsZero() {
		got += " until " + d.ChangesAt.UTC().Format("15:04")
	}
	return got
}

func TestBadAnnotations(t *testing.T) {
	for _, c := range []struct{ name, value, want string }{
		{automatic.UpdatesAnnotation, "Patch", `updates: Invalid value: "Patch": write patch, minor or off`},
		{automatic.UpdatesAnnotation, "", `updates: Invalid value: "": write patch, minor or off`},
		{automatic.WindowsAnnotation, "Sat\n", `Invalid value: "Sat": days, hours and time zone expected: write windows such ` +
			`as Sat,Sun 02:00-06:00 Europe/Berlin`},
		{automatic.RollbackAnnotation, "1 hour", `rollback: Invalid value: "1 hour": write a time, such as 1h or 30m`},
		{automatic.RollbackAnnotation, "-1h", `rollback: Invalid value: "-1h": write a time, such as 1h or 30m`},
	} {
		for available, changes := range map[string][]func(*configv1.ClusterVersion){
			"1.0.1": {annotated(c.name, c.value)},
			"":      {words["off"], annotated(c.name, c.value), own("1.0.1")},
		} {
			v := newVersion("1.0.0", available, changes...)
			d := automatic.Decide(automatic.Input{Version: v, Now: now, IsAnswered: true})
			isWithdrawn := d.Action == automatic.Withdraw
			if !strings.HasPrefix(d.Message, "No automatic updates: annotation "+c.name+": Invalid value: ") ||
				!strings.HasSuffix(d.Message, c.want) || !d.IsHeld || isWithdrawn != (available == "") {
				t.Errorf("%s %q: %+v", c.name, c.value, d)
			}
		}
	}
}

// TestOnlyAnAnswerOfNowCounts: a version may be halted since the last answer of the update service.
func TestOnlyAnAnswerOfNowCounts(t *testing.T) {
	const waits = "Waiting: Waits for an answer of the update service: see RetrievedUpdates"
	overdue := newVersion("~1.0.1 1.0.0", "", words["rollback"], own("1.0.1"))
	overdue.Status.History[0].StartedTime = metav1.NewTime(now.Add(-2 * time.Hour))
	for want, version := range map[string]*configv1.ClusterVersion{
		waits:                  newVersion("1.0.0", "1.0.1"),
		waits + " until 13:00": newVersion("1.0.0", "", words["midday"], own("1.0.1")),
		"Withdraw " + waits:    newVersion("1.0.0", "1.0.1", words["weekend"], own("1.0.1")),
		"RollBack 1.0.0 RollingBack: Goes back from 1.0.1 to 1.0.0 after 1h0m0s: it is not complete": overdue,
	} {
		if got := text(automatic.Decide(automatic.Input{Version: version, Now: now})); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
