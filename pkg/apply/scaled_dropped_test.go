package apply_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/pkg/apply"
)

// If a manifest drops the replicas, the HorizontalPodAutoscaler of the cluster owns them once it has scaled.
func TestReplicasAreHandedToARealAutoscaler(t *testing.T) {
	t.Parallel()
	web, namespace, a := scaledKinds["Deployment"], test.Namespace(t), act(t, scaler)
	key := namespace + "/web"
	atLeast := func(count string) string {
		return strings.Replace(onDeployment, "minReplicas: 1", "minReplicas: "+count, 1)
	}
	scales(t, namespace, scaledFiles(web.manifest, "6"), apply.Options{})
	lowest := watchReplicas(t, a, web.kind, key)
	scales(t, namespace, scaledFiles(web.manifest, "", atLeast("4")), apply.Options{})
	if have, owners := a.field(web.kind, key, "spec", "replicas"), a.owners(web.kind, key, "f:spec",
		"f:replicas"); have != "6" || owners != "runlevel" {
		t.Errorf("before the autoscaler scales: %s replicas, owned by %s", have, owners)
	}
	scales(t, namespace, scaledFiles(web.manifest, "", atLeast("8")), apply.Options{})
	sandboxtest.Await(t, test, appsv1.SchemeGroupVersion.WithResource("deployments"), key,
		func(d *appsv1.Deployment) bool {
			return *d.Spec.Replicas == 8
		})
	scales(t, namespace, scaledFiles(web.manifest, "", atLeast("8")), apply.Options{})
	if have, owners := a.field(web.kind, key, "spec", "replicas"), a.owners(web.kind, key, "f:spec",
		"f:replicas"); have != "8" || owners != scaler {
		t.Errorf("after the autoscaler has scaled: %s replicas, owned by %s", have, owners)
	}
	if have := lowest(); have != 6 {
		t.Errorf("got %d replicas for a moment", have)
	}
}

// scaledObject has an object whose controller creates an autoscaler, as KEDA's ScaledObject, and its definition.
const scaledObject = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: scaledobjects.NS.example.com}
spec:
  group: NS.example.com
  names: {kind: ScaledObject, plural: scaledobjects}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
---
{apiVersion: NS.example.com/v1, kind: ScaledObject, metadata: {name: web, namespace: NS}, spec: {scaleTargetRef: {name: web}}}
`

// If a manifest drops the replicas, they stay if another manager has set them or an autoscaler exists. Otherwise the
// server sets its default.
func TestReplicasThatAreDropped(t *testing.T) {
	web := scaledKinds["Deployment"]
	for name, row := range map[string]struct {
		isScaled bool // a user has scaled them since they were applied
		brought  string
		want     string
	}{
		"no other manager":              {false, "", "1"},
		"a user has scaled":             {true, "", "5"},
		"an autoscaler will be created": {false, scaledObject, "6"},
		"an autoscaler of another object": {false, strings.Replace(scaledObject, "{name: web}}}", "{name: other}}}", 1),
			"1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace, user := test.Namespace(t), act(t, "kubectl")
			key := namespace + "/web"
			scales(t, namespace, scaledFiles(web.manifest, "6"), apply.Options{})
			if row.isScaled {
				user.scale(web.kind, key, 5)
			}
			var more []string
			if row.brought != "" {
				more = append(more, row.brought)
			}
			next := scaledFiles(web.manifest, "", more...)
			saw := preview(t, t.Context(), test.Sandbox(t).Config, load(t, namespace, namespace, next), apply.Options{})
			scales(t, namespace, next, apply.Options{})
			if have := user.field(web.kind, key, "spec", "replicas"); have != row.want {
				t.Errorf("got %s replicas, want %s", have, row.want)
			}
			for _, change := range saw.Changes {
				if change.ID.GroupKind() == kinds.Deployment && change.Look != nil {
					want := map[string]int64{"1": 1, "5": 5, "6": 6}[row.want]
					got, _ := change.Look.Would.Object["spec"].(map[string]any)["replicas"].(int64)
					if got != want {
						t.Errorf("got %d replicas in the preview, want %d", got, want)
					}
				}
			}
		})
	}
}
