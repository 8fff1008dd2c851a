package inventory_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/dependents"
	"github.com/runlevel/runlevel/internal/cluster/inventory"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

var configMap = kinds.ConfigMap

// take takes an inventory.
func take(t *testing.T, c *cluster.Cluster, groupKinds ...schema.GroupKind) *inventory.Inventory {
	t.Helper()
	var places []inventory.Scope
	for _, kind := range groupKinds {
		places = append(places, inventory.Scope{Kind: kind})
	}
	found, err := inventory.Take(t.Context(), c, places, nil)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// names are those of some heads.
func names(heads []objectmeta.LiveMetadata) []string {
	var all []string
	for _, head := range heads {
		all = append(all, head.ID.Name)
	}
	return all
}

func TestReleasesOfObjects(t *testing.T) {
	t.Parallel()
	c, namespace := test.Connect(t), test.Namespace(t)
	owner := sandboxtest.Apply(t, c,
		fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {name: ours, namespace: %s, labels: {runlevel.dev/release: %[1]s}}, data: {a: b}}`, namespace))
	sandboxtest.Apply(t, c,
		fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {name: theirs, namespace: %s, labels: {runlevel.dev/release: other-%[1]s}}, data: {a: b}}`, namespace))
	sandboxtest.Apply(t, c, fmt.Sprintf(
		`{apiVersion: v1, kind: ConfigMap, metadata: {name: unlabelled, namespace: %s}, data: {a: b}}`, namespace,
	))
	for _, made := range []corev1.ConfigMap{
		{ObjectMeta: metav1.ObjectMeta{Name: "copied"}, Data: map[string]string{"a": "b"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "controlled", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "ConfigMap", Name: "ours", UID: owner.GetUID(), Controller: new(true)},
		}}, Data: map[string]string{"a": "b"}},
	} {
		made.Labels = map[string]string{objectmeta.ReleaseLabel: namespace}
		manager := map[bool]string{true: cluster.FieldManager, false: "bob"}[made.Name == "controlled"]
		if _, err := c.Client.CoreV1().ConfigMaps(namespace).Create(t.Context(), &made,
			metav1.CreateOptions{FieldManager: manager}); err != nil {
			t.Fatal(err)
		}
	}

	found := take(t, c, configMap, configMap)
	if got := names(found.Of(namespace)); !slices.Equal(got, []string{"ours"}) {
		t.Errorf("the objects of the release are %q", got)
	}
	for name, want := range map[string]string{"ours": "", "theirs": "other-" + namespace, "copied": "",
		"controlled": "", "unlabelled": ""} {
		id := kinds.ID{Kind: "ConfigMap", Namespace: namespace, Name: name}
		if owner, isOthers := found.OwnerOf(id, namespace); owner != want || isOthers != (want != "") {
			t.Errorf("%s is of release %q", name, owner)
		}
		if head, exists := found.Find(id); exists != (name != "unlabelled") || exists && head.UID == "" {
			t.Errorf("%s is found: %t, %+v", name, exists, head)
		}
	}
	head, _ := found.Find(kinds.NewID(kinds.ConfigMap, namespace, "ours"))
	if head.UID != owner.GetUID() || head.ResourceVersion != owner.GetResourceVersion() || head.Created.IsZero() {
		t.Errorf("got %+v, want the metadata of %+v", head, owner)
	}
}

func TestUnneededObjectsAreDropped(t *testing.T) {
	t.Parallel()
	c, namespace := test.Connect(t), test.Namespace(t)
	for _, text := range []string{"ours", "theirs", "others"} {
		sandboxtest.Apply(t, c,
			fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: %s, labels: {runlevel.dev/release: %[1]s-%[2]s}}}`, text, namespace))
	}
	asked := map[string]string{}
	found, err := inventory.Take(t.Context(), c, []inventory.Scope{{Kind: configMap, Namespace: namespace}},
		func(release string, id kinds.ID) bool {
			if id.Namespace == namespace { // other tests have some
				asked[id.Name] = release
			}
			return release != "others-"+namespace
		})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ours", "theirs", "others"} {
		if _, exists := found.Find(kinds.NewID(kinds.ConfigMap, namespace, name)); exists != (name != "others") {
			t.Errorf("%s is found: %t", name, exists)
		}
		if asked[name] != name+"-"+namespace {
			t.Errorf("the release of %s is %q", name, asked[name])
		}
	}
}

func TestMoreThanAPageOfObjects(t *testing.T) {
	t.Parallel()
	c, namespace := test.Connect(t), test.Namespace(t)
	const many = 510 // a page has 500
	var group errgroup.Group
	group.SetLimit(32)
	for i := range many {
		group.Go(func() error {
			_, err := c.Client.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{
					Name:   fmt.Sprintf("c%03d", i),
					Labels: map[string]string{objectmeta.ReleaseLabel: namespace},
				}, Data: map[string]string{"a": "b"},
			}, metav1.CreateOptions{FieldManager: cluster.FieldManager})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	got := names(take(t, c, configMap).Of(namespace))
	if len(got) != many || !slices.IsSorted(got) || len(slices.Compact(got)) != many {
		t.Errorf("found %d objects, want %d", len(got), many)
	}
}

func TestKindsThatCantBeListed(t *testing.T) {
	t.Parallel()
	admin, namespace := test.Connect(t), test.Namespace(t)
	sandboxtest.Apply(t, admin, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: some, namespace: %s, labels: {runlevel.dev/release: %[1]s}}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]`, namespace))
	secret := kinds.Secret
	found := take(t, test.ConnectAs(t, "user-of-"+namespace), configMap, secret,
		schema.GroupKind{Group: "unserved.example.com", Kind: "Thing"})
	if got := found.UnlistedKinds(); !slices.Equal(got, []schema.GroupKind{configMap, secret}) {
		t.Errorf("kinds that are not known: %v", got)
	}
	if err := found.ListError(secret); !apierrors.IsForbidden(err) {
		t.Errorf("the error about Secrets is %v", err)
	}
	if got := take(t, admin, configMap, secret).UnlistedKinds(); len(got) != 0 {
		t.Errorf("the admin can't list %v", got)
	}
}

func TestAGroupThatDoesNotAnswer(t *testing.T) {
	c, namespace := test.Connect(t), test.Namespace(t)
	group := namespace + ".down.example.com"
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	listener.Close() // so that no server listens there
	service := sandboxtest.Apply(t, c, fmt.Sprintf(`
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.%s}
spec: {group: %[1]s, version: v1, groupPriorityMinimum: 1000, versionPriority: 10, insecureSkipTLSVerify: true, service: {namespace: %s, name: down, port: %d}}`,
		group, namespace, port))
	resource, err := c.Find(t.Context(), service.GroupVersionKind())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Delete(context.Background(), resource, "", service.GetName(), service.GetUID())
	sandboxtest.Apply(t, c,
		fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {name: ours, namespace: %s, labels: {runlevel.dev/release: %[1]s}}, data: {a: b}}`, namespace))

	thing := schema.GroupKind{Group: group, Kind: "Thing"}
	fresh := test.Connect(t)
	found := take(t, fresh, thing, configMap)
	if err := found.ListError(thing); err == nil {
		t.Error("a kind of a group that does not answer is reported to have no objects")
	}
	if got := names(found.Of(namespace)); !slices.Equal(got, []string{"ours"}) {
		t.Errorf("found %q of the kind that can be listed", got)
	}
	ours := found.Of(namespace)
	if _, notes, err := dependents.Count(t.Context(), fresh, ours); err != nil || len(notes) != 1 ||
		!strings.HasPrefix(notes[0], "not counted, because it can't be listed: all of "+group+" (") {
		t.Errorf("the notes about dependents are %q, the error is %v", notes, err)
	}
}

func TestUnreachableClusterIsAnError(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	c, err := cluster.Connect(&rest.Config{Host: "http://" + listener.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := inventory.Take(t.Context(), c, []inventory.Scope{{Kind: configMap}}, nil); err == nil {
		t.Error("no server answers, and no error is returned")
	}
}
