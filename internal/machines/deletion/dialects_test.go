package deletion_test

import (
	"testing"

	"github.com/runlevel/runlevel/internal/machines/deletion"
)

// TestWhereTheDialectsDiffer shows both on the same machine: what each does first, up to the first wait.
func TestWhereTheDialectsDiffer(t *testing.T) {
	late := deletion.DeletionHook{Name: "Late", Owner: "late-op"}
	tests := map[string]struct {
		given                 func(*world)
		openshift, clusterAPI string
	}{
		"a machine that is excluded from draining, with a pre-drain hook": {
			func(w *world) { w.isExcluded, w.preDrain = true, []deletion.DeletionHook{migrate} },
			"skip drain, delete infrastructure, delete node, release",
			"record start, wait for hooks",
		},
		"a machine without a node, with a pre-drain hook": {
			func(w *world) { w.node.Name, w.preDrain = "", []deletion.DeletionHook{migrate} },
			"skip drain, delete infrastructure, release",
			"delete infrastructure, release",
		},
		"a pre-drain hook that is added while a pre-terminate hook is waited for": {
			func(w *world) {
				w.preTerminate = []deletion.DeletionHook{detach}
				w.pass()
				w.did, w.preDrain = nil, []deletion.DeletionHook{late}
			},
			"wait for hooks",
			"record start, wait for hooks to let it drain",
		},
		"a pod that comes while a pre-terminate hook is waited for": {
			func(w *world) {
				w.preTerminate = []deletion.DeletionHook{detach}
				w.pass()
				w.did, w.pods = nil, []*worldPod{{name: "back"}}
			},
			"wait for hooks",
			"wait for hooks",
		},
		"a pre-terminate hook that is added while the infrastructure goes": {
			func(w *world) {
				w.infrastructure.goesAfter = -1
				w.pass()
				w.did, w.preTerminate = nil, []deletion.DeletionHook{late}
			},
			"wait for infrastructure",
			"record start, wait for hooks",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for dialect, want := range map[string]string{"openshift": test.openshift, "cluster-api": test.clusterAPI} {
				w := newWorld("n1")
				if dialect == "cluster-api" {
					w.useClusterAPI()
				}
				test.given(w)
				w.capi.isNodeKept = w.node.Name == ""
				if got := story(w); got != want {
					t.Errorf("%s: %s, want %s", dialect, got, want)
				}
			}
		})
	}
}

// story does a pass, and tells of it.
func story(w *world) string {
	text := ""
	for _, step := range w.pass() {
		if text != "" {
			text += ", "
		}
		text += string(step.Action)
		if step.Action != deletion.Wait {
			continue
		}
		switch step.Stage {
		case deletion.BeforeTerminate:
			text += " for hooks"
		case deletion.BeforeDrain:
			text += " for hooks"
			if len(w.preTerminate) > 0 {
				text += " to let it drain"
			}
		case deletion.Terminating:
			text += " for infrastructure"
		}
	}
	return text
}
