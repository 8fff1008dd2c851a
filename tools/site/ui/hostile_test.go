package ui

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/tools/site/browser"
)

const (
	markup = `<script>alert(1)</script><img src=x onerror=alert(2)>"'><svg/onload=alert(3)>` +
		`<a href="javascript:alert(4)">`
	// escapes colour a terminal, set its title, and write from right to left.
	escapes = "\x1b[31m\x1b]0;title\x07\u202e\u2066"

	// widgets is a custom resource, for whose conditions nobody cares.
	widgets = `-- 0000_20_widgets_10_widgets.crd.yaml --
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
-- 0000_30_widgets_20_widget.yaml --
{apiVersion: example.com/v1, kind: Widget, metadata: {name: widget, namespace: NS}}
`

	// hostile is a release with texts of an attacker: a name, an annotation, a reason and a log.
	hostile = base + widgets + `-- 0000_30_widgets_10_role.yaml --
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: "<img src=x onerror=alert(5)>", namespace: NS, annotations: {example.com/text: $TEXT}}
rules: []
-- 0000_30_widgets_30_job.yaml --
apiVersion: batch/v1
kind: Job
metadata: {name: logs, namespace: NS}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: logs
        image: registry.example/logs
        env: [{name: SANDBOX_POD, value: fail}, {name: SANDBOX_LOG, value: $LOG}]
`
)

// showHostileTexts opens pages with texts of an attacker, also very long ones: they are shown as text.
func (s *stage) showHostileTexts(t *testing.T) {
	quoted := func(text string) string {
		result, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		return string(result)
	}
	long := strings.Repeat(markup+escapes+"\n", 6000) // about 0.8 MB
	r := release{"hostile", strings.NewReplacer("$TEXT", quoted(markup+escapes), "$LOG", quoted(long)).Replace(hostile)}
	s.start(t, r, "1.0.0")
	s.open(t, r.path(""))
	s.breakWidget(t, r, markup+escapes+strings.Repeat(markup, 2000))
	s.addEvent(t, r, markup+escapes)
	s.sees(t, `Widget[^]*<script>alert\(1\)`)
	s.isHarmless(t)
	for _, query := range []string{"kind=Widget.example.com&name=widget", "kind=Job.batch&name=logs",
		"kind=Role.rbac.authorization.k8s.io&name=%3Cimg+src%3Dx+onerror%3Dalert%285%29%3E"} {
		s.open(t, r.path("/object?namespace=hostile&"+query))
		s.Await(t, `document.querySelector("main").textContent.includes("alert(1)")`)
		s.isHarmless(t)
	}
	s.sees(t, "There are no events") // of the Role, whose name has characters that selectors have, too
	for _, path := range []string{"/", r.path("/objects"), r.path("/objects?q=%3Cscript%3E"), r.path("/history")} {
		s.open(t, path)
		s.isHarmless(t)
	}
}

// breakWidget gives the Widget of a release a reason why it is not ready.
func (s *stage) breakWidget(t testing.TB, r release, reason string) {
	t.Helper()
	client, err := dynamic.NewForConfig(cluster.Sandbox(t).Config)
	if err != nil {
		t.Fatal(err)
	}
	widgets := client.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"})
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []map[string]any{
		{"type": "Ready", "status": "False", "reason": "Broken", "message": reason, "lastTransitionTime": metav1.Now()},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	sandboxtest.EventuallySucceeds(t, func(ctx context.Context) error {
		_, err := widgets.Namespace(r.name).Patch(ctx, "widget", types.MergePatchType, patch, metav1.PatchOptions{},
			"status")
		return err
	})
}

// addEvent adds an event to the Widget of a release.
func (s *stage) addEvent(t *testing.T, r release, text string) {
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "widget", Namespace: r.name},
		InvolvedObject: corev1.ObjectReference{APIVersion: "example.com/v1", Kind: "Widget", Namespace: r.name,
			Name: "widget"},
		Type: corev1.EventTypeWarning, Reason: "Broken", Message: text, Count: 1,
		FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(),
	}
	events := cluster.Client(t).CoreV1().Events(r.name)
	if _, err := events.Create(t.Context(), event, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// isHarmless reports elements, characters and addresses that a text of an attacker has brought into the page.
func (s *stage) isHarmless(t *testing.T) {
	t.Helper()
	const elements = `[...document.querySelectorAll(
		"main script, main img, main [onload], main [onerror], [href^='javascript']")].map(one => one.outerHTML)`
	for _, element := range browser.Read(t, s.Tab, chromedp.Evaluate[[]string](elements)) {
		t.Errorf("the page has the element %.200s", element)
	}
	page := browser.Read(t, s.Tab, chromedp.Evaluate[string]("document.documentElement.outerHTML"))
	if strings.ContainsAny(page, escapes[:1]+"\x07\u202e\u2066") {
		t.Error("the page has control characters")
	}
	if len(page) > 1<<20 {
		t.Errorf("the page has %d bytes", len(page))
	}
	s.isQuiet(t)
}
