package ready_test

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/sandbox/transcript"
)

// TestVerdicts reads objects and related objects, and compares the verdicts on each by both standards.
func TestVerdicts(t *testing.T) {
	for _, archive := range transcript.ReadAll(t, "testdata/verdicts/*/*.txtar") {
		t.Run(archive.Name, func(t *testing.T) {
			related := readAround(t, archive)
			var got strings.Builder
			for _, file := range archive.Files {
				if !strings.HasSuffix(file.Name, ".yaml") || file.Name == "around.yaml" ||
					file.Name == "manifest.yaml" {
					continue
				}
				object := readObject(t, file.Data)
				fmt.Fprintln(&got, strings.TrimSuffix(file.Name, ".yaml"))
				for _, standard := range []ready.Standard{ready.Full, ready.Upstream} {
					verdict := ready.Check(object, standard, related)
					fmt.Fprintf(&got, "\t%s: %s\n", standard, show(verdict))
					if verdict.State != ready.Ready && object.GetDeletionTimestamp() == nil &&
						!ready.Awaits(object, standard) {
						t.Errorf("%s: not watched by standard %s", file.Name, standard)
					}
				}
			}
			archive.Expect(t, "want", got.String())
		})
	}
}

func TestPodProblems(t *testing.T) {
	for _, archive := range transcript.ReadAll(t, "testdata/podproblems/*.txtar") {
		t.Run(archive.Name, func(t *testing.T) {
			var pods []corev1.Pod
			var events []corev1.Event
			var on ready.Dependencies
			for _, file := range archive.Files {
				for _, document := range bytes.Split(file.Data, []byte("\n---\n")) {
					switch {
					case strings.HasSuffix(file.Name, "pods.yaml"):
						pods = append(pods, *typed[corev1.Pod](t, document))
					case strings.HasSuffix(file.Name, "events.yaml"):
						events = append(events, *typed[corev1.Event](t, document))
					case file.Name == "on.yaml":
						on = *typed[ready.Dependencies](t, document)
					}
				}
			}
			var got strings.Builder
			for _, problem := range ready.PodProblems(pods, events, on) {
				fmt.Fprintln(&got, showProblem(problem))
			}
			archive.Expect(t, "want", got.String())
		})
	}
}

// show returns a verdict in one line.
func show(v ready.Verdict) string {
	text := string(v.State)
	if v.Message != "" {
		text += ": " + v.Message
	}
	if v.Reason != "" || v.Effect != "" {
		text += fmt.Sprintf(" [%s %s]", v.Reason, v.Effect)
	}
	return text
}

func showProblem(problem ready.PodProblem) string {
	text := problem.Object + ": " + problem.Message
	switch {
	case problem.Previous:
		text += " [log of the last " + problem.Container + "]"
	case problem.WantsLog:
		text += " [log of " + problem.Container + "]"
	}
	return text
}

func readAround(t testing.TB, archive *transcript.Transcript) ready.Related {
	t.Helper()
	var related ready.Related
	for _, file := range archive.Files {
		switch file.Name {
		case "manifest.yaml":
			related.Manifest = readObject(t, file.Data)
		case "around.yaml":
			var written struct {
				Installing bool
				Serving    []string
			}
			if err := yaml.UnmarshalStrict(file.Data, &written); err != nil {
				t.Fatal(err)
			}
			related.Installing, related.Serving = written.Installing, map[types.NamespacedName]bool{}
			for _, service := range written.Serving {
				namespace, name, _ := strings.Cut(service, "/")
				related.Serving[types.NamespacedName{Namespace: namespace, Name: name}] = true
			}
		}
	}
	return related
}

// readObject reads an object as a client does, with the same types of numbers.
func readObject(t testing.TB, text []byte) *unstructured.Unstructured {
	t.Helper()
	content, err := yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(content); err != nil {
		t.Fatal(err)
	}
	return object
}

func typed[T any](t testing.TB, text []byte) *T {
	t.Helper()
	object := new(T)
	if err := yaml.UnmarshalStrict(text, object); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return object
}

// TestMessagesOfTheDocumentation looks for each message of docs/readiness.md in the transcripts.
func TestMessagesOfTheDocumentation(t *testing.T) {
	page, err := os.ReadFile("../../../docs/readiness.md")
	if err != nil {
		t.Fatal(err)
	}
	var shownBy strings.Builder
	for _, pattern := range []string{"testdata/verdicts/*/*.txtar", "testdata/podproblems/*.txtar"} {
		for _, file := range transcript.ReadAll(t, pattern) {
			shownBy.WriteString(file.Section("want"))
		}
	}
	shown := 0
	for _, quoted := range regexp.MustCompile("`[^`\n]+`").FindAllString(string(page), -1) {
		message := strings.Trim(quoted, "`")
		if !strings.Contains(message, " ") || strings.HasPrefix(message, "runlevel ") {
			continue // a field, a flag, a reason
		}
		shown++
		if !strings.Contains(shownBy.String(), message) {
			t.Errorf("docs/readiness.md has a message that no transcript has: %s", message)
		}
	}
	if shown < 25 {
		t.Errorf("the documentation has %d messages only", shown)
	}
}
