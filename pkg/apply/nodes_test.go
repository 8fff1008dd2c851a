package apply_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/graph"
)

// nodeEvents returns the events Began and Ended, in order.
func (a applied) nodeEvents() []string {
	var lines []string
	for _, event := range a.events {
		if event.Type == apply.Began || event.Type == apply.Ended {
			lines = append(lines,
				strings.TrimSpace(strings.Join([]string{string(event.Type), event.Node, string(event.Action)}, " ")))
		}
	}
	return lines
}

// Levels of one component each share a node of the graph, and dependencies may split a component into several nodes.
// The events are about levels and components, not about nodes.
func TestEventsOfNodes(t *testing.T) {
	for name, c := range map[string]struct {
		mode  graph.Mode
		files string
		want  []string
	}{
		"levels of one component each": {graph.Update, `
-- 0000_10_web_10.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NS}}
-- 0000_20_web_10.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: b, namespace: NS}}
-- 0000_20_web_20.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: NS}}
`, []string{"began level 10, web", "ended level 10, web", "began level 20, web", "ended level 20, web"}},
		"a failure, and a level that never begins": {graph.Update, `
-- 0000_10_web_10.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: Not_a_name, namespace: NS}}
-- 0000_20_web_10.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: b, namespace: NS}}
`, []string{"began level 10, web", "ended level 10, web failed"}},
		"a component in pieces": {graph.Install, `
-- 0000_10_web_10.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NS}}
-- 0000_10_web_20.yaml --
{apiVersion: v1, kind: Namespace, metadata: {name: NS-more}}
-- 0000_10_web_30.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: b, namespace: NS-more}}
`, []string{"began level 10, web", "ended level 10, web"}},
		"files without a level": {graph.Install, `
-- 0000_web.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NS}}
`, nil},
		"no numbered file": {graph.Install, `
-- web.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NS}}
`, []string{"began level 40, configmap", "ended level 40, configmap"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := test.Namespace(t)
			did := run(t, t.Context(), load(t, namespace, namespace, c.files), apply.Options{Options: inMode(c.mode)})
			if diff := cmp.Diff(c.want, did.nodeEvents()); diff != "" {
				t.Error(diff)
			}
			for _, event := range c.want {
				name, isOver := strings.CutPrefix(event, "ended ")
				if _, isKnown := did.Took[name]; isOver && isKnown == strings.HasSuffix(name, "failed") {
					t.Errorf("durations are kept of %v", did.Took)
				}
			}
		})
	}
}

// An object that the run waits for when Ctrl-C arrives has not failed.
func TestANodeThatIsInterruptedIsNotDone(t *testing.T) {
	namespace := test.Namespace(t)
	release := load(t, namespace, namespace, "-- 0000_10_web_web.yaml --\n"+workload("Deployment", "web", "run", ""))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	did := run(t, ctx, release, apply.Options{ReportWaits: quickly, OnEvent: func(event apply.Event) {
		if event.Type == apply.Waiting {
			cancel()
		}
	}})
	if want := []string{"began level 10, web", "ended level 10, web not done"}; !slices.Equal(did.nodeEvents(), want) {
		t.Errorf("%q", did.nodeEvents())
	}
}
