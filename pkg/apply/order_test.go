package apply_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
)

// upsideDown has a custom resource before its definition, in a namespace that comes last.
const upsideDown = `
-- 0000_10_web_05_gadget.yaml --
{apiVersion: NS.example.com/v1, kind: Gadget, metadata: {name: g, namespace: NS-late}, spec: {size: 1}}
-- 0000_10_web_10_gadgets.yaml --
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.NS.example.com}
spec:
  group: NS.example.com
  names: {kind: Gadget, plural: gadgets}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
-- 0000_20_web_namespace.yaml --
{apiVersion: v1, kind: Namespace, metadata: {name: NS-late}}
`

// sequence returns the applied objects with their actions, in the order of time.
func (a applied) sequence(namespace string) string {
	var lines []string
	for _, event := range a.events {
		if event.Type == apply.Applied {
			lines = append(lines, strings.ReplaceAll(string(event.Action)+" "+event.Object.Kind+" "+event.Object.Name,
				namespace, "NS"))
		}
	}
	return strings.Join(lines, "\n")
}

// An object that others need is moved before them, unless the cluster has it already: then the order of the files
// holds.
func TestNeededObjectsComeFirstUnlessTheyExist(t *testing.T) {
	for _, mode := range []graph.Mode{graph.Update, graph.Install} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			namespace := test.Namespace(t)
			did := run(t, t.Context(), load(t, namespace, namespace, upsideDown), apply.Options{Options: inMode(mode)})
			want := []string{"created CustomResourceDefinition gadgets.NS.example.com", "created Namespace NS-late",
				"created Gadget g"}
			got := strings.Split(did.sequence(namespace), "\n")
			if mode == graph.Install {
				slices.Sort(got[:min(2, len(got))]) // side by side
			}
			if diff := cmp.Diff(want, got); diff != "" || did.Err != nil {
				t.Error(did.Err, diff)
			}
			bigger := load(t, namespace, namespace, strings.ReplaceAll(upsideDown, "size: 1", "size: 2"))
			did = run(t, t.Context(), bigger, apply.Options{Options: updateMode})
			again := "configured Gadget g\nunchanged CustomResourceDefinition gadgets.NS.example.com\nunchanged " +
				"Namespace NS-late"
			if diff := cmp.Diff(again, did.sequence(namespace)); diff != "" || did.Err != nil {
				t.Error("again:", did.Err, diff)
			}
		})
	}
}

// A webhook configuration that comes before its Service can't be ready before that Service exists: no step in between
// waits for the configuration.
func TestWebhookBeforeItsServiceBlocksNothing(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	release := load(t, namespace, namespace, "-- 0000_10_hook_hook.yaml --"+webhookConfiguration+barrier+`
-- 0000_90_web_service.yaml --
{apiVersion: v1, kind: Service, metadata: {name: hook, namespace: NS}, spec: {selector: {app: web}, ports: [{port: 443}]}}
-- 0000_90_web_web.yaml --`+strings.ReplaceAll(workload("Deployment", "web", "run", ""), "minReadySeconds: 300",
		"replicas: 1"))
	did := run(t, t.Context(), release, apply.Options{Options: updateMode})
	got := did.sequence(namespace)
	if !strings.HasPrefix(got, "created ValidatingWebhookConfiguration NS\n") ||
		!strings.HasSuffix(got, "created Service hook\ncreated Deployment web") || did.Err != nil {
		t.Error(did.Err, got)
	}
}

// A webhook is ready if its Service has type ExternalName: such a Service has no pods in the cluster.
func TestExternalNameServiceIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	release := load(t, namespace, namespace, "-- 0000_10_web_hook.yaml --"+webhookConfiguration+`
-- 0000_20_web_service.yaml --
{apiVersion: v1, kind: Service, metadata: {name: hook, namespace: NS}, spec: {type: ExternalName, externalName: hook.example.com}}
`)
	if did := run(t, t.Context(), release, apply.Options{}); did.Err != nil {
		t.Error(did.Err)
	}
}

// The cluster-version operator does not wait for running pods of a Deployment.
func TestUpstreamStandardDoesNotWaitForPods(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	release := load(t, namespace, namespace, "-- 0000_10_web_web.yaml --"+workload("Deployment", "web", "hang", ""))
	if did := run(t, t.Context(), release, apply.Options{
		Options: object.Options{Standard: ready.Upstream},
	}); did.Err != nil {
		t.Error(did.Err)
	}
	did := runUntil(t, namespace, release, apply.Options{}, "Deployment NS/web",
		"waiting: 0 of 1 replicas are available\n"+
			"Pod NS/web-POD: its containers are not created yet, and node node-0 reports no reason")
	if did.Err == nil {
		t.Error("got no error from a run with a Deployment without running pods")
	}
}
