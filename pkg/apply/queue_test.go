package apply_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/graph"
)

// In an install, what runs pods is applied after everything else, but for what others wait for.
// Else the order is that of the files.
func TestWhatRunsPodsIsInstalledLast(t *testing.T) {
	const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: NS}
spec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: registry.example/web}]}}}
`
	const webhook = `
-- 0000_10_a_20.yaml --
{apiVersion: v1, kind: Service, metadata: {name: called, namespace: NS}, spec: {selector: {app: web}, ports: [{port: 443}]}}
-- 0000_10_c_10.yaml --
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: hook-NS}
webhooks:
- name: hook.example.com
  clientConfig: {service: {namespace: NS, name: called}}
  admissionReviewVersions: [v1]
  sideEffects: None
  rules: [{apiGroups: [nobody.example.com], apiVersions: [v1], resources: [things], operations: [CREATE]}]
`
	for name, is := range map[string]struct {
		mode  graph.Mode
		files string
		want  []string
	}{
		"install":                          {graph.Install, "", []string{"settings", "web"}},
		"update":                           {graph.Update, "", []string{"web", "settings"}},
		"install of what a webhook awaits": {graph.Install, webhook, []string{"web", "settings", "called", "hook-NS"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := test.Namespace(t)
			files := "-- 0000_10_a_10.yaml --" + deployment + "-- 0000_10_b_10.yaml --\n{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: NS}}" + is.files
			did := run(t, t.Context(), load(t, namespace, namespace, files), apply.Options{Mode: is.mode, Workers: 1})
			want := strings.ReplaceAll(strings.Join(is.want, " "), "NS", namespace)
			if got := strings.Join(did.inTurn(), " "); got != want || did.Err != nil {
				t.Errorf("applied in the order %q, want %q; error %v", got, want, did.Err)
			}
		})
	}
}

// inTurn are the names of the objects that were applied, in the order in which they were.
func (a applied) inTurn() []string {
	var names []string
	for _, event := range a.events {
		if event.Type == apply.Applied {
			names = append(names, event.Object.Name)
		}
	}
	return names
}

// A custom resource doesn't wait for what stands before it once its definition is served.
func TestCustomResourcesAreInstalledAsSoonAsTheyCanBe(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	files := `-- 0000_10_a_10.yaml --
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: queued.NS.example.com}
spec:
  group: NS.example.com
  scope: Namespaced
  names: {plural: queued, kind: Queued}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`
	for i := range 40 {
		files += fmt.Sprintf("-- 0000_10_b%02d_10.yaml --\n{apiVersion: v1, kind: ConfigMap, metadata: {name: settings-%02d, namespace: NS}}\n", i, i)
	}
	files += "-- 0000_10_c_10.yaml --\n{apiVersion: NS.example.com/v1, kind: Queued, metadata: {name: custom, namespace: NS}}\n"
	served := make(chan struct{})
	c := connectBy(t, func(next http.RoundTripper, request *http.Request) (*http.Response, error) {
		if request.Method == http.MethodPatch && path.Base(request.URL.Path) == "settings-01" {
			select {
			case <-served:
			case <-time.After(patience):
				return nil, errors.New("the definition is not served")
			}
		}
		answer, err := next.RoundTrip(request)
		if err == nil && request.URL.Query().Has("watch") && path.Base(request.URL.Path) == "customresourcedefinitions" {
			answer.Body = &listened{ReadCloser: answer.Body, until: `"type":"Established","status":"True"`, heard: sync.OnceFunc(func() { close(served) })}
		}
		return answer, err
	})
	did := runOn(t, t.Context(), c, load(t, namespace, namespace, files), apply.Options{Mode: graph.Install, Workers: 1})
	got := did.inTurn()
	if at := slices.Index(got, "custom"); did.Err != nil || at < 2 || at > slices.Index(got, "settings-39") {
		t.Errorf("applied in the order %q; error %v", got, did.Err)
	}
}

// A listened body tells when something has been read of it.
type listened struct {
	io.ReadCloser
	until string
	heard func()
	read  []byte
}

func (l *listened) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	if l.read = append(l.read, p[:n]...); bytes.Contains(l.read, []byte(l.until)) {
		l.heard()
	}
	return n, err
}

// The server has to know a Namespace that was just made before anything comes into it, or it
// keeps that back for a while.
func TestNamespaceIsKnownBeforeAnythingComesIntoIt(t *testing.T) {
	for name, annotations := range map[string]string{"applied": "{}", "only ever made": `{release.openshift.io/create-only: "true"}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := test.Namespace(t) + "-new"
			var mu sync.Mutex
			var asked []string
			c := connectThrough(t, func(request *http.Request) error {
				mu.Lock()
				defer mu.Unlock()
				switch last := path.Base(request.URL.Path); {
				case request.URL.Query().Has("resourceVersion") && last == namespace:
					asked = append(asked, "read the namespace")
				case last == "settings":
					asked = append(asked, "write into it")
				}
				return nil
			})
			did := runOn(t, t.Context(), c, load(t, namespace, namespace, `
-- 10-namespace.yaml --
{apiVersion: v1, kind: Namespace, metadata: {name: NS, annotations: `+annotations+`}}
-- 20-settings.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: NS}}
`), apply.Options{Mode: graph.Install, NoWait: true})
			if want := []string{"read the namespace", "write into it"}; did.Err != nil || !slices.Equal(asked, want) {
				t.Errorf("it does %q, want %q; error %v", asked, want, did.Err)
			}
		})
	}
}
