package plan_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/review/plan"
	"github.com/runlevel/runlevel/pkg/payload"
)

// clusterRelease contains the objects of these tests.
const clusterRelease = `
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: shop}, data: {colour: blue}}
---
{apiVersion: v1, kind: Secret, metadata: {name: key, namespace: shop}, stringData: {password: pl4nted}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: old, annotations: {release.openshift.io/delete: "true"}}}
---
{apiVersion: example.com/v1, kind: Hat, metadata: {name: hat, namespace: shop}, spec: {size: 2}}
---
{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: hats.example.com}}
`

// previewOf returns the preview of the object of a kind, which a test may change.
func previewOf(t *testing.T, release *payload.Payload, kind string, action plan.Action,
	more func(*plan.ObjectPreview)) plan.ObjectPreview {
	t.Helper()
	for _, m := range release.Manifests {
		if m.ID().Kind == kind {
			objectPreview := plan.ObjectPreview{Manifest: m, Action: action}
			if more != nil {
				more(&objectPreview)
			}
			return objectPreview
		}
	}
	t.Fatal("there is no", kind)
	return plan.ObjectPreview{}
}

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	var parsed map[string]any
	if err := yaml.Unmarshal([]byte(text), &parsed); err != nil {
		t.Fatal(err)
	}
	return parsed
}

func releaseOfCluster(t *testing.T) *payload.Payload {
	t.Helper()
	release, _, err := payload.Parse(t.Context(), fstest.MapFS{"0000_10_web_00.yaml": {Data: []byte(clusterRelease)}},
		payload.Options{Name: "shop", Version: "1.1.0"})
	if err != nil {
		t.Fatal(err)
	}
	return release
}

// Fields that the server sets are not differences; the managers of lost fields are reported.
func TestFieldsOfACluster(t *testing.T) {
	release := releaseOfCluster(t)
	owners := func(values map[string][]string) func(fields.Path) []string {
		return func(path fields.Path) []string { return values[path.String()] }
	}
	const live = `{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: shop, uid: a, resourceVersion: "1", generation: 1, creationTimestamp: x, managedFields: [{manager: a}]}, data: {colour: red, size: s}}`
	const would = `{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: shop, uid: b, resourceVersion: "2", generation: 2, creationTimestamp: y, managedFields: [{manager: b}]}, data: {colour: blue}}`
	for name, c := range map[string]struct {
		seen plan.ObjectPreview
		want []string
	}{
		"nobody's": {
			previewOf(t, release, "ConfigMap", plan.Changed, func(s *plan.ObjectPreview) {
				s.Live, s.Planned = object(t, live), object(t, would)
			}),
			[]string{"data.colour", "data.size"},
		},
		"who loses": {
			previewOf(t, release, "ConfigMap", plan.Changed, func(s *plan.ObjectPreview) {
				s.Live, s.Planned, s.Losing = object(t, live), object(t, would), []string{"bob"}
				s.Owners = owners(map[string][]string{"data.colour": {"ann", "bob"}, "data.size": {"ann"}})
			}),
			[]string{"data.colour of ann, bob, lost by bob", "data.size of ann"},
		},
		"who is adopted from": {
			previewOf(t, release, "ConfigMap", plan.Changed, func(s *plan.ObjectPreview) {
				s.Live, s.Planned, s.Adopted = object(t, live), object(t, would), []string{"helm"}
				s.Owners = owners(map[string][]string{"data.size": {"helm"}})
			}),
			[]string{"data.colour", "data.size of helm, lost by helm"},
		},
		"from the manifest": {
			previewOf(t, release, "ConfigMap", plan.Changed, func(s *plan.ObjectPreview) {
				s.Live, s.Planned, s.FromManifest = object(t, live), object(t, would), true
			}),
			[]string{"data.colour"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := plan.ForCluster(plan.ReleaseID{}, release, plan.ClusterPreview{Objects: []plan.ObjectPreview{c.seen}})
			var got []string
			for _, change := range p.Steps[0].Changes {
				parts := change.Path.String()
				if len(change.Owners) > 0 {
					parts += " of " + strings.Join(change.Owners, ", ")
				}
				if len(change.Overwrites) > 0 {
					parts += ", lost by " + strings.Join(change.Overwrites, ", ")
				}
				got = append(got, parts)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// If an object changes but no field does, the plan explains the change.
func TestOnlyWhoseItIsChanges(t *testing.T) {
	release := releaseOfCluster(t)
	const live = `{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: shop, managedFields: [{manager: a}]}, data: {colour: blue}}`
	for adopted, want := range map[string]string{"": "all fields stay as they are, and only become the release's",
		"helm": ""} {
		objectPreview := previewOf(t, release, "ConfigMap", plan.Changed, func(s *plan.ObjectPreview) {
			s.Live, s.Planned = object(t, live), object(t, live)
			s.Adopted = strings.Fields(adopted)
		})
		p := plan.ForCluster(plan.ReleaseID{}, release,
			plan.ClusterPreview{Objects: []plan.ObjectPreview{objectPreview}})
		if got := p.Steps[0].Why; got != want {
			t.Errorf("adopted from %q: got %q, want %q", adopted, got, want)
		}
	}
}

// TestPlanOfACluster has each kind of entry.
func TestPlanOfACluster(t *testing.T) {
	release := releaseOfCluster(t)
	counts := kinds.NewObjectCounts([]kinds.Count{{Kind: "Pod", Resource: "pods", Objects: 3}})
	preview := plan.ClusterPreview{
		Mode: "update",
		Objects: []plan.ObjectPreview{
			previewOf(t, release, "Hat", plan.Created, func(s *plan.ObjectPreview) {
				s.Why, s.Unchecked, s.FromManifest, s.Planned = "it is new", "it is new", true,
					object(t, `{kind: Hat, metadata: {name: hat, uid: x}}`)
			}),
			previewOf(t, release, "ConfigMap", plan.Rejected, func(s *plan.ObjectPreview) {
				s.Why = "a policy denies it"
			}),
			previewOf(t, release, "Secret", plan.Created, func(s *plan.ObjectPreview) {
				s.Planned = object(t,
					`{apiVersion: v1, kind: Secret, metadata: {name: key}, data: {password: cGw0bnRlZA==}}`)
			}),
			previewOf(t, release, "Namespace", plan.Deleted, func(s *plan.ObjectPreview) { s.AlsoDeletes = &counts }),
			previewOf(t, release, "CustomResourceDefinition", plan.Changed, func(s *plan.ObjectPreview) {
				s.Live = object(t,
					`{spec: {versions: [{name: v1, served: true, storage: true}, {name: v1beta1, served: true}]}}`)
				s.Planned = object(t, `{spec: {versions: [{name: v1, served: true, storage: true}]}}`)
			}),
		},
		Orphans: []plan.LeftoverObject{{
			ID:          kinds.ID{Kind: "ConfigMap", Namespace: "shop", Name: "left"},
			Why:         "nobody has it",
			Tombstone:   "text",
			AlsoDeletes: &counts,
		}},
		Pending: []plan.LeftoverObject{{
			ID:  kinds.ID{Kind: "ConfigMap", Namespace: "shop", Name: "stuck"},
			Why: "a finalizer holds it",
		}},
		Gate:  []plan.GateFinding{{Check: "Rights", Severity: plan.Blocking, Message: "no"}},
		Notes: []string{"not all is known"},
	}
	p := plan.ForCluster(plan.ReleaseID{Name: "shop", Version: "1.0.0"}, release, preview)
	got := print(p)
	want := `minor update from 1.0.0 to 1.1.0
  1 refused
  2 created
  1 changed
  1 deleted
  1 pending
  1 dropped
Refused: ConfigMap shop/settings: a policy denies it
VersionRemoved: CustomResourceDefinition hats.example.com: version v1beta1 is removed
AlsoDeletes: Namespace old: it is deleted, and 3 objects: 3 Pods with it
Orphan: ConfigMap shop/left: nobody has it
steps
  10/web refused ConfigMap shop/settings: a policy denies it
  10/web created Secret shop/key
  10/web deleted Namespace old
  10/web created Hat shop/hat
  10/web changed CustomResourceDefinition hats.example.com
      spec.versions[name=v1beta1]: map[name:v1beta1 served:true] -> <nil>
      removedVersions:
      - v1beta1
absent
  / pending ConfigMap shop/stuck: a finalizer holds it
  / dropped ConfigMap shop/left: nobody has it
      text
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		`"cluster":{"mode":"update","gate":[{"check":"Rights","severity":"Blocks","message":"no"}],"notes":["not all is known"]}`,
		`"alsoDeletes":{"objects":3,"kinds":[{"kind":"Pod","resource":"pods","objects":3}]}`,
		`"unchecked":"it is new","whole":{"kind":"Hat","metadata":{"name":"hat"}}`,
		`"whole":{"apiVersion":"v1","data":{"password":"***"},"kind":"Secret","metadata":{"name":"key"}}`,
	} {
		if !strings.Contains(string(text), part) {
			t.Errorf("%s is not in\n%s", part, text)
		}
	}
}

// The copy that kubectl keeps of its manifest is not a loss. The fields that kubectl has set are.
func TestKubectlsCopyIsNotAWarning(t *testing.T) {
	release := releaseOfCluster(t)
	const copied = `kubectl.kubernetes.io/last-applied-configuration: x`
	const bare, emptied = `{metadata: {}, data: {colour: blue}}`, `{metadata: {annotations: {}}, data: {colour: blue}}`
	for _, c := range []struct{ live, would, want string }{
		{`{metadata: {annotations: {` + copied + `}}, data: {colour: blue}}`, bare, ""},
		{`{metadata: {annotations: {` + copied + `}}, data: {colour: blue}}`, emptied, ""},
		{`{metadata: {annotations: {` + copied + `}}, data: {colour: red}}`, bare, "data.colour (kubectl)"},
		{`{metadata: {annotations: {` + copied + `, a: b}}, data: {colour: blue}}`, bare,
			"metadata.annotations (kubectl)"},
		{`{metadata: {annotations: {` + copied + `, a: b}}, data: {colour: blue}}`, emptied,
			"metadata.annotations.a (kubectl)"},
	} {
		p := plan.ForCluster(plan.ReleaseID{}, release, plan.ClusterPreview{Objects: []plan.ObjectPreview{
			previewOf(t, release, "ConfigMap", plan.Changed, func(s *plan.ObjectPreview) {
				s.Live, s.Planned, s.Adopted = object(t, c.live), object(t, c.would), []string{"kubectl"}
				s.Owners = func(fields.Path) []string { return []string{"kubectl"} }
			}),
		}})
		got := ""
		for _, warning := range p.Warnings {
			got += strings.TrimPrefix(warning.Message, "fields that other managers have set are overwritten: ")
		}
		if got != c.want {
			t.Errorf("%s to %s: got warnings %q, want %q", c.live, c.would, got, c.want)
		}
	}
}

// The tombstone of a definition need not name its kind: the kind is known from the objects in the cluster.
func TestObjectsDeletedWithADefinitionContradict(t *testing.T) {
	text := strings.Replace(clusterRelease, "{name: hats.example.com}",
		`{name: hats.example.com, annotations: {release.openshift.io/delete: "true"}}`, 1)
	release, _, err := payload.Parse(t.Context(), fstest.MapFS{"0000_10_web_00.yaml": {Data: []byte(text)}},
		payload.Options{Name: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	counts := kinds.NewObjectCounts([]kinds.Count{{Group: "example.com", Kind: "Hat", Resource: "hats", Objects: 1},
		{Kind: "Pod", Resource: "pods", Objects: 1}})
	p := plan.ForCluster(plan.ReleaseID{}, release, plan.ClusterPreview{Objects: []plan.ObjectPreview{
		previewOf(t, release, "CustomResourceDefinition", plan.Deleted, func(s *plan.ObjectPreview) {
			s.AlsoDeletes = &counts
		}), previewOf(t, release, "Hat", plan.Unchanged, nil),
	}})
	if got := print(p); !strings.Contains(got,
		"\nContradiction: Hat shop/hat: the same release deletes CustomResourceDefinition hats.example.com, and with "+
			"it this object\n") {
		t.Errorf("no contradiction in\n%s", got)
	}
}

// Only actions of an apply are differences: not objects that are left behind, or kept.
func TestDifferencesToACluster(t *testing.T) {
	release := releaseOfCluster(t)
	for action, differs := range map[plan.Action]bool{
		plan.Created: true, plan.Changed: true, plan.Deleted: true, plan.Rejected: true, plan.Unchecked: true,
		plan.Unchanged: false, plan.Kept: false, plan.Pending: false, plan.Left: false, plan.NotThere: false,
	} {
		p := plan.ForCluster(plan.ReleaseID{}, release, plan.ClusterPreview{
			Objects: []plan.ObjectPreview{previewOf(t, release, "ConfigMap", action, nil),
				previewOf(t, release, "Hat", plan.Unchanged, nil)},
			Orphans: []plan.LeftoverObject{{ID: kinds.ID{Kind: "ConfigMap", Name: "left"}}},
		})
		less := p.WithoutUnchanged()
		if p.IsEmpty() == differs || (len(less.Steps) == 1) != differs || len(less.Absent) > 0 ||
			len(less.Counts) != len(less.Steps) {
			t.Errorf("%s: empty: %v; what differs: %+v", action, p.IsEmpty(), less)
		}
		if len(p.Steps) != 2 || len(p.Absent) != 1 {
			t.Errorf("%s: the plan has lost something: %+v", action, p)
		}
	}
}
