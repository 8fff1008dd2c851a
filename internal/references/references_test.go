package references_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/references"
)

// pod is a spec of pods with each of its references once, and with optional ones.
const pod = `{serviceAccountName: a, priorityClassName: b, runtimeClassName: c, imagePullSecrets: [{name: d}],
  volumes: [{secret: {secretName: e}}, {configMap: {name: f}}, {persistentVolumeClaim: {claimName: g}}, {csi: {nodePublishSecretRef: {name: h}}},
    {projected: {sources: [{secret: {name: i}}, {configMap: {name: j}}, {secret: {name: o, optional: true}}]}},
    {ephemeral: {volumeClaimTemplate: {spec: {storageClassName: k}}}}, {secret: {secretName: o, optional: true}}, {emptyDir: {}}],
  initContainers: [{envFrom: [{secretRef: {name: l}}]}],
  containers: [{}, {envFrom: [{configMapRef: {name: m}}, {configMapRef: {name: o, optional: true}}],
    env: [{name: X, value: x}, {valueFrom: {secretKeyRef: {name: p, key: x}}}, {valueFrom: {configMapKeyRef: {name: o, key: x, optional: true}}}]}]}`

const ofPod = `PREFIX.serviceAccountName: ServiceAccount shop/a
PREFIX.priorityClassName: PriorityClass b
PREFIX.runtimeClassName: RuntimeClass c
PREFIX.imagePullSecrets[0].name: Secret shop/d
PREFIX.volumes[0].secret.secretName: Secret shop/e
PREFIX.volumes[1].configMap.name: ConfigMap shop/f
PREFIX.volumes[2].persistentVolumeClaim.claimName: PersistentVolumeClaim shop/g
PREFIX.volumes[3].csi.nodePublishSecretRef.name: Secret shop/h
PREFIX.volumes[4].projected.sources[0].secret.name: Secret shop/i
PREFIX.volumes[4].projected.sources[1].configMap.name: ConfigMap shop/j
PREFIX.volumes[5].ephemeral.volumeClaimTemplate.spec.storageClassName: StorageClass k
PREFIX.initContainers[0].envFrom[0].secretRef.name: Secret shop/l
PREFIX.containers[1].envFrom[0].configMapRef.name: ConfigMap shop/m
PREFIX.containers[1].env[1].valueFrom.secretKeyRef.name: Secret shop/p
`

// TestReferencesOfAnObject has a row for each kind that refers to others: its references, one on a line.
func TestReferencesOfAnObject(t *testing.T) {
	ofPods := func(prefix string) string { return strings.ReplaceAll(ofPod, "PREFIX", prefix) }
	const rbac = "apiVersion: rbac.authorization.k8s.io/v1, "
	for object, want := range map[string]string{
		"{apiVersion: v1, kind: Pod, METADATA, spec: " + pod +
			"}": ofPods("spec"),
		"{apiVersion: v1, kind: ReplicationController, METADATA, spec: {template: {spec: " + pod +
			"}}}": ofPods("spec.template.spec"),
		"{apiVersion: apps/v1, kind: Deployment, METADATA, spec: {template: {spec: " + pod +
			"}}}": ofPods("spec.template.spec"),
		"{apiVersion: v1, kind: Pod, METADATA, spec: {serviceAccount: old}}":                          "spec.serviceAccount: ServiceAccount shop/old\n",
		"{apiVersion: v1, kind: Pod, METADATA, spec: {serviceAccount: new, serviceAccountName: new}}": "spec.serviceAccountName: ServiceAccount shop/new\n",
		"{apiVersion: v1, kind: Pod, METADATA, spec: {serviceAccount: " +
			"default}}": "",
		"{apiVersion: v1, kind: Pod, METADATA, spec: {serviceAccountName: default, imagePullSecrets: [{name: " +
			"default}]}}": "spec.imagePullSecrets[0].name: Secret shop/default\n",
		"{apiVersion: apps/v1, kind: DaemonSet, METADATA, spec: {template: {spec: " + pod +
			"}}}": ofPods("spec.template.spec"),
		"{apiVersion: apps/v1, kind: ReplicaSet, METADATA, spec: {template: {spec: " + pod +
			"}}}": ofPods("spec.template.spec"),
		"{apiVersion: batch/v1, kind: Job, METADATA, spec: {template: {spec: " + pod +
			"}}}": ofPods("spec.template.spec"),
		"{apiVersion: batch/v1, kind: CronJob, METADATA, spec: {jobTemplate: {spec: {template: {spec: " + pod +
			"}}}}}": ofPods("spec.jobTemplate.spec.template.spec"),
		"{apiVersion: apps/v1, kind: StatefulSet, METADATA, spec: {serviceName: web, volumeClaimTemplates: [{spec: " +
			"{storageClassName: fast}}], template: {spec: " + pod +
			"}}}": "spec.serviceName: Service shop/web\nspec.volumeClaimTemplates[0].spec.storageClassName: " +
			"StorageClass fast\n" + ofPods("spec.template.spec"),
		"{apiVersion: v1, kind: ServiceAccount, METADATA, secrets: [{name: made}], imagePullSecrets: [{name: a}]}": "imagePullSecrets[0].name: Secret shop/a\n",
		"{apiVersion: v1, kind: PersistentVolumeClaim, METADATA, spec: {storageClassName: fast, volumeName: v, " +
			"dataSource: {kind: PersistentVolumeClaim, name: other}}}": "spec.storageClassName: StorageClass " +
			"fast\nspec.volumeName: PersistentVolume v\nspec.dataSource.name: PersistentVolumeClaim shop/other\n",
		"{apiVersion: v1, kind: PersistentVolumeClaim, METADATA, spec: {storageClassName: '', dataSource: {kind: " +
			"VolumeSnapshot, name: other}}}": "",
		"{apiVersion: v1, kind: PersistentVolume, metadata: {name: v}, spec: {storageClassName: fast, csi: " +
			"{nodeStageSecretRef: {name: a, namespace: vault}}}}": "spec.storageClassName: StorageClass " +
			"fast\nspec.csi.nodeStageSecretRef.name: Secret vault/a\n",
		"{apiVersion: networking.k8s.io/v1, kind: Ingress, METADATA, spec: {ingressClassName: c, defaultBackend: " +
			"{service: {name: a}}, rules: [{host: x}, {http: {paths: [{backend: {service: {name: b}}}, {backend: " +
			"{resource: {name: r}}}]}}], tls: [{secretName: t}]}}": "spec.ingressClassName: IngressClass " +
			"c\nspec.defaultBackend.service.name: Service shop/a\nspec.rules[1].http.paths[0].backend.service.name: " +
			"Service shop/b\nspec.tls[0].secretName: Secret shop/t\n",
		"{apiVersion: route.openshift.io/v1, kind: Route, METADATA, spec: {to: {kind: Service, name: a}, " +
			"alternateBackends: [{kind: Service, name: b}]}}": "spec.to.name: Service " +
			"shop/a\nspec.alternateBackends[0].name: Service shop/b\n",
		"{" + rbac + "kind: RoleBinding, METADATA, roleRef: {kind: Role, name: a}, subjects: [{kind: ServiceAccount, " +
			"name: s, namespace: other}, {kind: ServiceAccount, name: none}, {kind: User, name: u}]}": "roleRef.name: Role shop/a\nsubjects[0].name: ServiceAccount other/s\n",
		"{" + rbac +
			"kind: RoleBinding, METADATA, roleRef: {kind: ClusterRole, name: a}}": "roleRef.name: ClusterRole a\n",
		"{" + rbac +
			"kind: ClusterRoleBinding, metadata: {name: it}, roleRef: {kind: ClusterRole, name: a}}": "roleRef.name: ClusterRole a\n",
		"{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, METADATA, spec: {scaleTargetRef: {apiVersion: " +
			"apps/v1, kind: StatefulSet, name: a}}}": "spec.scaleTargetRef.name: StatefulSet shop/a\n",
		"{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: it}, " +
			"spec: {policyName: a}}": "spec.policyName: ValidatingAdmissionPolicy a\n",
		"{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: it}, " +
			"webhooks: [{failurePolicy: Ignore, clientConfig: {service: {name: a, namespace: b}}}, {clientConfig: " +
			"{service: {name: c, namespace: d}}}]}": "webhooks[1].clientConfig.service.name: Service d/c\n",
		"{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, metadata: {name: it}, " +
			"webhooks: [{clientConfig: {url: u}}, {clientConfig: {service: {name: c, namespace: d}}}]}": "webhooks[1].clientConfig.service.name: Service d/c\n",
		"{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: it}, spec: {service: {name: a, " +
			"namespace: b}}}": "spec.service.name: Service b/a\n",
		"{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: it}, spec: " +
			"{conversion: {webhook: {clientConfig: {service: {name: a, namespace: b}}}}}}": "spec.conversion.webhook.clientConfig.service.name: Service b/a\n",
		"{apiVersion: v1, kind: ConfigMap, METADATA, data: {secretName: a}}":                                          "",
		"{apiVersion: apps/v1, kind: Deployment, METADATA, spec: {template: {spec: {volumes: none, containers: 3}}}}": "",
	} {
		if diff := cmp.Diff(want, textOf(t, object)); diff != "" {
			t.Errorf("%s: %s", object, diff)
		}
	}
}

func linesOf(found []references.Reference) string {
	var lines strings.Builder
	for _, reference := range found {
		lines.WriteString(reference.Field() + ": " + reference.To.String() + "\n")
	}
	return lines.String()
}

func manifestsOf(t *testing.T, text string) (found []manifest) {
	t.Helper()
	for document := range strings.SplitSeq(text, "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			t.Fatal(err)
		}
		found = append(found, manifest{object, false})
	}
	return found
}

func textOf(t *testing.T, text string) string {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(strings.Replace(text, "METADATA", "metadata: {name: it, namespace: shop}", 1)),
		&object.Object); err != nil {
		t.Fatal(err)
	}
	found := references.Definitions(nil).References(object)
	for _, reference := range found {
		if _, exists, _ := unstructured.NestedFieldNoCopy(object.Object, reference.Path[0]); !exists {
			t.Errorf("the object has no field %s", reference.Path)
		}
	}
	return linesOf(found)
}

func TestReferencedKeys(t *testing.T) {
	object := &unstructured.Unstructured{}
	text := "{apiVersion: v1, kind: Pod, metadata: {name: it, namespace: shop}, spec: {volumes: [{configMap: {name: " +
		"a, items: [{key: x, path: x}, {key: w, path: w}]}}, {secret: {secretName: b}}], containers: [{env: " +
		"[{valueFrom: {secretKeyRef: {name: b, key: z}}}]}]}}"
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, reference := range references.Definitions(nil).References(object) {
		got = append(got, reference.To.Name+" "+strings.Join(reference.Keys, ","))
	}
	if diff := cmp.Diff([]string{"b ", "a x,w", "b z"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestObjectsThatControllersCreate(t *testing.T) {
	for text, want := range map[string]string{
		"{apiVersion: v1, kind: Service, metadata: {name: a, namespace: shop, annotations: " +
			"{service.beta.openshift.io/serving-cert-secret-name: tls}}}": "Secret shop/tls",
		"{apiVersion: cert-manager.io/v1, kind: Certificate, metadata: {name: a, namespace: shop}, spec: " +
			"{secretName: tls}}": "Secret shop/tls",
		"{apiVersion: cloudcredential.openshift.io/v1, kind: CredentialsRequest, metadata: {name: a, namespace: x}, " +
			"spec: {secretRef: {name: cloud, namespace: shop}}}": "Secret shop/cloud",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: shop}}": "",
	} {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, id := range references.Definitions(nil).CreatedFor(object) {
			got += id.String()
		}
		if got != want {
			t.Errorf("%s: %q is made, want %q", text, got, want)
		}
	}
}

// definition declares the references of objects of two kinds, and the objects that are created for them.
const definition = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.shop.example, annotations: {
  runlevel.dev/references: "spec.parts.secretName: Secret, spec.classRef.name: WidgetClass.shop.example, spec.issuer: Issuer.example.com, wrong",
  runlevel.dev/makes: "spec.target: Secret"}},
  spec: {group: shop.example, scope: Namespaced, names: {kind: Widget}}}
---
{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgetclasses.shop.example},
  spec: {group: shop.example, scope: Cluster, names: {kind: WidgetClass}}}`

// TestDeclaredReferences follows declared references: through lists, into other namespaces, to kinds whose scope is
// known.
func TestDeclaredReferences(t *testing.T) {
	const widget = "{apiVersion: shop.example/v1, kind: Widget, metadata: {name: w, namespace: shop}, " +
		"spec: {target: tls, issuer: i, classRef: {name: gold}, parts: [{secretName: a}, {secretName: b, namespace: " +
		"other}, {}]}}"
	manifests := manifestsOf(t, definition+"\n---\n"+widget)
	old := manifestsOf(t, strings.ReplaceAll(definition, "parts.secretName", "target"))
	want := "spec.parts[0].secretName: Secret shop/a\nspec.parts[1].secretName: Secret other/b\nspec.classRef.name: " +
		"WidgetClass gold\n"
	for name, graph := range map[string]*references.Graph[manifest]{
		"in the release":        references.NewGraph(manifests, old),
		"in the release before": references.NewGraph(manifests[2:], manifests[:2]),
	} {
		if diff := cmp.Diff(want, linesOf(graph.References[len(graph.References)-1])); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		maker, isMade := graph.Creators[kinds.ID{Kind: "Secret", Namespace: "shop", Name: "tls"}]
		if !isMade || maker.GetName() != "w" || len(graph.Creators) != 1 {
			t.Errorf("%s: %v are made", name, graph.Creators)
		}
	}
}

func TestParseDeclarations(t *testing.T) {
	for text, want := range map[string]string{
		"spec.a: Secret":                         "spec.a Secret",
		"\n spec.a :  Secret\n\nspec.b: X.y.z\n": "spec.a Secret; spec.b X.y.z",
		"spec.a: Secret, spec.b: ConfigMap,":     "spec.a Secret; spec.b ConfigMap",
		"spec.a":                                 `"spec.a" has no kind`,
		"spec.a: ":                               `"spec.a:" has no kind`,
		"spec.a[0].b: Secret":                    `"spec.a[0].b" is not a field`,
		".spec.a: Secret":                        `".spec.a" is not a field`,
		": Secret":                               `"" is not a field`,
		"spec.a: Secret ConfigMap":               `has no kind`,
		"":                                       "",
	} {
		declared, problems := references.ParseDeclarations(text)
		var found []string
		for _, d := range declared {
			found = append(found, d.Field+" "+d.Kind.String())
		}
		got := strings.Join(append(found, problems...), "; ")
		if got != want && (len(problems) == 0 || !strings.Contains(got, want)) {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// TestReferencesToOwners: an object is deleted with its only owner, and stays if it has other owners.
func TestReferencesToOwners(t *testing.T) {
	const owner = "{apiVersion: apps/v1, kind: Deployment, name: web, uid: u}"
	for owners, want := range map[string]references.Consequence{owner: references.Collected,
		owner + ", " + owner: references.Harmless} {
		text := "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: shop, ownerReferences: [" + owners +
			"]}}"
		found := references.NewGraph(manifestsOf(t, text), nil).References[0]
		if linesOf(found[:1]) != "metadata.ownerReferences[0].name: Deployment shop/web\n" ||
			found[0].Consequence != want {
			t.Errorf("%s: %v", owners, found)
		}
	}
}

// A manifest is one for tests.
type manifest struct {
	*unstructured.Unstructured
	isTombstone bool
}

func (m manifest) Object() *unstructured.Unstructured { return m.Unstructured }
func (m manifest) ID() kinds.ID                       { return kinds.ID{Kind: m.GetKind(), Name: m.GetName()} }
func (m manifest) IsTombstone() bool                  { return m.isTombstone }

func TestUsesOfAnObject(t *testing.T) {
	binding := func(name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
			"metadata": map[string]any{"name": name},
			"roleRef":  map[string]any{"kind": "ClusterRole", "name": "it"},
		}}
	}
	uses := references.NewGraph([]manifest{{binding("a"), false}, {binding("b"), true}, {binding("c"), false}},
		nil).Uses
	var got []string
	for _, use := range uses[kinds.ID{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "it"}] {
		got = append(got, use.By.GetName()+" "+use.Field())
	}
	if diff := cmp.Diff([]string{"a roleRef.name", "c roleRef.name"}, got); diff != "" || len(uses) != 1 {
		t.Errorf("%d objects are used: %s", len(uses), diff)
	}
}

func TestIsBuiltIn(t *testing.T) {
	const rbac = "rbac.authorization.k8s.io"
	for id, want := range map[kinds.ID]bool{
		{Kind: "ConfigMap", Namespace: "shop", Name: "kube-root-ca.crt"}:                                         true,
		{Kind: "ConfigMap", Namespace: "kube-system", Name: "extension-apiserver-authentication"}:                true,
		{Kind: "ConfigMap", Namespace: "shop", Name: "extension-apiserver-authentication"}:                       false,
		{Group: rbac, Kind: "Role", Namespace: "kube-system", Name: "extension-apiserver-authentication-reader"}: true,
		{Group: rbac, Kind: "Role", Namespace: "kube-system", Name: "system::leader-locking-kube-scheduler"}:     true,
		{Group: rbac, Kind: "Role", Namespace: "shop", Name: "extension-apiserver-authentication-reader"}:        false,
		{Group: rbac, Kind: "ClusterRole", Name: "view"}:                                                         true,
		{Group: rbac, Kind: "ClusterRole", Name: "viewer"}:                                                       false,
	} {
		if got := references.IsBuiltIn(id); got != want {
			t.Errorf("%s: %v, want %v", id, got, want)
		}
	}
}
