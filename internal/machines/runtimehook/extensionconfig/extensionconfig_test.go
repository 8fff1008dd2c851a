//lint:file-ignore SA1019 the deprecated conditions are compared as well

package extensionconfig_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/machines/runtimehook"
	"github.com/runlevel/runlevel/internal/sandbox/runtimehooktest"
)

// recordedStatus is the status that Cluster API's own controller wrote for the same extension, but for the times.
const recordedStatus = `
conditions:
- {type: Discovered, status: "True", reason: Discovered, message: "", observedGeneration: 1}
- {type: Paused, status: "False", reason: NotPaused, message: "", observedGeneration: 1}
deprecated:
  v1beta1:
    conditions:
    - {type: Discovered, status: "True"}
handlers:
- failurePolicy: Fail
  name: can-update-machineset.ext
  requestHook: {apiVersion: hooks.runtime.cluster.x-k8s.io/v1alpha1, hook: CanUpdateMachineSet}
  timeoutSeconds: 10
- failurePolicy: Fail
  name: update-machine.ext
  requestHook: {apiVersion: hooks.runtime.cluster.x-k8s.io/v1alpha1, hook: UpdateMachine}
  timeoutSeconds: 10
- failurePolicy: Fail
  name: can-update-machine.ext
  requestHook: {apiVersion: hooks.runtime.cluster.x-k8s.io/v1alpha1, hook: CanUpdateMachine}
  timeoutSeconds: 10
`

func TestTheStatusIsThatOfClusterAPI(t *testing.T) {
	s := newFixture(t)
	s.create("ext", s.newExtension(handlers).ClientConfig())
	config := s.await("ext", runtimev1.ExtensionConfigDiscoveredCondition, metav1.ConditionTrue, "")
	var want runtimev1.ExtensionConfigStatus
	s.Must(yaml.UnmarshalStrict([]byte(recordedStatus), &want))
	got := config.Status.DeepCopy()
	slices.SortFunc(got.Conditions, func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) })
	for i := range got.Conditions {
		got.Conditions[i].LastTransitionTime = metav1.Time{}
	}
	for i := range got.Deprecated.V1Beta1.Conditions {
		got.Deprecated.V1Beta1.Conditions[i].LastTransitionTime = metav1.Time{}
	}
	if diff := cmp.Diff(&want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for _, hook := range []string{runtimehook.CanUpdateMachineSet, runtimehook.CanUpdateMachine,
		runtimehook.UpdateMachine} {
		if name := s.find(hook); !strings.HasSuffix(name, ".ext") {
			t.Errorf("%s: %s", hook, name)
		}
	}
	if name := s.find("BeforeClusterDelete"); name != "none" {
		t.Errorf("%s", name)
	}
}

// TestExtensionsThatAreRefused checks that the condition has the reason, and that no hook is called meanwhile. When an
// extension answers correctly, it is discovered without a change of its ExtensionConfig.
func TestExtensionsThatAreRefused(t *testing.T) {
	s := newFixture(t)
	other := runtimehooktest.New(t)
	const update = `{"name":"u","requestHook":{"apiVersion":"hooks.runtime.cluster.x-k8s.io/v1alpha1","hook":"UpdateMachine"}`
	for name, test := range map[string]struct {
		answer string
		change func(*runtimev1.ExtensionConfig)
		want   string
	}{
		"ignore": {
			answer: `{"status":"Success","handlers":[` + update + `,"failurePolicy":"Ignore"}]}`,
			want:   "failurePolicy Ignore of UpdateMachine is refused",
		},
		"twice": {
			answer: `{"status":"Success","handlers":[` + update + `},` + update + `}]}`,
			want:   `two handlers are called "u"`,
		},
		"slow": {
			answer: `{"status":"Success","handlers":[` + update + `,"timeoutSeconds":31}]}`,
			want:   "timeoutSeconds is 31",
		},
		"unknown": {
			answer: strings.ReplaceAll(handlers, "UpdateMachine\"", "Explode\""),
			want:   "unknown hook Explode",
		},
		"failure": {answer: `{"status":"Failure","message":"no"}`, want: "answered Failure (no)"},
		"foreign": {
			answer: handlers,
			change: func(c *runtimev1.ExtensionConfig) { c.Spec.ClientConfig.CABundle = other.CA() },
			want:   "has a certificate from an unknown authority",
		},
		"plaintext": {
			answer: handlers,
			change: func(c *runtimev1.ExtensionConfig) { c.Spec.ClientConfig.URL = "http://example.com" },
			want:   `spec.clientConfig.url begins with "http"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			sub := &fixture{Fixture: s.In(t), hooks: s.hooks}
			extension := sub.newExtension(test.answer)
			sub.create(name, extension.ClientConfig(), func(c *runtimev1.ExtensionConfig) {
				if test.change != nil {
					test.change(c)
				}
			})
			config := sub.await(name, runtimev1.ExtensionConfigDiscoveredCondition, metav1.ConditionFalse, test.want)
			discovered := config.Status.Deprecated.V1Beta1.Conditions[0]
			if discovered.Reason != "DiscoveryFailed" || discovered.Severity != clusterv1.ConditionSeverityError ||
				!strings.HasPrefix(discovered.Message, "Error in discovery: extension "+name) {
				t.Errorf("%+v", discovered)
			}
			if handler := sub.find(runtimehook.UpdateMachine); !strings.HasPrefix(handler,
				"extension "+name+" is not discovered (Error in discovery: ") {
				t.Errorf("a hook finds %s", handler)
			}
			if test.change == nil {
				extension.Answer("Discovery", handlers)
				sub.await(name, runtimev1.ExtensionConfigDiscoveredCondition, metav1.ConditionTrue, "")
			}
		})
	}
}

// The handlers of an extension stay while it does not answer, and are removed when it answers with others.
func TestHandlersOfAnExtensionThatIsDown(t *testing.T) {
	s := newFixture(t)
	extension := s.newExtension(handlers)
	s.create("ext", extension.ClientConfig())
	s.await("ext", runtimev1.ExtensionConfigDiscoveredCondition, metav1.ConditionTrue, "")
	extension.Answer("Discovery", "garbage")
	config := s.await("ext", runtimev1.ExtensionConfigDiscoveredCondition, metav1.ConditionFalse,
		"sent a response that is not valid JSON for the hook")
	if len(config.Status.Handlers) != 3 || s.find(runtimehook.UpdateMachine) != "update-machine.ext" {
		t.Errorf("%v, %s", config.Status.Handlers, s.find(runtimehook.UpdateMachine))
	}
	extension.Answer("Discovery",
		`{"status":"Success","handlers":[{"name":"other","requestHook":{"apiVersion":"hooks.runtime.cluster.x-k8s.io/v1alpha1","hook":"UpdateMachine"}}]}`)
	config = s.await("ext", runtimev1.ExtensionConfigDiscoveredCondition, metav1.ConditionTrue, "")
	if names := namesOf(config); !slices.Equal(names, []string{"other.ext"}) {
		t.Errorf("%v", names)
	}
	extension.Stop()
	config = s.await("ext", runtimev1.ExtensionConfigDiscoveredCondition, metav1.ConditionFalse,
		"can't be reached at 127.0.0.1:")
	if names := namesOf(config); !slices.Equal(names, []string{"other.ext"}) {
		t.Errorf("%v", names)
	}
}

// A paused ExtensionConfig is left alone.
func TestPause(t *testing.T) {
	s := newFixture(t)
	extension := s.newExtension(handlers)
	config := s.create("ext", extension.ClientConfig(), func(c *runtimev1.ExtensionConfig) {
		c.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
	})
	s.await("ext", clusterv1.PausedCondition, metav1.ConditionTrue, "")
	if calls := extension.Calls(); len(calls) > 0 {
		t.Errorf("%v", calls)
	}
	if handler := s.find(runtimehook.UpdateMachine); !strings.HasPrefix(handler,
		"extension ext is not discovered yet: wait, or see whether ExtensionConfig ext is paused") {
		t.Errorf("%s", handler)
	}
	s.MustPatch(config, `{"metadata":{"annotations":null}}`)
	s.await("ext", clusterv1.PausedCondition, metav1.ConditionFalse, "")
	s.await("ext", runtimev1.ExtensionConfigDiscoveredCondition, metav1.ConditionTrue, "")
}

// TestRegistry finds the extension that serves a namespace. Two that serve it are refused.
func TestRegistry(t *testing.T) {
	s := newFixture(t)
	namespace := shared.Kubernetes(t).CoreV1().Namespaces()
	found, err := namespace.Get(t.Context(), s.Namespace, metav1.GetOptions{})
	s.Must(err)
	selecting := func(team string) func(*runtimev1.ExtensionConfig) {
		return func(c *runtimev1.ExtensionConfig) {
			c.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": team}}
		}
	}
	extension := s.newExtension(handlers)
	s.create("a", extension.ClientConfig(), selecting("a"))
	b := s.create("b", extension.ClientConfig(), selecting("b"))
	for _, name := range []string{"a", "b"} {
		s.await(name, runtimev1.ExtensionConfigDiscoveredCondition, metav1.ConditionTrue, "")
	}
	if handler := s.find(runtimehook.UpdateMachine); handler != "none" {
		t.Errorf("without a label: %s", handler)
	}
	s.MustPatch(found, `{"metadata":{"labels":{"team":"b"}}}`)
	if handler := s.find(runtimehook.UpdateMachine); handler != "update-machine.b" {
		t.Errorf("with a label: %s", handler)
	}
	s.create("all", extension.ClientConfig())
	s.await("all", runtimev1.ExtensionConfigDiscoveredCondition, metav1.ConditionTrue, "")
	const want = "extensions update-machine.all, update-machine.b all serve the hook UpdateMachine, but only one may"
	if handler := s.find(runtimehook.UpdateMachine); !strings.HasPrefix(handler, want) {
		t.Errorf("with two: %s", handler)
	}
	s.MustDelete(b)
	if handler := s.find(runtimehook.UpdateMachine); handler != "update-machine.all" {
		t.Errorf("after a deletion: %s", handler)
	}
	s.MustPatch(&runtimev1.ExtensionConfig{ObjectMeta: metav1.ObjectMeta{Name: "all"}},
		`{"spec":{"namespaceSelector":{"matchExpressions":[{"key":"team","operator":"Exists"}]}}}`)
	s.await("all", runtimev1.ExtensionConfigDiscoveredCondition, metav1.ConditionTrue, "")
	s.MustPatch(found, `{"metadata":{"labels":{"team":null}}}`)
	if handler := s.find(runtimehook.UpdateMachine); handler != "none" {
		t.Errorf("without a label again: %s", handler)
	}
}
