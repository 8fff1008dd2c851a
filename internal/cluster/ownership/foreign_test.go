package ownership_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/ownership"
	"github.com/runlevel/runlevel/internal/objects/fields"
)

const (
	ourDeployment = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: NS, annotations: {ours: a}}, spec: {selector: {matchLabels: {app: web}},
 template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: registry.example/web, env: [{name: A, value: a}]}]}}}}`
	ourService = `{apiVersion: v1, kind: Service, metadata: {name: web, namespace: NS}, spec: {type: NodePort, selector: {app: web}, ports: [{name: http, port: 80}]}}`
	ourRole    = `{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: web, namespace: NS}, rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}`
	ourAccount = `{apiVersion: v1, kind: ServiceAccount, metadata: {name: web, namespace: NS, labels: {ours: a}}, imagePullSecrets: [{name: ours}]}`
	container  = `spec: {template: {spec: {containers: [{name: web, image: registry.example/web, `
)

// foreignFields has changes of another manager, "bob", to an object of a release, and the fields that are foreign after
// them. The removal of these fields restores the object.
var foreignFields = map[string]struct {
	object, apply, merge string
	subresource          []string
	want                 []string
}{
	"an atomic mapping": {
		object: ourDeployment,
		merge:  `{spec: {template: {spec: {nodeSelector: {disk: fast}}}}}`,
		want:   []string{"spec.template.spec.nodeSelector"},
	},
	"keys of a mapping": {
		object: ourDeployment,
		merge:  `{metadata: {labels: {team: shop}, annotations: {a.b/c: x}}}`,
		want:   []string{"metadata.annotations.a.b/c", "metadata.labels.team"},
	},
	"a field in a mapping of its": {
		object: ourDeployment,
		apply:  container + `resources: {limits: {cpu: "1"}}}]}}}`,
		want:   []string{`spec.template.spec.containers[name="web"].resources.limits.cpu`},
	},
	"an item of a list": {object: ourDeployment, apply: container +
		`env: [{name: B, value: b}]}, {name: side, image: registry.example/side, ports: [{containerPort: 80}]}]}}}`,
		want: []string{`spec.template.spec.containers[name="side"]`,
			`spec.template.spec.containers[name="web"].env[name="B"]`}},
	"a field instead of a default": {
		object: ourDeployment,
		merge:  `{spec: {paused: true, minReadySeconds: 3}}`,
		want:   []string{"spec.minReadySeconds", "spec.paused"},
	},
	"a field that we set, too": {object: ourDeployment, apply: container + `env: [{name: A, value: a}]}]}}}`},
	"replicas":                 {object: ourDeployment, merge: `{spec: {replicas: 2}}`},
	"scale": {
		object:      ourDeployment,
		merge:       `{spec: {replicas: 2}}`,
		subresource: []string{"scale"},
	},
	"status": {object: ourDeployment, merge: `{status: {collisionCount: 1}}`, subresource: []string{"status"}},
	"a restart": {
		object: ourDeployment,
		merge:  `{spec: {template: {metadata: {annotations: {kubectl.kubernetes.io/restartedAt: now}}}}}`,
	},
	"finalizers and owners": {
		object: ourRole,
		merge:  `{metadata: {finalizers: [example.com/a], ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: a, uid: 5f9ef1a8-0000-4000-8000-000000000000}]}}`,
	},
	"the assigned addresses of a Service": {
		object: ourService,
		merge:  `{metadata: {annotations: {a: b}}}`,
		want:   []string{"metadata.annotations.a"},
	},
	"a list of a ServiceAccount": {object: ourAccount, merge: `{imagePullSecrets: [{name: ours}, {name: theirs}]}`},
}

func TestForeignFieldsAreFoundAndRemoved(t *testing.T) {
	for name, row := range foreignFields {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			live := b.apply(row.object)
			before := withoutStatus(live)
			if row.apply != "" {
				b.serverSide("bob", `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: NS}, `+
					row.apply+"}")
			} else {
				b.merge("bob", live, row.merge, row.subresource...)
			}
			if diff := cmp.Diff(row.want, fieldsOf(b.get(live), "bob")); diff != "" {
				t.Fatalf("foreign fields (-want +got):\n%s", diff)
			}
			if len(row.want) == 0 {
				return
			}
			b.merge("ann", live, `{metadata: {annotations: {ann: x}}}`)
			isBobs := func(manager string) bool { return manager == "bob" }
			foreseen := b.dryRun(row.object, isBobs)
			if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { // controllers write the object, too
				_, lost, err := ownership.TakeForeign(t.Context(), b.Cluster, b.in(live), b.get(live), isBobs)
				if err == nil && len(lost) != len(row.want) {
					t.Errorf("the apply took over %v", lost)
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			after := b.apply(row.object)
			if diff := cmp.Diff(withoutStatus(foreseen), withoutStatus(after)); diff != "" {
				t.Errorf("the dry run and the apply differ:\n%s", diff)
			}
			if diff := cmp.Diff([]string{"metadata.annotations.ann"}, fieldsOf(after, "ann")); diff != "" {
				t.Errorf("fields of another manager (-want +got):\n%s", diff)
			}
			unstructured.RemoveNestedField(after.Object, "metadata", "annotations", "ann")
			if len(after.GetAnnotations()) == 0 {
				after.SetAnnotations(nil)
			}
			if diff := cmp.Diff(before, withoutStatus(after)); diff != "" {
				t.Errorf("before, and after the removal:\n%s", diff)
			}
			b.apply(row.object)
			if found := fieldsOf(b.get(live), "bob"); len(found) > 0 {
				t.Errorf("%v are still foreign", found)
			}
		})
	}
}

// An object that we have never applied has no release that its fields could be foreign to.
func TestNoForeignFieldsWithoutAnApply(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	live := b.merge("bob", b.create(cluster.FieldManager, lean), `{data: {c: x}}`)
	if found := ownership.Foreign(live); len(found) > 0 {
		t.Errorf("found %v", found)
	}
}

// dryRun returns the object that an apply would leave after some managers' foreign fields were taken over.
func (b bed) dryRun(text string, isRemoved func(manager string) bool) *unstructured.Unstructured {
	b.Helper()
	object := b.parse(text)
	resource := b.in(object)
	would, err := b.Cluster.Apply(b.Context(), resource, object, cluster.Force|cluster.DryRun)
	if err != nil {
		b.Fatal(err)
	}
	removed, _ := ownership.DryRunTakeForeign(would.Object, isRemoved)
	result, err := ownership.DryRunDefaults(b.Context(), b.Cluster, resource, would.Object, removed)
	if err != nil {
		b.Fatal(err)
	}
	return result
}

// fieldsOf returns the foreign fields of a manager.
func fieldsOf(live *unstructured.Unstructured, manager string) []string {
	for _, found := range ownership.Foreign(live) {
		if found.Manager == manager {
			return found.Fields
		}
	}
	return nil
}

// withoutStatus returns the fields of an object that neither the server nor a controller sets.
func withoutStatus(live *unstructured.Unstructured) map[string]any {
	object := (&unstructured.Unstructured{Object: fields.WithoutServers(live.Object)}).DeepCopy()
	delete(object.Object, "status")
	annotations := object.GetAnnotations()
	delete(annotations, "deployment.kubernetes.io/revision")
	object.SetAnnotations(annotations)
	return object.Object
}
