package deploymenthook_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
)

const valid = `"{pre: {execNewPod: {containerName: web, command: [rake]}}, post: {execNewPod: {containerName: web, command: [rake]}}}"`

// TestCheckManifests covers problems outside of the annotation.
func TestCheckManifests(t *testing.T) {
	for name, test := range map[string]struct{ manifest, want string }{
		"a Deployment with hooks": {`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, annotations: {runlevel.dev/lifecycle-hooks: ` + valid +
			`, runlevel.dev/ready: none, shop.example/hooks: all}}
spec: {template: {spec: {containers: [{name: web}]}}}
`, ""},
		"hooks of a StatefulSet": {`
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web, annotations: {runlevel.dev/lifecycle-hooks: ` + valid + `}}
`, `
metadata annotations runlevel.dev/lifecycle-hooks: MisplacedHooks: only a Deployment of the group apps has hooks, and this is a StatefulSet: drop the annotation runlevel.dev/lifecycle-hooks, or move it to a Deployment
`},
		"hooks of another Deployment": {`
apiVersion: shop.example/v1
kind: Deployment
metadata: {name: web, annotations: {runlevel.dev/lifecycle-hooks: ` + valid + `}}
`, `
metadata annotations runlevel.dev/lifecycle-hooks: MisplacedHooks: only a Deployment of the group apps has hooks, and this is a Deployment.shop.example: drop the annotation runlevel.dev/lifecycle-hooks, or move it to a Deployment
`},
		"Runlevel's own annotation": {`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, annotations: {runlevel.dev/lifecycle-hooks-state: "{}"}}
`, `
metadata annotations runlevel.dev/lifecycle-hooks-state: MisplacedHooks: runlevel.dev/lifecycle-hooks-state is what Runlevel writes to remember which hooks have run: drop it
`},
		"misspelt annotations": {`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, annotations: {runlevel.dev/lifecycle-hook: "{}", runlevel.dev/lifecycleHooks: "{}", hooks.runlevel.dev/hooks: "{}"}}
`, `
metadata annotations hooks.runlevel.dev/hooks: MisplacedHooks: the annotation hooks.runlevel.dev/hooks has no effect: did you mean runlevel.dev/lifecycle-hooks?
metadata annotations runlevel.dev/lifecycle-hook: MisplacedHooks: the annotation runlevel.dev/lifecycle-hook has no effect: did you mean runlevel.dev/lifecycle-hooks?
metadata annotations runlevel.dev/lifecycleHooks: MisplacedHooks: the annotation runlevel.dev/lifecycleHooks has no effect: did you mean runlevel.dev/lifecycle-hooks?
`},
		"hooks of the pod template": {`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {template: {metadata: {annotations: {runlevel.dev/lifecycle-hooks: ` + valid + `}}}}
`, `
spec template metadata annotations runlevel.dev/lifecycle-hooks: MisplacedHooks: runlevel.dev/lifecycle-hooks has no effect in a pod template: move it to metadata.annotations of the Deployment
`},
		"a paused, create-only Deployment": {`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, annotations: {runlevel.dev/lifecycle-hooks: ` + valid +
			`, release.openshift.io/create-only: "True"}}
spec: {paused: true, template: {spec: {containers: [{name: web}]}}}
`, `
spec paused: HookIneffective: spec.paused is true, so that a rollout never completes, and hooks after pre never run: drop it
metadata annotations release.openshift.io/create-only: HookIneffective: the Deployment is create-only, so that an update never changes it: its hooks run when it is created, and never again
`},
		"paused with pre alone": {`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, annotations: {runlevel.dev/lifecycle-hooks: "{pre: {execNewPod: {containerName: web, command: [rake]}}}"}}
spec: {paused: true, template: {spec: {containers: [{name: web}]}}}
`, ""},
		"fields that hold what they can't": {`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, annotations: {runlevel.dev/lifecycle-hooks: "{mid: {execNewPod: {containerName: web, command: [rake], volumes: [data]}}}"}}
spec: {paused: "yes", strategy: Recreate, template: {spec: {containers: {name: web}, volumes: [data]}}}
`, `
metadata annotations runlevel.dev/lifecycle-hooks: HookStrategy: mid: Forbidden: it needs spec.strategy.type: Recreate, and that is RollingUpdate, where old pods run until new ones do: change the strategy, or use pre
metadata annotations runlevel.dev/lifecycle-hooks: HookContainer: mid.execNewPod.containerName: Not found: "web": name one of the template's containers: it has none
metadata annotations runlevel.dev/lifecycle-hooks: HookVolume: mid.execNewPod.volumes[0]: Not found: "data": the hook runs without it, because the template has no such volume: it has none
`},
	} {
		t.Run(name, func(t *testing.T) {
			manifest := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(test.manifest), &manifest.Object); err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			for _, p := range deploymenthook.Check(manifest) {
				fmt.Fprintf(&got, "%s: %s: %s\n", strings.Join(p.Path, " "), p.Rule, p.Message)
			}
			if diff := cmp.Diff(strings.TrimPrefix(test.want, "\n"), got.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
