package apply_test

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/graph"
)

// A watch brings whole objects, so there is none before somebody waits: in an install when all
// is applied, in an update when a level is, and for nobody with NoWait.
func TestWhoWaitsWatches(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		options apply.Options
		want    string
	}{
		"install": {apply.Options{Mode: graph.Install}, "write write watch"},
		"update":  {apply.Options{Mode: graph.Update}, "write watch write"},
		"no wait": {apply.Options{Mode: graph.Install, NoWait: true}, "write write"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := test.Namespace(t)
			release := load(t, namespace, namespace, deployed+strings.NewReplacer("0000_50_c", "0000_60_d", "{name: it, namespace", "{name: later, namespace").Replace(deployed))
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
				t.Errorf("what was sent about Deployments: %s; want %s", got, row.want)
			}
		})
	}
}
