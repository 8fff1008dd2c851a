package precondition_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// A release deletes a Namespace, a claim and StatefulSets, and scales one.
func TestServerDataIsDeleted(t *testing.T) {
	c, namespace := testbed.Connect(t), testbed.Namespace(t)
	const set = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: NAME, namespace: HERE}
spec:
  replicas: 3
  persistentVolumeClaimRetentionPolicy: {POLICY}
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec: {containers: [{name: c, image: registry.example/c}]}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`
	setOf := func(name, policy string) string {
		return strings.NewReplacer("NAME", name, "POLICY", policy).Replace(set)
	}
	claim := manifest("v1", "PersistentVolumeClaim", "uploads", "") +
		"spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n"
	live := []string{claim, setOf("deleted", "whenDeleted: Delete"), setOf("kept", "whenScaled: Delete"),
		setOf("scaled", "whenScaled: Delete")}
	for _, text := range live {
		sandboxtest.Apply(t, c, strings.ReplaceAll(text, "HERE", namespace))
	}
	update := map[string]string{
		"0000_10_web_0.yaml": manifest("v1", "PersistentVolumeClaim", "uploads", tombstoneAnnotation),
		"0000_10_web_1.yaml": manifest("apps/v1", "StatefulSet", "deleted", tombstoneAnnotation),
		"0000_10_web_2.yaml": manifest("apps/v1", "StatefulSet", "kept", tombstoneAnnotation),
		"0000_10_web_3.yaml": strings.ReplaceAll(setOf("scaled", "whenScaled: Delete"), "replicas: 3", "replicas: 2"),
		"0000_10_web_4.yaml": manifest("v1", "PersistentVolumeClaim", "never-was", tombstoneAnnotation),
	}
	compareData(t, c, namespace, update, `
Blocks 0000_10_web_0.yaml: the release deletes PersistentVolumeClaim HERE/uploads, and the data behind it
Blocks 0000_10_web_1.yaml: the release deletes StatefulSet HERE/deleted, and with it PersistentVolumeClaim HERE/data-deleted-0 and 2 more
Blocks 0000_10_web_3.yaml: StatefulSet HERE/scaled gets fewer pods, and Kubernetes deletes PersistentVolumeClaim HERE/data-scaled-2
`)
	goes := map[string]string{"0000_10_web_0.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: HERE, " +
		"annotations: {" + tombstoneAnnotation + "}}\n"}
	compareData(t, c, namespace, goes, "")
	claims := c.Client.CoreV1().PersistentVolumeClaims(namespace)
	bound, err := claims.Get(t.Context(), "uploads", metav1.GetOptions{})
	if err == nil {
		bound.Status.Phase = corev1.ClaimBound
		_, err = claims.UpdateStatus(t.Context(), bound, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	compareData(t, c, namespace, goes, `
Blocks 0000_10_web_0.yaml: the release deletes Namespace HERE, and with it PersistentVolumeClaim HERE/uploads
`)
}

// A release deletes a definition, of which it and users have objects.
func TestServerObjectsOfUsersAreDeleted(t *testing.T) {
	c, namespace := testbed.Connect(t), testbed.Namespace(t)
	definition := strings.ReplaceAll(ships, "example.com", "lost.example.com")
	made := sandboxtest.Apply(t, c, definition)
	definitions, err := c.FindKind(t.Context(), made.GroupVersionKind().GroupKind())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Delete(context.Background(), definitions, "", made.GetName(), made.GetUID()) })
	sandboxtest.Eventually(t, "the kind is served", func(ctx context.Context) bool {
		c.Refresh()
		_, err := c.FindKind(ctx, schema.GroupKind{Group: "lost.example.com", Kind: "Ship"})
		return err == nil
	})
	ship := func(name, labels string) string {
		return "{apiVersion: lost.example.com/v1, kind: Ship, metadata: {name: " + name + ", namespace: " + namespace +
			", labels: {" + labels + "}}}"
	}
	files := map[string]string{"0000_10_web_0.yaml": strings.ReplaceAll(definition, "{name: ships.lost.example.com}",
		"{name: ships.lost.example.com, annotations: {"+tombstoneAnnotation+"}}")}
	sandboxtest.Apply(t, c, ship("ours", objectmeta.ReleaseLabel+": web"))
	compareData(t, c, namespace, files, "")
	sandboxtest.Apply(t, c, ship("theirs", ""))
	compareData(t, c, namespace, files, `
Blocks 0000_10_web_0.yaml: the release deletes CustomResourceDefinition ships.lost.example.com, and with it Ship HERE/theirs
`)
	files["0000_10_web_0.yaml"] = strings.ReplaceAll(files["0000_10_web_0.yaml"], tombstoneAnnotation,
		tombstoneAnnotation+", runlevel.dev/loses-data: nobody sails")
	compareData(t, c, namespace, files, `
Warns 0000_10_web_0.yaml: the release deletes CustomResourceDefinition ships.lost.example.com, and with it Ship HERE/theirs, as the release allows: nobody sails
`)
}

// compareData compares the findings about data with the wanted ones.
func compareData(t *testing.T, c *cluster.Cluster, namespace string, files map[string]string, want string) {
	t.Helper()
	var lines []string
	found := precondition.Evaluate(gather(t, c, precondition.Input{Payload: in(t, namespace, files)}))
	for _, f := range found {
		if f.Check == precondition.DeletedData {
			lines = append(lines, string(f.Severity)+" "+strings.ReplaceAll(f.Message, namespace, "HERE"))
		}
	}
	slices.Sort(lines)
	if diff := cmp.Diff(strings.TrimSpace(want), strings.Join(lines, "\n")); diff != "" {
		t.Error(diff)
	}
}
