package plan_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/review/plan"
	"github.com/runlevel/runlevel/pkg/payload"
)

// hookedDeployment has all three hooks.
const hookedDeployment = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop, annotations: {runlevel.dev/lifecycle-hooks: '{pre: {execNewPod: {containerName: web, command: [a]}}, mid: {execNewPod: {containerName: web, command: [b]}}, post: {execNewPod: {containerName: web, command: [c]}}}'}},` +
	` spec: {replicas: 1, strategy: {type: Recreate}, template: {spec: {containers: [{name: web, image: IMAGE}]}}}}`

// The hooks that an apply runs depend on the live object, and on the hooks that were run before.
func TestHooksOfACluster(t *testing.T) {
	manifest := strings.ReplaceAll(hookedDeployment, "IMAGE", "new")
	release, _, err := payload.Parse(t.Context(), fstest.MapFS{"0000_10_web_00.yaml": {Data: []byte(manifest)}},
		payload.Options{Name: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	other := strings.ReplaceAll(hookedDeployment, "IMAGE", "old")
	for name, c := range map[string]struct {
		live string
		due  []deploymenthook.Stage
		want string
	}{
		"not there":             {"", []deploymenthook.Stage{"pre", "post"}, "pre, post"},
		"another template":      {other, []deploymenthook.Stage{"pre", "mid", "post"}, "pre, mid, post"},
		"another count":         {strings.ReplaceAll(manifest, "replicas: 1", "replicas: 5"), nil, ""},
		"an unfinished rollout": {other, []deploymenthook.Stage{"mid", "post"}, "mid, post"},
	} {
		t.Run(name, func(t *testing.T) {
			action := plan.Created
			seen := plan.ObjectPreview{Manifest: release.Manifests[0], Planned: object(t, manifest), DueHooks: c.due}
			if c.live != "" {
				action, seen.Live = plan.Changed, object(t, c.live)
			}
			seen.Action = action
			p := plan.ForCluster(plan.ReleaseID{}, release, plan.ClusterPreview{Objects: []plan.ObjectPreview{seen}})
			var got []string
			for _, hookPlan := range p.Steps[0].RunningHooks() {
				got = append(got, string(hookPlan.Stage))
			}
			if diff := cmp.Diff(c.want, strings.Join(got, ", ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}
