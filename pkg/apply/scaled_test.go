package apply_test

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
)

// scaler is the field manager of a HorizontalPodAutoscaler.
const scaler = "kube-controller-manager"

// scaledKinds are kinds of objects that can be scaled. In a manifest, REPLICAS stands for the field of the replicas.
var scaledKinds = map[string]struct{ kind, manifest, target string }{
	"Deployment": {"Deployment.apps", `
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: NS, annotations: {is: old}}, spec: {REPLICAS selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: registry.example/web}]}}}}
`, `apiVersion: apps/v1, kind: Deployment, name: web`},
	"StatefulSet": {"StatefulSet.apps", `
{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: web, namespace: NS, annotations: {is: old}}, spec: {REPLICAS serviceName: web, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: registry.example/web}]}}}}
`, `apiVersion: apps/v1, kind: StatefulSet, name: web`},
}

// autoscaler is a manifest of a HorizontalPodAutoscaler for TARGET.
const autoscaler = `
{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: web, namespace: NS}, spec: {minReplicas: 1, maxReplicas: 9, scaleTargetRef: {TARGET}, metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]}}
`

// scaledFiles returns a payload of an object with its replicas, and of more manifests.
func scaledFiles(manifest, replicas string, more ...string) string {
	if replicas != "" {
		replicas = "replicas: " + replicas + ","
	}
	all := "-- 0000_10_web_10_web.yaml --" + strings.ReplaceAll(manifest, "REPLICAS", replicas)
	for i, name := range more {
		all += "-- 0000_10_web_2" + string(rune('0'+i)) + "_more.yaml --" + name
	}
	return all
}

// onDeployment is an autoscaler for the Deployment.
var onDeployment = strings.ReplaceAll(autoscaler, "TARGET", scaledKinds["Deployment"].target)

// scales applies a payload, and fails the test if that fails.
func scales(t *testing.T, namespace, files string, options apply.Options) applied {
	t.Helper()
	options.NoWait = true
	if options.Mode == "" {
		options.Mode = graph.Update
	}
	did := run(t, t.Context(), load(t, namespace, namespace, files), options)
	if did.Err != nil {
		t.Fatal(did.Err)
	}
	return did
}

// watchReplicas watches the replicas of an object. The returned function ends the watch, and returns the lowest number.
func watchReplicas(t *testing.T, a actor, kind, key string) (stop func() (lowest int64)) {
	t.Helper()
	place, name := a.place(kind, key)
	first := a.live(kind, key)
	lowest, _, _ := unstructured.NestedInt64(first.Object, "spec", "replicas")
	watch, err := place.Watch(t.Context(), metav1.ListOptions{
		FieldSelector:   fields.OneTermEqualSelector("metadata.name", name).String(),
		ResourceVersion: first.GetResourceVersion(),
	})
	if err != nil {
		t.Fatal(err)
	}
	var ended sync.WaitGroup
	ended.Go(func() {
		for event := range watch.ResultChan() {
			object, isObject := event.Object.(*unstructured.Unstructured)
			if !isObject {
				t.Errorf("got watch event %v", event.Object)
				return
			}
			count, _, _ := unstructured.NestedInt64(object.Object, "spec", "replicas")
			lowest = min(lowest, count)
			if object.GetAnnotations()["watched"] == "to the end" {
				return
			}
		}
	})
	return func() int64 {
		act(t, "watcher").merge(kind, key, `{metadata: {annotations: {watched: to the end}}}`)
		ended.Wait()
		watch.Stop()
		return lowest
	}
}

// An autoscaler has scaled to 5. Then the manifest drops the replicas, or keeps them.
func TestReplicasNeverFallUnderAnAutoscaler(t *testing.T) {
	for name, item := range scaledKinds {
		for title, after := range map[string]string{"dropped": "", "kept": "3", "changed": "2"} {
			t.Run(name+" "+title, func(t *testing.T) {
				t.Parallel()
				namespace, a := test.Namespace(t), act(t, scaler)
				hpa, key := strings.ReplaceAll(autoscaler, "TARGET", item.target), namespace+"/web"
				scales(t, namespace, scaledFiles(item.manifest, "3", hpa), apply.Options{})
				if have := a.field(item.kind, key, "spec", "replicas"); have != "3" {
					t.Errorf("created with %s replicas, want those of the manifest", have)
				}
				a.scale(item.kind, key, 5)
				lowest := watchReplicas(t, a, item.kind, key)
				next := strings.Replace(scaledFiles(item.manifest, after, hpa), "is: old", "is: new", 1)
				scales(t, namespace, next, apply.Options{})
				did := scales(t, namespace, next, apply.Options{Options: object.Options{Full: true}})
				if have := lowest(); have != 5 {
					t.Errorf("got %d replicas for a moment", have)
				}
				if owners := a.owners(item.kind, key, "f:spec", "f:replicas"); owners != scaler {
					t.Error("got replicas owned by", owners)
				}
				if have := did.actions() +
					did.eventText(namespace, apply.Overruled); strings.Contains(have, "configured") ||
					strings.Contains(have, "overruled") {
					t.Error(have)
				}
			})
		}
	}
}

// An autoscaler is created by an administrator or by the release after Runlevel has applied the replicas. Runlevel owns
// them, and they do not change, until the autoscaler scales.
func TestReplicasAreReleasedOnceAnotherManagerOwnsThem(t *testing.T) {
	web := scaledKinds["Deployment"]
	for name, row := range map[string]struct{ replicas, made, brought string }{
		"created by hand":                   {"3", onDeployment, ""},
		"created by hand, replicas dropped": {"", onDeployment, ""},
		"of the release":                    {"3", "", onDeployment},
		"of the release, replicas dropped":  {"", "", onDeployment},
		"of the release, replicas replaced": {"8", "", onDeployment},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace, a := test.Namespace(t), act(t, scaler)
			key := namespace + "/web"
			scales(t, namespace, scaledFiles(web.manifest, "3"), apply.Options{})
			if row.made != "" {
				act(t, "kubectl-create").create(strings.ReplaceAll(row.made, "NS", namespace))
			}
			lowest := watchReplicas(t, a, web.kind, key)
			var more []string
			if row.brought != "" {
				more = append(more, row.brought)
			}
			next := scaledFiles(web.manifest, row.replicas, more...)
			for range 2 {
				scales(t, namespace, next, apply.Options{})
				if have, owners := a.field(web.kind, key, "spec", "replicas"), a.owners(web.kind, key, "f:spec",
					"f:replicas"); have != "3" || owners != "runlevel" {
					t.Errorf("%s replicas, owned by %s", have, owners)
				}
			}
			a.scale(web.kind, key, 5)
			scales(t, namespace, next, apply.Options{})
			if have, owners := a.field(web.kind, key, "spec", "replicas"), a.owners(web.kind, key, "f:spec",
				"f:replicas"); have != "5" || owners != scaler {
				t.Errorf("%s replicas, owned by %s", have, owners)
			}
			if have := lowest(); have != 3 {
				t.Errorf("got %d replicas for a moment", have)
			}
		})
	}
}

// Another tool has set the replicas, and the manifest has none.
func TestReplicasOfAnAdoptedObject(t *testing.T) {
	t.Parallel()
	web, namespace := scaledKinds["Deployment"], test.Namespace(t)
	tool := act(t, "kubectl-client-side-apply")
	tool.create(strings.NewReplacer("NS", namespace, "REPLICAS", "replicas: 4,").Replace(web.manifest))
	tool.create(strings.ReplaceAll(onDeployment, "NS", namespace))
	lowest := watchReplicas(t, tool, web.kind, namespace+"/web")
	for range 2 {
		scales(t, namespace, scaledFiles(web.manifest, ""), apply.Options{})
	}
	if have := lowest(); have != 4 {
		t.Errorf("got %d replicas", have)
	}
}

// The manifest of an object is no longer create-only.
func TestReplicasOfAFormerlyCreateOnlyObject(t *testing.T) {
	t.Parallel()
	web, namespace := scaledKinds["Deployment"], test.Namespace(t)
	once := strings.Replace(web.manifest, "is: old", `release.openshift.io/create-only: "true"`, 1)
	scales(t, namespace, scaledFiles(once, "4", onDeployment), apply.Options{})
	lowest := watchReplicas(t, act(t, scaler), web.kind, namespace+"/web")
	for range 2 {
		scales(t, namespace, scaledFiles(web.manifest, "4", onDeployment), apply.Options{})
	}
	if have := lowest(); have != 4 {
		t.Errorf("got %d replicas", have)
	}
}

// The autoscaler scales after Runlevel has sent its patch, and before the patch arrives.
func TestAutoscalerScalesBeforeOurPatchArrives(t *testing.T) {
	t.Parallel()
	web, namespace, a := scaledKinds["Deployment"], test.Namespace(t), act(t, scaler)
	key := namespace + "/web"
	scales(t, namespace, scaledFiles(web.manifest, "3", onDeployment), apply.Options{})
	lowest := watchReplicas(t, a, web.kind, key)
	var once sync.Once
	c := connectThrough(t, func(request *http.Request) error {
		if request.Method == http.MethodPatch && strings.HasSuffix(request.URL.Path, "/deployments/web") {
			once.Do(func() {
				a.scale(web.kind, key, 5)
				a.scale(web.kind, key, 6)
			})
		}
		return nil
	})
	next := strings.Replace(scaledFiles(web.manifest, "3", onDeployment), "is: old", "is: new", 1)
	did := runOn(t, t.Context(), c, load(t, namespace, namespace, next),
		apply.Options{Options: updateMode, NoWait: true})
	if have := a.field(web.kind, key, "spec", "replicas"); have != "6" || did.Err != nil ||
		did.eventText(namespace, apply.Overruled) != "" {
		t.Errorf("%s replicas, %v, %s", have, did.Err, did.eventText(namespace, apply.Overruled))
	}
	if have := lowest(); have != 3 {
		t.Errorf("got %d replicas for a moment", have)
	}
}

// If the autoscaler is deleted, the replicas of the manifest are applied again.
func TestReplicasWithoutTheAutoscaler(t *testing.T) {
	web := scaledKinds["Deployment"]
	tombstone := strings.Replace(onDeployment, "namespace: NS",
		`namespace: NS, annotations: {release.openshift.io/delete: "true"}`, 1)
	for name, row := range map[string]struct {
		mode      graph.Mode
		byHand    bool
		more      []string
		wantCount string
	}{
		"deleted by hand":          {graph.Reconcile, true, nil, "3"},
		"tombstone in an update":   {graph.Update, false, []string{tombstone}, "3"},
		"tombstone in a reconcile": {graph.Reconcile, false, []string{tombstone}, "5"},
		"dropped from the release": {graph.Update, false, nil, "5"},
		"scales another object now": {graph.Update, false,
			[]string{strings.Replace(onDeployment, "name: web}", "name: other}", 1)}, "3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace, a := test.Namespace(t), act(t, scaler)
			key := namespace + "/web"
			scales(t, namespace, scaledFiles(web.manifest, "3", onDeployment), apply.Options{})
			a.scale(web.kind, key, 5)
			if row.byHand {
				place, name := a.place("HorizontalPodAutoscaler.autoscaling", key)
				if err := place.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			did := scales(t, namespace, scaledFiles(web.manifest, "3", row.more...), apply.Options{
				Options: inMode(row.mode),
			})
			if have := a.field(web.kind, key, "spec", "replicas"); have != row.wantCount {
				t.Errorf("got %s replicas, want %s", have, row.wantCount)
			}
			wantEvents := ""
			if row.wantCount == "3" {
				wantEvents = "overruled Deployment NS/web: spec.replicas (kube-controller-manager/scale)\n"
			}
			if events := did.eventText(namespace, apply.Overruled); events != wantEvents {
				t.Errorf("got events %q, want %q", events, wantEvents)
			}
		})
	}
}

// A recreated object keeps its replicas.
func TestScaledObjectIsRecreated(t *testing.T) {
	t.Parallel()
	web, namespace, a := scaledKinds["Deployment"], test.Namespace(t), act(t, scaler)
	key := namespace + "/web"
	files := strings.Replace(scaledFiles(web.manifest, "3", onDeployment), "is: old", `runlevel.dev/recreate: "true"`,
		1)
	scales(t, namespace, files, apply.Options{})
	a.scale(web.kind, key, 5)
	did := scales(t, namespace, strings.ReplaceAll(files, "app: web", "app: new"), apply.Options{})
	if !strings.Contains(did.actions(), "recreated Deployment") {
		t.Fatal(did.actions())
	}
	if have := a.field(web.kind, key, "spec", "replicas"); have != "5" {
		t.Errorf("got %s replicas", have)
	}
}

func TestScaledCustomResource(t *testing.T) {
	t.Parallel()
	namespace, a := test.Namespace(t), act(t, scaler)
	definition := `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: fleets.NS.example.com}
spec:
  group: NS.example.com
  names: {kind: Fleet, plural: fleets}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {replicas: {type: integer}}}, status: {type: object, properties: {replicas: {type: integer}}}}}}
`
	fleet := `
{apiVersion: NS.example.com/v1, kind: Fleet, metadata: {name: web, namespace: NS}, spec: {REPLICAS}}
`
	hpa := strings.ReplaceAll(autoscaler, "TARGET", "apiVersion: NS.example.com/v1, kind: Fleet, name: web")
	kind, key := "Fleet."+namespace+".example.com", namespace+"/web"
	scales(t, namespace, scaledFiles(fleet, "3", hpa, definition), apply.Options{})
	a.scale(kind, key, 5)
	for _, replicas := range []string{"3", ""} {
		scales(t, namespace, scaledFiles(fleet, replicas, hpa, definition), apply.Options{})
		if have := a.field(kind, key, "spec", "replicas"); have != "5" {
			t.Errorf("got %s replicas", have)
		}
	}
}

// If the user may not list autoscalers, one warning is reported, and the replicas of the manifest are applied.
func TestUserMayNotListAutoscalers(t *testing.T) {
	t.Parallel()
	web, namespace := scaledKinds["Deployment"], test.Namespace(t)
	key := namespace + "/web"
	c := connectBy(t, func(request *http.Request, send http.RoundTripper) (*http.Response, error) {
		if strings.HasSuffix(request.URL.Path, "/horizontalpodautoscalers") {
			return answered(request, apierrors.NewForbidden(schema.GroupResource{
				Group:    "autoscaling",
				Resource: "horizontalpodautoscalers",
			}, "", errors.New("no"))), nil
		}
		return send.RoundTrip(request)
	})
	files := scaledFiles(web.manifest, "3") + "-- 0000_10_web_30_other.yaml --" +
		strings.NewReplacer("name: web, namespace", "name: other, namespace", "REPLICAS",
			"replicas: 2,").Replace(web.manifest)
	release := load(t, namespace, namespace, files)
	act(t, "kubectl-create").create(strings.ReplaceAll(onDeployment, "NS", namespace))
	for range 2 {
		did := runOn(t, t.Context(), c, release, apply.Options{
			Options: object.Options{Mode: graph.Update, Full: true},
			NoWait:  true,
		})
		if did.Err != nil || len(did.Warnings) != 1 || len(did.Warnings[0].Files) != 2 ||
			!strings.Contains(did.Warnings[0].Text, "horizontalpodautoscalers.autoscaling") {
			t.Errorf("%v, warnings: %v", did.Err, did.Warnings)
		}
		if warnings := strings.Count(did.eventText(namespace, apply.Warned), "\n"); warnings != 1 {
			t.Errorf("got %d warnings, want 1", warnings)
		}
		if have := act(t, "").field(web.kind, key, "spec", "replicas"); have != "3" {
			t.Errorf("got %s replicas", have)
		}
		act(t, scaler).scale(web.kind, key, 5)
	}
}

// If the user may not discover kinds, the run fails with Forbidden.
func TestUserMayNotDiscoverKinds(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	c := connectBy(t, func(request *http.Request, send http.RoundTripper) (*http.Response, error) {
		if strings.HasPrefix(request.URL.Path, "/apis") {
			return answered(request, apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))), nil
		}
		return send.RoundTrip(request)
	})
	release := load(t, namespace, namespace, scaledFiles(scaledKinds["Deployment"].manifest, "3", onDeployment))
	did := runOn(t, t.Context(), c, release, apply.Options{Options: installMode, Timeout: time.Second})
	if did.Err == nil || !apierrors.IsForbidden(did.Err) {
		t.Error(did.Err)
	}
}
