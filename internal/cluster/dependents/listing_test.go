package dependents_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/dependents"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// A server that has the same ConfigMaps in two groups, and kinds that can't be counted.
func TestObjectsServedTwiceCountOnce(t *testing.T) {
	t.Parallel()
	list := func(names ...string) string {
		var items []string
		for _, name := range names {
			items = append(items, fmt.Sprintf(`{"metadata": {"name": %q, "namespace": "shop", "uid": %[1]q}}`, name))
		}
		return `{"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "items": [` +
			strings.Join(items, ", ") + `]}`
	}
	resource := func(name, kind, verbs string) string {
		return fmt.Sprintf(`{"name": %q, "kind": %q, "namespaced": true, "verbs": [%s]}`, name, kind, verbs)
	}
	const all = `"get", "list", "delete"`
	answers := map[string]string{
		"/api":  `{"kind": "APIVersions", "versions": ["v1"]}`,
		"/apis": `{"kind": "APIGroupList", "groups": [{"name": "old.example.com", "versions": [{"groupVersion": "old.example.com/v1", "version": "v1"}], "preferredVersion": {"groupVersion": "old.example.com/v1", "version": "v1"}}]}`,
		"/api/v1": `{"kind": "APIResourceList", "groupVersion": "v1", "resources": [` + strings.Join([]string{
			resource("configmaps", "ConfigMap", all), resource("events", "Event", all),
			resource("vanished", "Vanished", all),
			resource("broken", "Broken", all), resource("views", "View", `"get", "list"`),
		}, ", ") + `]}`,
		"/apis/old.example.com/v1":         `{"kind": "APIResourceList", "groupVersion": "old.example.com/v1", "resources": [` + resource("oldmaps", "OldMap", all) + `]}`,
		"/api/v1/configmaps":               list("a", "b"),
		"/apis/old.example.com/v1/oldmaps": list("a", "b", "c"),
		"/api/v1/views":                    list("d"),
		"/api/v1/events":                   list("e"),
		"/api/v1/broken":                   "no list",
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		answer, exists := answers[request.URL.Path]
		if !exists {
			http.NotFound(w, request)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, answer)
	}))
	defer server.Close()
	c, err := cluster.Connect(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	shop := objectmeta.LiveMetadata{
		ID:       kinds.ID{Kind: "Namespace", Name: "shop"},
		Resource: cluster.Resource{Kind: "Namespace"},
		UID:      "shop",
	}
	definition := func(name string) objectmeta.LiveMetadata {
		kindResource := cluster.Resource{Kind: "CustomResourceDefinition"}
		kindResource.Group = "apiextensions.k8s.io"
		return objectmeta.LiveMetadata{
			ID:       kinds.ID{Group: kindResource.Group, Kind: kindResource.Kind, Name: name},
			Resource: kindResource,
			UID:      types.UID(name),
		}
	}
	going := []objectmeta.LiveMetadata{shop, definition("oldmaps.old.example.com"),
		definition("oldmaps.new.example.com")}
	counts, notes, err := dependents.Count(t.Context(), c, going)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"3 objects: 2 ConfigMaps, OldMap", "1 object: OldMap", "no objects"} {
		if got := counts[going[i].UID].String(); got != want {
			t.Errorf("the count for %s is %s, want %s", going[i].ID, got, want)
		}
	}
	if len(notes) != 1 || !strings.HasPrefix(notes[0], "not counted, because it can't be listed: Broken (") {
		t.Errorf("the notes are %q", notes)
	}
}

func TestNoObjectsNeedNoRequest(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close() // so that no server listens there
	c, err := cluster.Connect(&rest.Config{Host: "http://" + listener.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	if counts, notes, err := dependents.Count(t.Context(), c, nil); len(counts)+len(notes) > 0 || err != nil {
		t.Errorf("without objects: %v, %q, %v", counts, notes, err)
	}
	if _, _, err := dependents.Count(t.Context(), c, []objectmeta.LiveMetadata{{UID: "any"}}); err == nil {
		t.Error("no server answers, and it counts")
	}
}
