package apply_test

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/cert"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/ownership"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// certificates returns three certificates in base64.
var certificates = sync.OnceValue(func() (all []string) {
	for range 3 {
		text, _, err := cert.GenerateSelfSignedCertKey("hook.example.com", nil, nil)
		if err != nil {
			panic(err)
		}
		all = append(all, base64.StdEncoding.EncodeToString(text))
	}
	return all
})

// certified are objects of the kinds that can have a certificate. BUNDLE stands for the certificate, and NOTE for an
// annotation.
var certified = map[string]struct{ kind, name, manifest, injected string }{
	"a webhook that validates": {"ValidatingWebhookConfiguration.admissionregistration.k8s.io", "NS.example.com", `
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: NS.example.com, annotations: {is: old, NOTE}}, webhooks: [{name: hook.NS.example.com, clientConfig: {BUNDLE url: "https://127.0.0.1:1/a"}, rules: [{apiGroups: [NS.example.com], apiVersions: [v1], operations: [CREATE], resources: [nothing]}], admissionReviewVersions: [v1], sideEffects: None}]}
`, `[{op: add, path: /webhooks/0/clientConfig/caBundle, value: VALUE}]`},
	"a webhook that mutates": {"MutatingWebhookConfiguration.admissionregistration.k8s.io", "NS.example.com", `
{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, metadata: {name: NS.example.com, annotations: {is: old, NOTE}}, webhooks: [{name: hook.NS.example.com, clientConfig: {BUNDLE url: "https://127.0.0.1:1/a"}, rules: [{apiGroups: [NS.example.com], apiVersions: [v1], operations: [CREATE], resources: [nothing]}], admissionReviewVersions: [v1], sideEffects: None}]}
`, `[{op: add, path: /webhooks/0/clientConfig/caBundle, value: VALUE}]`},
	"a definition": {"CustomResourceDefinition.apiextensions.k8s.io", "items.NS.example.com", `
{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: items.NS.example.com, annotations: {is: old, NOTE}}, spec: {group: NS.example.com, names: {kind: Item, plural: items}, scope: Namespaced, conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {BUNDLE url: "https://127.0.0.1:1/a"}}}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}
`, `[{op: add, path: /spec/conversion/webhook/clientConfig/caBundle, value: VALUE}]`},
	"an APIService": {"APIService.apiregistration.k8s.io", "v1.NS.example.com", `
{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.NS.example.com, annotations: {is: old, NOTE}}, spec: {BUNDLE group: NS.example.com, version: v1, groupPriorityMinimum: 1, versionPriority: 1, service: {name: nobody, namespace: NS}}}
`, `[{op: add, path: /spec/caBundle, value: VALUE}]`},
}

// An injected certificate stays, whatever certificate the manifest has.
func TestInjectedCertificatesStay(t *testing.T) {
	bundle := `"` + strings.ReplaceAll(certificates()[0], "NS", `N\x53`) + `"` // NS would stand for a namespace
	for what, item := range certified {
		for title, row := range map[string]struct{ bundle, note string }{
			"none":           {"", ""},
			"a placeholder":  {`caBundle: Cg==,`, ""},
			"cert-manager's": {"caBundle: " + bundle + ",", `cert-manager.io/inject-ca-from: a/b`},
			"service-ca's": {"caBundle: " + bundle + ",",
				`service.beta.openshift.io/inject-cabundle: "true"`},
			"a real one, replaced later":                    {"caBundle: " + bundle + ",", ""},
			"none, and another tool has created the object": {"", "tool: made"},
		} {
			t.Run(what+" with "+title, func(t *testing.T) {
				t.Parallel()
				namespace := test.Namespace(t)
				name := strings.ReplaceAll(item.name, "NS", namespace)
				manifest := strings.NewReplacer("BUNDLE", row.bundle, "NOTE", row.note).Replace(item.manifest)
				if row.note == "tool: made" {
					act(t, "kubectl-client-side-apply").kubectlApply(strings.ReplaceAll(manifest, "NS", namespace))
				} else {
					scales(t, namespace, "-- 0000_10_web.yaml --"+manifest, apply.Options{})
				}
				injector := act(t, "cainjector")
				for i, value := range certificates()[1:] {
					injector.patch(item.kind, name, strings.ReplaceAll(item.injected, "VALUE", value))
					text := strings.Replace("-- 0000_10_web.yaml --"+manifest, "is: old", "is: new", i)
					did := scales(t, namespace, text, apply.Options{Options: object.Options{Full: true}})
					live, _ := json.Marshal(injector.live(item.kind, name).Object)
					if !strings.Contains(string(live), `"caBundle":"`+value+`"`) {
						t.Errorf("the object has lost its certificate: %s", live)
					}
					if got := did.eventText(namespace, apply.Overruled); got != "" {
						t.Errorf("got events %q", got)
					}
				}
				quiet(t, namespace, "-- 0000_10_web.yaml --"+strings.Replace(manifest, "is: old", "is: new", 1),
					item.kind, name)
			})
		}
	}
}

// quiet applies a payload of one object once more, and fails the test if that writes or reports anything. Controllers
// may still write their own fields.
func quiet(t *testing.T, namespace, files, kind, key string) {
	t.Helper()
	a := act(t, "")
	before := a.live(kind, key)
	did := scales(t, namespace, files, apply.Options{Options: object.Options{Full: true}})
	if did.Changes[0].Action != object.Unchanged {
		t.Errorf("the second apply has written: %s", did.actions())
	}
	if diff := cmp.Diff(ownContent(before), ownContent(a.live(kind, key))); diff != "" {
		t.Error("the second apply has written:", diff)
	}
	if got := did.eventText(namespace, apply.Overruled, apply.Adopted); got != "" {
		t.Errorf("got events %q", got)
	}
}

// ownContent returns an object without the fields that controllers report, and the fields that we own, with the time of
// the last change.
func ownContent(object *unstructured.Unstructured) []any {
	entries := slices.DeleteFunc(object.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager != cluster.FieldManager
	})
	return []any{whatCounts(object), object.GetGeneration(), entries}
}

// service is a Service with two ports.
const service = `
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: NS}, spec: {type: NodePort, selector: {app: web}, ports: [{name: http, port: 80}, {name: more, port: 8080}]}}
`

// The addresses and ports that the cluster has allocated for a Service stay, whatever ports the manifest has.
func TestAllocatedFieldsOfAServiceStay(t *testing.T) {
	allocated := func(object *unstructured.Unstructured) []string {
		spec := object.Object["spec"].(map[string]any)
		all := []string{spec["clusterIP"].(string)}
		for _, port := range spec["ports"].([]any) {
			fields := port.(map[string]any)
			text, _ := json.Marshal(fields["nodePort"])
			all = append(all, fields["name"].(string)+" "+string(text))
		}
		return all
	}
	for name, makes := range map[string]func(t *testing.T, namespace, text string){
		"ours": func(t *testing.T, namespace, _ string) {
			scales(t, namespace, "-- 0000_10_web.yaml --"+service, apply.Options{})
		},
		"of kubectl apply": func(t *testing.T, _, text string) {
			act(t, "kubectl-client-side-apply").kubectlApply(text)
		},
		"of kubectl create": func(t *testing.T, _, text string) { act(t, "kubectl-create").create(text) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace, a := test.Namespace(t), act(t, "")
			makes(t, namespace, strings.ReplaceAll(service, "NS", namespace))
			want := allocated(a.live("Service", namespace+"/web"))
			for _, ports := range []string{"port: 80}", "port: 81}", "port: 81, targetPort: 8081}"} {
				files := "-- 0000_10_web.yaml --" + strings.Replace(service, "port: 80}", ports, 1)
				scales(t, namespace, files, apply.Options{})
				if diff := cmp.Diff(want, allocated(a.live("Service", namespace+"/web"))); diff != "" {
					t.Errorf("with %s: %s", ports, diff)
				}
				quiet(t, namespace, files, "Service", namespace+"/web")
			}
		})
	}
}

// Controllers add secrets for the pull of images to a ServiceAccount.
func TestSecretsAddedToAServiceAccountStay(t *testing.T) {
	for name, row := range map[string]struct{ manifest, given, want string }{
		"nothing": {"", `{secrets: [{name: a}], imagePullSecrets: [{name: b}]}`, `[{"name":"a"}][{"name":"b"}]`},
		"secrets": {", secrets: [{name: ours}], imagePullSecrets: [{name: ours}]",
			`{secrets: [{name: ours}, {name: a}], imagePullSecrets: [{name: ours}, {name: b}]}`,
			`[{"name":"ours"},{"name":"a"}][{"name":"ours"},{"name":"b"}]`},
		"removed secrets": {", secrets: [{name: ours}], imagePullSecrets: [{name: ours}]",
			`{secrets: [{name: ours}, {name: a}], imagePullSecrets: [{name: b}]}`,
			`[{"name":"ours"},{"name":"a"}][{"name":"b"},{"name":"ours"}]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace, a := test.Namespace(t), act(t, "openshift-controller-manager")
			key := namespace + "/web"
			files := "-- 0000_10_web.yaml --\n{apiVersion: v1, kind: ServiceAccount, metadata: {name: web, " +
				"namespace: NS}" + row.manifest + "}\n"
			scales(t, namespace, files, apply.Options{})
			a.merge("ServiceAccount", key, row.given)
			did := scales(t, namespace, files, apply.Options{Options: object.Options{Full: true}})
			if got := did.eventText(namespace, apply.Overruled); got != "" {
				t.Errorf("got events %q", got)
			}
			if have := a.field("ServiceAccount", key, "secrets") +
				a.field("ServiceAccount", key, "imagePullSecrets"); have != row.want {
				t.Errorf("got %s, want %s", have, row.want)
			}
			quiet(t, namespace, files, "ServiceAccount", key)
		})
	}
}

// The manager that creates an object owns the defaults that the server adds. The adoption must not remove any default,
// also not for a moment.
func TestDefaultsOfAnAdoptedObjectStay(t *testing.T) {
	for name, row := range map[string]struct{ kind, manifest string }{
		"Deployment":  {"Deployment.apps", strings.ReplaceAll(scaledKinds["Deployment"].manifest, "REPLICAS", "")},
		"StatefulSet": {"StatefulSet.apps", strings.ReplaceAll(scaledKinds["StatefulSet"].manifest, "REPLICAS", "")},
		"Service": {"Service",
			"\n{apiVersion: v1, kind: Service, metadata: {name: web, namespace: NS}, spec: {selector: {app: web}, " +
				"ports: [{port: 80}]}}\n"},
		"CronJob": {"CronJob.batch",
			"\n{apiVersion: batch/v1, kind: CronJob, metadata: {name: web, namespace: NS}, spec: {schedule: '0 0 1 1 " +
				"*', jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: web, image: " +
				"registry.example/web}]}}}}}}\n"},
		"Secret": {"Secret",
			"\n{apiVersion: v1, kind: Secret, metadata: {name: web, namespace: NS}, data: {a: Yg==}}\n"},
		"Ingress": {"Ingress.networking.k8s.io",
			"\n{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: web, namespace: NS}, spec: {rules: " +
				"[{http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: " +
				"80}}}}]}}]}}\n"},
		"Claim": {"PersistentVolumeClaim",
			"\n{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: web, namespace: NS}, spec: " +
				"{storageClassName: none, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}\n"},
		"Job": {"Job.batch", "\n{apiVersion: batch/v1, kind: Job, metadata: {name: web, namespace: NS}, spec: " +
			"{suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: web, image: " +
			"registry.example/web}]}}}}\n"},
		"Disruption": {"PodDisruptionBudget.policy",
			"\n{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web, namespace: NS}, spec: " +
				"{selector: {matchLabels: {app: web}}, minAvailable: 1}}\n"},
		"Policy": {"NetworkPolicy.networking.k8s.io",
			"\n{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: web, namespace: NS}, spec: " +
				"{podSelector: {}}}\n"},
	} {
		for _, tool := range []string{"kubectl-create", "kubectl-client-side-apply"} {
			t.Run(name+" of "+tool, func(t *testing.T) {
				t.Parallel()
				namespace, a := test.Namespace(t), act(t, tool)
				key := namespace + "/web"
				tools[tool](t, strings.ReplaceAll(row.manifest, "NS", namespace))
				before := a.field(row.kind, key, "spec")
				did := scales(t, namespace, "-- 0000_10_web.yaml --"+row.manifest, apply.Options{})
				if got := did.eventText(namespace, apply.Adopted, apply.Overruled); got != "adopted "+
					did.Changes[0].ID.Kind+" NS/web: from "+tool+"\n" {
					t.Errorf("got events %q", got)
				}
				if diff := cmp.Diff(before, a.field(row.kind, key, "spec")); diff != "" {
					t.Error(diff)
				}
				quiet(t, namespace, "-- 0000_10_web.yaml --"+row.manifest, row.kind, key)
			})
		}
	}
}

// One write removes the requested fields of a manager, and restores those that the manager has set to other values. A
// preview reports this before. The fields of another manager stay, unless the object is named.
func TestForeignFieldsAreRemovedOnRequest(t *testing.T) {
	t.Parallel()
	namespace, bob, ann := test.Namespace(t), act(t, "bob"), act(t, "ann")
	key, text := namespace+"/it", withPod("Deployment", "replicas: 1, ", containers)
	scales(t, namespace, one(text), apply.Options{})
	bob.merge("Deployment.apps", key,
		`{metadata: {labels: {bobs: x}}, spec: {replicas: 2, template: {spec: {nodeSelector: {disk: fast}}}}}`)
	ann.merge("Deployment.apps", key, `{metadata: {labels: {anns: x}}, spec: {paused: true}}`)
	generation := bob.live("Deployment.apps", key).GetGeneration()
	for _, row := range []struct {
		options apply.Options
		lost    []ownership.Conflict
	}{
		{apply.Options{}, []ownership.Conflict{{Manager: "bob", Field: "spec.replicas"}}},
		{apply.Options{
			Options: object.Options{RemovesForeign: func(_ kinds.ID, manager string) bool { return manager == "bob" }},
		},
			[]ownership.Conflict{{Manager: "bob", Field: "metadata.labels.bobs"},
				{Manager: "bob", Field: "spec.replicas"}, {Manager: "bob", Field: "spec.template.spec.nodeSelector"}}},
		{apply.Options{
			Options: object.Options{RemovesForeign: func(id kinds.ID, _ string) bool { return id.Name == "it" }},
		},
			[]ownership.Conflict{{Manager: "ann", Field: "metadata.labels.anns"},
				{Manager: "ann", Field: "spec.paused"}, {Manager: "bob", Field: "spec.replicas"}}},
	} {
		saw := preview(t, t.Context(), test.Sandbox(t).Config, load(t, namespace, namespace, one(text)), row.options)
		did := scales(t, namespace, one(text), row.options)
		for who, found := range map[string]applied{"preview": saw, "apply": did} {
			if diff := cmp.Diff(row.lost, sortedLosses(found.Changes[0].Lost)); diff != "" ||
				found.Changes[0].Action != object.Configured {
				t.Errorf("%s: got action %s, lost fields (-want +got):\n%s", who, found.Changes[0].Action, diff)
			}
		}
		generation++
		if live := bob.live("Deployment.apps", key); live.GetGeneration() != generation {
			t.Errorf("got generation %d, want %d: the object was changed more than once", live.GetGeneration(),
				generation)
		}
		bob.merge("Deployment.apps", key, `{spec: {replicas: 2}}`)
		generation++
	}
	if have := bob.field("Deployment.apps", key, "metadata", "labels"); strings.Contains(have, "bobs") ||
		strings.Contains(have, "anns") {
		t.Errorf("got labels %s", have)
	}
}

func sortedLosses(lost []ownership.Conflict) []ownership.Conflict {
	lost = slices.Clone(lost)
	slices.SortFunc(lost, func(a, b ownership.Conflict) int { return strings.Compare(a.Field, b.Field) })
	return lost
}
