package apply_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/cluster/ownership"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A log has the requests that a connection has sent.
type requestLog struct {
	mu   sync.Mutex
	sent []string
	of   map[string]bool // names of objects
}

// connectLogged returns a connection with a log of the requests for a single object of a release, and of the writes of
// anything but its record.
func connectLogged(t testing.TB, release *payload.Payload) (*cluster.Cluster, *requestLog) {
	t.Helper()
	log := &requestLog{of: map[string]bool{}}
	for _, manifest := range release.Manifests {
		log.of[manifest.ID().Name] = true
	}
	return connectThrough(t, log.note), log
}

func (l *requestLog) note(request *http.Request) error {
	_, selected, _ := strings.Cut(request.URL.Query().Get("fieldSelector"), "metadata.name=")
	whole := strings.TrimSuffix(strings.TrimSuffix(request.URL.Path, "/status"), "/scale")
	isNamed := l.of[selected] || l.of[path.Base(whole)]
	isRecord := strings.HasPrefix(path.Base(request.URL.Path), "runlevel-release-")
	isWrite := request.Method != http.MethodGet && !strings.HasPrefix(path.Base(request.URL.Path), "selfsubject")
	if !isRecord && (isNamed || isWrite) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.sent = append(l.sent, request.Method+" "+request.URL.Path)
	}
	return nil
}

// about returns the requests for an object.
func (l *requestLog) about(name string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.sent), func(sent string) bool { return path.Base(sent) != name })
}

// A sort is a kind with an object of a release, and patches that change this object.
type sort struct {
	files      string
	resource   schema.GroupVersionResource
	name       string // "it", if it is in a namespace
	apiVersion string
	kind       string
	changed    string // a merge patch of a field of the manifest
	same       string // a merge patch with the field's value in the manifest
	removed    string
	part       string // the subresource of its status; "" if it has none
	status     string // a merge patch of the status; "" if it has none
	lever      string // a JSON patch of the field, in CEL
}

const (
	definition = `
-- 0000_10_kinds_10_SCOPE.yaml --
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.NS.example.com, labels: {mood: good}, annotations: {tone: high}}
spec:
  group: NS.example.com
  names: {kind: Thing, plural: things, shortNames: [th]}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {STATUS}
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {
      size: {type: integer}, # NEW
      colour: {type: string}}}, status: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}
`
	thing = `
-- 0000_50_c_thing.yaml --
{apiVersion: NS.example.com/v1, kind: Thing, metadata: {name: it, namespace: NS, labels: {mood: good}, annotations: {tone: high}}, spec: {size: 1}}
`
)

var (
	withStatus    = strings.Replace(definition, "STATUS", "status: {}", 1)
	withoutStatus = strings.Replace(definition, "{STATUS}", "{}", 1)
	things        = schema.GroupVersionResource{Group: "NS.example.com", Version: "v1", Resource: "things"}
)

// sorts are the kinds that differ in how a run notices changes of their objects.
var sorts = map[string]sort{
	"ConfigMap": {
		files: "-- 0000_50_c_config.yaml --\n{apiVersion: v1, kind: ConfigMap, metadata: {name: it, namespace: " +
			"NS, labels: {mood: good}, annotations: {tone: high}}, data: {colour: red}}\n",
		resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, name: "it", apiVersion: "v1",
		kind:    "ConfigMap",
		changed: `{"data":{"colour":"blue"}}`, same: `{"data":{"colour":"red"}}`, removed: `{"data":{"colour":null}}`,
		lever: `path: "/data/colour", value: "blue"`,
	},
	"Deployment": {
		files: strings.Replace(deployed, "labels: {mood: good}}", "labels: {mood: good}, annotations: {tone: high}}",
			1), resource: resources[deployed], name: "it", apiVersion: "apps/v1", kind: "Deployment",
		changed: `{"spec":{"replicas":1}}`, same: `{"spec":{"replicas":0}}`, removed: `{"spec":{"replicas":null}}`,
		part: "status", status: `{"status":{"observedGeneration":7}}`, lever: `path: "/spec/replicas", value: 1`,
	},
	"PriorityClass": {
		files: "-- 0000_50_c_class.yaml --\n{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: " +
			"{name: NS, labels: {mood: good}, annotations: {tone: high}}, value: 7, description: fine}\n",
		resource: schema.GroupVersionResource{Group: "scheduling.k8s.io", Version: "v1", Resource: "priorityclasses"},
		name:     "NS", apiVersion: "scheduling.k8s.io/v1", kind: "PriorityClass",
		changed: `{"value":7,"description":"bad"}`, same: `{"value":7,"description":"fine"}`,
		removed: `{"description":null}`, lever: `path: "/description", value: "bad"`,
	},
	"ClusterRole": {
		files: "-- 0000_50_c_role.yaml --\n{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, " +
			"metadata: {name: NS, labels: {mood: good}, annotations: {tone: high}}, rules: [{apiGroups: [\"\"], " +
			"resources: [pods], verbs: [get]}]}\n",
		resource: schema.GroupVersionResource{
			Group:    "rbac.authorization.k8s.io",
			Version:  "v1",
			Resource: "clusterroles",
		}, name: "NS", apiVersion: "rbac.authorization.k8s.io/v1", kind: "ClusterRole",
		changed: `{"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["list"]}]}`,
		same:    `{"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]}`, removed: `{"rules":null}`,
		lever: `path: "/rules/0/verbs/0", value: "list"`,
	},
	"CustomResourceDefinition": {
		files: withStatus, resource: schema.GroupVersionResource{
			Group:    "apiextensions.k8s.io",
			Version:  "v1",
			Resource: "customresourcedefinitions",
		}, name: "things.NS.example.com",
		apiVersion: "apiextensions.k8s.io/v1", kind: "CustomResourceDefinition",
		changed: `{"spec":{"names":{"shortNames":["zz"]}}}`, same: `{"spec":{"names":{"shortNames":["th"]}}}`,
		removed: `{"spec":{"names":{"shortNames":null}}}`, part: "status",
		status: `{"status":{"acceptedNames":{"shortNames":["odd"]}}}`,
		lever:  `path: "/spec/names/shortNames/0", value: "zz"`,
	},
	"custom resource": {
		files: withStatus + thing, resource: things, name: "it", apiVersion: "NS.example.com/v1", kind: "Thing",
		changed: `{"spec":{"size":2}}`, same: `{"spec":{"size":1}}`, removed: `{"spec":{"size":null}}`, part: "status",
		status: `{"status":{"seen":true}}`, lever: `path: "/spec/size", value: 2`,
	},
	"custom resource without a status of its own": {
		files: withoutStatus + thing, resource: things, name: "it", apiVersion: "NS.example.com/v1", kind: "Thing",
		changed: `{"spec":{"size":2}}`, same: `{"spec":{"size":1}}`, removed: `{"spec":{"size":null}}`,
		status: `{"status":{"seen":true}}`, lever: `path: "/spec/size", value: 2`,
	},
}

// in returns a copy of the sort with a namespace in its texts.
func (s sort) in(namespace string) sort {
	for _, text := range []*string{&s.files, &s.resource.Group, &s.name, &s.apiVersion} {
		*text = strings.ReplaceAll(*text, "NS", namespace)
	}
	return s
}

// A hand is another client that changes an object of the release.
type hand struct {
	*testing.T
	sort
	namespace string
	release   *payload.Payload
}

func (h hand) objects() dynamic.ResourceInterface {
	resource := dynamic.NewForConfigOrDie(test.Sandbox(h).Config).Resource(h.resource)
	if h.sort.name == "it" {
		return resource.Namespace(h.namespace)
	}
	return resource
}

func (h hand) get() *unstructured.Unstructured {
	h.Helper()
	object, err := h.objects().Get(h.Context(), h.sort.name, metav1.GetOptions{})
	if err != nil {
		h.Fatal(err)
	}
	return object
}

// write patches the object as a manager.
func (h hand) write(as, patch string, part ...string) {
	h.Helper()
	if _, err := h.objects().Patch(h.Context(), h.sort.name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{FieldManager: as}, part...); err != nil {
		h.Fatal(err)
	}
}

// apply applies some fields as a manager, also fields of other managers.
func (h hand) apply(as, fields string) {
	h.Helper()
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(fields), &object.Object); err != nil {
		h.Fatal(err)
	}
	object.SetAPIVersion(h.apiVersion)
	object.SetKind(h.kind)
	object.SetName(h.sort.name)
	if _, err := h.objects().Apply(h.Context(), h.sort.name, object,
		metav1.ApplyOptions{FieldManager: as, Force: true}); err != nil {
		h.Fatal(err)
	}
}

// applyAsUs applies the manifest with a patch as our manager, as another version of runlevel may.
func (h hand) applyAsUs(patch string) {
	h.Helper()
	draft := ownership.Draft(h.manifest().Object(), objectmeta.ReleaseLabel, h.release.Name)
	var change map[string]any
	if err := json.Unmarshal([]byte(patch), &change); err != nil {
		h.Fatal(err)
	}
	patchWith(draft.Object, change)
	fields, err := json.Marshal(draft.Object)
	if err != nil {
		h.Fatal(err)
	}
	h.apply(cluster.FieldManager, string(fields))
}

// patchWith returns a merge patch.
func patchWith(into, patch map[string]any) {
	for key, value := range patch {
		below, isMapping := value.(map[string]any)
		there, exists := into[key].(map[string]any)
		switch {
		case value == nil:
			delete(into, key)
		case isMapping && exists:
			patchWith(there, below)
		default:
			into[key] = value
		}
	}
}

// manifest returns the manifest of the object, which is the last of its release.
func (h hand) manifest() *payload.Manifest { return h.release.Manifests[len(h.release.Manifests)-1] }

func (h hand) parts() []string { return strings.Fields(h.part) }

// meddle writes the object, and a mutating policy of the server changes another field in the same write. The policy
// does not match our writes.
func (h hand) meddle(lever string) {
	h.Helper()
	touch := func(name string) string {
		return fmt.Sprintf("(has(%[1]s.metadata.annotations) && 'touch' in %[1]s.metadata.annotations ? "+
			"%[1]s.metadata.annotations['touch'] : '')", name)
	}
	h.policy(fmt.Sprintf("%s != %s", touch("object"), touch("oldObject")), lever)
	before, turn := wordsOf(h.get()), 0
	sandboxtest.Eventually(h.T, "the policy does nothing", func(ctx context.Context) bool {
		turn++
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"touch":"%d"}}}`, turn)
		after, err := h.objects().Patch(ctx, h.sort.name, types.MergePatchType, patch,
			metav1.PatchOptions{FieldManager: "bob"})
		return err == nil && wordsOf(after) != before // policies learn of new kinds late, and refuse until then
	})
}

// policy adds a mutating policy for writes of the object, until callOff is called.
func (h hand) policy(when, lever string) (callOff func()) {
	h.Helper()
	policy := sandboxtest.ParseObject(h.T, fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  reinvocationPolicy: Never
  failurePolicy: Fail
  matchConstraints: {resourceRules: [{apiGroups: [%[2]q], apiVersions: [%[3]q], resources: [%[4]q], operations: [UPDATE]}]}
  matchConditions:
  - {name: it, expression: "object.metadata.name == '%[5]s' && object.metadata.labels['runlevel.dev/release'] == '%[6]s'"}
  - {name: when, expression: "%[7]s"}
  mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: "replace", %[8]s}]'}}]
`, h.namespace, h.resource.Group, h.resource.Version, h.resource.Resource, h.sort.name, h.namespace, when, lever))
	binding := sandboxtest.ParseObject(h.T, fmt.Sprintf(`
{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingAdmissionPolicyBinding, metadata: {name: %[1]s}, spec: {policyName: %[1]s}}`, h.namespace))
	c := dynamic.NewForConfigOrDie(test.Sandbox(h).Config)
	var ends []func()
	for _, item := range []*unstructured.Unstructured{policy, binding} {
		resource, err := connect(h).Find(h.Context(), item.GroupVersionKind())
		if err != nil {
			h.Fatal(err)
		}
		if _, err := c.Resource(resource.GroupVersionResource).Create(h.Context(), item,
			metav1.CreateOptions{}); err != nil {
			h.Fatal(err)
		}
		end := func() {
			_ = c.Resource(resource.GroupVersionResource).Delete(context.Background(), item.GetName(),
				metav1.DeleteOptions{})
		}
		h.Cleanup(end)
		ends = append(ends, end)
	}
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

// remake deletes the object, and creates an equal one.
func (h hand) remake() {
	h.Helper()
	object := h.get()
	if err := h.objects().Delete(h.Context(), h.sort.name, metav1.DeleteOptions{}); err != nil {
		h.Fatal(err)
	}
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"} {
		unstructured.RemoveNestedField(object.Object, "metadata", field)
	}
	sandboxtest.Eventually(h.T, "it can't be recreated", func(ctx context.Context) bool {
		_, err := h.objects().Create(ctx, object, metav1.CreateOptions{FieldManager: "bob"})
		return err == nil
	})
}

// wordsOf returns the content of an object, without the fields that only the server sets, or that belong to one
// manager.
func wordsOf(object *unstructured.Unstructured) string {
	all := maps.Clone(object.Object)
	delete(all, "status")
	annotations := object.GetAnnotations()
	maps.DeleteFunc(annotations, func(key, _ string) bool { return key != "tone" })
	all["metadata"] = map[string]any{"labels": object.GetLabels(), "annotations": annotations}
	text, _ := json.Marshal(all)
	return string(text)
}

// A meddling is a change by another client between two applies.
type meddling struct {
	do     func(hand)
	want   object.Action
	isFree func(sort) bool // it costs no request
	only   func(sort) bool // the kinds that it is about; nil for all
}

func always(sort) bool { return true }

var meddlings = map[string]meddling{
	"nothing": {func(hand) {}, object.Unchanged, always, nil},
	"a field changed by an update": {func(h hand) {
		h.write("bob", h.changed)
	}, object.Configured, nil, nil},
	"a field changed by an apply": {func(h hand) { h.apply("bob", h.changed) }, object.Configured, nil, nil},
	"a label changed as our manager in an apply": {func(h hand) {
		h.applyAsUs(`{"metadata":{"labels":{"mood":"bad"}}}`)
	}, object.Configured, nil, nil},
	"a label removed as our manager in an apply": {func(h hand) {
		h.applyAsUs(`{"metadata":{"labels":{"mood":null}}}`)
	}, object.Configured, nil, nil},
	"a field removed": {func(h hand) {
		h.write("bob", h.removed)
	}, object.Configured, nil, nil},
	"a field changed as our manager in an update": {func(h hand) {
		h.write(cluster.FieldManager, h.changed)
	}, object.Configured, nil, nil},
	"a field changed as our manager in an apply": {func(h hand) {
		h.applyAsUs(h.changed)
	}, object.Configured, nil, nil},
	"the same value, applied by another manager": {func(h hand) {
		h.apply("bob", h.same)
	}, object.Unchanged, sort.isCounted, nil},
	"a field changed and restored": {func(h hand) {
		h.write("bob", h.changed)
		h.write("bob", h.same)
	}, object.Configured, nil, nil},
	"a label changed": {func(h hand) {
		h.write("bob", `{"metadata":{"labels":{"mood":"bad"}}}`)
	}, object.Configured, nil, nil},
	"a label removed": {func(h hand) {
		h.write("bob", `{"metadata":{"labels":{"mood":null}}}`)
	}, object.Configured, nil, nil},
	"a label changed as our manager in an update": {func(h hand) {
		h.write(cluster.FieldManager, `{"metadata":{"labels":{"mood":"bad"}}}`)
	}, object.Configured, nil, nil},
	"the label of the release removed": {func(h hand) {
		h.write("bob", emptied)
	}, object.Configured, nil, nil},
	"an annotation changed": {func(h hand) {
		h.write("bob", `{"metadata":{"annotations":{"tone":"low"}}}`)
	}, object.Configured, nil, nil},
	"an annotation removed": {func(h hand) {
		h.write("bob", `{"metadata":{"annotations":{"tone":null}}}`)
	}, object.Configured, nil, nil},
	// whose annotations count
	"an annotation of another manager": {func(h hand) {
		h.write("bob", `{"metadata":{"annotations":{"theirs":"yes"}}}`)
	}, object.Unchanged, func(s sort) bool { return s.isCounted() && s.kind != "Deployment" }, nil},
	"managed fields removed": {func(h hand) {
		h.write("bob", `{"metadata":{"managedFields":[{}]}}`)
	}, object.Configured, nil, nil},
	"deleted and recreated by another client": {hand.remake, object.Configured, nil, func(s sort) bool {
		return s.kind != "CustomResourceDefinition"
	}},
	"its status": {func(h hand) {
		h.write("bob", h.sort.status, h.parts()...)
	}, object.Unchanged, sort.isCounted, func(s sort) bool { return s.status != "" }},
	"scaled": {func(h hand) {
		h.write("kubectl", `{"spec":{"replicas":3}}`, "scale")
	}, object.Configured, nil, func(s sort) bool { return s.kind == "Deployment" }},
	"a value that a policy changes in a write": {func(h hand) { h.meddle(h.lever) }, object.Configured, nil, nil},
	"a label that a policy changes in a write": {func(h hand) {
		h.meddle(`path: "/metadata/labels/mood", value: "bad"`)
	}, object.Configured, nil, nil},
	"an annotation changed along with its status": {func(h hand) {
		h.write("bob", `{"metadata":{"annotations":{"tone":"low"}}}`, "status")
	}, object.Configured, nil, func(s sort) bool { return s.kind == "Deployment" }},
}

// isCounted reports whether each change that matters raises the generation.
func (s sort) isCounted() bool {
	return s.kind == "Deployment" || s.kind == "CustomResourceDefinition" || s.kind == "Thing" && s.part != ""
}

// Each meddling with each kind: the apply restores the fields of the release, sends no unnecessary request, and the
// apply after it sends none.
func TestChangesByOthersAreFound(t *testing.T) {
	for kind, sort := range sorts {
		for what, meddling := range meddlings {
			if meddling.only != nil && !meddling.only(sort) {
				continue
			}
			t.Run(kind+"/"+what, func(t *testing.T) {
				t.Parallel()
				testMeddling(t, sort, meddling)
			})
		}
	}
}

func testMeddling(t *testing.T, item sort, meddling meddling) {
	namespace := test.Namespace(t)
	item = item.in(namespace)
	release := load(t, namespace, namespace, item.files)
	mine := hand{t, item, namespace, release}
	if did := run(t, t.Context(), release, apply.Options{Options: updateMode}); did.Err != nil {
		t.Fatal(did.Err)
	}
	before := wordsOf(mine.get())
	meddling.do(mine)

	c, log := connectLogged(t, release)
	did := runOn(t, t.Context(), c, release, apply.Options{Options: reconcileMode})
	if got := did.Changes[len(did.Changes)-1]; got.Action != meddling.want || did.Err != nil {
		t.Errorf("got action %s, want %s: %v", got.Action, meddling.want, did.Err)
	}
	if current := wordsOf(mine.get()); current != before {
		t.Errorf("got content\n%s\nwant\n%s", current, before)
	}
	if sent := log.about(item.name); meddling.isFree != nil && meddling.isFree(item) && len(sent) > 0 {
		t.Errorf("got requests %q", sent)
	}
	mustBeFree(t, release, "")
}

// mustBeFree applies a release once more over a new connection, and fails the test if that changes an object, or sends
// a request for one.
func mustBeFree(t *testing.T, release *payload.Payload, name string) {
	t.Helper()
	c, log := connectLogged(t, release)
	did := runOn(t, t.Context(), c, release, apply.Options{Options: reconcileMode})
	for _, change := range did.Changes {
		if change.Action != object.Unchanged && change.Action != object.Kept {
			t.Errorf("%s: %s is %s", name, change.ID, change.Action)
		}
	}
	if did.Err != nil || len(log.sent) > 0 {
		t.Errorf("%s: an apply with nothing to do sends %q: %v", name, log.sent, did.Err)
	}
}

// If admission has changed our apply, and no longer does, the next apply restores the values.
func TestChangesByAdmissionAreFound(t *testing.T) {
	for kind, sort := range sorts {
		for what, lever := range map[string]string{"a value": sort.lever,
			"a label": `path: "/metadata/labels/mood", value: "bad"`} {
			t.Run(kind+"/"+what, func(t *testing.T) {
				t.Parallel()
				namespace := test.Namespace(t)
				sort := sort.in(namespace)
				release := load(t, namespace, namespace, sort.files)
				mine := hand{t, sort, namespace, release}
				mustApply(t, release, apply.Options{Options: updateMode})
				before := wordsOf(mine.get())
				callOff := mine.policy("true", lever)
				sandboxtest.Eventually(t, "the policy does nothing", func(context.Context) bool {
					run(t, t.Context(), release, apply.Options{
						Options: object.Options{Mode: graph.Reconcile, Full: true},
					})
					return wordsOf(mine.get()) != before
				})
				report := run(t, t.Context(), release, apply.Options{Options: reconcileMode})
				isInList := kind == "ClusterRole" || kind == "CustomResourceDefinition" // their fields are not reported
				if !isInList && !slices.ContainsFunc(report.Warnings, func(w apply.Warning) bool {
					return strings.HasPrefix(w.Text, "admission makes .")
				}) {
					t.Errorf("no warning reports that the object differs from the release: %v", report.Warnings)
				}
				callOff()
				sandboxtest.Eventually(t, "the changed value is not restored", func(context.Context) bool {
					run(t, t.Context(), release, apply.Options{Options: reconcileMode})
					return wordsOf(mine.get()) == before
				})
				mustBeFree(t, release, "the next one")
			})
		}
	}
}
