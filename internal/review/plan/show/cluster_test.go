package show_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/review/plan"
	"github.com/runlevel/runlevel/internal/review/plan/show"
)

// clusterPlan has each kind of entry, and texts of strangers.
func clusterPlan() *plan.Plan {
	replicas := change("spec.replicas", int64(5), int64(3))
	replicas.Owners, replicas.Overwrites = []string{"kubectl-edit"}, []string{"kubectl-edit"}
	changed := configMap(plan.Changed, "web", "changed", replicas)
	changed.Adopted = []string{"helm"}
	created := configMap(plan.Created, "web", "created")
	created.Unchecked, created.Whole = "its Namespace is new",
		map[string]any{"kind": "ConfigMap", "data": map[string]any{"a": "b\x1b[31m"}}
	deleted := configMap(plan.Deleted, "web", "deleted")
	counts := kinds.NewObjectCounts([]kinds.Count{{Kind: "Pod", Resource: "pods", Objects: 2}})
	deleted.AlsoDeletes = &counts
	refused := configMap(plan.Rejected, "web", "refused")
	refused.Why = "a webhook answers \x1b[31mno"
	left := plan.ObjectPlan{
		ID:          kinds.ID{Kind: "ConfigMap", Name: "left"},
		Action:      plan.Dropped,
		Why:         "nobody has it",
		Tombstone:   "kind: ConfigMap\n",
		AlsoDeletes: &counts,
	}
	stuck := plan.ObjectPlan{ID: kinds.ID{Kind: "ConfigMap", Name: "stuck"}, Action: plan.Pending, Why: "held"}
	p := planOf([]plan.ObjectPlan{changed, created, deleted, refused, configMap(plan.Kept, "web", "kept")},
		[]plan.ObjectPlan{left, stuck})
	p.From, p.To, p.Update = plan.ReleaseID{Version: "1.0.0"}, plan.ReleaseID{Name: "shop", Version: "1.1.0"},
		plan.Minor
	p.Cluster = &plan.ClusterInfo{
		Mode: "update",
		Gate: []plan.GateFinding{{Check: "Rights", Severity: plan.Blocking, Message: "none"},
			{Check: "Deletes", Message: "some"}},
		Notes: []string{"no list"},
	}
	return p
}

func TestTextOfACluster(t *testing.T) {
	want := `Restarts nothing, and loses no data.
update of release shop 1.1.0 on the cluster, after 1.0.0 (minor)
  x     1 refused by the cluster
  +     1 created
  ~     1 changed
  -     1 deleted
  -     1 being deleted already
  !     1 dropped: it stays in the cluster
  =     1 kept as it is

needs attention
  the gate would refuse: Rights: none
  the gate warns: Deletes: some
  not known: no list

level 10 · web  (1 unchanged)
  ~ ConfigMap changed  (adopted from helm)
      spec.replicas: 5 → 3  (overwrites kubectl-edit)
  + ConfigMap created  (not checked by the cluster: its Namespace is new)
  - ConfigMap deleted  (also deletes 2 objects: 2 Pods)
  x ConfigMap refused  (a webhook answers \x1b[31mno)

in the cluster, and not in the release
  ! ConfigMap left  (nobody has it; deleting it would also delete 2 objects: 2 Pods)
      to delete it, put this into the release:
        kind: ConfigMap
  - ConfigMap stuck  (held)
`
	if diff := cmp.Diff(want, text(t, show.Printer{Plan: clusterPlan()})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMarkdownOfACluster(t *testing.T) {
	got := markdown(t, show.Printer{Plan: clusterPlan()})
	for _, part := range []string{
		"## Update of release shop 1.1.0 on the cluster, after 1.0.0 (minor)\n",
		"- the gate would refuse: Rights: none\n",
		"  - `spec.replicas`: `5` → `3`  (overwrites kubectl-edit)\n",
		"<code>in the cluster, and not in the release</code>: 1 pending, 1 dropped",
		"  - to delete it, put this into `the release`:\n",
	} {
		if !strings.Contains(got, part) {
			t.Errorf("%q is not in\n%s", part, got)
		}
	}
}

func TestDiffOfACluster(t *testing.T) {
	diff := func(v show.Printer) string {
		var out strings.Builder
		if err := v.Diff(&out); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	want := `the gate would refuse: Rights: none
the gate warns: Deletes: some
not known: no list
~ ConfigMap changed (0000_10_web_a.yaml:0)
    (adopted from helm)
    spec.replicas: 5 → 3  (overwrites kubectl-edit)
+ ConfigMap created (0000_10_web_a.yaml:0)
    (not checked by the cluster: its Namespace is new)
- ConfigMap deleted (0000_10_web_a.yaml:0)
    (also deletes 2 objects: 2 Pods)
x ConfigMap refused (0000_10_web_a.yaml:0)
    (a webhook answers \x1b[31mno)
`
	if diff := cmp.Diff(want, diff(show.Printer{Plan: clusterPlan()})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	whole := "its Namespace is new)\n    data:\n      a: \"b\\e[31m\"\n    kind: ConfigMap\n- ConfigMap deleted"
	if got := diff(show.Printer{Plan: clusterPlan(), All: true}); !strings.Contains(got, whole) {
		t.Errorf("%q is not in\n%s", whole, got)
	}
	same := planOf([]plan.ObjectPlan{configMap(plan.Unchanged, "web", "same")}, nil)
	same.Cluster = &plan.ClusterInfo{}
	if got := diff(show.Printer{Plan: same}); got != "nothing would change: the cluster matches the release\n" {
		t.Error(got)
	}
	if got := markdown(t, show.Printer{Plan: &plan.Plan{Cluster: same.Cluster}}); strings.Contains(got, "|") {
		t.Errorf("there is a table of nothing in\n%s", got)
	}
	var many []plan.FieldChange
	for range 50 {
		many = append(many, change("data.a", "b", "c"))
	}
	same.Steps = []plan.ObjectPlan{configMap(plan.Changed, "web", "many", many...)}
	if got := diff(show.Printer{Plan: same}); strings.Count(got, "data.a") != 50 {
		t.Error(got)
	}
}
