package plan_test

import (
	"fmt"
	"math/rand"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/review/plan"
	"github.com/runlevel/runlevel/pkg/payload"
)

// TestRandomReleases compares many pairs of small releases, broken ones included, and
// checks the properties that all plans have.
func TestRandomReleases(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	for round := range 1_000 {
		old, next := randomRelease(t, random), randomRelease(t, random)
		p := plan.Compare(old, next, nil)
		if diff := cmp.Diff(p, plan.Compare(old, next, nil)); diff != "" {
			t.Fatalf("round %d: twice is not the same: %s", round, diff)
		}
		if len(p.Steps) != len(next.Manifests) {
			t.Fatalf("round %d: %d steps for %d manifests", round, len(p.Steps), len(next.Manifests))
		}
		isInPlan := map[kinds.ID]bool{}
		total := 0
		for _, entries := range [][]plan.ObjectPlan{p.Steps, p.Absent} {
			for _, e := range entries {
				isInPlan[e.ID] = true
				total++
				if e.Action == plan.DeletedWith && !isInPlan[*e.With] && !isAmong(*e.With, p) {
					t.Fatalf("round %d: %s is deleted with %s, which is not deleted", round, e.ID, e.With)
				}
				if e.Action != plan.Dropped && e.Tombstone != "" || e.Action == plan.Dropped &&
					(e.Tombstone == "") != (strings.Contains(e.Why, "that would also delete") || len(e.UsedBy) > 0) {
					t.Fatalf("round %d: %s is %s, and its tombstone is %q", round, e.ID, e.Action, e.Tombstone)
				}
			}
		}
		for _, m := range old.Manifests {
			if !isInPlan[m.ID()] {
				t.Fatalf("round %d: %s is not in the plan", round, m.ID())
			}
		}
		for _, count := range p.Counts {
			total -= count
		}
		if total != 0 {
			t.Fatalf("round %d: the counts %v differ by %d from the objects", round, p.Counts, total)
		}
		for _, same := range []*payload.Payload{old, next} {
			if q := plan.Compare(same, same, nil); !isBroken(same) && !q.IsEmpty() {
				t.Fatalf("round %d: a release differs from itself: %v", round, q.Counts)
			}
		}
	}
}

// isAmong reports whether a plan deletes an object.
func isAmong(o kinds.ID, p *plan.Plan) bool {
	for _, entries := range [][]plan.ObjectPlan{p.Steps, p.Absent} {
		for _, e := range entries {
			if e.ID == o {
				return strings.HasPrefix(string(e.Action), "deleted") || e.Action == plan.DeletedWith ||
					e.Action == plan.NothingToDelete
			}
		}
	}
	return false
}

// isBroken reports whether a release has an object twice.
func isBroken(p *payload.Payload) bool {
	seen := map[kinds.ID]bool{}
	for _, m := range p.Manifests {
		if seen[m.ID()] {
			return true
		}
		seen[m.ID()] = true
	}
	return false
}

// randomRelease has namespaces, definitions, custom resources, owners and tombstones,
// of few names, so that they meet.
func randomRelease(t *testing.T, random *rand.Rand) *payload.Payload {
	t.Helper()
	files := fstest.MapFS{}
	for i := range 1 + random.Intn(10) {
		name := fmt.Sprint("n", random.Intn(3))
		object := []string{
			"apiVersion: v1\nkind: Namespace\nmetadata:\n  name: " + name,
			"apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nspec: {group: example.com, names: {kind: " + strings.ToUpper(name) + "}}\nmetadata:\n  name: " + name,
			"apiVersion: example.com/v1\nkind: " + strings.ToUpper(name) + "\nmetadata:\n  name: w\n  namespace: n1",
			"apiVersion: v1\nkind: ConfigMap\ndata: {a: a" + name + "}\nmetadata:\n  name: c\n  namespace: " + name,
			"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  namespace: n0\n  name: " + name +
				"\n  ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: n" + fmt.Sprint(random.Intn(3)) + "}]",
		}[random.Intn(5)]
		switch random.Intn(5) {
		case 0:
			object += "\n  annotations: {release.openshift.io/delete: 'true'}"
		case 1:
			object += "\n  annotations: {release.openshift.io/feature-set: TechPreviewNoUpgrade}"
		}
		files[fmt.Sprintf("0000_%d0_%c_%d.yaml", 1+random.Intn(3), 'a'+rune(random.Intn(3)), i)] = &fstest.MapFile{
			Data: []byte(object + "\n"),
		}
	}
	options := payload.Options{Filter: payload.Filter{FeatureSet: "Default"}}
	release, problems, err := payload.Parse(t.Context(), files, options)
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		if problem.Cause != payload.Duplicate && !problem.IsWarning() {
			t.Fatal(problem)
		}
	}
	return release
}

// TestIsEmpty: a dropped object is a difference, although no step changes anything.
func TestIsEmpty(t *testing.T) {
	for name, test := range map[string]struct {
		old, next map[string]string
		isEmpty   bool
	}{
		"nothing": {map[string]string{"a.yaml": one}, map[string]string{"a.yaml": "# one\n" + one}, true},
		"dropped": {map[string]string{"a.yaml": one, "b.yaml": other}, map[string]string{"a.yaml": one}, false},
		"moved": {map[string]string{"0000_10_a_a.yaml": one}, map[string]string{"0000_20_a_a.yaml": one},
			false},
		"another file": {map[string]string{"0000_10_a_a.yaml": one}, map[string]string{"0000_10_a_b.yaml": one}, true},
		"deleted again": {map[string]string{"a.yaml": tombstoneOfOne}, map[string]string{"a.yaml": tombstoneOfOne},
			true},
		"retired": {map[string]string{"a.yaml": tombstoneOfOne, "b.yaml": other}, map[string]string{"b.yaml": other},
			false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := plan.Compare(parse(t, test.old), parse(t, test.next), nil).IsEmpty(); got != test.isEmpty {
				t.Errorf("got IsEmpty %v, want %v", got, test.isEmpty)
			}
		})
	}
}

const (
	one            = "{apiVersion: v1, kind: ConfigMap, metadata: {name: one}}\n"
	tombstoneOfOne = "{apiVersion: v1, kind: ConfigMap, metadata: {name: one, annotations: " +
		"{release.openshift.io/delete: 'true'}}}\n"
	other = "{apiVersion: v1, kind: ConfigMap, metadata: {name: other}}\n"
)

// parse reads a release of these files.
func parse(t *testing.T, texts map[string]string) *payload.Payload {
	t.Helper()
	files := fstest.MapFS{}
	for name, text := range texts {
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	release, problems, err := payload.Parse(t.Context(), files, payload.Options{})
	if err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	return release
}

func TestKindsOfUpdates(t *testing.T) {
	for versions, want := range map[[2]string]plan.UpdateKind{
		{"1.2.3", "1.2.4"}:       plan.Patch,
		{"1.2.3-rc.1", "1.2.3"}:  plan.Patch,
		{"1.2.3", "1.3.0"}:       plan.Minor,
		{"1.2.3", "1.3.0-rc.1"}:  plan.Minor,
		{"1.2.3", "2.0.0"}:       plan.Major,
		{"1.2.3", "1.2.3"}:       plan.Same,
		{"1.2.3", "1.2.3+build"}: plan.Same,
		{"1.2.3", "1.2.3-rc.1"}:  plan.Downgrade,
		{"1.10.0", "1.9.0"}:      plan.Downgrade,
		{"1.2.3", ""}:            plan.Unknown,
		{"", "1.2.3"}:            plan.Unknown,
		{"one", "1.2.3"}:         plan.Unknown,
	} {
		if got := plan.Compare(&payload.Payload{Version: versions[0]}, &payload.Payload{Version: versions[1]},
			nil).Update; got != want {
			t.Errorf("from %s to %s is %s, want %s", versions[0], versions[1], got, want)
		}
	}
}
