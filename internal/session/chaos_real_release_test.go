package session_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// TestARealReleaseTwice applies the release that RUNLEVEL_TEST_RELEASE names, with
// stand-ins for the objects that it needs and lacks, and then applies it again. The second apply writes
// nothing.
func TestARealReleaseTwice(t *testing.T) {
	folder := os.Getenv("RUNLEVEL_TEST_RELEASE")
	if folder == "" {
		t.Skip("RUNLEVEL_TEST_RELEASE names no release")
	}
	release, _, err := payload.Load(t.Context(), os.DirFS(folder), payload.Options{
		Name: "whole", ReleaseImage: "registry.example/release:4.21",
		Filter: payload.Filter{
			Profile: "self-managed-high-availability", FeatureSet: "Default", FeatureGates: []string{},
			// It lacks fields that its definition requires: OpenShift's own API server fills them in.
			Overrides: []configv1.ComponentOverride{{
				Group:     "security.openshift.io",
				Kind:      "SecurityContextConstraints",
				Name:      "machine-api-termination-handler",
				Unmanaged: true,
			}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	sent := &traffic{}
	c := connectAs(t, "whole", sent.note)
	standIn(t, c, release)
	labelNodes(t, c)
	o := options()
	o.Apply.DropUnknownFields = true
	o.Apply.OnEvent = func(event apply.Event) {
		if event.Type == apply.Applied && event.Object.Kind == "ClusterOperator" && event.Action == object.Created {
			operate(t, c, release, *event.Object)
		}
	}
	first := session.Run(t.Context(), c, release, o)
	if first.Err != nil || first.Mode != graph.Install {
		t.Fatalf("the %s: %v", first.Mode, first.Err)
	}
	before, wrote := headsOf(t, c, release), len(audited(t, func(w write) bool { return w.Agent == "whole" }))
	recordBefore := versionOfRecord(t, c, release.Name)

	sent.take()
	second := session.Run(t.Context(), c, release, o)
	mustAskForLittle(t, release, second, sent.take())
	if got := counts(second); second.Err != nil || second.Mode != graph.Reconcile ||
		got[object.Unchanged]+got[object.Kept]+got[object.Left]+got[object.Absent] != len(release.Manifests) {
		t.Errorf("the %s: %v, %v", second.Mode, got, second.Err)
	}
	for _, w := range audited(t, func(w write) bool { return w.Agent == "whole" })[wrote:] {
		if w.Verb != "patch" || w.Status.Code == http.StatusCreated { // a refused write changes nothing
			t.Errorf("the second time wrote: %s", w)
		}
	}
	after := headsOf(t, c, release)
	if len(before) != len(after) || len(after) < 200 {
		t.Errorf("%d objects, then %d", len(before), len(after))
	}
	alone := 0
	for id, previous := range before {
		if previous.version != "" {
			alone++
		}
		if current := after[id]; previous != current {
			t.Errorf("%s was changed:\n%+v\n%+v", id, previous, current)
		}
	}
	if now := versionOfRecord(t, c, release.Name); now != recordBefore {
		t.Errorf("the record was written")
	}
	if alone < len(after)/3 {
		t.Errorf("only %d of %d objects are written by nobody else", alone, len(after))
	}
	sent.take()
	third := session.Run(t.Context(), c, release, o)
	mustAskForLittle(t, release, third, sent.take())
	t.Logf("%d objects, %d with only our fields: %s, then %s and %s", len(after), alone, first.Took, second.Took,
		third.Took)
}

// mustAskForLittle checks the requests of an apply that has nothing to do: it lists and
// watches. It gets single objects only if lists are not enough: the object of a tombstone may exist
// without our label, and the cluster may know fields by now that it did not know, and that were left out.
// One definition has an unknown field, anyOf[1].optional, that servers drop without a warning:
// as if admission had removed it.
func mustAskForLittle(t *testing.T, release *payload.Payload, outcome *session.Outcome, sent []sandboxtest.Request) {
	t.Helper()
	leftOut := map[string]bool{}
	for _, warning := range outcome.Report.Warnings {
		for _, file := range warning.Files {
			leftOut[file] = leftOut[file] || strings.HasSuffix(warning.Text, ": dropped")
		}
	}
	verbs := map[string]string{"/dnses.operator.openshift.io": "patch"} // allowed verbs, keyed by namespace and name
	for _, manifest := range release.Manifests {
		key := manifest.ID().Namespace + "/" + manifest.ID().Name
		switch {
		case manifest.IsTombstone():
			verbs[key] = "get"
		case leftOut[manifest.Path]:
			verbs[key] = "patch"
		}
	}
	for _, item := range sent {
		if item.Verb != "list" && item.Verb != "watch" && !isUpkeep(item) &&
			verbs[item.Namespace+"/"+item.Name] != item.Verb {
			t.Errorf("the %s asks for a single object: %s", outcome.Mode, item)
		}
		if isUpkeep(item) && item.Resource == "configmaps" && item.Verb != "get" {
			t.Errorf("the %s writes the record: %s", outcome.Mode, item)
		}
	}
	t.Logf("the %s sends %s", outcome.Mode, summary(sent))
}

// A head has the metadata that an apply without changes must not change. If no other client writes,
// these include the version.
type head struct {
	uid        types.UID
	generation int64
	ours       time.Time
	version    string
}

// headsOf are all objects of a release.
func headsOf(t *testing.T, c *cluster.Cluster, release *payload.Payload) map[kinds.ID]head {
	t.Helper()
	heads, seen := map[kinds.ID]head{}, map[schema.GroupKind]bool{}
	for _, manifest := range release.Manifests {
		kind := manifest.GroupVersionKind()
		if seen[kind.GroupKind()] || manifest.IsTombstone() {
			continue
		}
		seen[kind.GroupKind()] = true
		resource, err := c.Find(t.Context(), kind)
		if err != nil {
			t.Fatal(err)
		}
		found, err := c.Metadata.Resource(resource.GroupVersionResource).List(t.Context(),
			metav1.ListOptions{LabelSelector: objectmeta.ReleaseLabel + "=" + release.Name})
		if err != nil {
			t.Fatal(err)
		}
		for i := range found.Items {
			object := &found.Items[i]
			liveMetadata := objectmeta.Of(resource, object)
			now := head{uid: liveMetadata.UID, generation: liveMetadata.Generation, ours: liveMetadata.Entry.Since}
			isOthers := func(entry metav1.ManagedFieldsEntry) bool { return entry.Manager != cluster.FieldManager }
			if !slices.ContainsFunc(object.GetManagedFields(), isOthers) {
				now.version = liveMetadata.ResourceVersion
			}
			heads[liveMetadata.ID] = now
		}
	}
	return heads
}

func versionOfRecord(t *testing.T, c *cluster.Cluster, release string) string {
	t.Helper()
	found, err := c.Client.CoreV1().ConfigMaps(records).Get(t.Context(), "runlevel-release-"+release,
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return found.ResourceVersion
}

// standIn applies definitions of the kinds that the gate misses, and the namespaces that a
// release uses and does not have.
func standIn(t *testing.T, c *cluster.Cluster, release *payload.Payload) {
	t.Helper()
	var text strings.Builder
	seen := map[string]bool{}
	versions, namespaces := map[kinds.ID]string{}, map[string]bool{}
	for _, manifest := range release.Manifests {
		id := manifest.ID()
		versions[id] = manifest.GroupVersionKind().Version
		if id.Kind == "Namespace" && id.Group == "" {
			namespaces[id.Name] = true
		}
	}
	for _, finding := range session.Inspect(t.Context(), c, release, options()).Findings {
		if finding.Check != "UnservedKinds" || finding.Object == nil || seen[finding.Object.Group+finding.Object.Kind] {
			continue
		}
		id := finding.Object
		seen[id.Group+id.Kind] = true
		scope := "Cluster"
		if id.Namespace != "" {
			scope = "Namespaced"
		}
		plural := strings.ToLower(id.Kind) + "s"
		fmt.Fprintf(&text, `
-- 0000_10_kinds_10_%[1]s.yaml --
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: %[1]s.%[2]s
  annotations: {api-approved.kubernetes.io: unapproved}
spec:
  group: %[2]s
  names: {kind: %[3]s, plural: %[1]s}
  scope: %[4]s
  versions: [{name: %[5]s, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`, plural, id.Group, id.Kind, scope, versions[*id])
	}
	for _, manifest := range release.Manifests {
		namespace := manifest.ID().Namespace
		if namespace == "" || manifest.IsTombstone() || namespaces[namespace] ||
			strings.HasPrefix(namespace, "kube-") || namespace == "default" {
			continue
		}
		namespaces[namespace] = true
		fmt.Fprintf(&text, "\n-- 0000_10_places_10_%[1]s.yaml --\n{apiVersion: v1, kind: Namespace, metadata: {name: "+
			"%[1]s}}\n", namespace)
	}
	mustRun(t, c, load(t, "stand-ins", "1.0.0", text.String()))
	c.Refresh()
}

// labelNodes makes the nodes ones of the control plane.
func labelNodes(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	nodes, err := c.Client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	labels := []byte(
		`{"metadata": {"labels": {"node-role.kubernetes.io/master": "", "node-role.kubernetes.io/control-plane": ""}}}`,
	)
	for _, node := range nodes.Items {
		if _, err := c.Client.CoreV1().Nodes().Patch(t.Context(), node.Name, types.MergePatchType, labels,
			metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// operate sets the status that a healthy operator sets: the conditions, and the versions that
// its manifest waits for.
func operate(t *testing.T, c *cluster.Cluster, release *payload.Payload, id kinds.ID) {
	for _, manifest := range release.Manifests {
		if manifest.ID() != id {
			continue
		}
		versions, _, _ := unstructured.NestedSlice(manifest.Object().Object, "status", "versions")
		condition := func(kind, status string) map[string]any {
			return map[string]any{
				"type":               kind,
				"status":             status,
				"lastTransitionTime": "2026-01-01T00:00:00Z",
				"reason":             "AsExpected",
			}
		}
		status, _ := json.Marshal(map[string]any{"status": map[string]any{
			"versions": versions,
			"conditions": []any{condition("Available", "True"), condition("Progressing", "False"),
				condition("Degraded", "False")},
		}})
		resource, err := c.Find(t.Context(), manifest.GroupVersionKind())
		if err == nil {
			_, err = c.In(resource, "").Patch(t.Context(), id.Name, types.MergePatchType, status,
				metav1.PatchOptions{FieldManager: "operator"}, "status")
		}
		if err != nil {
			t.Error("the operator's status:", err)
		}
	}
}
