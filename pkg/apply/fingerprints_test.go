package apply_test

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/runlevel/runlevel/internal/cluster/inventory"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// remember changes the cache of applied objects in the record of a release, and returns the former cache.
func remember(t *testing.T, release *payload.Payload, change func([]byte) []byte) []byte {
	t.Helper()
	store := record.NewStore(test.Client(t), "default", release.Name)
	known, _, err := store.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before := known.Fingerprints
	if len(before) == 0 {
		t.Fatal("the record has no cache")
	}
	known.Fingerprints = change(before)
	if err := store.Save(t.Context(), known); err != nil {
		t.Fatal(err)
	}
	return before
}

func asItIs(before []byte) []byte { return before }

// mustApply applies a release, which must not fail, and returns the actions.
func mustApply(t *testing.T, release *payload.Payload, options apply.Options) string {
	t.Helper()
	if options.Mode == "" {
		options.Mode = graph.Update
	}
	did := run(t, t.Context(), release, options)
	if did.Err != nil {
		t.Fatal(did.Err)
	}
	var actions []string
	for _, change := range did.Changes {
		actions = append(actions, string(change.Action)+" "+change.ID.Kind)
	}
	return strings.Join(actions, ", ")
}

// stock returns a release with one object for each way of caching.
func stock(t *testing.T, namespace string, changes ...string) *payload.Payload {
	files := strings.NewReplacer(changes...).Replace(withStatus +
		strings.Replace(sorts["ConfigMap"].files, "c_config", "a_config", 1) + deployed + thing)
	return load(t, namespace, namespace, files)
}

const allUnchanged = "unchanged CustomResourceDefinition, unchanged ConfigMap, unchanged Thing, unchanged Deployment"

// If the cache is lost or damaged, all reports and writes are correct, and the apply after it sends no requests again.
func TestLostCacheCostsRequestsOnly(t *testing.T) {
	for name, spoil := range map[string]func([]byte) []byte{
		"lost":             func([]byte) []byte { return nil },
		"cut off":          func(before []byte) []byte { return before[:len(before)-1] },
		"without a byte":   func(before []byte) []byte { return before[1:] },
		"something else":   func(before []byte) []byte { return []byte(strings.Repeat("not a cache! ", 10)) },
		"one of each pair": func(before []byte) []byte { return append(before[8:16:16], before...) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := test.Namespace(t)
			release := stock(t, namespace)
			mustApply(t, release, apply.Options{})
			config := hand{t, sorts["ConfigMap"].in(namespace), namespace, release}
			version := config.get().GetResourceVersion()
			remember(t, release, spoil)
			if got := mustApply(t, release, apply.Options{}); got != allUnchanged ||
				config.get().GetResourceVersion() != version {
				t.Error(got)
			}
			mustBeFree(t, release, "the next one")
		})
	}
}

// The cache of another release with the same files does not count for this one.
func TestCacheOfAnotherReleaseDoesNotCount(t *testing.T) {
	t.Parallel()
	namespace, other := test.Namespace(t), test.Namespace(t)
	release, others := stock(t, namespace), stock(t, other)
	mustApply(t, release, apply.Options{})
	mustApply(t, others, apply.Options{})
	their := remember(t, others, asItIs)
	remember(t, release, func([]byte) []byte { return their })
	config := hand{t, sorts["ConfigMap"].in(namespace), namespace, release}
	config.write("bob", config.changed)
	if got := mustApply(t, release, apply.Options{}); got != strings.Replace(allUnchanged, "unchanged ConfigMap",
		"configured ConfigMap", 1) {
		t.Error(got)
	}
	mustBeFree(t, release, "the next one")
}

// An update and back again, with the cache of any of these times.
func TestUpdateAndRollback(t *testing.T) {
	for name, isRestored := range map[string]bool{"with the present cache": false, "with an old cache": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := test.Namespace(t)
			first := stock(t, namespace)
			newer := stock(t, namespace, "colour: red", "colour: blue", "replicas: 0",
				"replicas: 0\n  minReadySeconds: 3", "size: 1}", "size: 2}", "mood: good", "mood: better")
			mustApply(t, first, apply.Options{})
			were := []string{}
			hands := []hand{{t, sorts["ConfigMap"].in(namespace), namespace, first},
				{t, sorts["Deployment"].in(namespace), namespace, first},
				{t, sorts["custom resource"].in(namespace), namespace, first}}
			for _, item := range hands {
				were = append(were, wordsOf(item.get()))
			}
			old := remember(t, first, asItIs)
			configured := strings.ReplaceAll(allUnchanged, "unchanged", "configured")
			for range 2 {
				if got := mustApply(t, newer, apply.Options{}); got != configured {
					t.Error("to the newer:", got)
				}
				mustBeFree(t, newer, "the newer")
				if isRestored {
					remember(t, first, func([]byte) []byte { return old })
				}
				if got := mustApply(t, first, apply.Options{}); got != configured {
					t.Error("back again:", got)
				}
				for i, item := range hands {
					if current := wordsOf(item.get()); current != were[i] {
						t.Errorf("got content\n%s\nwant\n%s", current, were[i])
					}
				}
				mustBeFree(t, first, "the first")
			}
		})
	}
}

// A new definition may change the content of a custom resource, though its generation and resource version stay.
func TestCustomResourcesAreAppliedAgainWithTheirDefinition(t *testing.T) {
	const learnt = "# NEW\n      shape: {type: string, default: round},"
	t.Run("definition of the release", func(t *testing.T) {
		t.Parallel()
		namespace := test.Namespace(t)
		mustApply(t, stock(t, namespace), apply.Options{})
		newer := stock(t, namespace, "# NEW", learnt)
		c, log := connectLogged(t, newer)
		if did := runOn(t, t.Context(), c, newer, apply.Options{Options: updateMode}); did.Err != nil {
			t.Fatal(did.Err)
		}
		if sent := log.about("it"); len(sent) != 1 ||
			!strings.HasPrefix(sent[0], "PATCH /apis/"+namespace+".example.com/") {
			t.Errorf("got requests %q besides those for the definition", sent)
		}
		mustBeFree(t, newer, "the next one")
	})
	t.Run("definition that another client changes", func(t *testing.T) {
		t.Parallel()
		namespace := test.Namespace(t)
		release := stock(t, namespace)
		mustApply(t, release, apply.Options{})
		their := hand{t, sorts["CustomResourceDefinition"].in(namespace), namespace, release}
		change := fmt.Appendf(nil,
			`[{"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/shape", "value": {"type": "string", "default": "round"}}]`)
		if _, err := their.objects().Patch(t.Context(), their.sort.name, types.JSONPatchType, change,
			metav1.PatchOptions{FieldManager: "bob"}); err != nil {
			t.Fatal(err)
		}
		mustApply(t, release, apply.Options{})
		mustBeFree(t, release, "the next one")
	})
	t.Run("definition outside the release", func(t *testing.T) {
		t.Parallel()
		namespace := test.Namespace(t)
		mustApply(t, load(t, namespace+"-kinds", namespace, withStatus), apply.Options{})
		release := load(t, namespace, namespace, thing)
		mustApply(t, release, apply.Options{})
		mustBeFree(t, release, "the next one")
		mustApply(t, load(t, namespace+"-kinds", namespace, strings.Replace(withStatus, "# NEW", learnt, 1)),
			apply.Options{})
		c, log := connectLogged(t, release)
		if did := runOn(t, t.Context(), c, release, apply.Options{Options: updateMode}); did.Err != nil ||
			len(log.about("it")) != 1 {
			t.Errorf("after a new definition: got error %v, requests %q", did.Err, log.sent)
		}
		mustBeFree(t, release, "the last one")
	})
}

// A run that ends early keeps the cache of the objects that it has not reached, however long it took.
func TestCacheOfObjectsThatARunHasNotReachedIsKept(t *testing.T) {
	const files = `
-- 0000_10_a_10_first.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: first, namespace: NS}, data: {colour: red}}
-- 0000_20_b_10_next.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: next, namespace: NS}, data: {colour: WHAT}}
-- 0000_30_c_10_last.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: last, namespace: NS}, data: {colour: red}}
-- 0000_30_d_10_last.yaml --
{apiVersion: apps/v1, kind: Deployment, metadata: {name: deep, namespace: NS}, spec: {replicas: 0, selector: {matchLabels: {app: it}}, template: {
  metadata: {labels: {app: it}}, spec: {containers: [{name: it, image: registry.example/it}]}}}}
`
	for name, end := range map[string]struct {
		options apply.Options
		colour  string // colour of the middle object; "7" is refused
		cut     bool
	}{
		"it fails":                   {colour: "7"},
		"it fails after a long time": {colour: "7", options: apply.Options{}.Trusting(time.Nanosecond)},
		"it fails, and applies all":  {colour: "7", options: apply.Options{Options: object.Options{Full: true}}},
		"it is interrupted":          {colour: "blue", cut: true},
		"it is interrupted after a time": {
			colour:  "blue",
			cut:     true,
			options: apply.Options{}.Trusting(time.Nanosecond),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := test.Namespace(t)
			good := load(t, namespace, namespace, strings.Replace(files, "WHAT", "red", 1))
			mustApply(t, good, apply.Options{})
			bad := load(t, namespace, namespace, strings.Replace(files, "colour: WHAT", "colour: "+end.colour, 1))
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			c := connectThrough(t, func(request *http.Request) error {
				if end.cut && request.Method == http.MethodPatch && path.Base(request.URL.Path) == "next" {
					stop()
				}
				return nil
			})
			end.options.Mode = graph.Update
			if did := runOn(t, ctx, c, bad, end.options); did.Err == nil || did.Changes[2].Action != object.NotDone {
				t.Fatalf("%s: %v", did.actions(), did.Err)
			}
			c, log := connectLogged(t, good)
			did := runOn(t, t.Context(), c, good, apply.Options{Options: updateMode})
			for _, name := range []string{"last", "deep"} {
				if sent := log.about(name); len(sent) > 0 || did.Err != nil {
					t.Errorf("requests for objects that the run had not reached: %q, %v", sent, did.Err)
				}
			}
			mustBeFree(t, good, "the next one")
		})
	}
}

// After a killed run, the record has the old cache. The next apply corrects it.
func TestKilledRunLeavesTheOldCache(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	mustApply(t, stock(t, namespace), apply.Options{})
	newer := stock(t, namespace, "colour: red", "colour: blue", "size: 1}", "size: 2}")
	old := remember(t, newer, asItIs)
	mustApply(t, newer, apply.Options{})
	remember(t, newer, func([]byte) []byte { return old })
	if got := mustApply(t, newer, apply.Options{}); got != allUnchanged {
		t.Error(got)
	}
	mustBeFree(t, newer, "the next one")
}

// Observations from before a long update do not count when it reaches the objects.
func TestOldObservationsDoNotCount(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	release := stock(t, namespace)
	mustApply(t, release, apply.Options{})
	their := hand{t, sorts["custom resource"].in(namespace), namespace, release}
	for counts, want := range map[time.Duration]string{0: "unchanged Thing", time.Nanosecond: "configured Thing"} {
		store := record.NewStore(test.Client(t), "default", release.Name)
		known, _, err := store.Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var places []inventory.Scope
		for _, manifest := range release.Manifests {
			places = append(places, inventory.Scope{Kind: manifest.ID().GroupKind()})
		}
		c := connect(t)
		before, err := inventory.Take(t.Context(), c, places, nil)
		if err != nil {
			t.Fatal(err)
		}
		their.write("bob", their.changed) // after the look
		did := apply.Run(t.Context(), c, release, before, apply.Options{
			Options: object.Options{Release: release.Name, Journal: object.NewJournal(store, known)},
			Timeout: patience,
		}.Trusting(counts))
		if got := fmt.Sprint(did.Changes[2].Action, " Thing"); got != want || did.Err != nil {
			t.Errorf("observations count for %s: got %s, want %s, error %v", counts, got, want, did.Err)
		}
		their.write("bob", their.same)
		mustApply(t, release, apply.Options{Options: object.Options{Full: true}})
	}
}

// Fields that were omitted because the cluster did not know them are applied as soon as it does.
func TestOmittedFieldsAreAppliedLater(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	kinds, newer := load(t, namespace+"-kinds", namespace, withStatus),
		load(t, namespace+"-kinds", namespace,
			strings.Replace(withStatus, "# NEW", "# NEW\n      shape: {type: string},", 1))
	mustApply(t, kinds, apply.Options{})
	release := load(t, namespace, namespace, strings.Replace(thing, "size: 1}", "size: 1, shape: round}", 1))
	their := hand{t, sorts["custom resource"].in(namespace), namespace, release}
	drop := apply.Options{Options: object.Options{DropUnknownFields: true}}
	for _, want := range []string{"created Thing", "unchanged Thing", "unchanged Thing"} {
		if got := mustApply(t, release, drop); got != want {
			t.Errorf("without the field: got %s, want %s", got, want)
		}
	}
	mustApply(t, newer, apply.Options{})
	if got := mustApply(t, release, drop); got != "configured Thing" ||
		!strings.Contains(wordsOf(their.get()), `"shape":"round"`) {
		t.Errorf("with the field: got %s: %s", got, wordsOf(their.get()))
	}
	mustBeFree(t, release, "the next one")
}

// Owners and finalizers of a manifest are restored.
func TestOwnersAndFinalizersAreRestored(t *testing.T) {
	for name, patch := range map[string]string{
		"no finalizer":      `{"metadata":{"finalizers":null}}`,
		"another finalizer": `{"metadata":{"finalizers":["example.com/theirs"]}}`,
		"no owner":          `{"metadata":{"ownerReferences":null}}`,
	} {
		for _, kind := range []string{"ConfigMap", "Deployment", "custom resource"} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				t.Parallel()
				namespace := test.Namespace(t)
				owner := configMapNamed(t, namespace, "owner")
				sort := sorts[kind].in(namespace)
				sort.files = strings.Replace(sort.files, "name: it, ",
					"name: it, finalizers: [example.com/ours], ownerReferences: [{apiVersion: v1, kind: ConfigMap, "+
						"name: owner, uid: "+string(owner)+"}], ", 1)
				release := load(t, namespace, namespace, sort.files)
				their := hand{t, sort, namespace, release}
				mustApply(t, release, apply.Options{})
				mustBeFree(t, release, "before")
				their.write("bob", patch)
				if got := mustApply(t, release, apply.Options{}); !strings.Contains(got, "configured") {
					t.Error(got)
				}
				live := their.get()
				if !strings.Contains(strings.Join(live.GetFinalizers(), " "), "example.com/ours") ||
					len(live.GetOwnerReferences()) != 1 {
					t.Errorf("finalizers %q, owners %v", live.GetFinalizers(), live.GetOwnerReferences())
				}
				mustBeFree(t, release, "after")
				their.write("bob", `{"metadata":{"finalizers":null}}`) // else the namespace would stay
			})
		}
	}
}

func configMapNamed(t *testing.T, namespace, name string) types.UID {
	t.Helper()
	their := hand{t, sorts["ConfigMap"], namespace, nil}
	made, err := their.objects().Create(t.Context(),
		sandboxtest.ParseObject(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: "+name+"}}"),
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made.GetUID()
}

// A terminating object does not count as existing, whatever the cache has.
func TestTerminatingObjectIsRecreated(t *testing.T) {
	for _, kind := range []string{"ConfigMap", "Deployment", "custom resource"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			namespace := test.Namespace(t)
			sort := sorts[kind].in(namespace)
			release := load(t, namespace, namespace, sort.files)
			their := hand{t, sort, namespace, release}
			mustApply(t, release, apply.Options{})
			before := their.get()
			their.write("bob", `{"metadata":{"finalizers":["example.com/theirs"]}}`)
			if err := their.objects().Delete(t.Context(), sort.name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			var once sync.Once
			did := run(t, t.Context(), release, apply.Options{Options: updateMode, OnEvent: func(event apply.Event) {
				if event.Type == apply.Retrying {
					once.Do(func() { their.write("bob", `{"metadata":{"finalizers":null}}`) })
				}
			}})
			if did.Err != nil || their.get().GetUID() == before.GetUID() {
				t.Errorf("%s%v", did.actions(), did.Err)
			}
			mustBeFree(t, release, "the next one")
		})
	}
}

// The run also waits for an object that needs no apply.
func TestUnchangedObjectIsAwaited(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	release := load(t, namespace, namespace, strings.Replace(deployed, "replicas: 0", "replicas: 1", 1))
	quotas := test.Client(t).CoreV1().ResourceQuotas(namespace)
	none := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "none"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": resource.MustParse("0")}},
	}
	if _, err := quotas.Create(t.Context(), none, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	mustApply(t, release, apply.Options{NoWait: true})
	c, log := connectLogged(t, release)
	var once sync.Once
	did := runOn(t, t.Context(), c, release,
		apply.Options{Options: updateMode, ReportWaits: 10 * time.Millisecond, OnEvent: func(event apply.Event) {
			if event.Type == apply.Waiting {
				once.Do(func() { _ = quotas.Delete(context.Background(), "none", metav1.DeleteOptions{}) })
			}
		}})
	// the run reads the reason why it is not ready
	isWrite := func(request string) bool { return !strings.HasPrefix(request, "GET ") }
	if did.Err != nil || did.Changes[0].Action != object.Unchanged || slices.ContainsFunc(log.sent, isWrite) {
		t.Errorf("%s%v: %q", did.actions(), did.Err, log.sent)
	}
	if ready, _, _ := unstructured.NestedInt64(
		hand{t, sorts["Deployment"].in(namespace), namespace, release}.get().Object, "status", "readyReplicas",
	); ready != 1 {
		t.Error("the run did not wait for the Deployment")
	}
}

// If nothing has happened, no kind costs a request, also not the kinds that are special elsewhere.
func TestUnchangedReleaseCostsNoRequests(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	release := load(t, namespace, namespace, withStatus+thing+migrationOf("once")+migrationOf("deleted")+`
-- 0000_30_webhooks_10_call.yaml --
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: NS}
webhooks:
- name: call.NS.example.com
  failurePolicy: Ignore
  sideEffects: None
  admissionReviewVersions: [v1]
  rules: [{apiGroups: [NS.example.com], apiVersions: [v1], resources: [nothing], operations: [CREATE]}]
  clientConfig: {service: {namespace: NS, name: absent}}
-- 0000_30_apis_10_call.yaml --
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.api-NS.example.com}
spec: {group: api-NS.example.com, version: v1, groupPriorityMinimum: 1000, versionPriority: 10, insecureSkipTLSVerify: true, service: {namespace: NS, name: absent}}
-- 0000_30_made_10_once.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: made, namespace: NS, annotations: {release.openshift.io/create-only: "true"}}, data: {colour: red}}
-- 0000_30_roles_10_all.yaml --
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: NS-all}, aggregationRule: {clusterRoleSelectors: [{matchLabels: {NS.example.com/part: "true"}}]}, rules: []}
-- 0000_30_gone_10_tombstone.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: tombstoneFile, namespace: NS, annotations: {release.openshift.io/delete: "true"}}}
`)
	mustApply(t, release, apply.Options{NoWait: true})
	jobs := test.Client(t).BatchV1().Jobs(namespace)
	for _, name := range []string{"once", "deleted"} {
		sandboxtest.Eventually(t, "a Job does not end", func(ctx context.Context) bool {
			job, err := jobs.Get(ctx, name, metav1.GetOptions{})
			return err == nil && job.Status.Succeeded == 1 && job.Status.CompletionTime != nil
		})
	}
	services := dynamic.NewForConfigOrDie(test.Sandbox(t).Config).Resource(schema.GroupVersionResource{
		Group:    "apiregistration.k8s.io",
		Version:  "v1",
		Resource: "apiservices",
	})
	sandboxtest.Eventually(t, "the APIService has no conditions", func(ctx context.Context) bool {
		service, err := services.Get(ctx, "v1.api-"+namespace+".example.com", metav1.GetOptions{})
		if err != nil {
			return false
		}
		_, isSet, _ := unstructured.NestedSlice(service.Object, "status", "conditions")
		return isSet
	})
	var journal []record.Job
	sandboxtest.Eventually(t, "the record does not have the end of the Jobs", func(ctx context.Context) bool {
		did := run(t, ctx, release, apply.Options{NoWait: true})
		journal = did.record.Jobs
		return len(journal) == 2
	})
	if err := jobs.Delete(t.Context(), "deleted",
		metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}); err != nil {
		t.Fatal(err)
	}
	sandboxtest.Eventually(t, "the Job still exists", func(ctx context.Context) bool {
		_, err := jobs.Get(ctx, "deleted", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	for _, mode := range []graph.Mode{graph.Reconcile, graph.Update} {
		c, log := connectLogged(t, release)
		did := runOn(t, t.Context(), c, release, apply.Options{Options: inMode(mode), NoWait: true})
		// An object that the run has to delete may exist without our label, so the run reads it.
		want := []string{"GET /api/v1/namespaces/" + namespace + "/configmaps/tombstoneFile"}
		if diff := cmp.Diff(want, log.sent); did.Err != nil || diff != "" {
			t.Errorf("%s: got error %v, requests (-want +got)\n%s", mode, did.Err, diff)
		}
		for _, change := range did.Changes {
			switch change.Action {
			case object.Unchanged, object.Kept, object.Absent, object.Left:
			default:
				t.Errorf("%s: %s is %s", mode, change.ID, change.Action)
			}
		}
	}
}

func migrationOf(name string) string {
	return strings.NewReplacer("_50_job", "_50_"+name, "migrate", name, "ANNOTATIONS", "labels: {}", "VALUE",
		"it").Replace(migration)
}
