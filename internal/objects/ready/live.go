package ready

import (
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// A liveObject is read without a Go type: fields that are missing or have another type count
// as not set yet.
type liveObject map[string]any

// number returns a whole number, or the fallback if there is none.
func (o liveObject) number(fallback int64, path ...string) int64 {
	value, _, _ := unstructured.NestedFieldNoCopy(o, path...)
	switch number := value.(type) {
	case int64:
		return number
	case int:
		return int64(number)
	case float64: // as encoding/json decodes it
		return int64(number)
	default:
		return fallback
	}
}

func (o liveObject) text(path ...string) string {
	text, _, _ := unstructured.NestedString(o, path...)
	return text
}

func (o liveObject) flag(path ...string) bool {
	flag, _, _ := unstructured.NestedBool(o, path...)
	return flag
}

// list returns the mappings in a list.
func (o liveObject) list(path ...string) []liveObject {
	value, _, _ := unstructured.NestedFieldNoCopy(o, path...)
	items, _ := value.([]any)
	var found []liveObject
	for _, item := range items {
		if fields, isMapping := item.(map[string]any); isMapping {
			found = append(found, fields)
		}
	}
	return found
}

// A condition is a condition of an object's status; empty if it does not exist.
type condition struct{ status, reason, message string }

func (o liveObject) condition(kind string) condition {
	for _, c := range o.list("status", "conditions") {
		if c.text("type") == kind {
			return condition{status: c.text("status"), reason: c.text("reason"), message: c.text("message")}
		}
	}
	return condition{}
}

func (c condition) isTrue() bool  { return c.status == "True" }
func (c condition) isFalse() bool { return c.status == "False" }

// messageOr returns the message or the reason of a condition, or the fallback if both are empty.
func (c condition) messageOr(otherwise string) string {
	switch {
	case c.message != "":
		return sentence(c.message)
	case c.reason != "":
		return c.reason
	default:
		return otherwise
	}
}

// reasonAndMessage returns both; as messageOr if either is empty.
func (c condition) reasonAndMessage(otherwise string) string {
	if c.reason == "" || c.message == "" {
		return c.messageOr(otherwise)
	}
	return c.reason + ": " + sentence(c.message)
}

// isBehindGeneration reports whether the observedGeneration is behind the generation. Many custom
// resources have no observedGeneration.
func (o liveObject) isBehindGeneration() bool {
	generation := o.number(0, "metadata", "generation")
	return o.number(generation, "status", "observedGeneration") < generation
}

// maxMessage limits the length of a shown message: the longest messages of Kubernetes itself are
// shorter, and a list has room for it.
const maxMessage = 601 // characters

// sentence converts a foreign message to one line of our messages: in lower case, unless
// it begins with a name, and without a full stop.
func sentence(text string) string {
	text = printable.Line(printable.Shorten(strings.TrimRight(strings.Join(strings.Fields(text), " "), "."),
		maxMessage))
	first, _, _ := strings.Cut(text, " ")
	for i, r := range first {
		if i > 0 && !unicode.IsLower(r) && !strings.ContainsRune("'-:,", r) {
			return text
		}
	}
	return strings.ToLower(first) + text[len(first):]
}

// WithoutProbe returns the containers of a workload that are ready as soon as they have started: they have neither a
// readiness probe nor a startup probe. It returns none if the workload sets minReadySeconds, or has the annotation
// runlevel.dev/ready.
func WithoutProbe(manifest *unstructured.Unstructured) []string {
	o := liveObject(manifest.Object)
	_, isMarked := manifest.GetAnnotations()[Annotation]
	kind := manifest.GroupVersionKind().GroupKind()
	runsForever := kinds.IsWorkload(kind) && kind.Group == kinds.Deployment.Group
	if !runsForever || isMarked || o.number(0, "spec", "minReadySeconds") > 0 ||
		o.wantedReplicas() == 0 {
		return nil
	}
	var names []string
	containers, _, _ := unstructured.NestedSlice(manifest.Object, "spec", "template", "spec", "containers")
	for _, container := range containers {
		if fields, _ := container.(map[string]any); fields["readinessProbe"] == nil && fields["startupProbe"] == nil {
			name, _ := fields["name"].(string)
			names = append(names, name)
		}
	}
	return names
}

// AvailableSince returns the time since which a Deployment has all of its replicas, according to its conditions; zero
// if unknown.
func AvailableSince(object *unstructured.Unstructured) time.Time {
	var since time.Time
	if object.GroupVersionKind().GroupKind() != kinds.Deployment {
		return since
	}
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, item := range conditions {
		condition, _ := item.(map[string]any)
		for _, field := range []string{"lastTransitionTime", "lastUpdateTime"} {
			text, _ := condition[field].(string)
			if when, err := time.Parse(time.RFC3339, text); err == nil && when.After(since) {
				since = when
			}
		}
	}
	return since
}
