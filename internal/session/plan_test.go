package session_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/session"
)

// Objects that are to have a dependent each.
const owning = `
-- 0000_10_c_owners.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: dies, namespace: NS}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: held, namespace: NS}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: renewed, namespace: NS, annotations: {runlevel.dev/recreate: "true"}}, immutable: true, data: {a: b}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: orphan, namespace: NS}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: stays, namespace: NS}}
`

// A preview reports the dependents of each object that it deletes, that an earlier update deletes, or that a
// deletion would remove. Objects that stay are not counted.
func TestAPlanCountsDependents(t *testing.T) {
	r := newRelease(t)
	r.must("1.0.0", owning)
	r.hold("held", true)
	t.Cleanup(func() { r.hold("held", false) })
	const next = `
-- 0000_10_c_owners.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: held, namespace: NS, annotations: {release.openshift.io/delete: "true"}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: stays, namespace: NS}}
`
	r.must("1.0.1", next+`---
{apiVersion: v1, kind: ConfigMap, metadata: {name: dies, namespace: NS}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: renewed, namespace: NS, annotations: {runlevel.dev/recreate: "true"}}, immutable: true, data: {a: b}}
`)
	owned := map[string]types.UID{}
	client := test.Client(t).CoreV1().ConfigMaps(r.namespace)
	for _, name := range []string{"dies", "held", "renewed", "orphan", "stays"} {
		owner, err := client.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		owned[name] = owner.UID
		dependent := configMap("of-" + name)
		dependent.OwnerReferences = []metav1.OwnerReference{
			*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap")),
		}
		if _, err := client.Create(t.Context(), dependent, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c := r.connect()
	release := r.load("1.0.2", next+`---
{apiVersion: v1, kind: ConfigMap, metadata: {name: dies, namespace: NS, annotations: {release.openshift.io/delete: "true"}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: renewed, namespace: NS, annotations: {runlevel.dev/recreate: "true"}}, immutable: true, data: {a: c}}
`)
	outcome := session.Preview(t.Context(), c, release, session.Options{Namespace: r.namespace})
	if outcome.Err != nil {
		t.Fatal(outcome.Err)
	}
	found := outcome.Plan(t.Context(), c, release)
	if len(found.Cluster.Notes) > 0 {
		t.Fatal(found.Cluster.Notes)
	}
	got := map[string]*kinds.ObjectCounts{}
	for _, objectPlan := range slices.Concat(found.Steps, found.Absent) {
		got[objectPlan.Name] = objectPlan.AlsoDeletes
	}
	objectCounts := kinds.NewObjectCounts([]kinds.Count{{Kind: "ConfigMap", Resource: "configmaps", Objects: 1}})
	want := map[string]*kinds.ObjectCounts{
		"dies":    &objectCounts,
		"held":    &objectCounts,
		"renewed": &objectCounts,
		"orphan":  &objectCounts,
		"stays":   nil,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
