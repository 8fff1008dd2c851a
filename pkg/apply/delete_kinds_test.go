package apply_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// item defines a kind, and an object of this kind.
const item = `
-- 0000_10_shop_items.crd.yaml --
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: items.NS.example.com}
spec:
  group: NS.example.com
  names: {kind: Item, plural: items}
  scope: Cluster
  versions:
  - {name: v2, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
-- 0000_20_shop_item.yaml --
{apiVersion: NS.example.com/v2, kind: Item, metadata: {name: hat}}
`

const noItem = `
-- 0000_20_shop_item.yaml --
{apiVersion: NS.example.com/v1, kind: Item, metadata: {name: hat, namespace: any, annotations: {release.openshift.io/delete: "true"}}}
`

func TestTombstoneMatchesAnyVersionOfItsKind(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	if did := run(t, t.Context(), load(t, namespace, namespace, item),
		apply.Options{Options: installMode}); did.Err != nil {
		t.Fatal(did.Err)
	}
	release := load(t, namespace, namespace, noItem)
	did := run(t, t.Context(), release, apply.Options{Options: updateMode})
	if got := did.Changes[0]; got.Action != object.Deleted {
		t.Errorf("got change %+v, want action %s", got, object.Deleted)
	}
	// It has no namespace, though its tombstone may have one.
	want := []string{"Normal DeleteRequested: the release deletes it", "Normal Deleted: the object is deleted"}
	if got := ofGroup(t, namespace+".example.com/v2"); !slices.Equal(got, want) {
		t.Errorf("the events of a cluster-wide object are %q", got)
	}
	remove(t, schema.GroupVersionResource{
		Group:    "apiextensions.k8s.io",
		Version:  "v1",
		Resource: "customresourcedefinitions",
	}, "items."+namespace+".example.com")
	sandboxtest.EventuallySucceeds(t, func(ctx context.Context) error {
		did := run(t, ctx, release, apply.Options{Options: updateMode})
		if did.Changes[0].Action != object.Absent || did.Err != nil {
			return fmt.Errorf("after the delete of its kind: got change %+v, error %v; want action %s", did.Changes[0],
				did.Err, object.Absent)
		}
		return nil
	})
}

// ofGroup returns the events about cluster-wide objects of a group and version.
func ofGroup(t *testing.T, version string) []string {
	t.Helper()
	list, err := test.Client(t).CoreV1().Events("default").List(t.Context(),
		metav1.ListOptions{FieldSelector: "involvedObject.apiVersion=" + version})
	if err != nil {
		t.Fatal(err)
	}
	var events []string
	for _, event := range list.Items {
		events = append(events, fmt.Sprintf("%s %s: %s", event.Type, event.Reason, event.Message))
	}
	slices.Sort(events)
	return events
}

// remove deletes a cluster-wide object, at once and again after the test.
func remove(t *testing.T, resource schema.GroupVersionResource, name string) {
	t.Helper()
	if err := dynamic.NewForConfigOrDie(test.Sandbox(t).Config).Resource(resource).Delete(t.Context(), name,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestUnknownKindDoesNotCountAsDeleted(t *testing.T) { // not beside others: namespaces can't be emptied meanwhile
	namespace := test.Namespace(t)
	group := namespace + ".down.example.com"
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	listener.Close() // so that no server listens there
	services := dynamic.NewForConfigOrDie(test.Sandbox(t).Config).Resource(schema.GroupVersionResource{
		Group:    "apiregistration.k8s.io",
		Version:  "v1",
		Resource: "apiservices",
	})
	service := fmt.Appendf(nil, `
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.%s}
spec: {group: %s, version: v1, groupPriorityMinimum: 1000, versionPriority: 10, insecureSkipTLSVerify: true, service: {namespace: %s, name: down, port: %d}}`,
		group, group, namespace, port)
	if service, err = yaml.YAMLToJSON(service); err != nil {
		t.Fatal(err)
	}
	if _, err := services.Patch(t.Context(), "v1."+group, types.ApplyPatchType, service,
		metav1.PatchOptions{FieldManager: "bob"}); err != nil {
		t.Fatal(err)
	}
	defer services.Delete(context.Background(), "v1."+group, metav1.DeleteOptions{})

	release := load(t, namespace, namespace, strings.ReplaceAll(noItem, "NS.example", "NS.down.example")+tombstoneFile)
	if did := run(t, t.Context(), release, apply.Options{Options: reconcileMode}); did.Err != nil ||
		did.Changes[0].Action != object.Pending {
		t.Errorf("in a run without deletes: got change %+v, error %v; want action %s", did.Changes[0], did.Err,
			object.Pending)
	}
	var tries int
	did := run(t, t.Context(), release, apply.Options{Options: updateMode, OnEvent: func(e apply.Event) {
		if e.Type != apply.Retrying {
			return
		}
		if tries++; !strings.Contains(e.Message, "cannot find out whether it exists") ||
			e.Reason != object.ClusterDown {
			t.Errorf("got retry %+v, want reason %s and the message that the existence is unknown", e,
				object.ClusterDown)
		}
		known, _, err := record.NewStore(test.Client(t), "default", namespace).Load(t.Context())
		if err != nil || len(known.Tombstones) != 1 || known.Tombstones[0].ID != release.Manifests[0].ID() ||
			known.Tombstones[0].UID != "" {
			t.Errorf("got record %+v, error %v; want a delete of %s without a UID", known, err,
				release.Manifests[0].ID())
		}
		if tries == 1 {
			remove(t, schema.GroupVersionResource{
				Group:    "apiregistration.k8s.io",
				Version:  "v1",
				Resource: "apiservices",
			}, "v1."+group)
		}
	}})
	if did.Err != nil || did.Changes[0].Action != object.Absent || did.Changes[1].Action != object.Absent ||
		tries == 0 {
		t.Errorf("after %d tries: %s%v", tries, did.actions(), did.Err)
	}
}

func TestDeleteOfANamespace(t *testing.T) {
	t.Parallel()
	g := newTombstoned(t)
	g.bring(g.held)
	release := load(t, g.namespace, g.namespace, `
-- 0000_40_old_namespace.yaml --
{apiVersion: v1, kind: Namespace, metadata: {name: NS, annotations: {release.openshift.io/delete: "true"}}}
`+tombstoneFile)
	did := run(t, t.Context(), release, apply.Options{Options: updateMode})
	if did.Err != nil || did.Changes[0].Action != object.Pending || did.Changes[1].Action != object.Pending {
		t.Fatalf("%s%v", did.actions(), did.Err)
	}
	did = run(t, t.Context(), release, apply.Options{Options: reconcileMode})
	if did.Err != nil || !strings.HasPrefix(timeless(did.Changes[0].Message), "TIME (") {
		t.Errorf("got change %+v, error %v; want a message that begins with the time", did.Changes[0], did.Err)
	}
	events := eventsOn(t, "default", "Namespace", g.namespace)
	if len(events) != 2 || events[0] != "Normal DeleteRequested: the release deletes it" ||
		!strings.HasPrefix(events[1], "Warning StillTerminating: TIME (") {
		t.Errorf("got events %q", events)
	}
}
