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

// scaler is who scales for a HorizontalPodAutoscaler.
const scaler = "kube-controller-manager"

// A scaled is a kind of object that can be scaled: its manifest, with SPEC for what it says
// beside the replicas.
var scaledKinds = map[string]struct{ kind, manifest, target string }{
	"Deployment": {"Deployment.apps", `
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: NS, annotations: {is: old}}, spec: {REPLICAS selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: registry.example/web}]}}}}
`, `apiVersion: apps/v1, kind: Deployment, name: web`},
	"StatefulSet": {"StatefulSet.apps", `
{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: web, namespace: NS, annotations: {is: old}}, spec: {REPLICAS serviceName: web, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: registry.example/web}]}}}}
`, `apiVersion: apps/v1, kind: StatefulSet, name: web`},
}

// autoscaler is a manifest of one, for TARGET.
const autoscaler = `
{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: web, namespace: NS}, spec: {minReplicas: 1, maxReplicas: 9, scaleTargetRef: {TARGET}, metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]}}
`

// files is a payload of an object, and of more.
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

// onDeployment is an autoscaler of the Deployment.
var onDeployment = strings.ReplaceAll(autoscaler, "TARGET", scaledKinds["Deployment"].target)

// scales applies a payload, and wants it to go well.
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

// watchReplicas notes how many replicas an object ever has, until it is asked for them.
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
				t.Errorf("the watch says %v", event.Object)
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

// The story that decides all: an autoscaler has scaled to 5, and then the replicas are
// dropped from the manifest, or have been left there.
func TestReplicasNeverFallUnderAnAutoscaler(t *testing.T) {
	for name, item := range scaledKinds {
		for title, after := range map[string]string{"dropped": "", "kept": "3", "changed": "2"} {
			t.Run(name+" "+title, func(t *testing.T) {
				t.Parallel()
				namespace, a := test.Namespace(t), act(t, scaler)
				hpa, key := strings.ReplaceAll(autoscaler, "TARGET", item.target), namespace+"/web"
				scales(t, namespace, scaledFiles(item.manifest, "3", hpa), apply.Options{})
				if have := a.field(item.kind, key, "spec", "replicas"); have != "3" {
					t.Errorf("it was made with %s, not with what the manifest begins with", have)
				}
				a.scale(item.kind, key, 5)
				lowest := watchReplicas(t, a, item.kind, key)
				next := strings.Replace(scaledFiles(item.manifest, after, hpa), "is: old", "is: new", 1)
				scales(t, namespace, next, apply.Options{})
				did := scales(t, namespace, next, apply.Options{Options: object.Options{Full: true}})
				if have := lowest(); have != 5 {
					t.Errorf("there were %d of it for a moment", have)
				}
				if owners := a.owners(item.kind, key, "f:spec", "f:replicas"); owners != scaler {
					t.Error("the replicas are owned by", owners)
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

// An autoscaler was made by hand, or comes with the release, after we have applied the
// replicas. They stay ours, and as they are, until it scales.
func TestReplicasAreReleasedOnceSomebodyElseHasThem(t *testing.T) {
	web := scaledKinds["Deployment"]
	for name, row := range map[string]struct{ replicas, made, brought string }{
		"made by hand":                      {"3", onDeployment, ""},
		"made by hand, replicas dropped":    {"", onDeployment, ""},
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
				t.Errorf("there were %d of it for a moment", have)
			}
		})
	}
}

// Another tool has said how many there are, and the release does not.
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
		t.Errorf("there were %d of it", have)
	}
}

// An object was only ever to be made, and what was made is applied now.
func TestReplicasOfWhatWasCreateOnly(t *testing.T) {
	t.Parallel()
	web, namespace := scaledKinds["Deployment"], test.Namespace(t)
	once := strings.Replace(web.manifest, "is: old", `release.openshift.io/create-only: "true"`, 1)
	scales(t, namespace, scaledFiles(once, "4", onDeployment), apply.Options{})
	lowest := watchReplicas(t, act(t, scaler), web.kind, namespace+"/web")
	for range 2 {
		scales(t, namespace, scaledFiles(web.manifest, "4", onDeployment), apply.Options{})
	}
	if have := lowest(); have != 4 {
		t.Errorf("there were %d of it", have)
	}
}

// The autoscaler scales when our patch is already on its way.
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
		t.Errorf("there were %d of it for a moment", have)
	}
}

// Once no autoscaler is to be there, the manifest's replicas count again.
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
		"deleted by hand":                {graph.Reconcile, true, nil, "3"},
		"tombstone in an update":         {graph.Update, false, []string{tombstone}, "3"},
		"tombstone, but nothing deletes": {graph.Reconcile, false, []string{tombstone}, "5"},
		"left behind":                    {graph.Update, false, nil, "5"},
		"scales something else now": {graph.Update, false,
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
				t.Errorf("there are %s, want %s", have, row.wantCount)
			}
			wantTold := ""
			if row.wantCount == "3" {
				wantTold = "overruled Deployment NS/web: spec.replicas (kube-controller-manager/scale)\n"
			}
			if told := did.eventText(namespace, apply.Overruled); told != wantTold {
				t.Error("told:", told)
			}
		})
	}
}

// What is recreated has as many as before.
func TestScaledObjectIsMadeAnew(t *testing.T) {
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
		t.Errorf("there are %s of it", have)
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
			t.Errorf("there are %s of it", have)
		}
	}
}

// Who may not know what autoscalers scale is told once, and the manifest counts.
func TestNobodyMayListAutoscalers(t *testing.T) {
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
		if told := strings.Count(did.eventText(namespace, apply.Warned), "\n"); told != 1 {
			t.Errorf("it was told %d times", told)
		}
		if have := act(t, "").field(web.kind, key, "spec", "replicas"); have != "3" {
			t.Errorf("there are %s of it", have)
		}
		act(t, scaler).scale(web.kind, key, 5)
	}
}

// Who may not even ask for kinds is told so, whatever the release brings.
func TestNobodyMayAskForKinds(t *testing.T) {
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
