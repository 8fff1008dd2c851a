package apply_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// fixedRows are changes of immutable fields. The wanted text names the fields.
var fixedRows = map[string]struct{ object, from, to, want string }{
	"Deployment": {
		object: `apiVersion: apps/v1, kind: Deployment, metadata: {NAME}, spec: {selector: {matchLabels: {app: web, is: VALUE}}, template: {metadata: {labels: {app: web, is: VALUE}}, spec: {containers: [{name: web, image: registry.example/web}]}}}`,
		from:   "old", to: "new", want: "spec.selector",
	},
	"DaemonSet": {
		object: `apiVersion: apps/v1, kind: DaemonSet, metadata: {NAME}, spec: {selector: {matchLabels: {is: VALUE}}, template: {metadata: {labels: {is: VALUE}}, spec: {containers: [{name: web, image: registry.example/web}]}}}`,
		from:   "old", to: "new", want: "spec.selector",
	},
	"StatefulSet": {
		object: `apiVersion: apps/v1, kind: StatefulSet, metadata: {NAME}, spec: {serviceName: VALUE, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: registry.example/web}]}}}`,
		from:   "old", to: "new", want: "spec.serviceName",
	},
	"Job": {
		object: `apiVersion: batch/v1, kind: Job, metadata: {NAME}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: web, image: registry.example/VALUE}]}}}`,
		from:   "old", to: "new", want: "spec.template",
	},
	"RoleBinding": {
		object: `apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {NAME}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: VALUE}, subjects: []`,
		from:   "old", to: "new", want: "roleRef",
	},
	"Service": {
		object: `apiVersion: v1, kind: Service, metadata: {NAME}, spec: {clusterIP: VALUE, ports: [{port: 80}]}`,
		from:   "10.96.0.201", to: "10.96.0.202", want: "spec.clusterIPs[0]",
	},
	"Pod": {
		object: `apiVersion: v1, kind: Pod, metadata: {NAME}, spec: {automountServiceAccountToken: false, hostNetwork: VALUE, containers: [{name: web, image: registry.example/web}]}`,
		from:   "false", to: "true", want: "spec",
	},
	"ConfigMap": {
		object: `apiVersion: v1, kind: ConfigMap, metadata: {NAME}, immutable: true, data: {is: VALUE}`,
		from:   "old", to: "new", want: "data",
	},
	"PriorityClass": {
		object: `apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: NS}, value: VALUE`,
		from:   "1", to: "2", want: "value",
	},
	"StorageClass": {
		object: `apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: NS}, provisioner: VALUE, parameters: {is: VALUE}, volumeBindingMode: Immediate`,
		from:   "old", to: "new", want: "parameters, provisioner",
	},
	"StorageClass's policies": {
		object: `apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: NS}, provisioner: a, VALUE`,
		from:   "reclaimPolicy: Delete, volumeBindingMode: Immediate",
		to:     "reclaimPolicy: Retain, volumeBindingMode: WaitForFirstConsumer",
		want:   "reclaimPolicy, volumeBindingMode",
	},
	"IngressClass": {
		object: `apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: NS}, spec: {controller: example.com/VALUE}`,
		from:   "old", to: "new", want: "spec.controller",
	},
	"RuntimeClass": {
		object: `apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: NS}, handler: VALUE`,
		from:   "old", to: "new", want: "handler",
	},
	"EndpointSlice": {
		object: `apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {NAME}, addressType: VALUE, endpoints: []`,
		from:   "IPv4", to: "IPv6", want: "addressType",
	},
	"CSIDriver": {
		object: `apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: NS.example.com}, spec: {attachRequired: VALUE}`,
		from:   "true", to: "false", want: "spec.attachedRequired",
	},
	"ResourceQuota": {
		object: `apiVersion: v1, kind: ResourceQuota, metadata: {NAME}, spec: {hard: {pods: 7}, scopes: [VALUE]}`,
		from:   "BestEffort", to: "NotBestEffort", want: "spec.scopes",
	},
}

// preciousRows are changes of immutable fields that are refused in spite of the annotation runlevel.dev/recreate.
var preciousRows = map[string]struct{ object, from, to, want string }{
	"PersistentVolumeClaim": {
		object: `apiVersion: v1, kind: PersistentVolumeClaim, metadata: {NAME}, spec: {storageClassName: VALUE, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}`,
		from:   "old", to: "new", want: "spec",
	},
	"CustomResourceDefinition": {
		object: `apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: items.NS.example.com}, spec: {group: NS.example.com, names: {kind: Item, plural: items}, scope: VALUE, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}`,
		from:   "Namespaced", to: "Cluster", want: "spec.scope",
	},
}

// versions returns two versions of an object.
func versions(object, old, name, metadata string) (before, after string) {
	object = "{" + strings.ReplaceAll(object, "{NAME}", "{name: a, namespace: NS}") + "}"
	object = strings.Replace(object, "metadata: {", "metadata: {"+metadata, 1)
	return strings.ReplaceAll(object, "VALUE", old), strings.ReplaceAll(object, "VALUE", name)
}

const mayRecreate = `annotations: {runlevel.dev/recreate: "true"}, `

func TestChangeOfAnImmutableFieldIsRefused(t *testing.T) {
	for name, row := range fixedRows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := test.Namespace(t)
			before, after := versions(row.object, row.from, row.to, "")
			did := change(t, namespace, before, after, apply.Options{NoWait: true})
			want := row.want + " can't be changed: keep the fields as they were, give the object another name and " +
				"this one a tombstone, " +
				`or allow to delete it and recreate it with the annotation runlevel.dev/recreate: "true"`
			if _, got, _ := strings.Cut(did.sentence(namespace), "): "); got != want ||
				did.Changes[0].Err.Reason != object.ResourceInvalid {
				t.Error(did.Changes[0].Err, cmp.Diff(want, got))
			}
			if retries := did.retries(namespace); len(retries) > 0 {
				t.Error("got retries:", retries)
			}
			_, after = versions(row.object, row.from, row.to, mayRecreate)
			did = change(t, namespace, "", after, apply.Options{NoWait: true})
			if did.Err != nil || did.Changes[0].Action != object.Recreated {
				t.Errorf("got action %s, want recreated: %v", did.Changes[0].Action, did.Err)
			}
		})
	}
}

func TestObjectsWithDataAreNotRecreated(t *testing.T) {
	for name, row := range preciousRows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := test.Namespace(t)
			for metadata, want := range map[string]string{
				"": row.want +
					" can't be changed: keep the fields as they were, or give the object another name",
				mayRecreate: row.want + " can't be changed, and to recreate a " + name +
					" would lose all that is in it: runlevel.dev/recreate does not hold for it",
			} {
				before, after := versions(row.object, row.from, row.to, metadata)
				did := change(t, namespace, before, after, apply.Options{NoWait: true})
				if _, got, _ := strings.Cut(did.sentence(namespace), "): "); got != want {
					t.Error(cmp.Diff(want, got))
				}
			}
		})
	}
}

const (
	heldJob = `{apiVersion: batch/v1, kind: Job, metadata: {annotations: {runlevel.dev/recreate: "true"}, finalizers: [shop.example.com/hold], name: a, namespace: NS},
  spec: {template: {spec: {restartPolicy: Never, containers: [{name: web, image: registry.example/VALUE}]}}}}`
)

// An object with a finalizer is recreated when the finalizer is removed, by this run or by a later one.
func TestObjectWithAFinalizerIsRecreatedAfterItsDeletion(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	before, after := strings.ReplaceAll(heldJob, "VALUE", "old"), strings.ReplaceAll(heldJob, "VALUE", "new")
	did := change(t, namespace, before, after, apply.Options{NoWait: true, Timeout: 2 * time.Second})
	want := "the time is up after 2s: Job NS/a (0000_10_shop_50_file.yaml:1, level 10, shop): " +
		"it is terminating, and can be recreated only after that: terminating since NOW, held by finalizer"
	if got := moments.ReplaceAllString(did.sentence(namespace), "since NOW"); !strings.HasPrefix(got, want) ||
		!strings.Contains(got, "shop.example.com/hold") {
		t.Error(cmp.Diff(want, got))
	}
	jobs := test.Client(t).BatchV1().Jobs(namespace)
	letGo := sync.OnceFunc(func() {
		patch(t, jobs.Patch, "a", `{"metadata": {"finalizers": null}}`)
		sandboxtest.Eventually(t, "the Job is not deleted", func(ctx context.Context) bool {
			found, err := jobs.Get(ctx, "a", metav1.GetOptions{})
			return err != nil || found.DeletionTimestamp == nil
		})
	})
	t.Cleanup(func() {
		_, _ = jobs.Patch(context.Background(), "a", "application/merge-patch+json",
			[]byte(`{"metadata": {"finalizers": null}}`), metav1.PatchOptions{})
	})
	did = change(t, namespace, "", after, apply.Options{NoWait: true, OnEvent: func(event apply.Event) {
		if event.Type == apply.Retrying {
			letGo()
		}
	}})
	if did.Err != nil || did.Changes[0].Action != object.Recreated {
		t.Errorf("got action %s: %v", did.Changes[0].Action, did.Err)
	}
}

// If a run is killed after the delete of an object, the next run creates the object.
func TestNextRunCreatesAnObjectThatAKilledRunHasDeleted(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	row := fixedRows["RoleBinding"]
	before, after := versions(row.object, row.from, row.to, mayRecreate)
	if did := change(t, namespace, "", before, apply.Options{NoWait: true}); did.Err != nil {
		t.Fatal(did.Err)
	}
	if err := test.Client(t).RbacV1().RoleBindings(namespace).Delete(t.Context(), "a",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	did := change(t, namespace, "", after, apply.Options{NoWait: true})
	if did.Err != nil || did.Changes[0].Action != object.Created {
		t.Errorf("got action %s: %v", did.Changes[0].Action, did.Err)
	}
}
