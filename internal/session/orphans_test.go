package session_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/session"
)

// The manifests that all versions of a release have, those that later versions drop, and those that are deleted with
// a Namespace or definition.
const (
	kept = `
-- 0000_10_c_service.yaml --
apiVersion: v1
kind: Service
metadata: {name: web, namespace: NS}
spec: {selector: {app: web}, ports: [{port: 80}]}
-- 0000_10_c_config.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: kept, namespace: NS}, data: {colour: red}}
`
	dropped = `
-- 0000_20_c_slice.yaml --
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: ours, namespace: NS}, addressType: IPv4, endpoints: []}
-- 0000_20_c_number.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: "123", namespace: NS}, data: {colour: red}}
-- 0000_20_c_secret.yaml --
{apiVersion: v1, kind: Secret, metadata: {name: old, namespace: NS}, stringData: {colour: red}}
-- 0000_20_c_role.yaml --
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: "NS: all"}}
`
	within = `
-- 0000_30_c_05_namespace.yaml --
{apiVersion: v1, kind: Namespace, metadata: {name: NS-old%[1]s}}
-- 0000_30_c_05_items.crd.yaml --
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: items.NS.example.com%[1]s}
spec:
  group: NS.example.com
  names: {kind: Item, plural: items}
  scope: Cluster
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
`
	dies  = `, annotations: {release.openshift.io/delete: "true"}`
	taken = `
-- 0000_30_c_10_config.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: within, namespace: NS-old}, data: {colour: red}}
-- 0000_30_c_10_item.yaml --
{apiVersion: NS.example.com/v1, kind: Item, metadata: {name: hat}}
`
	gadget = `
-- 0000_40_c_05_gadgets.crd.yaml --
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.NS.example.com}
spec:
  group: NS.example.com
  names: {kind: Gadget, plural: gadgets}
  scope: Cluster
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
-- 0000_40_c_10_gadget.yaml --
{apiVersion: NS.example.com/v1, kind: Gadget, metadata: {name: it, namespace: NS}}
`
)

// orphans are those of an outcome, in a line each.
func orphans(outcome *session.Outcome) []string {
	var all []string
	for _, orphan := range outcome.Orphans {
		all = append(all, orphan.ID.String())
	}
	return all
}

// strangers makes objects with the release's label that are none of its own.
func (r release) strangers() {
	r.Helper()
	configs := test.Client(r).CoreV1().ConfigMaps(r.namespace)
	owner, err := configs.Get(r.Context(), "kept", metav1.GetOptions{})
	if err != nil {
		r.Fatal(err)
	}
	copied, controlled := configMap("copied"), configMap("controlled")
	controlled.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "v1",
		Kind:       "ConfigMap",
		Name:       owner.Name,
		UID:        owner.UID,
		Controller: new(true),
	}}
	copied.Labels, controlled.Labels = map[string]string{objectmeta.ReleaseLabel: r.name},
		map[string]string{objectmeta.ReleaseLabel: r.name}
	if _, err := configs.Create(r.Context(), copied, metav1.CreateOptions{FieldManager: "bob"}); err != nil {
		r.Fatal(err)
	}
	if _, err := configs.Create(r.Context(), controlled, metav1.CreateOptions{FieldManager: "runlevel"}); err != nil {
		r.Fatal(err)
	}
	err = wait.PollUntilContextTimeout(r.Context(), patience/1200, patience, true,
		func(ctx context.Context) (bool, error) {
			slices, err := test.Client(r).DiscoveryV1().EndpointSlices(r.namespace).List(ctx,
				metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=web," + objectmeta.ReleaseLabel})
			return err == nil && len(slices.Items) > 0, err
		})
	if err != nil {
		r.Fatal("no EndpointSlice has copied the label of its Service: ", err)
	}
}

func TestTombstonesRemoveAllOrphans(t *testing.T) {
	t.Parallel()
	r := newRelease(t)
	alive := fmt.Sprintf(within, "")
	dead := fmt.Sprintf(within, dies)
	if outcome := r.must("1.0.0", kept+dropped+alive+taken+gadget); len(outcome.Orphans) != 0 {
		t.Errorf("of an install: %q", orphans(outcome))
	}
	r.strangers()
	outcome := r.must("1.0.1", kept+dead+gadget)
	want := []string{"ClusterRole NS: all", "ConfigMap NS/123", "EndpointSlice NS/ours", "Secret NS/old"}
	if diff := cmp.Diff(strings.ReplaceAll(strings.Join(want, "\n"), "NS", r.namespace),
		strings.Join(orphans(outcome), "\n")); diff != "" {
		t.Error(diff)
	}
	if again := r.must("1.0.1", kept+dead+gadget); len(again.Orphans) != len(want) {
		t.Errorf("they are there still: %q", orphans(again))
	}
	files := kept + gadget
	for i, orphan := range outcome.Orphans {
		files += fmt.Sprintf("-- 0000_50_c_%d.yaml --\n%s", i, orphan.Tombstone())
	}
	outcome = r.must("1.0.2", files)
	if got := strings.Count(done(outcome), "deleted "); got != len(want) || len(outcome.Orphans) != 0 {
		t.Errorf("their tombstones do this: %s, and leave %q", done(outcome), orphans(outcome))
	}
}

func TestUnreadableObjectsAreReported(t *testing.T) {
	t.Parallel()
	r := newRelease(t)
	r.must("1.0.0", kept+dropped)
	outcome := r.through(func(request *http.Request) error {
		switch path := request.URL.Path; {
		case strings.HasSuffix(path, "/api/v1/secrets"), strings.HasSuffix(path, "/configmaps/123"):
			return errors.New("no route to host")
		}
		return nil
	}).must("1.0.1", kept)
	if !strings.Contains(strings.Join(outcome.Notes, "\n"), "objects of kind Secret can't be listed") {
		t.Errorf("no note reports that Secrets could not be read: %q", outcome.Notes)
	}
	if got := strings.Join(orphans(outcome), "\n"); !strings.Contains(got, "/123") || strings.Contains(got, "Secret") {
		t.Errorf("the orphans are\n%s", got)
	}
}

func TestATombstoneOfAnOrphanIsYAML(t *testing.T) {
	for _, name := range []string{"a", "123", "true", "null", "system:all", "a: b", "*", "1e3", "a #b", "'", `"`} {
		r := release{T: t, namespace: "n", name: "r"}
		var orphan session.Orphan
		orphan.Resource.Group, orphan.Resource.Version = "rbac.authorization.k8s.io", "v1"
		orphan.ID.Kind, orphan.ID.Name, orphan.ID.Namespace = "Role", name, "123"
		manifest := r.load("1.0.0", "-- 0000_50_c_x.yaml --\n"+orphan.Tombstone()).Manifests[0]
		if id := manifest.ID(); !manifest.IsTombstone() || id.Name != name || id.Namespace != "123" {
			t.Errorf("the tombstone of %q is of %+v:\n%s", name, id, orphan.Tombstone())
		}
	}
}

// Many orphans are listed, not read one by one.
func TestManyOrphansAreListed(t *testing.T) {
	t.Parallel()
	r := newRelease(t)
	var many strings.Builder
	for i := range 20 {
		fmt.Fprintf(&many, "-- 0000_50_c_%d.yaml --\n{apiVersion: v1, kind: ConfigMap, metadata: {name: many-%d, "+
			"namespace: NS}}\n", i, i)
	}
	r.must("1.0.0", kept+many.String())
	var mu sync.Mutex
	var requested []string
	outcome := r.through(func(request *http.Request) error {
		if strings.Contains(request.URL.Path, "/configmaps/many-") {
			mu.Lock()
			defer mu.Unlock()
			requested = append(requested, request.Method+" "+request.URL.Path)
		}
		return nil
	}).must("1.0.1", kept)
	if len(outcome.Orphans) != 20 || len(requested) > 0 {
		t.Errorf("%d orphans, asked for with %q", len(outcome.Orphans), requested)
	}
}
