package payload_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// foreign returns a manifest of another tool, with annotations.
func foreign(kind, name string, annotations ...string) string {
	versions := map[string]string{"Deployment": "apps/v1", "Job": "batch/v1", "Role": "rbac.authorization.k8s.io/v1"}
	version := versions[kind]
	if version == "" {
		version = "v1"
	}
	return fmt.Sprintf("---\napiVersion: %s\nkind: %s\nmetadata: {name: %s, namespace: shop, annotations: {of: shop, %s}}\n", version, kind, name, strings.Join(annotations, ", "))
}

// TestTheOrderOfOtherTools counts in a release without numbered files.
func TestTheOrderOfOtherTools(t *testing.T) {
	const early, late = `argocd.argoproj.io/sync-wave: "-1"`, `argocd.argoproj.io/sync-wave: "2"`
	const pre, post = `helm.sh/hook: "pre-install,pre-upgrade"`, `helm.sh/hook: post-install`
	for name, test := range map[string]struct {
		manifests []string
		want      []string
		left      string
	}{
		"waves before kinds": {
			manifests: []string{foreign("Deployment", "web"), foreign("ConfigMap", "late", late),
				foreign("Deployment", "db", early), foreign("ConfigMap", "web")},
			want: []string{"160 db (sync-wave -1)", "240 web", "260 web", "340 late (sync-wave 2)"},
		},
		"hooks around the workloads, by weight": {
			manifests: []string{
				foreign("Deployment", "web"), foreign("Job", "report", post),
				foreign("Job", "second", pre, `helm.sh/hook-weight: "5"`),
				foreign("Job", "first", pre, `helm.sh/hook-weight: "-5"`), foreign("ServiceAccount", "hook", pre),
				foreign("ConfigMap", "web"),
			},
			want: []string{
				"30 hook (of a hook)", "40 web", "45 first (hook pre-install,pre-upgrade, weight -5)",
				"45 second (hook pre-install,pre-upgrade, weight 5)", "60 web", "90 report (hook post-install)",
			},
		},
		"hooks before the first wave with workloads": {
			manifests: []string{
				foreign("Deployment", "web"), foreign("Deployment", "db", early),
				foreign("Job", "migrate", `argocd.argoproj.io/hook: PreSync`),
				foreign("ServiceAccount", "hook", `argocd.argoproj.io/hook: PreSync`),
				foreign("Job", "smoke", `argocd.argoproj.io/hook: PostSync`),
			},
			want: []string{"130 hook (of a hook)", "145 migrate (hook PreSync)", "160 db (sync-wave -1)", "260 web",
				"290 smoke (hook PostSync)"},
		},
		"groups of kapp": {
			manifests: []string{
				foreign("Deployment", "web", `kapp.k14s.io/change-rule.1: "upsert after upserting shop/db"`,
					`kapp.k14s.io/change-rule.2: "delete before deleting shop/db"`),
				foreign("Deployment", "db", `kapp.k14s.io/change-group: shop/db`),
				foreign("Job", "first", `kapp.k14s.io/change-rule: "upsert before upserting shop/db"`),
			},
			want: []string{"160 first (upsert before upserting shop/db)", "260 db",
				"360 web (upsert after upserting shop/db)"},
		},
		"rules in a circle": {
			manifests: []string{
				foreign("ConfigMap", "a", `kapp.k14s.io/change-group: a`,
					`kapp.k14s.io/change-rule: "upsert after upserting b"`),
				foreign("ConfigMap", "b", `kapp.k14s.io/change-group: b`,
					`kapp.k14s.io/change-rule: "upsert after upserting a"`),
			},
			want: []string{"40 a", "40 b"},
		},
		"resource groups of Helm": {
			manifests: []string{
				foreign("Deployment", "app", `helm.sh/resource-group: app`,
					`helm.sh/depends-on/resource-groups: '["database", "queue"]'`),
				foreign("ConfigMap", "app", `helm.sh/resource-group: app`),
				foreign("Deployment", "db", `helm.sh/resource-group: database`),
				foreign("Deployment", "queue", `helm.sh/resource-group: queue`,
					`helm.sh/depends-on/resource-groups: '["database"]'`),
				foreign("Deployment", "plain"), foreign("ServiceAccount", "plain"),
				foreign("Deployment", "alone", `helm.sh/resource-group: alone`),
				foreign("Deployment", "lost", `helm.sh/depends-on/resource-groups: '["nowhere"]'`),
			},
			want: []string{
				"130 plain", "160 db (resource-group database)",
				"260 queue (resource-group queue, depends on database)", "340 app (resource-group app)",
				"360 app (resource-group app, depends on database, queue)", "460 plain", "460 alone", "460 lost",
			},
		},
		"resource groups in a circle": {
			manifests: []string{
				foreign("ConfigMap", "a", `helm.sh/resource-group: a`, `helm.sh/depends-on/resource-groups: '["b"]'`),
				foreign("ConfigMap", "b", `helm.sh/resource-group: b`, `helm.sh/depends-on/resource-groups: '["a"]'`),
			},
			want: []string{"40 a", "40 b"},
		},
		"resource groups beside waves": {
			manifests: []string{foreign("ConfigMap", "a", `helm.sh/resource-group: a`),
				foreign("ConfigMap", "b", early, `helm.sh/depends-on/resource-groups: '["a"]'`)},
			want: []string{"140 b (sync-wave -1)", "240 a"},
		},
		"hooks of an uninstall": {
			manifests: []string{foreign("Job", "cleanup", `helm.sh/hook: pre-delete`),
				foreign("Job", "both", `helm.sh/hook: "post-upgrade,post-rollback"`),
				foreign("Job", "failed", `argocd.argoproj.io/hook: SyncFail`)},
			want: []string{"90 both (hook post-upgrade,post-rollback)"},
			left: "cleanup, failed",
		},
		"no place": {
			manifests: []string{foreign("Job", "mixed", `helm.sh/hook: "post-install,pre-upgrade"`),
				foreign("Job", "test", `helm.sh/hook: test`),
				foreign("ConfigMap", "odd", `argocd.argoproj.io/sync-wave: soon`)},
			want: []string{"40 odd", "60 mixed"}, // the test is not applied
		},
	} {
		files := fstest.MapFS{"all.yaml": {Data: []byte(strings.Join(test.manifests, ""))}}
		read, problems, err := payload.Load(t.Context(), files, payload.Options{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var have, left []string
		for _, m := range read.Manifests {
			line := graph.ParseName(m.File()).Level + " " + m.ID().Name
			if reason := m.Foreign().Reason(); reason != "" {
				line += " (" + reason + ")"
			}
			have = append(have, line)
		}
		for _, exclusion := range read.Excluded {
			left = append(left, exclusion.Manifest.ID().Name)
		}
		if !slices.Equal(have, test.want) {
			t.Errorf("%s: the order is\n%s\nwant\n%s", name, strings.Join(have, "\n"), strings.Join(test.want, "\n"))
		}
		if got := strings.Join(left, ", "); got != test.left || test.left != "" && len(problems) != len(left) {
			t.Errorf("%s: left out are %q, with %v, want %q", name, got, problems, test.left)
		}
	}
}

// TestNumberedFilesDecideAlone, whatever annotations their objects have.
func TestNumberedFilesDecideAlone(t *testing.T) {
	files := fstest.MapFS{"0000_50_web_all.yaml": {Data: []byte(foreign("Job", "first", `helm.sh/hook: pre-delete`) +
		foreign("ConfigMap", "second", `argocd.argoproj.io/sync-wave: "-1"`))}}
	read, _, err := payload.Load(t.Context(), files, payload.Options{})
	if err != nil || len(read.Manifests) != 2 || read.Manifests[0].ID().Name != "first" ||
		read.Manifests[1].Foreign().Reason() != "" {
		t.Errorf("got %v (error %v)", read, err)
	}
}

// TestLargeKindsAreAppliedSideBySide has more objects of a kind than one component has. Hooks keep their order, however
// many there are.
func TestLargeKindsAreAppliedSideBySide(t *testing.T) {
	for count, want := range map[int]int{50: 1, 51: 5} {
		var text strings.Builder
		for i := range count {
			text.WriteString(foreign("ConfigMap", fmt.Sprintf("c%02d", i)))
			text.WriteString(foreign("Job", fmt.Sprintf("j%02d", i), `helm.sh/hook: "pre-install,pre-upgrade"`))
		}
		read, _, err := payload.Load(t.Context(), fstest.MapFS{"all.yaml": {Data: []byte(text.String())}},
			payload.Options{})
		if err != nil {
			t.Fatal(err)
		}
		components := map[string]map[string]bool{}
		for _, m := range read.Manifests {
			name := graph.ParseName(m.File())
			if components[name.Level] == nil {
				components[name.Level] = map[string]bool{}
			}
			components[name.Level][name.Component] = true
		}
		if len(components["40"]) != want || len(components["45"]) != 1 {
			t.Errorf("of %d: %v", count, components)
		}
	}
}
