package ready_test

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/sandbox/transcript"
)

// FuzzCheck checks objects that no API server would return: any field may have any type.
// Each verdict has a message of one line.
func FuzzCheck(f *testing.F) {
	for _, archive := range transcript.ReadAll(f, "testdata/verdicts/*/*.txtar") {
		for _, file := range archive.Files {
			if content, err := yaml.YAMLToJSON(file.Data); err == nil && strings.HasSuffix(file.Name, ".yaml") {
				f.Add(content)
			}
		}
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		var fields map[string]any
		if json.Unmarshal(content, &fields) != nil {
			return
		}
		object := &unstructured.Unstructured{Object: fields}
		related := ready.Related{Manifest: object}
		for _, standard := range []ready.Standard{ready.Full, ready.Upstream} {
			verdict := ready.Check(object, standard, related)
			switch verdict.State {
			case ready.Ready:
				if verdict != (ready.Verdict{State: ready.Ready}) {
					t.Errorf("the verdict on a ready object has a message: %+v", verdict)
				}
			case ready.Waiting, ready.Failed:
				if verdict.Message == "" || strings.ContainsAny(verdict.Message, "\n\r\x1b") {
					t.Errorf("no message of one line: %q", verdict.Message)
				}
			default:
				t.Errorf("no state: %+v", verdict)
			}
		}
	})
}

// FuzzPodProblems passes any pods and events. Each problem has a message of one line.
func FuzzPodProblems(f *testing.F) {
	for _, archive := range transcript.ReadAll(f, "testdata/podproblems/*.txtar") {
		var pods, events []byte
		for _, file := range archive.Files {
			document, _, _ := strings.Cut(string(file.Data), "\n---\n")
			content, err := yaml.YAMLToJSON([]byte(document))
			switch {
			case err != nil:
			case file.Name == "pods.yaml":
				pods = content
			case file.Name == "events.yaml":
				events = content
			}
		}
		f.Add(pods, events)
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var pod corev1.Pod
		var event corev1.Event
		if json.Unmarshal(first, &pod) != nil {
			return
		}
		_ = json.Unmarshal(second, &event)
		for _, problem := range ready.PodProblems([]corev1.Pod{pod}, []corev1.Event{event}, ready.Dependencies{}) {
			if problem.Message == "" || strings.ContainsAny(problem.Message, "\n\r\x1b") {
				t.Errorf("no message of one line: %+v", problem)
			}
		}
	})
}
