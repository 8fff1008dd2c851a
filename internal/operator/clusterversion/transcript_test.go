package clusterversion_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/runlevel/runlevel/internal/operator/clusterversion"
	"github.com/runlevel/runlevel/internal/sandbox/transcript"
	"github.com/runlevel/runlevel/internal/text/reason"
)

// A moment of a cluster is a file of testdata. It has the previous status, the observation, the status that follows,
// and the events. A recorded moment also has the conditions of the cluster-version operator: the type, status and
// reason of ours are the same, except for the types in the line "differs:" of its comment.
type moment struct {
	*transcript.Transcript
	previous configv1.ClusterVersionStatus
	seen     clusterversion.Observation
}

func readMoment(t *testing.T, file *transcript.Transcript) moment {
	t.Helper()
	m := moment{
		Transcript: file,
		previous:   readStatus(t, file.Section("previous")),
		seen:       readObservation(t, file.Section("seen")),
	}
	m.seen.Now = m.seen.Now.Add(300 * time.Millisecond) // clocks are finer than a status
	return m
}

func TestTranscripts(t *testing.T) {
	transcript.Each(t, "testdata/*.txtar", func(t *testing.T, file *transcript.Transcript) {
		m := readMoment(t, file)
		before := m.previous.DeepCopy()
		next := clusterversion.Next(m.previous, m.seen)
		if !equality.Semantic.DeepEqual(*before, m.previous) {
			t.Error("input status was changed")
		}
		m.Expect(t, "next", writeStatus(next))
		m.Expect(t, "events", writeEvents(clusterversion.Announce(m.seen.Acceptance)))
		m.compareWithUpstream(t, next)
		m.checkThatItSettles(t, next)
	})
}

// compareWithUpstream compares the conditions with those that the cluster-version operator has.
func (m moment) compareWithUpstream(t *testing.T, next configv1.ClusterVersionStatus) {
	wanted := m.Section("upstream")
	if wanted == "" {
		return
	}
	_, differs, _ := strings.Cut(string(m.Comment), "differs:")
	var got, want []string
	for line := range strings.Lines(wanted) {
		if kind, _, _ := strings.Cut(line, " "); !strings.Contains(differs, kind) {
			want = append(want, strings.TrimSpace(line))
		}
	}
	for _, c := range next.Conditions {
		if !strings.Contains(differs, string(c.Type)) {
			got = append(got, strings.TrimSpace(fmt.Sprint(c.Type, " ", c.Status, " ", c.Reason)))
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the conditions (-upstream +ours):\n%s", diff)
	}
}

// checkThatItSettles computes the next status again, a while later, from the status as the API server stores it.
func (m moment) checkThatItSettles(t *testing.T, next configv1.ClusterVersionStatus) {
	text, err := json.Marshal(next)
	if err != nil {
		t.Fatal(err)
	}
	var kept configv1.ClusterVersionStatus
	if err := json.Unmarshal(text, &kept); err != nil {
		t.Fatal(err)
	}
	if !equality.Semantic.DeepEqual(kept, next) {
		t.Errorf("the API server does not store the whole status (-want +got):\n%s", cmp.Diff(next, kept))
	}
	later := m.seen
	later.Now = later.Now.Add(7300 * time.Millisecond)
	if again := clusterversion.Next(kept, later); !equality.Semantic.DeepEqual(kept, again) {
		t.Errorf("status changed without a cause (-before +after):\n%s",
			cmp.Diff(writeStatus(kept), writeStatus(again)))
	}
}

// readObservation reads an observation from YAML. The error of an acceptance is beside the acceptance.
func readObservation(t *testing.T, text string) clusterversion.Observation {
	t.Helper()
	var seen struct {
		clusterversion.Observation
		Error    *struct{ Reason, Message string }
		NoUpdate *struct{ Reason, Message string } // why updates could not be retrieved
	}
	if err := yaml.UnmarshalStrict([]byte(text), &seen); err != nil {
		t.Fatal(err)
	}
	if seen.Error != nil {
		seen.Acceptance.Err = &reason.Error{Reason: seen.Error.Reason, Message: seen.Error.Message}
	}
	if seen.NoUpdate != nil {
		seen.Retrieved.Err = &reason.Error{Reason: seen.NoUpdate.Reason, Message: seen.NoUpdate.Message}
	}
	return seen.Observation
}

const day = "2026-11-22T"

func clock(t metav1.Time) string { return t.UTC().Format("15:04:05") }

// writeStatus writes a status with one item per line. The message of a condition is in the lines after it.
func writeStatus(s configv1.ClusterVersionStatus) string {
	var out bytes.Buffer
	fmt.Fprintf(&out, "desired %s\n",
		fields(s.Desired.Version, s.Desired.Image, string(s.Desired.URL), strings.Join(s.Desired.Channels, ",")))
	fmt.Fprintf(&out, "generation %d\nhash %s\n", s.ObservedGeneration, fields(s.VersionHash))
	for _, capability := range s.Capabilities.EnabledCapabilities {
		fmt.Fprintf(&out, "capability %s\n", capability)
	}
	for _, release := range s.AvailableUpdates {
		fmt.Fprintf(&out, "update %s\n",
			fields(release.Version, release.Image, string(release.URL), strings.Join(release.Channels, ",")))
	}
	message := func(text string) {
		if text != "" {
			fmt.Fprintf(&out, "\t%s\n", strings.ReplaceAll(text, "\n", "\n\t"))
		}
	}
	for _, update := range s.ConditionalUpdates {
		for _, c := range update.Conditions {
			fmt.Fprintf(&out, "conditional %s\n",
				fields(update.Release.Version, update.Release.Image, c.Type, string(c.Status),
					clock(c.LastTransitionTime), c.Reason))
			message(c.Message)
		}
	}
	for _, c := range s.Conditions {
		fmt.Fprintf(&out, "condition %s\n",
			fields(string(c.Type), string(c.Status), clock(c.LastTransitionTime), c.Reason))
		message(c.Message)
	}
	for _, h := range s.History {
		ended, verified := "", ""
		if h.CompletionTime != nil {
			ended = clock(*h.CompletionTime)
		}
		if h.Verified {
			verified = "verified"
		}
		fmt.Fprintf(&out, "history %s\n",
			fields(string(h.State), clock(h.StartedTime), ended, h.Version, h.Image, verified, h.AcceptedRisks))
	}
	return out.String()
}

// fields writes fields of a line: nothing as -, and none at its end.
func fields(all ...string) string {
	for len(all) > 1 && all[len(all)-1] == "" {
		all = all[:len(all)-1]
	}
	for i := range all {
		if all[i] == "" {
			all[i] = "-"
		}
	}
	return strings.Join(all, " ")
}

func writeEvents(events []clusterversion.Event) string {
	var out bytes.Buffer
	for _, e := range events {
		kind := "Normal"
		if e.IsWarning {
			kind = "Warning"
		}
		fmt.Fprintf(&out, "%s %s %s\n", kind, e.Reason, e.Message)
	}
	return out.String()
}

// readStatus reads the output of writeStatus.
func readStatus(t *testing.T, text string) configv1.ClusterVersionStatus {
	t.Helper()
	var s configv1.ClusterVersionStatus
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if message, isMessage := strings.CutPrefix(line, "\t"); isMessage {
			last := lastMessage(&s)
			*last = strings.TrimPrefix(*last+"\n"+message, "\n")
			continue
		}
		readLine(t, &s, strings.Fields(line))
	}
	return s
}

// lastMessage returns the message of the condition that was read last.
func lastMessage(s *configv1.ClusterVersionStatus) *string {
	if len(s.Conditions) > 0 {
		return &s.Conditions[len(s.Conditions)-1].Message
	}
	return &s.ConditionalUpdates[len(s.ConditionalUpdates)-1].Conditions[0].Message
}

func readLine(t *testing.T, s *configv1.ClusterVersionStatus, words []string) {
	t.Helper()
	field := func(index int) string {
		if index >= len(words) || words[index] == "-" {
			return ""
		}
		return words[index]
	}
	release := configv1.Release{Version: field(1), Image: field(2), URL: configv1.URL(field(3))}
	if channels := field(4); channels != "" {
		release.Channels = strings.Split(channels, ",")
	}
	switch words[0] {
	case "desired":
		s.Desired = release
	case "update":
		s.AvailableUpdates = append(s.AvailableUpdates, release)
	case "conditional":
		s.ConditionalUpdates = append(s.ConditionalUpdates, configv1.ConditionalUpdate{
			Release: configv1.Release{Version: field(1), Image: field(2)},
			Conditions: []metav1.Condition{{
				Type:               field(3),
				Status:             metav1.ConditionStatus(field(4)),
				LastTransitionTime: at(t, field(5)),
				Reason:             field(6),
			}},
		})
	case "generation":
		if _, err := fmt.Sscan(field(1), &s.ObservedGeneration); err != nil {
			t.Fatal(err)
		}
	case "hash":
		s.VersionHash = field(1)
	case "capability":
		s.Capabilities.EnabledCapabilities = append(s.Capabilities.EnabledCapabilities,
			configv1.ClusterVersionCapability(field(1)))
	case "condition":
		s.Conditions = append(s.Conditions, configv1.ClusterOperatorStatusCondition{
			Type: configv1.ClusterStatusConditionType(field(1)), Status: configv1.ConditionStatus(field(2)),
			LastTransitionTime: at(t, field(3)), Reason: field(4),
		})
	case "history":
		entry := configv1.UpdateHistory{
			State: configv1.UpdateState(field(1)), StartedTime: at(t, field(2)), Version: field(4), Image: field(5),
			Verified: field(6) != "",
		}
		if field(3) != "" {
			ended := at(t, field(3))
			entry.CompletionTime = &ended
		}
		s.History = append(s.History, entry)
	default:
		t.Fatalf("no line of a status begins with %q", words[0])
	}
}

// at returns a time of the day of all transcripts.
func at(t *testing.T, clock string) metav1.Time {
	t.Helper()
	parsed, err := time.Parse(time.RFC3339, day+clock+"Z")
	if err != nil {
		t.Fatal(err)
	}
	return metav1.NewTime(parsed)
}
