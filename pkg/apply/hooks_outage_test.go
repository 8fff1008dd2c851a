package apply_test

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/pkg/apply"
)

// TestServerIsKilledWhileAHookRuns: if an apply can't read the state of its hook, it continues when the server is back.
func TestServerIsKilledWhileAHookRuns(t *testing.T) {
	t.Parallel()
	own := sandboxtest.Start(t, sandbox.Options{})
	var made atomic.Int32
	inVain := make(chan struct{}, 1)
	c, err := cluster.Connect(sandboxtest.Tap(own.Config,
		func(request *http.Request, send http.RoundTripper) (*http.Response, error) {
			if request.Method == http.MethodPost && strings.HasSuffix(request.URL.Path, "/pods") {
				made.Add(1)
			}
			answer, err := send.RoundTrip(request)
			if err != nil && strings.HasSuffix(request.URL.Path, "/deployments/web") {
				select {
				case inVain <- struct{}{}:
				default: // the test knows
				}
			}
			return answer, err
		}))
	must(t, err)
	var once sync.Once
	var outage sync.WaitGroup
	options := apply.Options{Options: installMode, ReportWaits: quickly, OnEvent: func(event apply.Event) {
		if event.Type == apply.Waiting && strings.HasSuffix(event.Message, " runs") {
			once.Do(func() {
				outage.Go(func() {
					must(t, own.Kill(sandbox.APIServer))
					<-inVain
					must(t, own.Resume(t.Context(), sandbox.APIServer))
					endHooks(t, own.Config)
				})
			})
		}
	}}
	release := hookedRelease{
		image: "one",
		hooks: hookThat("pre", "Abort", runsOn) + hookThat("post", "Ignore", succeeds),
	}
	did := runOn(t, t.Context(), c, load(t, "outage", "default", release.files()), options)
	outage.Wait()
	if did.Err != nil || made.Load() != 2 {
		t.Errorf("%d pods of hooks were created: %v", made.Load(), did.Err)
	}
}

// endHooks ends the pods of hooks that run.
func endHooks(t *testing.T, config *rest.Config) {
	pods := sandboxtest.Connect(t, config).Client.CoreV1().Pods("default")
	list, err := pods.List(t.Context(), metav1.ListOptions{LabelSelector: deploymenthook.DeploymentLabel})
	must(t, err)
	for _, pod := range list.Items {
		end := []byte(`{"metadata": {"annotations": {"sandbox.runlevel.dev/exit-code": "0"}}}`)
		_, err := pods.Patch(t.Context(), pod.Name, types.MergePatchType, end, metav1.PatchOptions{})
		must(t, err)
	}
}
