package apply_test

import (
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/runlevel/runlevel/pkg/apply"
)

// A watch transfers whole objects, so it begins only when a run waits: in an install after all objects are applied, in
// an update after a level is applied, and never with NoWait.
func TestOnlyARunThatWaitsWatches(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		options apply.Options
		want    string
	}{
		"install": {apply.Options{Options: installMode}, "write write watch"},
		"update":  {apply.Options{Options: updateMode}, "write watch write"},
		"no wait": {apply.Options{Options: installMode, NoWait: true}, "write write"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := test.Namespace(t)
			release := load(t, namespace, namespace,
				deployed+strings.NewReplacer("0000_50_c", "0000_60_d", "{name: it, namespace",
					"{name: later, namespace").Replace(deployed))
			var mu sync.Mutex
			var sent []string
			c := connectThrough(t, func(request *http.Request) error {
				mu.Lock()
				defer mu.Unlock()
				isWatch := request.URL.Query().Get("watch") == "true"
				switch isAbout := strings.Contains(request.URL.Path, "/deployments"); {
				case isAbout && isWatch && !slices.Contains(sent, "watch"):
					sent = append(sent, "watch")
				case isAbout && request.Method == http.MethodPatch:
					sent = append(sent, "write")
				}
				return nil
			})
			if did := runOn(t, t.Context(), c, release, row.options); did.Err != nil {
				t.Fatal(did.Err)
			}
			mu.Lock()
			defer mu.Unlock()
			if got := strings.Join(sent, " "); got != row.want {
				t.Errorf("got requests for Deployments %s, want %s", got, row.want)
			}
		})
	}
}

// After a change, the run checks again whether unchanged objects are ready, but does not watch kinds whose objects stay
// ready until a client writes them.
func TestKindsThatStayReadyAreNotWatched(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	files := `
-- 0000_10_a_10_home.yaml --
{apiVersion: v1, kind: Namespace, metadata: {name: NS-home}}
-- 0000_10_a_20_crd.yaml --
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.NS.example.com}
spec:
  group: NS.example.com
  names: {kind: Thing, plural: things}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
-- 0000_20_b_thing.yaml --
{apiVersion: NS.example.com/v1, kind: Thing, metadata: {name: it, namespace: NS-home}, size: 1}
-- 0000_30_c_web.yaml --
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: NS-home}
spec:
  replicas: 0
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: registry.example/web}]}}
`
	mustApply(t, load(t, namespace, namespace, files), apply.Options{})
	var mu sync.Mutex
	watched := map[string]bool{}
	c := connectThrough(t, func(request *http.Request) error {
		if request.URL.Query().Get("watch") == "true" &&
			strings.Contains(request.URL.Query().Get("labelSelector"), namespace) {
			mu.Lock()
			defer mu.Unlock()
			watched[path.Base(request.URL.Path)] = true
		}
		return nil
	})
	did := runOn(t, t.Context(), c, load(t, namespace, namespace, strings.Replace(files, "size: 1", "size: 2", 1)),
		apply.Options{Options: updateMode})
	if want := map[string]bool{"things": true, "deployments": true}; did.Err != nil || !maps.Equal(watched, want) {
		t.Errorf("got watches %v, want %v; %v", watched, want, did.Err)
	}
}
