package uninstall

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/dependents"
	"github.com/runlevel/runlevel/internal/cluster/fingerprint"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/cluster/waiter"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// head is the metadata of an object of release shop, such as "apps Deployment shop/web" or "Namespace shop". Its UID is
// its text.
func head(text string, change ...func(*metav1.ObjectMeta)) objectmeta.LiveMetadata {
	words := strings.Fields(text)
	kind := schema.GroupKind{Kind: words[len(words)-2]}
	if len(words) == 3 {
		kind.Group = words[0]
	}
	namespace, name, found := strings.Cut(words[len(words)-1], "/")
	if !found {
		namespace, name = "", namespace
	}
	object := &metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(text),
		Labels: map[string]string{objectmeta.ReleaseLabel: "shop"},
		ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager:   cluster.FieldManager,
			Operation: metav1.ManagedFieldsOperationApply,
		}},
	}
	for _, fn := range change {
		fn(object)
	}
	resource := cluster.Resource{
		GroupVersionResource: schema.GroupVersionResource{
			Group:    kind.Group,
			Resource: strings.ToLower(kind.Kind) + "s",
		},
		Kind:       kind.Kind,
		Namespaced: found,
	}
	return objectmeta.Of(resource, object)
}

func TestStagesOfDeletion(t *testing.T) {
	t.Parallel()
	var objects []objectmeta.LiveMetadata
	for _, text := range []string{
		"Namespace shop", "apiextensions.k8s.io CustomResourceDefinition ships.example.com", "ServiceAccount shop/web",
		"rbac.authorization.k8s.io ClusterRole web",
		"storage.k8s.io StorageClass fast", "rbac.authorization.k8s.io RoleBinding shop/web", "ConfigMap shop/web",
		"Service shop/web", "networking.k8s.io NetworkPolicy shop/web",
		"apps Deployment shop/web", "batch Job shop/seed", "networking.k8s.io Ingress shop/web",
		"apiregistration.k8s.io APIService v1.example.com",
		"admissionregistration.k8s.io ValidatingWebhookConfiguration web", "example.com Ship shop/one",
		"admissionregistration.k8s.io ValidatingAdmissionPolicy web",
	} {
		objects = append(objects, head(text))
	}
	var got []string
	for _, stage := range stagesOf(objects) {
		var texts []string
		for _, object := range stage.Objects {
			texts = append(texts, object.ID.Kind)
		}
		got = append(got, strings.Join(texts, " "))
	}
	want := []string{
		"ValidatingAdmissionPolicy", "Ship", "APIService ValidatingWebhookConfiguration", "Ingress", "Deployment Job",
		"ConfigMap Service NetworkPolicy",
		"RoleBinding", "ServiceAccount ClusterRole StorageClass", "CustomResourceDefinition", "Namespace",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("stages (-want +got):\n%s", diff)
	}
}

func TestSelectionOfObjects(t *testing.T) {
	t.Parallel()
	foreign := func(o *metav1.ObjectMeta) { o.ManagedFields[0].Manager = "flux" }
	controlled := func(o *metav1.ObjectMeta) {
		o.OwnerReferences = []metav1.OwnerReference{{Kind: "Ship", Name: "one", UID: "x", Controller: new(true)}}
	}
	annotated := func(o *metav1.ObjectMeta) { o.Annotations = map[string]string{KeepAnnotation: "true"} }
	owned := func(o *metav1.ObjectMeta) {
		annotated(o)
		o.OwnerReferences = []metav1.OwnerReference{{Kind: "Deployment", Name: "web", UID: "apps Deployment shop/web"}}
	}
	for name, c := range map[string]struct {
		objects []objectmeta.LiveMetadata
		choice  Choice
		remains map[types.UID]dependents.Remainder
		kept    string
	}{
		"all": {objects: []objectmeta.LiveMetadata{head("Namespace shop"), head("ConfigMap shop/a")}},
		"copied label": {objects: []objectmeta.LiveMetadata{head("ConfigMap shop/a", controlled),
			head("Endpoints shop/a", foreign)}},
		"taken over": {
			objects: []objectmeta.LiveMetadata{head("Namespace shop"), head("ConfigMap shop/a", foreign)},
			kept:    "ConfigMap shop/a TakenOver, Namespace shop HoldsKeptObjects",
		},
		"data": {
			objects: []objectmeta.LiveMetadata{head("PersistentVolume a")},
			kept:    "PersistentVolume a Data",
		},
		"data to delete": {
			objects: []objectmeta.LiveMetadata{head("PersistentVolume a")},
			choice:  Choice{DeleteData: patterns("persistentvolumes/*")},
		},
		"requested": {
			objects: []objectmeta.LiveMetadata{head("ConfigMap shop/a"), head("ConfigMap other/a")},
			choice:  Choice{Keep: patterns("ConfigMap/shop/a")},
			kept:    "ConfigMap shop/a Requested",
		},
		"owner of kept": {
			objects: []objectmeta.LiveMetadata{head("apps Deployment shop/web"), head("ConfigMap shop/a", owned)},
			kept:    "ConfigMap shop/a Annotated, Deployment shop/web HoldsKeptObjects",
		},
		"definition of kept": {
			objects: []objectmeta.LiveMetadata{head("apiextensions.k8s.io CustomResourceDefinition ships.example.com"),
				head("example.com Ship shop/a", annotated)},
			kept: "CustomResourceDefinition ships.example.com HoldsKeptObjects, Ship shop/a Annotated",
		},
		"foreign in Namespace": {
			objects: []objectmeta.LiveMetadata{head("Namespace shop"), head("ConfigMap shop/a")},
			kept:    "Namespace shop HoldsForeignObjects",
			remains: map[types.UID]dependents.Remainder{
				"Namespace shop": {Objects: []kinds.ID{{Kind: "Secret", Namespace: "shop", Name: "theirs"}}},
			},
		},
		"unknown Namespace": {
			objects: []objectmeta.LiveMetadata{head("Namespace shop")}, kept: "Namespace shop NotKnown",
			remains: map[types.UID]dependents.Remainder{"Namespace shop": {Err: errTimeout}},
		},
	} {
		chooser := &chooser{release: "shop", choice: c.choice, applied: fingerprint.Read(nil)}
		selected := chooser.choose(c.objects)
		selected.keepFor(c.remains)
		var kept []string
		for _, object := range selected.kept {
			kept = append(kept, object.Object.String()+" "+string(object.Reason))
			if slices.ContainsFunc(selected.deleted, func(head objectmeta.LiveMetadata) bool {
				return head.ID == object.Object
			}) {
				t.Errorf("%s: %s is kept and deleted", name, object.Object)
			}
		}
		if got := strings.Join(kept, ", "); got != c.kept {
			t.Errorf("%s: kept %q, want %q", name, got, c.kept)
		}
	}
}

func patterns(text string) []NamePattern {
	parsed, err := ParsePattern(text)
	if err != nil {
		panic(err)
	}
	return []NamePattern{parsed}
}

func TestParsePattern(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "a", "configmap/", "/a", "configmap/a/b/c"} {
		if _, err := ParsePattern(text); err == nil {
			t.Errorf("%q is a pattern", text)
		}
	}
	web := head("apps Deployment shop/web")
	for text, want := range map[string]bool{
		"deployment/web": true, "Deployment.apps/shop/web": true, "deployments/*": true, "deployment/other/web": false,
		"deployment.example.com/web": false, "job/web": false, "deployment/we": false,
	} {
		if got := patterns(text)[0].matches(web); got != want {
			t.Errorf("%s matches: %t", text, got)
		}
	}
}

// TestPauseBetweenLooksAtDeletes checks that an object is noticed soon after its deletion: within a tenth of the wait.
func TestPauseBetweenLooksAtDeletes(t *testing.T) {
	t.Parallel()
	for _, needed := range []time.Duration{300 * time.Millisecond, 2 * time.Second, 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			noReport := func(context.Context) error { return nil }
			err := new(remover).newWaiter(noReport).Until(t.Context(), func(context.Context) (waiter.Result, error) {
				if time.Since(began) >= needed {
					return waiter.Done, nil
				}
				return waiter.Again, nil
			})
			if late := time.Since(began) - needed; err != nil || late > max(needed/8, 50*time.Millisecond) {
				t.Errorf("a delete that took %s is noticed %s later, error %v", needed, late, err)
			}
		})
	}
}
