package ownership_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/ownership"
	"github.com/runlevel/runlevel/internal/objects/fields"
)

const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: hats.NS.example.com}
spec:
  group: NS.example.com
  names: {kind: Hat, plural: hats}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              price: {type: integer}
              sizes: {type: array, items: {type: integer}}
              any: {type: object, x-kubernetes-preserve-unknown-fields: true}
              byName: {type: object, additionalProperties: {type: object, properties: {size: {type: integer}, brim: {type: string, default: wide}}}}
              set: {type: array, x-kubernetes-list-type: set, items: {type: string}}
              byKey:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name, kind]
                items: {type: object, required: [name], properties: {name: {type: string}, kind: {type: string, default: plain}, size: {type: integer}}}
`

// A visit is what others have done to an object before we come.
type visit struct{ manager, patch string }

var leaves = map[string]struct {
	made     string  // the object as helm created it
	visits   []visit // then by others
	ours     string
	left     []string
	fails    string // the error of the apply
	foreseen bool   // the dry run reports the error, too
}{
	"ConfigMap": {
		made:   `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NS, labels: {app.kubernetes.io/managed-by: Helm}, annotations: {meta.helm.sh/release-name: x, a: b}, finalizers: [example.com/a, example.com/b]}, data: {a: x, b.c: x, d: x}}`,
		visits: []visit{{"bob", `{data: {d: theirs, e: x}, metadata: {annotations: {bob: x}}}`}},
		ours:   `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NS, annotations: {a: b}, finalizers: [example.com/a]}, data: {a: z}}`,
		left: []string{`.data.b.c`, `.metadata.annotations.meta.helm.sh/release-name`,
			`.metadata.finalizers[="example.com/b"]`, `.metadata.labels`},
	},
	"ConfigMap with nothing left": {
		made: `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NS, labels: {a: x}}, data: {a: x}, binaryData: {b: eA==}}`,
		ours: `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NS}, data: {}}`,
		left: []string{`.binaryData`, `.data.a`, `.metadata.labels`},
	},
	"Deployment": {
		made: `{apiVersion: apps/v1, kind: Deployment, metadata: {name: a, namespace: NS, labels: {a: x}}, spec: {replicas: 2, revisionHistoryLimit: 3, strategy: {type: Recreate}, selector: {matchLabels: {app: a}},
 template: {metadata: {labels: {app: a, more: x}, annotations: {a: x}}, spec: {nodeSelector: {a: x}, serviceAccountName: default, securityContext: {runAsUser: 5}, hostAliases: [{ip: 127.0.0.1, hostnames: [a]}],
  tolerations: [{key: a, operator: Exists}], volumes: [{name: tmp, emptyDir: {}}, {name: old, emptyDir: {}}], containers: [
  {name: a, image: registry.example/a, args: [a], env: [{name: A, value: x}, {name: B, value: x}], ports: [{containerPort: 80}, {containerPort: 80, protocol: UDP}, {containerPort: 81, name: old}],
   resources: {limits: {cpu: 1, memory: 1Gi}}, volumeMounts: [{name: tmp, mountPath: /tmp}, {name: old, mountPath: /old}], livenessProbe: {httpGet: {path: /, port: 80}}},
  {name: old, image: registry.example/b}]}}}}`,
		visits: []visit{
			{"bob", `{metadata: {annotations: {bob: x}}, spec: {template: {metadata: {annotations: {bob: x}}}}}`},
		},
		ours: `{apiVersion: apps/v1, kind: Deployment, metadata: {name: a, namespace: NS}, spec: {selector: {matchLabels: {app: a}},
 template: {metadata: {labels: {app: a}}, spec: {securityContext: {}, volumes: [{name: tmp, emptyDir: {}}], containers: [
  {name: a, image: registry.example/a, env: [{name: B, value: z}], ports: [{containerPort: 80}], resources: {limits: {cpu: 1}}, volumeMounts: [{name: tmp, mountPath: /tmp}]}]}}}}`,
		left: []string{
			`.metadata.labels`,
			`.spec.template.metadata.annotations.a`, `.spec.template.metadata.labels.more`,
			`.spec.template.spec.containers[name="a"].args`, `.spec.template.spec.containers[name="a"].env[name="A"]`,
			`.spec.template.spec.containers[name="a"].livenessProbe`,
			`.spec.template.spec.containers[name="a"].ports[containerPort=80,protocol="UDP"]`,
			`.spec.template.spec.containers[name="a"].ports[containerPort=81,protocol="TCP"]`,
			`.spec.template.spec.containers[name="a"].resources.limits.memory`,
			`.spec.template.spec.containers[name="a"].volumeMounts[mountPath="/old"]`,
			`.spec.template.spec.containers[name="old"]`,
			`.spec.template.spec.hostAliases`, `.spec.template.spec.nodeSelector`,
			`.spec.template.spec.securityContext.runAsUser`,
			`.spec.template.spec.serviceAccount`, `.spec.template.spec.serviceAccountName`,
			`.spec.template.spec.tolerations`, `.spec.template.spec.volumes[name="old"]`,
		},
	},
	"Deployment with another manager's field in a removed container": {
		made: `{apiVersion: apps/v1, kind: Deployment, metadata: {name: a, namespace: NS}, spec: {selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}, spec: {containers: [
  {name: a, image: registry.example/a}, {name: old, image: registry.example/b}]}}}}`,
		visits: []visit{{"bob",
			`{spec: {template: {spec: {containers: [{name: a, image: registry.example/a}, {name: old, image: registry.example/c, command: [x]}]}}}}`}},
		ours: `{apiVersion: apps/v1, kind: Deployment, metadata: {name: a, namespace: NS}, spec: {selector: {matchLabels: {app: a}},
 template: {metadata: {labels: {app: a}}, spec: {containers: [{name: a, image: registry.example/a}]}}}}`,
		left: []string{`.spec.template.spec.containers[name="old"]`},
	},
	"Service": {
		made: `{apiVersion: v1, kind: Service, metadata: {name: a, namespace: NS}, spec: {type: NodePort, sessionAffinity: ClientIP, selector: {app: a, b: x}, ports: [{name: a, port: 80, targetPort: 8080}, {name: old, port: 81}]}}`,
		ours: `{apiVersion: v1, kind: Service, metadata: {name: a, namespace: NS}, spec: {selector: {app: a}, ports: [{name: a, port: 80}]}}`,
		left: []string{`.spec.externalTrafficPolicy`, `.spec.ports[port=81,protocol="TCP"]`,
			`.spec.sessionAffinityConfig`},
	},
	"Service without an address": {
		made: `{apiVersion: v1, kind: Service, metadata: {name: a, namespace: NS}, spec: {clusterIP: None, selector: {app: a}, ports: [{port: 80}]}}`,
		ours: `{apiVersion: v1, kind: Service, metadata: {name: a, namespace: NS}, spec: {selector: {app: a}, ports: [{port: 80}]}}`,
		left: []string{},
	},
	"Secret": {
		made:  `{apiVersion: v1, kind: Secret, metadata: {name: a, namespace: NS}, type: example.com/a, data: {a: eA==, b: eA==}}`,
		ours:  `{apiVersion: v1, kind: Secret, metadata: {name: a, namespace: NS}, data: {a: eA==}}`,
		fails: `type: Invalid value: "Opaque": field is immutable`, foreseen: true,
	},
	"CustomResourceDefinition": {
		made: strings.Replace(definition, "kind: Hat,", "kind: Hat, shortNames: [h], categories: [all],", 1),
		ours: `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: hats.NS.example.com}, spec: {group: NS.example.com, names: {kind: Hat, plural: hats, shortNames: [x]}, scope: Namespaced,
 versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}`,
		left: []string{`.spec.names.categories`},
	},
	"ClusterRole": {
		made: `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: "NS", labels: {a: x, b: x}}, rules: [{apiGroups: [""], resources: [pods], verbs: [get]}], aggregationRule: {clusterRoleSelectors: [{matchLabels: {nobody: NS}}]}}`,
		ours: `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: "NS", labels: {a: x}}, rules: [{apiGroups: [""], resources: [pods], verbs: [list]}]}`,
		left: []string{`.aggregationRule`, `.metadata.labels.b`},
	},
	"RoleBinding without subjects": {
		made: `{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: a, namespace: NS}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: a}, subjects: [{kind: Group, apiGroup: rbac.authorization.k8s.io, name: a}]}`,
		ours: `{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: a, namespace: NS}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: a}}`,
		left: []string{`.subjects`},
	},
	"custom resource": {
		made:   `{apiVersion: NS.example.com/v1, kind: Hat, metadata: {name: a, namespace: NS}, spec: {price: 1, sizes: [1, 2], any: {a: 1, b: {c: 1, d.e: 2}, l: [{name: a}]}, byName: {a: {size: 1}, b: {size: 2}}, set: [a, b, c], byKey: [{name: a, size: 1}, {name: b, kind: fine, size: 2}]}}`,
		visits: []visit{{"bob", `{spec: {any: {f: 1}, byName: {c: {size: 3}}}}`}},
		ours:   `{apiVersion: NS.example.com/v1, kind: Hat, metadata: {name: a, namespace: NS}, spec: {any: {b: {c: 1}}, byName: {a: {brim: small}}, set: [b], byKey: [{name: a}]}}`,
		left: []string{`.spec.any.a`, `.spec.any.b.d.e`, `.spec.any.l`, `.spec.byKey[kind="fine",name="b"]`,
			`.spec.byKey[kind="plain",name="a"].size`,
			`.spec.byName.a.size`, `.spec.byName.b`, `.spec.price`, `.spec.set[="a"]`, `.spec.set[="c"]`,
			`.spec.sizes`},
	},
	"custom resource with empty lists": {
		made: `{apiVersion: NS.example.com/v1, kind: Hat, metadata: {name: a, namespace: NS}, spec: {any: {b: {c: 1}, d: {e: {f: 1}}}, byName: {a: {size: 1}}, set: [a], byKey: [{name: a}]}}`,
		ours: `{apiVersion: NS.example.com/v1, kind: Hat, metadata: {name: a, namespace: NS}, spec: {any: {b: {}, d: {e: {}}}, set: [], byKey: []}}`,
		left: []string{`.spec.any.b.c`, `.spec.any.d.e.f`, `.spec.byKey`, `.spec.byName`, `.spec.set`},
	},
	"custom resource with a mapping that becomes empty": {
		made:  `{apiVersion: NS.example.com/v1, kind: Hat, metadata: {name: a, namespace: NS}, spec: {byName: {a: {size: 1}}}}`,
		ours:  `{apiVersion: NS.example.com/v1, kind: Hat, metadata: {name: a, namespace: NS}, spec: {byName: {a: {}}}}`,
		fails: `spec.byName.a in body must be of type object: "null"`,
	},
	"Deployment with a volume that can't be so": {
		made: `{apiVersion: apps/v1, kind: Deployment, metadata: {name: a, namespace: NS}, spec: {selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}, spec: {
 volumes: [{name: a, emptyDir: {medium: Memory}}], containers: [{name: a, image: registry.example/a}]}}}}`,
		ours: `{apiVersion: apps/v1, kind: Deployment, metadata: {name: a, namespace: NS}, spec: {selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}, spec: {
 volumes: [{name: a, emptyDir: {}}], containers: [{name: a, image: registry.example/a}]}}}}`,
		left: []string{`.spec.template.spec.volumes[name="a"].emptyDir.medium`},
	},
	"custom resource that loses all fields": {
		made: `{apiVersion: NS.example.com/v1, kind: Hat, metadata: {name: a, namespace: NS}, spec: {price: 1, any: {b: {c: 1}}}}`,
		ours: `{apiVersion: NS.example.com/v1, kind: Hat, metadata: {name: a, namespace: NS}}`,
		left: []string{`.spec`},
	},
}

// A dry run predicts the fields that the server removes.
func TestDryRunPredictsTheRemovedFields(t *testing.T) {
	for name, row := range leaves {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, managers := newBed(t), []string{"helm"}
			if strings.Contains(row.made, "kind: Hat,") && !strings.Contains(row.made, "names:") {
				b.define(definition)
			}
			live := b.create("helm", row.made)
			for _, visit := range row.visits {
				live = b.merge(visit.manager, live, visit.patch)
			}
			ours := b.parse(row.ours)
			result, err := b.Apply(t.Context(), b.in(ours), ours, cluster.Force|cluster.DryRun)
			if err != nil {
				t.Fatal(err)
			}
			removed := ownership.DryRunAdopt(result.Object, live, managers)
			settled, err := ownership.DryRunDefaults(t.Context(), b.Cluster, b.in(ours), result.Object, removed)
			if got := fmt.Sprint(err); (err != nil) != row.foreseen ||
				!strings.Contains(got, row.fails) && row.foreseen {
				t.Fatalf("got error %v, want %q", err, row.fails)
			}
			b.adopt(live, managers, "helm")
			applied, err := b.Apply(t.Context(), b.in(ours), ours, cluster.Force)
			if row.fails != "" {
				if err == nil || !strings.Contains(err.Error(), row.fails) {
					t.Errorf("apply: got error %v, want %q", err, row.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			// the rest are defaults
			lost := slices.DeleteFunc(slices.Clone(removed), func(path string) bool {
				return fields.Has(settled.Object, path)
			})
			if diff := cmp.Diff(row.left, lost); diff != "" {
				t.Errorf("removed fields (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(ownContent(applied.Object), ownContent(settled)); diff != "" {
				t.Errorf("the live object differs from the prediction (-live +predicted):\n%s\n%q", diff, removed)
			}
		})
	}
}

// Where we have applied already, nothing is taken over, and so nothing leaves for that.
func TestNothingLeavesWhatWeHaveApplied(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.apply(lean)
	live := b.merge("helm", b.parse(lean), `{data: {b: x}}`)
	result, err := b.Apply(t.Context(), b.in(live), b.parse(lean), cluster.Force|cluster.DryRun)
	if err != nil {
		t.Fatal(err)
	}
	if removed := ownership.DryRunAdopt(result.Object, live, ownership.DefaultManagers()); removed != nil ||
		!slices.Equal(keys(result.Object, "data"), []string{"a", "b"}) {
		t.Errorf("got removed fields %q, remaining keys %q", removed, keys(result.Object, "data"))
	}
}

// ownContent returns an object without the fields that only the server and its controllers set.
func ownContent(object *unstructured.Unstructured) map[string]any {
	object = object.DeepCopy()
	for _, field := range []string{"managedFields", "resourceVersion", "generation"} {
		unstructured.RemoveNestedField(object.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(object.Object, "metadata", "annotations", "deployment.kubernetes.io/revision")
	if len(object.GetAnnotations()) == 0 {
		object.SetAnnotations(nil)
	}
	unstructured.RemoveNestedField(object.Object, "status")
	return object.Object
}
