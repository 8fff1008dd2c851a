package apply_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/graph"
)

// component is one that has two objects which only hold data, and one that gives the rights of
// the second to somebody.
const component = `
-- 0000_10_web_10_first.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: first, namespace: NS}}
-- 0000_10_web_20_second.yaml --
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: second, namespace: NS}}
-- 0000_10_web_30_third.yaml --
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: third, namespace: NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: second}
`

// In an install, what only holds data does not wait for what comes before it in its component.
// What may need that does, and so does everything in an update.
func TestWhatOnlyHoldsDataIsAppliedSideBySide(t *testing.T) {
	for mode, want := range map[graph.Mode]string{graph.Install: "second, first, third", graph.Update: "first, second, third"} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			namespace := test.Namespace(t)
			var mu sync.Mutex
			var done []string
			second := make(chan struct{})
			c := connectThrough(t, func(request *http.Request) error {
				if mode == graph.Install && request.Method == http.MethodPatch && strings.HasSuffix(request.URL.Path, "/first") {
					select {
					case <-second:
					case <-request.Context().Done():
						return errors.New("nothing came beside it")
					}
				}
				return nil
			})
			did := runOn(t, t.Context(), c, load(t, namespace, namespace, component), apply.Options{Mode: mode, Tell: func(event apply.Event) {
				mu.Lock()
				defer mu.Unlock()
				if event.Type == apply.Applied {
					done = append(done, event.Object.Name)
				}
				if event.Type == apply.Applied && event.Object.Name == "second" {
					close(second)
				}
			}})
			if got := strings.Join(done, ", "); got != want || did.Err != nil {
				t.Error(got, did.Err)
			}
		})
	}
}

// A refuser answers the requests about an object with a refusal, until another one is there.
type refuser struct {
	next           http.RoundTripper
	refused, until string
	isThere        chan struct{}
	refusals       chan struct{}
}

func (r refuser) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodPatch {
		return r.next.RoundTrip(request)
	}
	switch {
	case strings.HasSuffix(request.URL.Path, "/"+r.until):
		<-r.refusals
		defer close(r.isThere)
	case strings.HasSuffix(request.URL.Path, "/"+r.refused):
		select {
		case <-r.isThere:
		default:
			defer close(r.refusals)
			return &http.Response{
				StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}}, Request: request,
				Body: io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"reason":"Forbidden",
					"message":"admission webhook \"order.example.com\" denied the request: it needs the other one"}`)),
			}, nil
		}
	}
	return r.next.RoundTrip(request)
}

// What is refused since it was begun before its turn, is tried again when it is.
func TestWhatIsRefusedBeforeItsTurnIsTriedAgain(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	config := rest.CopyConfig(test.Sandbox(t).Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return refuser{next: next, refused: "second", until: "first", isThere: make(chan struct{}), refusals: make(chan struct{})}
	})
	c, err := cluster.Connect(config)
	must(t, err)
	did := runOn(t, t.Context(), c, load(t, namespace, namespace, component), apply.Options{Mode: graph.Install})
	if did.Err != nil || !strings.Contains(did.sequence(namespace), "created Role second") {
		t.Error(did.Err, did.sequence(namespace))
	}
}

// What can't be applied holds up what comes after it in its component, and not what stands
// beside it.
func TestWhatFailsBesideOthersHoldsUpWhatComesAfter(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	broken := strings.Replace(component, "name: first, namespace: NS}", "name: first, namespace: NS}, data: {key: [no, text]}", 1)
	did := run(t, t.Context(), load(t, namespace, namespace, broken), apply.Options{Mode: graph.Install})
	want := strings.ReplaceAll("failed ConfigMap NS/first\ncreated Role NS/second\nnot done RoleBinding NS/third\n", "NS", namespace)
	if got := did.actions(); got != want {
		t.Error(got)
	}
}
