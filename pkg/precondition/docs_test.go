package precondition_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/objects/crdchange"
	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// examples are clusters and releases that have all findings of the documentation.
func examples(t *testing.T) []*precondition.Facts {
	const cron = "apiVersion: batch/v1beta1\nkind: CronJob\nmetadata: {name: NAME, namespace: web}\n"
	minor := &precondition.Facts{
		Payload: release(t, "4.6.0", map[string]string{
			"0000_10_web_a.yaml": configMap("a", ""), "0000_10_web_b.yaml": strings.ReplaceAll(cron, "NAME", "b"),
			"0000_10_web_c.yaml":    strings.ReplaceAll(cron, "NAME", "c"),
			"0000_10_web_gone.yaml": configMap("gone", tombstoneAnnotation),
		}),
		Record: history("4.5.3"), User: "system:serviceaccount:web:ci",
		Held: &lock.Holder{Name: "ana@host:7", Since: now.Add(-10 * time.Minute), Renewed: now},
		Deletes: []precondition.Delete{asked(tombstone.Observation{
			State: tombstone.Terminating, UID: "1", Requested: "1", Since: now.Add(-5 * time.Minute),
			Finalizers: []string{"example.com/x"},
		})},
	}
	manifests := minor.Payload.Manifests
	minor.Record.History[0].Tombstones = []kinds.ID{manifests[3].ID()}
	minor.WithoutNamespace = []*payload.Manifest{release(t, "4.6.0",
		map[string]string{"0000_10_web_d.yaml": strings.ReplaceAll(configMap("d", ""), "namespace: web",
			"labels: {}")}).Manifests[0]}
	minor.Terminating = []precondition.TerminatingNeed{{ID: kinds.ID{Kind: "Namespace", Name: "web"},
		Manifests: manifests[:3], Seen: tombstone.Observation{
			State: tombstone.Terminating, UID: "2", Since: now.Add(-5 * time.Minute),
			Remains: []string{"ConfigMap left, held by finalizer example.com/x, which backup has set"},
		}}}
	minor.Claims = []precondition.Claim{{Manifest: manifests[0], Release: "db"}}
	minor.Gates = precondition.PendingAcks(
		map[string]string{"ack-4.5-prices": "Prices v1 is removed in 4.6: see https://example.com/prices"}, nil,
		"4.5.3",
	)
	minor.Unserved = []precondition.UnservedManifest{{Manifest: manifests[1], Has: "v1"},
		{Manifest: manifests[2], Has: "v1"}}
	for _, verb := range []string{"get", "create", "patch"} {
		minor.Missing = append(minor.Missing, precondition.Right{
			Verb:      verb,
			Resource:  schema.GroupResource{Resource: "configmaps"},
			Namespace: "web",
			Manifests: manifests[:1],
		})
	}
	minor.Stored = []precondition.StoredVersion{{
		Manifest: release(t, "4.6.0", map[string]string{"0000_10_web_ships.yaml": ships}).Manifests[0],
		Version:  "v2",
	}}
	edited := &precondition.Facts{Payload: release(t, "4.7.2", nil), Record: history("4.7.2")}
	edited.Record.History[0].Content, edited.Record.History[0].Source = "sha256:c0ffee", "registry.example/web:4.7.2"
	placed := &precondition.Facts{
		Payload:          release(t, "4.7.0", map[string]string{"0000_10_web_a.yaml": configMap("a", "")}),
		Record:           history(),
		MissingNamespace: "shop",
	}
	placed.Payload.Placed = placed.Payload.Manifests
	uninstalled := &precondition.Facts{Payload: release(t, "4.7.0", nil), Record: history("4.7.0")}
	uninstalled.Record.Uninstall = &record.Uninstall{
		Since:      metav1.NewTime(now.Add(-5 * time.Minute)),
		By:         "ana@host:7",
		Left:       12,
		ReportedAt: metav1.NewTime(now),
	}
	return []*precondition.Facts{
		minor,
		rolledBack(t),
		uninstalled,
		placed,
		{
			Payload: release(t, "4.7.0",
				map[string]string{"0000_10_web_old.yaml": deletedSecret, "0000_10_web_web.yaml": usesSecret}),
			Record: history(),
		},
		{Payload: release(t, "4.7.0", nil), Record: history("4.7.2", "4.7.1")},
		{Payload: release(t, "4.7.0", nil), Record: history("4.5.3")},
		{Payload: release(t, "4.7.0", nil), Record: history(), Elsewhere: []string{"runlevel-system"}},
		{
			Payload: release(t, "4.7.0", nil),
			Record:  history(),
			Writers: []string{"group shop-developers", "system:serviceaccount:shop:ci"},
		},
		edited,
		dataDeleted(t),
		narrowed(t),
	}
}

// dataDeleted is an update that deletes a claim, and a Namespace with one, for which it gives a reason.
func dataDeleted(t *testing.T) *precondition.Facts {
	f := &precondition.Facts{
		Payload: release(t, "4.7.0", map[string]string{
			"0000_10_web_data.yaml": `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: web, ` +
				`annotations: {release.openshift.io/delete: "true"}}}`,
			"0000_10_web_old.yaml": `{apiVersion: v1, kind: Namespace, metadata: {name: old, annotations: ` +
				`{release.openshift.io/delete: "true", runlevel.dev/loses-data: web has its own copy since 4.6}}}`,
		}),
		Record: history("4.7.0"),
	}
	claim, namespace := f.Payload.Manifests[0], f.Payload.Manifests[1]
	f.Data = []precondition.DataLoss{
		{Manifest: claim, Lost: []kinds.ID{claim.ID()}},
		{Manifest: namespace, Lost: []kinds.ID{kinds.NewID(kinds.PersistentVolumeClaim, "old", "data")}},
	}
	return f
}

// narrowed is an update that changes a definition, on a cluster with Nodes and budgets that need attention.
func narrowed(t *testing.T) *precondition.Facts {
	f := &precondition.Facts{
		Payload: release(t, "4.7.0", map[string]string{
			"0000_10_web_ships.yaml": ships,
			"0000_10_web_web.yaml":   "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: web}}",
		}),
		Record: history("4.7.0"),
	}
	definition, web := f.Payload.Manifests[0], f.Payload.Manifests[1]
	f.Narrowed = []precondition.NarrowedDefinition{{
		Manifest: definition,
		Change: &crdchange.Change{
			Removed: []string{"v1beta1"}, RequiredFields: []crdchange.Field{{Version: "v1", Path: "spec.crew"}},
		},
		Validated: 12,
		Unfit: []precondition.Obstacle{
			{ID: kinds.ID{Group: "example.com", Kind: "Ship", Namespace: "web", Name: "a"}, Why: "lacks spec.crew"},
			{ID: kinds.ID{Group: "example.com", Kind: "Ship", Namespace: "web", Name: "b"}, Why: "lacks spec.crew"},
		},
	}}
	f.NotReady = []precondition.Obstacle{{
		ID: kinds.NewID(kinds.Node, "", "worker-3"), Since: now.Add(-5 * time.Minute),
		Why: "not ready (NodeStatusUnknown), so pods of the release can't start " +
			"or end there",
		Resolution: "repairing it, or deleting the Node if its machine no longer exists",
	}}
	f.Shortages = []precondition.Obstacle{{ID: web.ID(), Manifest: web,
		Why: "3 ready Nodes have room for 2 of 3 new pods: each requests cpu 2, memory 4Gi, and Node worker-1, the " +
			"closest, has cpu 500m, memory 8Gi left",
		Resolution: "adding a Node, or changing what the pods request and where they may run",
	}}
	f.Budgets = []precondition.Obstacle{{
		ID: kinds.NewID(kinds.PodDisruptionBudget, "db", "postgres"), Since: now.Add(-24 * time.Hour),
		Why:        "never allows an eviction: 1 of 1 pod must be healthy",
		Resolution: "adding replicas, or changing its minAvailable or maxUnavailable",
	}}
	beta := schema.GroupVersionResource{Group: "example.com", Version: "v1beta1", Resource: "ships"}
	flows := schema.GroupVersionResource{
		Group: "flowcontrol.apiserver.k8s.io", Version: "v1beta3", Resource: "flowschemas",
	}
	f.Deprecated = []precondition.DeprecatedAPI{
		{GroupVersionResource: beta, Manifest: definition}, {GroupVersionResource: flows, Removed: "1.32"},
	}
	return f
}

// A release deletes a Secret, and a Deployment pulls its images with this Secret.
const (
	deletedSecret = `{apiVersion: v1, kind: Secret, metadata: {name: old, namespace: web, annotations: {release.openshift.io/delete: "true"}}}`
	usesSecret    = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: web}, spec: {template: {spec: {imagePullSecrets: [{name: old}]}}}}`
)

// TestFindingsOfTheDocumentation compares the examples of docs/gate.md with the current output.
func TestFindingsOfTheDocumentation(t *testing.T) {
	page, err := os.ReadFile("../../docs/gate.md")
	if err != nil {
		t.Fatal(err)
	}
	var found []precondition.Finding
	for _, f := range examples(t) {
		f.Now = now
		found = append(found, precondition.Evaluate(f)...)
	}
	for _, finding := range found {
		if !strings.Contains(string(page), "```\n"+finding.Text()+"\n```") {
			t.Errorf("docs/gate.md does not have this example:\n%s", finding.Text())
		}
	}
	place := 0
	for _, check := range precondition.Checks() {
		offset := strings.Index(string(page), "| `"+check.Name+"` | "+check.Short+" |\n")
		if offset < place {
			t.Errorf("the table of docs/gate.md does not have %s in its place, with %q", check.Name, check.Short)
		}
		place = max(offset, place)
		if !strings.Contains(string(page), "\n### "+check.Name+"\n") {
			t.Errorf("docs/gate.md has no section about %s", check.Name)
		}
	}
	if names := precondition.CheckNames(found); len(names) != len(precondition.Checks()) {
		t.Errorf("only %v have an example", slices.Sorted(slices.Values(names)))
	}
}

// rolledBack is a rollback from 4.7.1, which has deleted two objects and run a hook, to 4.7.0.
func rolledBack(t *testing.T) *precondition.Facts {
	const claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data, namespace: web}\n"
	f := &precondition.Facts{
		Payload: release(t, "4.7.0",
			map[string]string{"0000_10_web_data.yaml": claim, "0000_10_web_prices.yaml": configMap("prices", "")}),
		Record: history("4.7.1", "4.7.0"), Rollback: &record.Rollback{To: 1, From: 2, Version: "4.7.1"},
	}
	f.Deleted = f.Payload.Manifests
	newest, earlier := &f.Record.History[0], &f.Record.History[1]
	newest.Revision, earlier.Revision, earlier.Content = 2, 1, f.Payload.Content
	newest.Started = metav1.NewTime(now.Add(-10 * time.Minute))
	for _, m := range f.Deleted {
		newest.Tombstones = append(newest.Tombstones, m.ID())
	}
	began := metav1.NewTime(now.Add(-5 * time.Minute))
	f.Record.Hooks = []record.DeploymentHooks{{
		ID: kinds.NewID(kinds.Deployment, "web", "web"), State: deploymenthook.State{
			Hooks: map[deploymenthook.Stage]deploymenthook.HookProgress{deploymenthook.Pre: {Began: &began}},
		},
	}}
	return f
}
