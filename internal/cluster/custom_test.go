package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

var apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}

// widgetsOf returns the resource of the widgets of a group.
func widgetsOf(group, version string) cluster.Resource {
	kind := schema.GroupVersionResource{Group: group, Version: version, Resource: "widgets"}
	return cluster.Resource{GroupVersionResource: kind, Kind: "Widget", Namespaced: true}
}

// isCustom is the answer of a connection that knows nothing yet.
func isCustom(t *testing.T, kind cluster.Resource) bool {
	t.Helper()
	custom, err := testbed.Connect(t).IsCustom(t.Context(), kind)
	if err != nil {
		t.Fatal(err)
	}
	return custom
}

// awaitCustom waits until the API server has taken notice of a definition.
func awaitCustom(t *testing.T, kind cluster.Resource) {
	t.Helper()
	sandboxtest.Await(t, testbed, apiServices, kind.Version+"."+kind.Group, func(service *map[string]any) bool {
		return service != nil
	})
}

// patchAPIService changes the APIService of a version of a group.
func patchAPIService(t *testing.T, version, patch string) {
	t.Helper()
	_, err := testbed.Connect(t).Objects.Resource(apiServices).Patch(t.Context(), version, types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

const elsewhere = `"spec": {"service": {"namespace": "default", "name": "missing"}}`

func labelled(value string) string {
	return `"metadata": {"labels": {"kube-aggregator.kubernetes.io/automanaged": ` + value + `}}`
}

func TestKindsOfDefinitionsAreCustom(t *testing.T) {
	_, definition := widgets("custom.example.com")
	establish(t, testbed.Connect(t), definition) // another connection learns the kind
	awaitCustom(t, widgetsOf("custom.example.com", "v1"))
	awaitCustom(t, widgetsOf("custom.example.com", "v2"))
	c := testbed.Connect(t)
	for kind, wanted := range map[schema.GroupVersionKind]bool{
		{Group: "custom.example.com", Version: "v1", Kind: "Widget"}:       true,
		{Group: "custom.example.com", Version: "v2", Kind: "Widget"}:       true,
		{Group: "custom.example.com", Version: "v1alpha1", Kind: "Widget"}: false, // not served
		{Group: "unserved.example.com", Version: "v1", Kind: "Widget"}:     false,
		{Group: "apps", Version: "v1", Kind: "Deployment"}:                 false,
		{Group: "apps", Version: "v1", Kind: "Unheard"}:                    false, // a kind of a newer server
		{Version: "v1", Kind: "ConfigMap"}:                                 false,
	} {
		resource := cluster.Resource{GroupVersionResource: kind.GroupVersion().WithResource("any"), Kind: kind.Kind}
		if custom, err := c.IsCustom(t.Context(), resource); err != nil || custom != wanted {
			t.Errorf("%s is custom: %t, %v; want %t", kind, custom, err, wanted)
		}
	}
}

// The label of an APIService names the controller that manages it, not the server of its objects.
func TestKindOfAnAggregatedAPIIsNotCustom(t *testing.T) {
	t.Run("in the place of a definition", func(t *testing.T) {
		_, definition := widgets("elsewhere.example.com")
		kind := widgetsOf("elsewhere.example.com", "v1")
		establish(t, testbed.Connect(t), definition)
		awaitCustom(t, kind)
		for _, label := range []string{"null", `"onstart"`} { // no controller corrects these labels
			patchAPIService(t, "v1.elsewhere.example.com", "{"+labelled(label)+", "+elsewhere+"}")
			if isCustom(t, kind) {
				t.Errorf("a kind of an aggregated API with label %s is custom", label)
			}
		}
		patchAPIService(t, "v1.elsewhere.example.com", "{"+labelled(`"true"`)+"}")
		sandboxtest.EventuallySucceeds(t, func(context.Context) error { // the API server puts it right
			if !isCustom(t, kind) {
				return errors.New("the kind is still not custom")
			}
			return nil
		})
	})
	t.Run("in the place of Kubernetes' own", func(t *testing.T) {
		t.Cleanup(func() { // the test's own context has ended by now
			back := "{" + labelled(`"onstart"`) + `, "spec": {"service": null}}`
			_, _ = testbed.Connect(t).Objects.Resource(apiServices).Patch(context.Background(), "v1.node.k8s.io",
				types.MergePatchType, []byte(back), metav1.PatchOptions{})
		})
		patchAPIService(t, "v1.node.k8s.io", "{"+labelled(`"true"`)+"}")
		if isCustom(t, cluster.Resource{
			GroupVersionResource: schema.GroupVersionResource{
				Group:    "node.k8s.io",
				Version:  "v1",
				Resource: "runtimeclasses",
			},
			Kind: "RuntimeClass",
		}) {
			t.Error("a kind of Kubernetes' own is custom")
		}
		patchAPIService(t, "v1.node.k8s.io", "{"+elsewhere+"}") // no controller corrects it, in spite of its label
		if isCustom(t, widgetsOf("node.k8s.io", "v1")) {
			t.Error("a kind of an aggregated API is custom")
		}
	})
}

// asked counts the requests of a connection for APIServices.
func asked(config *rest.Config) (counted *rest.Config, times *atomic.Int32) {
	times = new(atomic.Int32)
	return sandboxtest.Before(config, func(request *http.Request) error {
		if strings.HasSuffix(request.URL.Path, "/apiservices") {
			times.Add(1)
		}
		return nil
	}), times
}

func TestAPIServicesAreListedOnce(t *testing.T) {
	config, times := asked(testbed.Sandbox(t).Config)
	c := sandboxtest.Connect(t, config)
	widget, definition := widgets("once.example.com")
	kind := widgetsOf("once.example.com", "v1")
	expect := func(wanted bool, wantedTimes int32) {
		t.Helper()
		if custom, err := c.IsCustom(t.Context(), kind); err != nil || custom != wanted {
			t.Errorf("got IsCustom %t (%v), want %t", custom, err, wanted)
		}
		if got := times.Load(); got != wantedTimes {
			t.Errorf("sent %d requests, want %d", got, wantedTimes)
		}
	}
	expect(false, 1)
	expect(false, 1)
	learnt := sandboxtest.ParseObject(t, "spec:"+definition)
	c.Learn(learnt)
	expect(true, 1)
	c.Refresh() // the server does not list the kind, so it is still known from the definition
	expect(true, 1)
	c.Forget(widget)
	expect(false, 2)
	establish(t, testbed.Connect(t), definition)
	awaitCustom(t, kind)
	expect(false, 2)
	c.Refresh()
	expect(true, 3)
	expect(true, 3)
}

func TestIsCustomWithoutTheRightToReadAPIServices(t *testing.T) {
	_, definition := widgets("forbidden.example.com")
	establish(t, testbed.Connect(t), definition)
	config, times := asked(testbed.Account(t, testbed.Namespace(t), "no-rights"))
	c, kind := sandboxtest.Connect(t, config), widgetsOf("forbidden.example.com", "v1")
	for range 3 {
		custom, err := c.IsCustom(t.Context(), kind)
		if custom || !apierrors.IsForbidden(err) ||
			!strings.HasPrefix(err.Error(),
				"cannot determine whether kind Widget.forbidden.example.com is a definition's: ") {
			t.Errorf("got IsCustom %t (%v), want a forbidden error", custom, err)
		}
	}
	// the first refusal of a connection may be that of a server that has not read its roles
	if got := times.Load(); got != 2 {
		t.Errorf("sent %d requests, want 2", got)
	}
	c.Learn(sandboxtest.ParseObject(t, "spec:"+definition))
	if custom, err := c.IsCustom(t.Context(), kind); err != nil || !custom {
		t.Errorf("after the definition was learnt: got IsCustom %t (%v), want true", custom, err)
	}
}

// slow returns a connection to a server that answers when the test sends to the channel.
func slow(t *testing.T) (c *cluster.Cluster, answer chan int, times *atomic.Int32) {
	t.Helper()
	answer = make(chan int)
	config, times := asked(&rest.Config{Host: "http://cluster.example",
		Transport: sandboxtest.RoundTripper(func(request *http.Request) (*http.Response, error) {
			select {
			case status := <-answer:
				body := io.NopCloser(strings.NewReader(`{"kind": "APIServiceList", "apiVersion": "apiregistration.k8s.io/v1", "metadata": {}, "items": [
				{"kind": "APIService", "apiVersion": "apiregistration.k8s.io/v1", "metadata": {"name": "v1.slow.example.com"}, "spec": {"group": "slow.example.com", "version": "v1"}}]}`))
				header := http.Header{"Content-Type": {"application/json"}}
				return &http.Response{StatusCode: status, Header: header, Body: body, Request: request}, nil
			case <-request.Context().Done():
				return nil, request.Context().Err()
			}
		})})
	return sandboxtest.Connect(t, config), answer, times
}

func TestManyWhoWantToKnowWhatIsCustomShareOneRequest(t *testing.T) {
	kind := widgetsOf("slow.example.com", "v1")
	c, answer, times := slow(t)
	answers := make(chan string, 10)
	for range cap(answers) {
		go func() {
			custom, err := c.IsCustom(t.Context(), kind)
			answers <- fmt.Sprint(custom, err)
		}()
	}
	answer <- http.StatusOK
	for range cap(answers) {
		if got := <-answers; got != "true <nil>" {
			t.Errorf("got %s", got)
		}
	}
	if got := times.Load(); got != 1 {
		t.Errorf("asked %d times", got)
	}
}

func TestAFailureToAskWhatIsCustomIsNotKept(t *testing.T) {
	kind := widgetsOf("slow.example.com", "v1")
	c, answer, _ := slow(t)
	go func() { answer <- http.StatusBadGateway }()
	if custom, err := c.IsCustom(t.Context(), kind); err == nil || custom {
		t.Errorf("of a server that fails: %t, %v", custom, err)
	}
	go func() { answer <- http.StatusOK }()
	if custom, err := c.IsCustom(t.Context(), kind); err != nil || !custom {
		t.Errorf("asked again: %t, %v", custom, err)
	}
}
