package apply_test

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/inventory"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/payload"
)

// preview previews an apply of a payload as a user, and fails the test if it writes anything.
func preview(t testing.TB, ctx context.Context, config *rest.Config, release *payload.Payload,
	options apply.Options) applied {
	t.Helper()
	known, _, err := record.NewStore(test.Client(t), "default", release.Name).Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, err := cluster.Connect(sandboxtest.ReadOnly(t, config))
	if err != nil {
		t.Fatal(err)
	}
	var places []inventory.Scope
	for _, manifest := range release.Manifests {
		places = append(places, inventory.Scope{
			Kind:      manifest.ID().GroupKind(),
			Namespace: manifest.ID().Namespace,
		})
	}
	before, err := inventory.Take(t.Context(), c, places, nil)
	if err != nil {
		t.Fatal(err)
	}
	options.Release, options.Journal = release.Name,
		object.NewJournal(record.NewStore(c.Client, "default", release.Name), known)
	return applied{Report: apply.Preview(ctx, c, release, before, options), record: known}
}

// previewed returns the result of a preview, one line for each manifest.
func (a applied) previewed(namespace string) string {
	var text strings.Builder
	for _, change := range a.Changes {
		fmt.Fprintf(&text, "%s %s", change.Action, change.ID)
		switch {
		case change.Err != nil:
			fmt.Fprintf(&text, ": %s: %s", change.Err.Reason, change.Err.Err)
		case change.Message != "":
			text.WriteString(": " + change.Message)
		}
		if change.Look != nil && change.Look.Unchecked != "" && change.Look.Unchecked != change.Message {
			text.WriteString(" (" + change.Look.Unchecked + ")")
		}
		for _, manager := range change.Adopted {
			text.WriteString(", adopted from " + manager)
		}
		for _, loss := range change.Lost {
			text.WriteString(", " + loss.Field + " of " + loss.Manager)
		}
		text.WriteString("\n")
	}
	lines := ages.ReplaceAllString(strings.ReplaceAll(text.String(), namespace, "NS"), "for Ns")
	lines = hookPod.ReplaceAllString(lines, "-$1-HASH-")
	lines = called.ReplaceAllString(lines, "; $1 ...")
	return inBytes.ReplaceAllString(moments.ReplaceAllString(lines, "since NOW"), "N bytes")
}

var (
	inBytes = regexp.MustCompile(`\d+ bytes`)
	hookPod = regexp.MustCompile(`-(pre|mid|post)-[0-9a-f]{10}-`)
	called  = regexp.MustCompile(`; (ValidatingWebhookConfiguration|APIService) .*`) // other tests' objects, too
)

// actionText returns the actions of a run in the format of a preview.
func (a applied) actionText(namespace string) string {
	return strings.ReplaceAll(a.actions(), namespace, "NS")
}

// A previewCase is a state of a cluster, a payload, and the expected results of its preview and of its apply.
type previewCase struct {
	prepare func(t *testing.T, namespace string) // creates objects beside those of the release
	given   string                               // an earlier version of the payload
	then    func(t *testing.T, namespace string) // changes after the earlier version was applied
	files   string
	options apply.Options
	want    string
	done    string // the actions of the run, if they differ from the preview
	isOther bool   // the objects are not as previewed
}

// check previews a payload, applies it, and compares.
func (p previewCase) check(t *testing.T) {
	namespace := test.Namespace(t)
	if p.prepare != nil {
		p.prepare(t, namespace)
	}
	p.options.NoWait = true
	if p.given != "" {
		did := run(t, t.Context(), load(t, namespace, namespace, p.given), apply.Options{})
		if did.Err != nil {
			t.Fatal(did.Err)
		}
	}
	if p.then != nil {
		p.then(t, namespace)
	}
	release := load(t, namespace, namespace, p.files)
	p.options.Refusals = knownRefusals(t, release)
	saw := preview(t, t.Context(), test.Sandbox(t).Config, release, p.options)
	if diff := cmp.Diff(p.want, saw.previewed(namespace)); diff != "" {
		t.Error("the preview:", diff)
	}
	if p.done == "nothing" {
		return
	}
	p.options.Timeout = patience
	did := run(t, t.Context(), release, p.options)
	want := p.done
	if want == "" {
		want = saw.actionText(namespace)
	}
	if diff := cmp.Diff(want, did.actionText(namespace)); diff != "" {
		t.Error("the run:", did.Err, diff)
	}
	for i, change := range saw.Changes {
		if p.isOther || change.Look == nil || change.Look.Would == nil || change.Look.Unchecked != "" {
			continue
		}
		if diff := cmp.Diff(whatCounts(change.Look.Would), whatCounts(liveOf(t, release.Manifests[i]))); diff != "" {
			t.Errorf("%s differs from its preview (-preview +live): %s", change.ID, diff)
		}
		if diff := cmp.Diff(fmt.Sprint(change.Adopted, change.Lost),
			fmt.Sprint(did.Changes[i].Adopted, did.Changes[i].Lost)); diff != "" {
			t.Errorf("lost fields of %s differ from its preview: %s", change.ID, diff)
		}
	}
}

// liveOf returns the object of a manifest from the cluster.
func liveOf(t *testing.T, m *payload.Manifest) *unstructured.Unstructured {
	t.Helper()
	c := connect(t)
	resource, err := c.Find(t.Context(), m.GroupVersionKind())
	must(t, err)
	live, err := c.In(resource, m.Object().GetNamespace()).Get(t.Context(), m.Object().GetName(), metav1.GetOptions{})
	must(t, err)
	return live
}

// whatCounts returns an object without its status and the metadata that the server sets.
func whatCounts(object *unstructured.Unstructured) map[string]any {
	trimmed := object.DeepCopy()
	for _, field := range []string{"managedFields", "resourceVersion", "generation", "creationTimestamp", "uid"} {
		unstructured.RemoveNestedField(trimmed.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(trimmed.Object, "metadata", "annotations", "deployment.kubernetes.io/revision")
	if len(trimmed.GetAnnotations()) == 0 {
		unstructured.RemoveNestedField(trimmed.Object, "metadata", "annotations")
	}
	delete(trimmed.Object, "status")
	return trimmed.Object
}

// one returns a payload of one file.
func one(text string) string { return "-- 0000_10_shop_50_file.yaml --\n" + text + "\n" }

// runAll runs each situation by its name.
func runAll(t *testing.T, all map[string]previewCase) {
	for name, f := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f.check(t)
		})
	}
}

// create returns a function that creates an object as a field manager.
func create(manager, text string) func(*testing.T, string) {
	return func(t *testing.T, namespace string) {
		t.Helper()
		object := load(t, namespace, namespace, one(text)).Manifests[0]
		c := connect(t)
		resource, err := c.Find(t.Context(), object.GroupVersionKind())
		must(t, err)
		_, err = c.In(resource, object.Object().GetNamespace()).Create(t.Context(), object.Object(),
			metav1.CreateOptions{FieldManager: manager})
		must(t, err)
	}
}

// also returns a function that calls all functions.
func also(all ...func(*testing.T, string)) func(*testing.T, string) {
	return func(t *testing.T, namespace string) {
		t.Helper()
		for _, each := range all {
			each(t, namespace)
		}
	}
}

// forget removes the fingerprints from the record of a release.
func forget(t *testing.T, namespace string) {
	t.Helper()
	store := record.NewStore(test.Client(t), "default", namespace)
	known, _, err := store.Load(t.Context())
	must(t, err)
	known.Fingerprints = nil
	must(t, store.Save(t.Context(), known))
}

const (
	red  = `{apiVersion: v1, kind: ConfigMap, metadata: {name: it, namespace: NS}, data: {colour: red}}`
	blue = `{apiVersion: v1, kind: ConfigMap, metadata: {name: it, namespace: NS}, data: {colour: blue}}`
	once = `{apiVersion: v1, kind: ConfigMap, metadata: {name: it, namespace: NS, annotations: {release.openshift.io/create-only: "true"}}, data: {colour: red}}`
	web  = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: NS}, spec: {replicas: 2, selector: {matchLabels: {app: web}},
 template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: registry.example/web}]}}}}`
	webScaler = `
-- 0000_10_shop_60_scaler.yaml --
{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: web, namespace: NS}, spec: {maxReplicas: 9, minReplicas: 1, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}}
`
)

func merged(resource string, name, change string, part ...string) func(*testing.T, string) {
	return func(t *testing.T, namespace string) {
		t.Helper()
		group := "/api/v1"
		if slices.Contains([]string{"deployments"}, resource) {
			group = "/apis/apps/v1"
		}
		path := fmt.Sprintf("%s/namespaces/%s/%s/%s", group, namespace, resource, name)
		for _, item := range part {
			path += "/" + item
		}
		request := test.Client(t).CoreV1().RESTClient().Patch("application/merge-patch+json").AbsPath(path).Param(
			"fieldManager", "bob",
		).Body([]byte(change))
		must(t, request.Do(t.Context()).Error())
	}
}

// settled waits until the Deployment web is rolled out. Before that, its controller may write the status between each
// look of a preview and the dry run after it, which then seems to change something.
func settled(t *testing.T, namespace string) {
	t.Helper()
	a := act(t, "")
	sandboxtest.EventuallySucceeds(t, func(context.Context) error {
		live := a.live("Deployment.apps", namespace+"/web")
		wanted, _, _ := unstructured.NestedInt64(live.Object, "spec", "replicas")
		available, _, _ := unstructured.NestedInt64(live.Object, "status", "availableReplicas")
		seen, _, _ := unstructured.NestedInt64(live.Object, "status", "observedGeneration")
		if available != wanted || seen != live.GetGeneration() {
			return fmt.Errorf("%d of %d replicas are available, in generation %d of %d", available, wanted, seen,
				live.GetGeneration())
		}
		return nil
	})
}

func TestPreviewMatchesRun(t *testing.T) {
	runAll(t, map[string]previewCase{
		"new": {files: one(red), want: "created ConfigMap NS/it\n"},
		"changed": {
			given: one(red),
			files: one(blue),
			want:  "configured ConfigMap NS/it\n",
		},
		"unchanged": {given: one(red), files: one(red), want: "unchanged ConfigMap NS/it\n"},
		"unchanged, and the record has no fingerprint": {
			given: one(red),
			then:  forget,
			files: one(red),
			want:  "unchanged ConfigMap NS/it\n",
		},
		"changed by another manager": {
			given: one(red),
			then:  merged("configmaps", "it", `{"data":{"colour":"blue"}}`),
			files: one(red),
			want:  "configured ConfigMap NS/it, data.colour of bob\n",
		},
		"a field of another manager": {
			given: one(red),
			then:  merged("configmaps", "it", `{"data":{"size":"L"}}`),
			files: one(red),
			want:  "unchanged ConfigMap NS/it\n",
		},
		"a field of another manager is added to the manifest, with its value": {
			given: one(red),
			then:  merged("configmaps", "it", `{"data":{"size":"L"}}`),
			files: one(strings.Replace(red, "red", "red, size: L", 1)),
			want:  "configured ConfigMap NS/it\n",
		},
		"a field of another manager is added to the manifest, with another value": {
			given: one(red),
			then:  merged("configmaps", "it", `{"data":{"size":"L"}}`),
			files: one(strings.Replace(red, "red", "red, size: M", 1)),
			want:  "configured ConfigMap NS/it, data.size of bob\n",
		},
		"without our label": {
			given: one(red),
			then:  merged("configmaps", "it", emptied),
			files: one(red),
			want:  "configured ConfigMap NS/it\n",
		},
		"a field that the release no longer has": {
			given: one(strings.Replace(red, "red", "red, size: L", 1)),
			files: one(red),
			want:  "configured ConfigMap NS/it\n",
		},
		"create-only and new": {files: one(once), want: "created ConfigMap NS/it\n"},
		"create-only and existing": {
			given: one(once),
			files: one(strings.Replace(once, "red", "blue", 1)),
			want:  "kept ConfigMap NS/it: it is create-only, and exists already\n",
		},
		"create-only and owned by another manager": {
			prepare: create("bob", red),
			files:   one(once),
			want:    "kept ConfigMap NS/it: it is create-only, and exists already\n",
		},
		"create-only and unknown field": {
			files: one(strings.Replace(once, "}, data:", "}, dada: {}, data:", 1)),
			want:  "created ConfigMap NS/it\n",
		},
		"a Deployment that runs": {
			given: one(web),
			then:  also(forget, settled),
			files: one(web),
			want:  "unchanged Deployment NS/web\n",
		},
		"a Deployment that changes": {
			given: one(web),
			files: one(strings.Replace(web, "/web}", "/web:2}", 1)),
			want:  "configured Deployment NS/web\n",
		},
		"a Job that has not finished": {
			given: one(`{apiVersion: batch/v1, kind: Job, metadata: {name: a, namespace: NS}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: web, image: registry.example/a}]}}}}`),
			then:  forget,
			files: one(`{apiVersion: batch/v1, kind: Job, metadata: {name: a, namespace: NS}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: web, image: registry.example/a}]}}}}`),
			want:  "unchanged Job NS/a\n",
		},
		"several objects": {
			given: one(red + "\n---\n" + web),
			files: one(blue + "\n---\n" + web + "\n---\n" + strings.Replace(red, "name: it", "name: other", 1)),
			want:  "configured ConfigMap NS/it\nunchanged Deployment NS/web\ncreated ConfigMap NS/other\n",
		},
		"in a namespace that exists neither in the cluster nor in the release": {
			files: one(strings.Replace(red, "namespace: NS", "namespace: NS-none", 1)), done: "nothing",
			want: "not checkable ConfigMap NS-none/it: namespace NS-none does not exist, and the release does " +
				"not have it: an " +
				"apply would wait for it: it was tried in namespace kube-public\n",
		},
		"an unserved kind": {
			files: one(`{apiVersion: NS.example.com/v1, kind: Hat, metadata: {name: hat, namespace: NS}}`),
			want: "failed Hat NS/hat: UpdatePayloadResourceTypeMissing: the cluster has no kind Hat.NS.example.com: " +
				"the cluster does not serve it\n",
		},
		"unknown field": {
			files: one(strings.Replace(red, "}, data:", "}, dada: {}, data:", 1)),
			want: "failed ConfigMap NS/it: UpdatePayloadResourceInvalid: unknown field .dada: " +
				"correct or remove it, or drop unknown fields\n",
		},
		"unknown field is dropped": {
			files:   one(strings.Replace(red, "}, data:", "}, dada: {}, data:", 1)),
			options: apply.Options{Options: object.Options{DropUnknownFields: true}},
			want:    "created ConfigMap NS/it\n",
		},
		"invalid": {
			files: one(`{apiVersion: v1, kind: Service, metadata: {name: it, namespace: NS}, spec: {ports: [{port: 80, nodePort: -1}]}}`),
			want: "failed Service NS/it: UpdatePayloadResourceInvalid: Service \"it\" is invalid: " +
				"spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'\n",
		},
		"malformed": {
			files: one(strings.Replace(red, "{colour: red}", "7", 1)),
			want: "failed ConfigMap NS/it: UpdatePayloadResourceInvalid: failed to create typed patch object " +
				"(NS/it; /v1, Kind=ConfigMap): .data: expected map, got &{7}\n",
		},
		"larger than the limit of etcd": {
			files: one(strings.ReplaceAll(`{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: NS}, spec: {automountServiceAccountToken: false, containers: [{name: web, image: registry.example/web, args: [LARGE, LARGE]}]}}`, "LARGE", large)),
			want:  "not checkable Pod NS/web: it would be N bytes, and most clusters store no more than 1572864\n",
			done:  "failed Pod NS/web\n",
		},
		"larger than the limit of the server": {
			files: one(strings.ReplaceAll(`{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: NS}, spec: {containers: [{name: web, image: registry.example/web, args: [LARGE, LARGE, LARGE]}]}}`, "LARGE", large)),
			want: "failed Pod NS/web: UpdatePayloadResourceInvalid: it is too large: Request entity too large: " +
				"limit is 3145728\n",
		},
		"of another release": {
			prepare: func(t *testing.T, namespace string) {
				must(t, run(t, t.Context(), load(t, namespace+"-other", namespace, one(red)), apply.Options{}).Err)
			},
			files: one(red), want: "failed ConfigMap NS/it: UpdatePayloadResourceConflict: already owned by " +
				"release NS-other\n",
		},
		"terminating": {
			prepare: func(t *testing.T, namespace string) {
				g := tombstoned{T: t, namespace: namespace}
				g.bring(g.held)
				g.remove()
			},
			files: one(strings.Replace(red, "name: it", "name: old", 1)), done: "nothing",
			want: "not checkable ConfigMap NS/old: it is terminating, and can be recreated only after that: " +
				"terminating since NOW, held by finalizer example.com/hold\n",
		},
	})
}

func TestPreviewOfFinishedJobs(t *testing.T) {
	old := strings.NewReplacer("ANNOTATIONS", "labels: {}", "VALUE", "old").Replace(migration)
	runAll(t, map[string]previewCase{
		"finished and deleted": {
			given: old,
			then:  tidy,
			files: old,
			want:  "kept Job NS/migrate: it has already finished, and does not run again\n",
		},
		"finished": {given: old, files: old, want: "unchanged Job NS/migrate\n"},
		// controllers add labels with the UID of the Job
		"finished and deleted, then changed": {
			given:   old,
			then:    tidy,
			files:   strings.ReplaceAll(old, "old", "new"),
			want:    "created Job NS/migrate\n",
			isOther: true,
		},
	})
}

// If another client writes between the get and the dry run, the preview reads the object again.
func TestPreviewReadsAgainAfterAConcurrentWrite(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	must(t, run(t, t.Context(), load(t, namespace, namespace, one(red)), apply.Options{}).Err)
	forget(t, namespace)
	var once sync.Once
	config := answering(t, func(request *http.Request) (int, string) {
		if request.Method == http.MethodPatch {
			once.Do(func() { merged("configmaps", "it", `{"data":{"size":"L"}}`)(t, namespace) })
		}
		return 0, ""
	})
	saw := preview(t, t.Context(), config, load(t, namespace, namespace, one(red)), apply.Options{})
	if got := saw.previewed(namespace); got != "unchanged ConfigMap NS/it\n" {
		t.Error(got)
	}
}

func TestPreviewOfAdoptionAndScale(t *testing.T) {
	theirs := `{apiVersion: v1, kind: ConfigMap, metadata: {name: it, namespace: NS, labels: {old: "yes"}}, data: {colour: green, size: L}}`
	scaled := func(t *testing.T, namespace string) {
		merged("deployments", "web", `{"spec":{"replicas":5}}`, "scale")(t, namespace)
		settled(t, namespace)
	}
	runAll(t, map[string]previewCase{
		"created by kubectl": {
			prepare: create("kubectl-client-side-apply", theirs),
			files:   one(red),
			want:    "configured ConfigMap NS/it, adopted from kubectl-client-side-apply\n",
		},
		"created by another manager": {
			prepare: create("bob", theirs),
			files:   one(red),
			want:    "configured ConfigMap NS/it, data.colour of bob\n",
		},
		"created by helm and changed by another manager": {
			prepare: also(create("helm", theirs), merged("configmaps", "it", `{"data":{"colour":"blue","more":"x"}}`)),
			files:   one(red), want: "configured ConfigMap NS/it, adopted from helm, data.colour of bob\n",
		},
		"a Deployment created by helm": {
			prepare: create("helm", strings.Replace(web, "replicas: 2", "replicas: 3, minReadySeconds: 3", 1)),
			files:   one(web),
			want:    "configured Deployment NS/web, adopted from helm\n",
		},
		"a Secret of another type created by helm": {
			prepare: create("helm",
				`{apiVersion: v1, kind: Secret, metadata: {name: a, namespace: NS}, type: example.com/a, data: {a: eA==}}`),
			files: one(`{apiVersion: v1, kind: Secret, metadata: {name: a, namespace: NS}, data: {a: eA==}}`),
			want: "failed Secret NS/a: UpdatePayloadResourceInvalid: type can't be changed: keep the fields as they " +
				"were, give the object another name and this one a tombstone, " +
				"or allow to delete it and recreate it with the annotation runlevel.dev/recreate: \"true\"\n",
		},
		"scaled": {
			given: one(web) + webScaler,
			then:  scaled,
			files: one(web) + webScaler,
			want:  "unchanged Deployment NS/web\nunchanged HorizontalPodAutoscaler NS/web\n",
		},
		"scaled, and changed": {
			given: one(web) + webScaler,
			then:  scaled,
			files: one(strings.Replace(web, "/web}", "/web:2}", 1)) + webScaler,
			want:  "configured Deployment NS/web\nunchanged HorizontalPodAutoscaler NS/web\n",
		},
		"scaled with this version": {
			given: one(web),
			then:  settled,
			files: one(web) + webScaler,
			want:  "unchanged Deployment NS/web\ncreated HorizontalPodAutoscaler NS/web\n",
		},
		"scaled by hand": {
			given: one(web),
			then:  scaled,
			files: one(web),
			want:  "configured Deployment NS/web, spec.replicas of bob/scale\n",
		},
		"scaled, and created by helm": {
			prepare: create("helm", strings.Replace(web, "replicas: 2", "replicas: 4", 1)),
			files:   one(web) + webScaler,
			want:    "configured Deployment NS/web, adopted from helm\ncreated HorizontalPodAutoscaler NS/web\n",
		},
		"scaled and created by another manager": {
			prepare: create("bob", strings.Replace(web, "replicas: 2", "replicas: 4", 1)),
			files:   one(web) + webScaler,
			want:    "configured Deployment NS/web\ncreated HorizontalPodAutoscaler NS/web\n",
		},
	})
}

// Other managers may add items to some lists, and own some fields.
func TestPreviewKeepsFieldsOfOtherManagers(t *testing.T) {
	account := func(secrets string) string {
		return "{apiVersion: v1, kind: ServiceAccount, metadata: {name: it, namespace: NS}, imagePullSecrets: [" +
			secrets + "]}"
	}
	hook := func(bundle string) string {
		return `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: NS}, webhooks: [
{name: a.example.com, sideEffects: None, admissionReviewVersions: [v1], clientConfig: {url: "https://registry.example", caBundle: ` + bundle + `}}]}`
	}
	runAll(t, map[string]previewCase{
		"pull secrets that another manager has removed": {
			given: one(account("{name: ours}")),
			then:  merged("serviceaccounts", "it", `{"imagePullSecrets":[{"name":"b"}]}`),
			files: one(account("{name: ours}")), want: "configured ServiceAccount NS/it\n",
		},
		"another manager has removed all pull secrets": {
			given: one(account("{name: ours}")), then: merged("serviceaccounts", "it", `{"imagePullSecrets":[]}`),
			files: one(account("{name: ours}")), want: "configured ServiceAccount NS/it\n",
		},
		"pull secrets that another manager has added to": {
			given: one(account("{name: ours}")),
			then:  merged("serviceaccounts", "it", `{"imagePullSecrets":[{"name":"ours"},{"name":"b"}]}`),
			files: one(account("{name: ours}")), want: "unchanged ServiceAccount NS/it\n",
		},
		"pull secrets of helm": {
			prepare: create("helm", account("{name: theirs}")), files: one(account("{name: ours}")),
			want: "configured ServiceAccount NS/it, adopted from helm\n",
		},
		"certificates of helm": {
			prepare: create("helm", hook("Yg==")), files: one(hook("Yw==")),
			want: "configured ValidatingWebhookConfiguration NS, adopted from helm\n",
		},
		"certificates of another manager": {
			prepare: create("bob", hook("Yg==")), files: one(hook("Yw==")),
			want: "configured ValidatingWebhookConfiguration NS\n",
		},
	})
}

// A recreated object keeps its replicas if an autoscaler sets them.
func TestPreviewOfReplicasOfARecreatedObject(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	before := strings.Replace(web, "metadata: {", `metadata: {annotations: {runlevel.dev/recreate: "true"}, `, 1)
	must(t, run(t, t.Context(), load(t, namespace, namespace, one(before)+webScaler), apply.Options{NoWait: true}).Err)
	merged("deployments", "web", `{"spec":{"replicas":5}}`, "scale")(t, namespace)
	after := strings.ReplaceAll(before, "app: web", "app: shop")
	if after == before {
		t.Fatal("the selector stays")
	}
	saw := preview(t, t.Context(), test.Sandbox(t).Config, load(t, namespace, namespace, one(after)+webScaler),
		apply.Options{})
	change := saw.Changes[0]
	if change.Action != object.Recreated {
		t.Fatal(saw.previewed(namespace))
	}
	if count, _, _ := unstructured.NestedInt64(change.Look.Would.Object, "spec", "replicas"); count != 5 {
		t.Errorf("got %d previewed replicas", count)
	}
}

// A change of an immutable field is refused with the message of an apply, or the object is recreated.
func TestPreviewOfImmutableFields(t *testing.T) {
	for name, row := range fixedRows {
		// others may still have those
		row.from, row.to = strings.Replace(row.from, "10.96.0.20", "10.96.0.21", 1),
			strings.Replace(row.to, "10.96.0.20", "10.96.0.21", 1)
		before, after := versions(row.object, row.from, row.to, "")
		_, allowed := versions(row.object, row.from, row.to, mayRecreate)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := test.Namespace(t)
			did := change(t, namespace, before, after, apply.Options{NoWait: true})
			saw := preview(t, t.Context(), test.Sandbox(t).Config, load(t, namespace, namespace, one(after)),
				apply.Options{})
			if diff := cmp.Diff(did.sentence(namespace), saw.sentence(namespace)); diff != "" {
				t.Error(diff)
			}
			saw = preview(t, t.Context(), test.Sandbox(t).Config, load(t, namespace, namespace, one(allowed)),
				apply.Options{})
			if got := saw.Changes[0]; saw.Err != nil || got.Action != object.Recreated ||
				got.Message != row.want+" can't be changed" || got.Look.Unchecked == "" {
				t.Errorf("got change %+v, error %v; want action %s for %s", got, saw.Err, object.Recreated, row.want)
			}
		})
	}
}
