package apply_test

import (
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/graph"
)

// In an install, what runs pods is applied after everything else, and in an update in the order
// of the files, like all else of a component.
func TestWhatRunsPodsIsInstalledLast(t *testing.T) {
	for mode, want := range map[graph.Mode]string{graph.Install: "settings web", graph.Update: "web settings"} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			namespace := test.Namespace(t)
			did := run(t, t.Context(), load(t, namespace, namespace, `
-- 10-web.yaml --
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: NS}
spec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: registry.example/web}]}}}
-- 20-settings.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: NS}}
`), apply.Options{Mode: mode, Workers: 1})
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

// The server has to know a Namespace that was just made before anything comes into it, or it
// keeps that back for a while.
func TestNamespaceIsKnownBeforeAnythingComesIntoIt(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t) + "-new"
	var mu sync.Mutex
	var asked []string
	c := connectThrough(t, func(request *http.Request) error {
		mu.Lock()
		defer mu.Unlock()
		if name := path.Base(request.URL.Path); request.Method == http.MethodPatch || request.URL.Query().Has("resourceVersion") && name == namespace {
			asked = append(asked, request.Method+" "+name)
		}
		return nil
	})
	did := runOn(t, t.Context(), c, load(t, namespace, namespace, `
-- 10-namespace.yaml --
{apiVersion: v1, kind: Namespace, metadata: {name: NS}}
-- 20-settings.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: NS}}
`), apply.Options{Mode: graph.Install, NoWait: true})
	want := []string{"PATCH " + namespace, "GET " + namespace, "PATCH settings"}
	if did.Err != nil || !slices.Equal(asked, want) {
		t.Errorf("it asks %q, want %q; error %v", asked, want, did.Err)
	}
}
