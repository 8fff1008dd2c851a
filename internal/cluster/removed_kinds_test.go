package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// wants calls FindOrGone until it returns the wanted verdict: "found", "removed", or
// a part of the error.
func wants(t *testing.T, c *cluster.Cluster, kind schema.GroupKind, wanted string) {
	t.Helper()
	sandboxtest.EventuallySucceeds(t, func(ctx context.Context) error {
		if wanted == "removed" {
			c.Refresh() // a found kind stays in the catalog until a refresh
		}
		got := verdict(c.FindOrGone(ctx, kind))
		if strings.Contains(got, wanted) {
			return nil
		}
		return fmt.Errorf("%s: %s, want %s", kind, got, wanted)
	})
}

func verdict(_ cluster.Resource, err error) string {
	switch {
	case err == nil:
		return "found"
	case errors.Is(err, cluster.ErrNotServed):
		return "removed"
	default:
		return "not known: " + err.Error()
	}
}

func TestAKindThatWasNeverServedCountsAsRemoved(t *testing.T) {
	c := testbed.Connect(t)
	for _, kind := range []schema.GroupKind{{Group: "never.example.com", Kind: "Thing"}, {Group: "apps", Kind: "Thing"},
		{Kind: "Thing"}} {
		if got := verdict(c.FindOrGone(t.Context(), kind)); got != "removed" {
			t.Errorf("%s: %s", kind, got)
		}
	}
}

func TestAKindIsRemovedWhenItsDefinitionIsDeleted(t *testing.T) {
	c, namespace := testbed.Connect(t), testbed.Namespace(t)
	kind, spec := widgets("going.example.com")
	definition := establish(t, c, spec)
	held := sandboxtest.ParseObject(t,
		"apiVersion: going.example.com/v1\nkind: Widget\nmetadata: {name: held, namespace: "+namespace+
			", finalizers: [example.com/hold]}")
	target := find(t, c, held)
	sandboxtest.ApplyObject(t, c, held)
	fresh := testbed.Connect(t)
	wants(t, fresh, kind, "found")

	defined := find(t, c, definition)
	if err := c.Delete(t.Context(), defined, "", definition.GetName(), definition.GetUID()); err != nil {
		t.Fatal(err)
	}
	sandboxtest.Await(t, testbed, definitions, definition.GetName(),
		hasCondition(apiextensionsv1.Terminating, apiextensionsv1.ConditionTrue))
	if got := verdict(testbed.Connect(t).FindOrGone(t.Context(), kind)); got == "removed" {
		t.Errorf("while an instance exists, the kind is %s", got)
	}

	release := []byte(`{"metadata":{"finalizers":null}}`)
	if _, err := c.In(target, namespace).Patch(t.Context(), "held", types.MergePatchType, release,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	sandboxtest.Await(t, testbed, definitions, definition.GetName(),
		func(d *apiextensionsv1.CustomResourceDefinition) bool {
			return d == nil
		})
	wants(t, fresh, kind, "removed")
}

// The kind may have instances from when it was served; no client sees them now.
func TestADefinedKindThatIsNotServedIsUnknown(t *testing.T) {
	c := testbed.Connect(t)
	_, first := widgets("clash.example.com")
	establish(t, c, strings.Replace(first, "plural: widgets", "plural: widgets, shortNames: [w]", 1))
	second := strings.NewReplacer("plural: widgets", "plural: wings, shortNames: [w]", "kind: Widget",
		"kind: Wing").Replace(first)
	clashing := define(t, c, second)
	sandboxtest.Await(t, testbed, definitions, clashing.GetName(),
		hasCondition(apiextensionsv1.NamesAccepted, apiextensionsv1.ConditionFalse))

	wing := schema.GroupKind{Group: "clash.example.com", Kind: "Wing"}
	if got, wanted := verdict(c.FindOrGone(t.Context(), wing)), "kind Wing.clash.example.com is not served now, but "+
		"CustomResourceDefinition wings.clash.example.com has it"; !strings.Contains(got, wanted) {
		t.Errorf("%s, want %s", got, wanted)
	}
	if got := verdict(c.FindOrGone(t.Context(),
		schema.GroupKind{Group: "clash.example.com", Kind: "Other"})); got != "removed" {
		t.Errorf("another kind of the group is %s", got)
	}
}

func TestAKindIsUnknownWithoutTheRightToReadDefinitions(t *testing.T) {
	config := testbed.Account(t, testbed.Namespace(t), "weak")
	for name, test := range map[string]struct{ token, wanted string }{
		"no right to list definitions": {config.BearerToken,
			"customresourcedefinitions.apiextensions.k8s.io is forbidden"},
		"no right to ask at all": {"no-rights", "ask the cluster for the kinds it serves"},
	} {
		config.BearerToken = test.token
		got := verdict(sandboxtest.Connect(t, config).FindOrGone(t.Context(),
			schema.GroupKind{Group: "never.example.com", Kind: "Thing"}))
		if !strings.HasPrefix(got, "not known") || !strings.Contains(got, test.wanted) {
			t.Errorf("%s: %s, want %s", name, got, test.wanted)
		}
	}
}

func TestAKindOfAnAggregatedAPI(t *testing.T) {
	c, namespace := testbed.Connect(t), testbed.Namespace(t)
	server := httptest.NewTLSServer(http.HandlerFunc(serveThings))
	defer server.Close()
	thing, other := schema.GroupKind{Group: "aggregated.example.com", Kind: "Thing"},
		schema.GroupKind{Group: "aggregated.example.com", Kind: "Other"}

	service := aggregate(t, c, namespace, closedPort(t))
	wants(t, c, thing, "discovery of kind Thing.aggregated.example.com failed") // it is down
	if got := verdict(c.FindOrGone(t.Context(), other)); !strings.HasPrefix(got, "not known") {
		t.Errorf("while the aggregated API does not list its kinds, another kind of its group is %s", got)
	}

	aggregate(t, c, namespace, portOf(t, server.Listener.Addr().String()))
	wants(t, c, thing, "found")   // it has come up
	wants(t, c, other, "removed") // the aggregated API lists its kinds, without this one

	if err := c.Delete(t.Context(), find(t, c, service), "", service.GetName(), service.GetUID()); err != nil {
		t.Fatal(err)
	}
	wants(t, c, thing, "removed")
}

// The server lists a kind a moment after its definition was created.
func TestAKindIsUnknownUntilDiscoveryListsIt(t *testing.T) {
	admin, namespace := testbed.Connect(t), testbed.Namespace(t)
	old := sandboxtest.Connect(t, frozen(t))
	kind, spec := widgets("late.example.com")
	thing := schema.GroupKind{Group: "aggregated.example.com", Kind: "Thing"}
	for _, kind := range []schema.GroupKind{kind, thing} {
		if got := verdict(old.FindOrGone(t.Context(), kind)); got != "removed" {
			t.Fatalf("before it was defined, kind %s is %s", kind, got)
		}
	}
	establish(t, admin, spec)
	aggregate(t, admin, namespace, closedPort(t))
	for kind, wanted := range map[schema.GroupKind]string{
		kind: "not known: kind Widget.late.example.com is not served now, but CustomResourceDefinition " +
			"widgets.late.example.com has it",
		thing: "not known: kind Thing.aggregated.example.com is not served now, but APIService " +
			"v1.aggregated.example.com has it",
	} {
		if got := verdict(old.FindOrGone(t.Context(), kind)); got != wanted {
			t.Errorf("%s: %s, want %s", kind, got, wanted)
		}
	}
}

// frozen is a way to a server whose list of kinds stays as it is when it is first read.
func frozen(t *testing.T) *rest.Config {
	t.Helper()
	type answer struct {
		header http.Header
		body   []byte
	}
	answers := map[string]answer{}
	return sandboxtest.Tap(testbed.Sandbox(t).Config,
		func(request *http.Request, send http.RoundTripper) (*http.Response, error) {
			path := request.URL.Path
			if path != "/api" && path != "/apis" {
				return send.RoundTrip(request)
			}
			if _, isKnown := answers[path]; !isKnown {
				response, err := send.RoundTrip(request)
				if err != nil {
					return nil, err
				}
				defer response.Body.Close()
				body, err := io.ReadAll(response.Body)
				if err != nil {
					return nil, err
				}
				answers[path] = answer{response.Header, body}
			}
			got := answers[path]
			return &http.Response{
				StatusCode: http.StatusOK,
				Header:     got.header,
				Body:       io.NopCloser(bytes.NewReader(got.body)),
				Request:    request,
			}, nil
		})
}

// aggregate leads an API to a port of this machine.
func aggregate(t *testing.T, c *cluster.Cluster, namespace string, port int) *unstructured.Unstructured {
	t.Helper()
	sandboxtest.Apply(t, c, fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: aggregated, namespace: %s}
spec: {type: ExternalName, externalName: localhost, ports: [{port: %d}]}`, namespace, port))
	applied := sandboxtest.Apply(t, c, fmt.Sprintf(`
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.aggregated.example.com}
spec:
  group: aggregated.example.com
  version: v1
  groupPriorityMinimum: 1000
  versionPriority: 10
  service: {namespace: %s, name: aggregated, port: %d}
  insecureSkipTLSVerify: true # a test's certificate names no Service
`, namespace, port))
	services := c.In(find(t, c, applied), "")
	t.Cleanup(func() { // the test's own context has ended by now
		_ = services.Delete(context.Background(), applied.GetName(), metav1.DeleteOptions{})
	})
	return applied
}

// closedPort is one where no server listens.
func closedPort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return portOf(t, listener.Addr().String())
}

func portOf(t *testing.T, address string) int {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return number
}

func serveThings(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/apis/aggregated.example.com/v1" {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"aggregated.example.com/v1",
		"resources":[{"name":"things","kind":"Thing","namespaced":true,"verbs":["get"]}]}`)
}
