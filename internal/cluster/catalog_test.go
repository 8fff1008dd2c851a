package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// widgets returns a kind with two served versions and one unserved version, and its definition.
func widgets(group string) (kind schema.GroupKind, definition string) {
	return schema.GroupKind{Group: group, Kind: "Widget"}, `
  group: ` + group + `
  scope: Namespaced
  names: {kind: Widget, plural: widgets}
  versions:
  - {name: v2, served: true, storage: true, schema: &any {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
  - {name: v1, served: true, storage: false, schema: *any}
  - {name: v1alpha1, served: false, storage: false, schema: *any}
`
}

func TestFindKnowsKubernetesOwnKinds(t *testing.T) {
	c := testbed.Connect(t)
	for kind, wanted := range map[schema.GroupVersionKind]string{
		{Version: "v1", Kind: "ConfigMap"}:                     "/v1 configmaps, namespaced true",
		{Version: "v1", Kind: "Namespace"}:                     "/v1 namespaces, namespaced false",
		{Group: "apps", Version: "v1", Kind: "Deployment"}:     "apps/v1 deployments, namespaced true",
		{Version: "v1", Kind: "Event"}:                         "/v1 events, namespaced true",
		{Group: "events.k8s.io", Version: "v1", Kind: "Event"}: "events.k8s.io/v1 events, namespaced true",
		kinds.CustomResourceDefinition.WithVersion("v1"): "apiextensions.k8s.io/v1 " +
			"customresourcedefinitions, namespaced false",
		{
			Group:   "autoscaling",
			Version: "v1",
			Kind:    "Scale",
		}: "the cluster has no kind Scale.autoscaling: the cluster does not serve it",
		{
			Group:   "apps",
			Version: "v1beta1",
			Kind:    "Deployment",
		}: "the cluster has Deployment.apps in version v1, not in v1beta1: the cluster does not serve it",
		{
			Group:   "unserved.example.com",
			Version: "v1",
			Kind:    "Widget",
		}: "the cluster has no kind Widget.unserved.example.com: the cluster does not serve it",
	} {
		found, err := c.Find(t.Context(), kind)
		got := fmt.Sprintf("%s/%s %s, namespaced %t", found.Group, found.Version, found.Resource, found.Namespaced)
		if err != nil {
			got = err.Error()
		}
		if got != wanted || err == nil && found.GroupKind() != kind.GroupKind() {
			t.Errorf("%s: %s, want %s", kind, got, wanted)
		}
	}
}

func TestKindsAreFoundByWhatPeopleCallThem(t *testing.T) {
	c := testbed.Connect(t)
	for _, test := range []struct {
		word  string
		group *string
		want  string
	}{
		{"Deployment", nil, "Deployment.apps"},
		{"deployments", nil, "Deployment.apps"},
		{"deploy", nil, "Deployment.apps"},
		{"NS", nil, "Namespace"},
		{"event", nil, "Event Event.events.k8s.io"},
		{"ev", new("events.k8s.io"), "Event.events.k8s.io"},
		{"configmap", new("apps"), ""},
		{"nonsense", nil, ""},
	} {
		found, err := c.FindByName(t.Context(), test.word, test.group)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, resource := range found {
			names = append(names, resource.GroupKind().String())
		}
		if got := strings.Join(names, " "); got != test.want {
			t.Errorf("%s is %q, want %q", test.word, got, test.want)
		}
	}
}

func TestFindKnowsAKindInTwoVersions(t *testing.T) {
	widget, definition := widgets("two.example.com")
	c := testbed.Connect(t)
	establish(t, testbed.Connect(t), definition) // another connection learns the kind
	sandboxtest.EventuallySucceeds(t, func(ctx context.Context) error {
		c.Refresh()
		_, err := c.FindKind(ctx, widget)
		return err
	})
	for _, version := range []string{"v1", "v2"} {
		if found, err := c.Find(t.Context(), widget.WithVersion(version)); err != nil || found.Version != version {
			t.Errorf("%s: found in %s, %v", version, found.Version, err)
		}
	}
	if found, err := c.FindKind(t.Context(), widget); err != nil || found.Version != "v2" {
		t.Errorf("in any version: found in %q, %v; want the preferred one", found.Version, err)
	}
	_, err := c.Find(t.Context(), widget.WithVersion("v1alpha1"))
	if !errors.Is(err, cluster.ErrNotServed) ||
		!strings.Contains(err.Error(), "the cluster has Widget.two.example.com in version v2, not in v1alpha1") {
		t.Errorf("in an unserved version: got error %v", err)
	}
}

func TestAllKindsAreThereOnce(t *testing.T) {
	widget, definition := widgets("all.example.com")
	c := testbed.Connect(t)
	c.Learn(sandboxtest.ParseObject(t, "spec:"+definition)) // the server never lists this kind
	all, _, err := c.AllKinds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	byKind, before := map[schema.GroupKind]cluster.Resource{}, ""
	for _, resource := range all {
		if other, exists := byKind[resource.GroupKind()]; exists {
			t.Errorf("kind %s also exists as %v", resource.GroupKind(), other)
		}
		if name := resource.Group + " " + resource.Resource; name <= before {
			t.Errorf("%q comes after %q", name, before)
		} else {
			before = name
		}
		byKind[resource.GroupKind()] = resource
	}
	if found := byKind[widget]; found.Version != "v2" || found.Verbs != nil {
		t.Errorf("got %+v for the learnt kind, want version v2 without verbs", found)
	}
	if found := byKind[kinds.ConfigMap]; found.Version != "v1" || !found.Namespaced ||
		!slices.Contains(found.Verbs, "list") {
		t.Errorf("ConfigMaps are there as %+v", found)
	}
}

func TestALearntKindIsFoundUntilTheServerListsIt(t *testing.T) {
	widget, definition := widgets("learnt.example.com")
	c := testbed.Connect(t)
	learnt := sandboxtest.ParseObject(t, "spec:"+definition) // the server never lists this kind
	if _, err := c.FindKind(t.Context(), widget); !errors.Is(err, cluster.ErrNotServed) {
		t.Fatalf("before the kind was learnt: got error %v", err)
	}
	c.Learn(learnt)
	for _, moment := range []string{"after it was learnt", "after a refresh"} {
		found, err := c.Find(t.Context(), widget.WithVersion("v1"))
		if err != nil || found.Resource != "widgets" || !found.Namespaced {
			t.Errorf("%s: found %+v, %v", moment, found, err)
		}
		if _, err := c.Find(t.Context(), widget.WithVersion("v1alpha1")); !errors.Is(err, cluster.ErrNotServed) {
			t.Errorf("%s, in an unserved version: got error %v, want %v", moment, err, cluster.ErrNotServed)
		}
		c.Refresh() // another caller looks for something else
	}
	c.Forget(widget)
	if _, err := c.FindKind(t.Context(), widget); !errors.Is(err, cluster.ErrNotServed) {
		t.Errorf("after the kind was forgotten: got error %v", err)
	}
}

func TestRefreshFindsNewKinds(t *testing.T) {
	widget, definition := widgets("come.example.com")
	c := testbed.Connect(t)
	if _, err := c.FindKind(t.Context(), widget); !errors.Is(err, cluster.ErrNotServed) {
		t.Fatal(err)
	}
	establish(t, testbed.Connect(t), definition)
	sandboxtest.EventuallySucceeds(t, func(ctx context.Context) error {
		fresh := testbed.Connect(t)
		_, err := fresh.FindKind(ctx, widget)
		return err
	})
	if _, err := c.FindKind(t.Context(), widget); !errors.Is(err, cluster.ErrNotServed) {
		t.Errorf("without a refresh: %v", err)
	}
	c.Refresh()
	if _, err := c.FindKind(t.Context(), widget); err != nil {
		t.Errorf("after a refresh: %v", err)
	}
}

// A server that does not answer must not hold a caller whose context ends.
func TestLookingForKindsEndsWithItsContext(t *testing.T) {
	asked := make(chan struct{})
	var first sync.Once
	c := sandboxtest.Connect(t, sandboxtest.Before(testbed.Sandbox(t).Config, func(request *http.Request) error {
		isFirst := false
		first.Do(func() { isFirst = true })
		if !isFirst {
			return nil
		}
		close(asked)
		<-request.Context().Done() // it is never answered
		return request.Context().Err()
	}))
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() {
		_, err := c.FindKind(ctx, kinds.Namespace)
		failed <- err
	}()
	select {
	case err := <-failed:
		t.Fatalf("the request did not wait: got error %v", err)
	case <-asked:
	}
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) || errors.Is(err, cluster.ErrNotServed) {
		t.Errorf("after the context ended: %v", err)
	}
	if _, err := c.FindKind(t.Context(), kinds.Namespace); err != nil {
		t.Errorf("asked again: %v", err)
	}
}
