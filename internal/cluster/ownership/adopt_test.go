package ownership_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/ownership"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

const (
	config = `{apiVersion: v1, kind: ConfigMap, metadata: {name: config, namespace: NS}, data: {a: x, b: x}}`
	lean   = `{apiVersion: v1, kind: ConfigMap, metadata: {name: config, namespace: NS}, data: {a: z}}`
)

// comings are the ways in which another manager can have had an object first.
var comings = map[string]func(b bed, manager string) *unstructured.Unstructured{
	"created": func(b bed, manager string) *unstructured.Unstructured { return b.create(manager, config) },
	"created, and updated": func(b bed, manager string) *unstructured.Unstructured {
		return b.merge(manager, b.create(manager, lean), `{data: {b: x}}`)
	},
	"updated after another manager": func(b bed, manager string) *unstructured.Unstructured {
		made := b.create("other-manager",
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: config, namespace: NS}, data: {a: q}}`)
		return b.merge(manager, made, `{data: {a: x, b: x}}`)
	},
	"applied": func(b bed, manager string) *unstructured.Unstructured { return b.serverSide(manager, config) },
	"applied, and updated": func(b bed, manager string) *unstructured.Unstructured {
		return b.merge(manager, b.serverSide(manager, lean), `{data: {b: x}}`)
	},
}

// A field that the manifest no longer has leaves the object, whichever manager had it first.
func TestDroppedFieldsAreRemovedFromTheObject(t *testing.T) {
	for _, manager := range append(ownership.DefaultManagers(), "another") {
		for name, come := range comings {
			t.Run(manager+" "+name, func(t *testing.T) {
				t.Parallel()
				b := newBed(t)
				from := append(ownership.DefaultManagers(), "another")
				adopted := b.adopt(come(b, manager), from, manager)
				for _, owner := range owners(adopted) {
					if owner != "runlevel Apply" && owner != "other-manager Update" {
						t.Errorf("%s has an entry", owner)
					}
				}
				if got := keys(adopted, "data"); !slices.Equal(got, []string{"a", "b"}) {
					t.Errorf("the adoption itself left data %q", got)
				}
				b.adopt(adopted, from) // again
				if got := keys(b.apply(lean), "data"); !slices.Equal(got, []string{"a"}) {
					t.Errorf("after the apply the data are %q", got)
				}
			})
		}
	}
}

// kubectl, helm and kapp leave marks on what they make.
func TestMarksOfOtherToolsLeaveTheObject(t *testing.T) {
	for manager, marked := range map[string]string{
		"kubectl-client-side-apply": `{annotations: {kubectl.kubernetes.io/last-applied-configuration: "{}"}}`,
		"helm":                      `{labels: {app.kubernetes.io/managed-by: Helm}, annotations: {meta.helm.sh/release-name: shop, meta.helm.sh/release-namespace: NS}}`,
		"kapp":                      `{labels: {kapp.k14s.io/app: "1", kapp.k14s.io/association: v1.x}, annotations: {kapp.k14s.io/identity: x, kapp.k14s.io/original: x}}`,
	} {
		t.Run(manager, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			marks := b.parse(`{metadata: ` + marked + `}`)
			made := b.parse(config)
			made.SetLabels(marks.GetLabels())
			made.SetAnnotations(marks.GetAnnotations())
			live, err := b.In(b.in(made), b.namespace).Create(t.Context(), made,
				metav1.CreateOptions{FieldManager: manager})
			if err != nil {
				t.Fatal(err)
			}
			b.adopt(live, ownership.DefaultManagers(), manager)
			if got := b.apply(lean); len(got.GetLabels())+len(got.GetAnnotations()) > 0 {
				t.Errorf("labels %v and annotations %v are still there", got.GetLabels(), got.GetAnnotations())
			}
		})
	}
}

// The entries of all of several managers are taken over, whatever their order.
func TestSeveralManagersAtOnce(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	live := b.create("kubectl-create",
		`{apiVersion: v1, kind: ConfigMap, metadata: {name: config, namespace: NS}, data: {a: x, b: x}}`)
	live = b.merge("helm", live, `{data: {c: x}}`)
	live = b.merge("kapp", live, `{data: {d: x}}`)
	b.merge("bob", live, `{data: {e: x}}`)
	b.serverSide("helm", `{apiVersion: v1, kind: ConfigMap, metadata: {name: config, namespace: NS}, data: {f: x}}`)
	live = b.serverSide("kubectl",
		`{apiVersion: v1, kind: ConfigMap, metadata: {name: config, namespace: NS}, data: {g: x}}`)
	b.adopt(live, append(ownership.DefaultManagers(), "kubectl"), "helm", "kapp", "kubectl", "kubectl-create")
	current := b.apply(lean)
	if got := keys(current, "data"); !slices.Equal(got, []string{"a", "e"}) {
		t.Errorf("the data are %q", got)
	}
	if diff := cmp.Diff([]string{"bob Update", "runlevel Apply"}, owners(current)); diff != "" {
		t.Errorf("who owns fields (-want +got):\n%s", diff)
	}
}

// Fields that we have created without an apply are ours, and are not reported as fields of others.
func TestFieldsOfOurCreateBecomeAppliedFields(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.adopt(b.create(cluster.FieldManager, config), nil)
	if got := b.apply(lean); !slices.Equal(keys(got, "data"), []string{"a"}) ||
		!slices.Equal(owners(got), []string{"runlevel Apply"}) {
		t.Errorf("data %q, owners %q", keys(got, "data"), owners(got))
	}
}

// An unlisted manager keeps its fields. If we have applied nothing, no field is taken over.
func TestUnlistedManagersKeepTheirFields(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	live := b.create("bob", config)
	if current := b.adopt(live,
		ownership.DefaultManagers()); current.GetResourceVersion() != live.GetResourceVersion() {
		t.Error("the object was written")
	}
	live = b.merge("helm", b.apply(lean), `{data: {c: x}}`)
	if current := b.adopt(live,
		ownership.DefaultManagers()); current.GetResourceVersion() != live.GetResourceVersion() {
		t.Error("the object was written, although we have applied it")
	}
	if got := keys(b.apply(lean), "data"); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("the data are %q", got)
	}
}

// Controllers own fields of a running Deployment.
func TestControllersKeepTheirFieldsOfADeployment(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	manifest := func(spec string) string {
		return `{apiVersion: apps/v1, kind: Deployment, metadata: {name: shop, namespace: NS}, spec: {` + spec +
			`selector: {matchLabels: {app: shop}},
 template: {metadata: {labels: {app: shop}}, spec: {containers: [{name: shop, image: registry.example/shop}]}}}}`
	}
	live := b.create("helm", manifest("minReadySeconds: 1, replicas: 1, "))
	live = b.merge("autoscaler", live, `{spec: {replicas: 3}}`, "scale")
	deployments := appsv1.SchemeGroupVersion.WithResource("deployments")
	sandboxtest.Await(t, test, deployments, b.namespace+"/shop", func(got *appsv1.Deployment) bool {
		return got != nil && got.Status.ObservedGeneration == got.Generation &&
			got.Annotations["deployment.kubernetes.io/revision"] != ""
	})
	live = b.get(live)
	before := owners(live)
	got := b.adopt(live, ownership.DefaultManagers(), "helm")
	want := slices.Clone(before)
	want[slices.Index(want, "helm Update")] = "runlevel Apply"
	slices.Sort(want)
	if diff := cmp.Diff(want, owners(got)); diff != "" {
		t.Errorf("who owns fields (-want +got):\n%s", diff)
	}
	got = b.apply(manifest(""))
	replicas, _, _ := unstructured.NestedInt64(got.Object, "spec", "replicas")
	if seconds, _, _ := unstructured.NestedInt64(got.Object, "spec", "minReadySeconds"); seconds != 0 || replicas != 3 {
		t.Errorf("the Deployment has minReadySeconds %d, %d replicas", seconds, replicas)
	}
	if got.GetAnnotations()["deployment.kubernetes.io/revision"] == "" {
		t.Error("the Deployment has lost its revision")
	}
	if diff := cmp.Diff([]string{"autoscaler/scale"},
		ownership.Owners(got.GetManagedFields(), path("spec", "replicas"))); diff != "" {
		t.Errorf("who owns the replicas (-want +got):\n%s", diff)
	}
}

// Fields that a manager has set through a subresource stay, even if that manager is listed.
func TestFieldsOfASubresourceAreNotAdopted(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	live := b.create("helm",
		`{apiVersion: v1, kind: Service, metadata: {name: shop, namespace: NS, labels: {a: x}}, spec: {type: LoadBalancer, ports: [{port: 80}]}}`)
	live = b.merge("helm", live, `{status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}}`, "status")
	status := func(got *unstructured.Unstructured) []metav1.ManagedFieldsEntry {
		return slices.DeleteFunc(got.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool {
			return entry.Subresource == ""
		})
	}
	want := status(live)
	b.adopt(live, ownership.DefaultManagers(), "helm")
	got := b.apply(`{apiVersion: v1, kind: Service, metadata: {name: shop, namespace: NS}, spec: {type: LoadBalancer, ports: [{port: 80}]}}`)
	if diff := cmp.Diff(want, status(got)); diff != "" || len(want) != 1 || len(got.GetLabels()) > 0 {
		t.Errorf("labels %v; entries (-want +got):\n%s", got.GetLabels(), diff)
	}
	if diff := cmp.Diff(live.Object["status"], got.Object["status"]); diff != "" {
		t.Errorf("the status (-want +got):\n%s", diff)
	}
}

// An entry may lack its fields and its time.
func TestManagedFieldsEntryWithoutDetails(t *testing.T) {
	var sent []byte
	c := sandboxtest.Connect(t,
		&rest.Config{Host: "http://cluster.example",
			Transport: sandboxtest.RoundTripper(func(request *http.Request) (*http.Response, error) {
				sent, _ = io.ReadAll(request.Body)
				body := `{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata"}`
				return &http.Response{
					StatusCode: http.StatusOK,
					Header:     http.Header{"Content-Type": {"application/json"}},
					Body:       io.NopCloser(strings.NewReader(body)),
					Request:    request,
				}, nil
			})})
	resource := cluster.Resource{
		GroupVersionResource: corev1.SchemeGroupVersion.WithResource("configmaps"),
		Kind:                 "ConfigMap",
		Namespaced:           true,
	}
	entry := metav1.ManagedFieldsEntry{
		Manager:    "helm",
		Operation:  metav1.ManagedFieldsOperationUpdate,
		APIVersion: "v1",
		FieldsType: "FieldsV1",
	}
	applied := entry
	applied.Operation, applied.FieldsV1 = metav1.ManagedFieldsOperationApply,
		metav1.NewFieldsV1(`{"f:data":{"f:a":{}}}`)
	live := &metav1.ObjectMeta{
		Namespace:       "shop",
		Name:            "config",
		ResourceVersion: "7",
		ManagedFields:   []metav1.ManagedFieldsEntry{applied, entry},
	}
	before := live.DeepCopy()
	if _, found, err := ownership.Adopt(t.Context(), c, resource, live, ownership.DefaultManagers()); err != nil ||
		!slices.Equal(found, []string{"helm"}) {
		t.Errorf("adopted fields of %q, error %v", found, err)
	}
	want := `[{"op":"replace","path":"/metadata/managedFields","value":[{"manager":"runlevel","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:a":{}}}}]},` +
		`{"op":"replace","path":"/metadata/resourceVersion","value":"7"}]`
	if diff := cmp.Diff(want, string(sent)); diff != "" {
		t.Errorf("the patch (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, live); diff != "" {
		t.Errorf("the object that was given has changed:\n%s", diff)
	}
}

// A CA injector fills certificates into what others have made.
func TestInjectedCertificatesStay(t *testing.T) {
	bundle := base64.StdEncoding.EncodeToString(test.Sandbox(t).Config.CAData) // any certificate will do
	for name, row := range map[string]struct {
		made, ours string
		client     func(*unstructured.Unstructured) map[string]any // returns the parent of the certificate
	}{
		"webhook": {
			made: `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: "NS", labels: {a: x}}, webhooks: [
 {name: a.example.com, admissionReviewVersions: [v1], sideEffects: None, failurePolicy: Ignore, clientConfig: {service: {namespace: NS, name: a}}}]}`,
			ours: `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: "NS"}, webhooks: [
 {name: a.example.com, admissionReviewVersions: [v1], sideEffects: None, clientConfig: {service: {namespace: NS, name: a}}}]}`,
			client: func(object *unstructured.Unstructured) map[string]any {
				return object.Object["webhooks"].([]any)[0].(map[string]any)["clientConfig"].(map[string]any)
			},
		},
		"definition": {
			made: strings.Replace(definition, "spec:",
				"spec:\n  conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: "+
					"{service: {namespace: NS, name: a}}}}", 1),
			ours: strings.Replace(definition, "spec:",
				"spec:\n  conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: "+
					"{service: {namespace: NS, name: a}}}}", 1),
			client: func(object *unstructured.Unstructured) map[string]any {
				client, _, _ := unstructured.NestedFieldNoCopy(object.Object, "spec", "conversion", "webhook",
					"clientConfig")
				return client.(map[string]any)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			live := b.get(b.create("helm", row.made))
			live = b.merge("helm", live, `{metadata: {labels: {a: x}}}`)
			row.client(live)["caBundle"] = bundle
			live.SetResourceVersion("") // the server writes the status of a definition
			live.SetManagedFields(nil)
			body, err := json.Marshal(live.Object)
			if err != nil {
				t.Fatal(err)
			}
			live = b.merge("cainjector", live, string(body))
			b.adopt(live, ownership.DefaultManagers(), "helm")
			got := b.apply(row.ours)
			if row.client(got)["caBundle"] != bundle || len(got.GetLabels()) > 0 {
				t.Errorf("caBundle %q, labels %v", row.client(got)["caBundle"], got.GetLabels())
			}
			if !slices.Contains(owners(got), "cainjector Update") {
				t.Errorf("fields are owned by %q", owners(got))
			}
		})
	}
}

const versioned = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: caps.NS.example.com}
spec:
  group: NS.example.com
  names: {kind: Cap, plural: caps}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: &schema {openAPIV3Schema: {type: object, properties: {spec: {type: object, additionalProperties: {type: string}}}}}}
  - {name: v1beta1, served: true, storage: false, schema: *schema}
  - {name: v1alpha1, served: true, storage: false, schema: *schema}
`

// Each manager has its fields in the version that it wrote last.
func TestEntriesOfOtherVersions(t *testing.T) {
	write := func(b bed, manager, version, fields string) *unstructured.Unstructured {
		text := `{apiVersion: NS.example.com/` + version + `, kind: Cap, metadata: {name: cap, namespace: NS}` +
			fields + `}`
		if live, err := b.In(b.in(b.parse(text)), b.namespace).Get(t.Context(), "cap",
			metav1.GetOptions{}); err == nil {
			return b.merge(manager, live, `{`+strings.TrimPrefix(fields, ", ")+`}`)
		}
		return b.create(manager, text)
	}
	for name, row := range map[string]struct {
		writes  func(b bed)
		found   []string
		version string
	}{
		"an older one": {
			writes: func(b bed) {
				write(b, "helm", "v1beta1", ", spec: {a: x, b: x}")
			}, found: []string{"helm"}, version: "v1beta1",
		},
		"two of one manager": {
			writes: func(b bed) {
				write(b, "helm", "v1beta1", ", spec: {a: x, b: x}")
				write(b, "helm", "v1", ", spec: {c: x}")
			},
			found: []string{"helm"},
		},
		"two, of which we have none": {
			writes: func(b bed) {
				write(b, "helm", "v1beta1", ", spec: {a: x, b: x}")
				write(b, "kapp", "v1alpha1", ", spec: {c: x}")
			},
			found: []string{"helm", "kapp"},
		},
		"a version that is no longer served": {
			writes: func(b bed) {
				live := write(b, "helm", "v1alpha1", ", spec: {a: x, b: x}")
				write(b, "bob", "v1beta1", ", spec: {d: x}")
				definition := b.get(b.parse(versioned))
				definition.Object["spec"].(map[string]any)["versions"].([]any)[2].(map[string]any)["served"] = false
				if _, err := b.In(b.in(definition), "").Update(t.Context(), definition,
					metav1.UpdateOptions{FieldManager: "other-manager"}); err != nil {
					b.Fatal(err)
				}
				b.awaitUnserved(live)
			},
			found: []string{"helm"}, version: "v1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			b.define(versioned)
			row.writes(b)
			b = b.through(func(string) {}) // a new connection, which discovers the served versions again
			cap := `{apiVersion: NS.example.com/v1, kind: Cap, metadata: {name: cap, namespace: NS}, spec: {a: z}}`
			got := b.adopt(b.get(b.parse(cap)), ownership.DefaultManagers(), row.found...)
			i := slices.IndexFunc(got.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool {
				return entry.Manager == cluster.FieldManager
			})
			if i < 0 || row.version != "" && got.GetManagedFields()[i].APIVersion != b.namespace+".example.com/"+
				row.version {
				t.Errorf("our entry is not of %s: %v", row.version, got.GetManagedFields())
			}
			got = b.apply(cap)
			for _, removed := range []string{"b", "c"} {
				if slices.Contains(keys(got, "spec"), removed) {
					t.Errorf("after the apply the spec has %q", keys(got, "spec"))
				}
			}
		})
	}
}

// A field with another name in the version of our entry is not found, and stays.
func TestFieldThatHasAnotherNameInAnotherVersion(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	const head = `kind: HorizontalPodAutoscaler, metadata: {name: shop, namespace: NS}, spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: none}, maxReplicas: 5`
	b.create("helm", `{apiVersion: autoscaling/v1, `+head+`, minReplicas: 2, targetCPUUtilizationPercentage: 50}}`)
	live := b.merge("kapp", b.get(b.parse(`{apiVersion: autoscaling/v2, `+head+`}}`)),
		`{spec: {behavior: {scaleDown: {stabilizationWindowSeconds: 7}}}}`)
	b.adopt(live, ownership.DefaultManagers(), "helm", "kapp")
	got := b.apply(`{apiVersion: autoscaling/v2, ` + head + `}}`)
	if diff := cmp.Diff([]string{"maxReplicas", "metrics", "minReplicas", "scaleTargetRef"},
		keys(got, "spec")); diff != "" || got.Object["spec"].(map[string]any)["minReplicas"] != int64(1) {
		t.Errorf("the spec is %v (-want +got):\n%s", got.Object["spec"], diff)
	}
}

// Another client may write between our look and our patch: both count.
func TestAnotherWriterInBetween(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	live := b.create("helm", config)
	writes := 0
	racing := b.through(func(method string) {
		if method == "PATCH" && writes < 2 {
			writes++
			b.merge("bob", live, map[int]string{1: `{data: {b: theirs}}`, 2: `{data: {c: theirs}}`}[writes])
		}
	})
	racing.adopt(live, ownership.DefaultManagers(), "helm")
	got := b.apply(lean)
	if diff := cmp.Diff(map[string]any{"a": "z", "b": "theirs", "c": "theirs"}, got.Object["data"]); diff != "" ||
		writes != 2 {
		t.Errorf("after %d writes the data are (-want +got):\n%s", writes, diff)
	}
}

// The object may be replaced, deleted or adopted by us meanwhile, and another client may write it all the time.
func TestObjectChangesDuringAdopt(t *testing.T) {
	remove := func(b bed, live *unstructured.Unstructured) {
		if err := b.In(b.in(live), b.namespace).Delete(context.Background(), live.GetName(),
			metav1.DeleteOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	for name, row := range map[string]struct {
		happens func(b bed, live *unstructured.Unstructured)
		always  bool
		wants   func(error) bool
		owners  []string
	}{
		"it goes": {happens: remove, wants: apierrors.IsNotFound},
		"it is recreated": {
			happens: func(b bed, live *unstructured.Unstructured) {
				remove(b, live)
				b.create("helm", config)
			},
			wants: apierrors.IsConflict, owners: []string{"helm Update"},
		},
		"we apply it": {
			happens: func(b bed, _ *unstructured.Unstructured) { b.apply(lean) },
			wants:   func(err error) bool { return err == nil }, owners: []string{"helm Update", "runlevel Apply"},
		},
		"another manager writes all the time": {
			happens: func(b bed, live *unstructured.Unstructured) {
				b.merge("bob", live, `{metadata: {labels: {uid: "`+string(uuid.NewUUID())+`"}}}`)
			},
			always: true, wants: apierrors.IsConflict, owners: []string{"bob Update", "helm Update"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			live, happened := b.create("helm", config), false
			racing := b.through(func(method string) {
				if method == "PATCH" && (row.always || !happened) {
					happened = true
					row.happens(b, live)
				}
			})
			_, found, err := ownership.Adopt(t.Context(), racing.Cluster, b.in(live), live, ownership.DefaultManagers())
			if !row.wants(err) || len(found) > 0 {
				t.Errorf("adopted fields of %q, with error %v", found, err)
			}
			if row.owners == nil {
				return
			}
			if diff := cmp.Diff(row.owners, owners(b.get(live))); diff != "" {
				t.Errorf("who owns fields (-want +got):\n%s", diff)
			}
		})
	}
}
