package ownership_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/ownership"
)

// apart applies an object as we do, but without force.
func (b bed) apart(text string) error {
	b.Helper()
	object := b.parse(text)
	_, err := b.In(b.in(object), b.namespace).Apply(b.Context(), object.GetName(), object,
		metav1.ApplyOptions{FieldManager: cluster.FieldManager})
	return err
}

const shop = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: shop, namespace: NS, labels: {example.com/a: LABEL}}, spec: {replicas: REPLICAS, selector: {matchLabels: {app: shop}},
 template: {metadata: {labels: {app: shop}}, spec: {containers: [{name: shop, image: registry.example/IMAGE}]}}}}`

func deployment(label, replicas, image string) string {
	return strings.NewReplacer("LABEL", label, "REPLICAS", replicas, "IMAGE", image).Replace(shop)
}

func TestLossesNameWhoAndWhat(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	live := b.apply(deployment("ours", "1", "ours"))
	b.merge("hpa-controller", live, `{spec: {replicas: 3}}`, "scale")
	b.merge(`bob "the builder"`, live, `{metadata: {labels: {example.com/a: theirs}}}`)
	b.serverSide("ann", deployment("theirs", "3", "theirs"))
	want := []ownership.Conflict{
		{"ann", "metadata.labels.example.com/a"},
		{"ann", "spec.replicas"},
		{"ann", `spec.template.spec.containers[name="shop"].image`},
		{`bob "the builder"`, "metadata.labels.example.com/a"},
		{"hpa-controller/scale", "spec.replicas"},
	}
	if diff := cmp.Diff(want,
		ownership.Conflicts(fmt.Errorf("try it: %w", b.apart(deployment("ours", "1", "ours"))))); diff != "" {
		t.Errorf("losses (-want +got):\n%s", diff)
	}
}

func TestErrorsWithoutConflicts(t *testing.T) {
	things := schema.GroupResource{Resource: "things"}
	for name, err := range map[string]error{
		"no failure":                nil,
		"another kind of error":     errors.New("conflict with \"bob\""),
		"a conflict of versions":    apierrors.NewConflict(things, "hat", errors.New("the object has been modified")),
		"an invalid object":         apierrors.NewInvalid(schema.GroupKind{Kind: "Hat"}, "hat", nil),
		"an answer without details": &apierrors.StatusError{ErrStatus: metav1.Status{Code: 409}},
	} {
		if got := ownership.Conflicts(err); got != nil {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Any answer of a server results in one line.
func TestLossesOfAnOddServer(t *testing.T) {
	cause := func(message, field string) metav1.StatusCause {
		return metav1.StatusCause{Type: metav1.CauseTypeFieldManagerConflict, Message: message, Field: field}
	}
	err := apierrors.NewApplyConflict([]metav1.StatusCause{
		cause(`conflict with "b\x1b[31m" using v1`, ".a\n.b"),
		cause(`conflict with "a" with subresource "status" using v1 at 2026-01-01T00:00:00Z`, ".c"),
		cause(`conflict with "a" with subresource "status" using v1 at 2026-01-02T00:00:00Z`, ".c"),
		cause("some manager has\nit", "d"),
		{Type: metav1.CauseTypeFieldValueInvalid, Message: `conflict with "c"`, Field: ".e"},
	}, "conflicts")
	want := []ownership.Conflict{{"a/status", "c"}, {`b\x1b[31m`, `a\n.b`}, {`some manager has\nit`, "d"}}
	if diff := cmp.Diff(want, ownership.Conflicts(err)); diff != "" {
		t.Errorf("losses (-want +got):\n%s", diff)
	}
}

func TestOwners(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	live := b.create("helm",
		`{apiVersion: apps/v1, kind: Deployment, metadata: {name: shop, namespace: NS, annotations: {a.b/c: x}}, spec: {selector: {matchLabels: {app: shop}},
 template: {metadata: {labels: {app: shop}}, spec: {tolerations: [{key: a, operator: Exists}], containers: [{name: shop, image: registry.example/a}]}}}}`)
	b.merge("autoscaler", live, `{spec: {replicas: 3}}`, "scale")
	b.merge("bob", live, `{metadata: {annotations: {a.b/c: theirs}}}`)
	b.merge("ann", live, `{metadata: {annotations: {bob: x}}}`)
	entries := b.apply(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: shop, namespace: NS}, spec: {selector: {matchLabels: {app: shop}},
 template: {metadata: {labels: {app: shop}}, spec: {nodeSelector: {a: b}, containers: [{name: shop, image: registry.example/b}]}}}}`).GetManagedFields()

	containers := []any{"spec", "template", "spec", "containers", fieldpath.KeyByFields("name", "shop")}
	for name, row := range map[string]struct {
		path fieldpath.Path
		want []string
		ours bool
	}{
		"a field that a subresource set": {path("spec", "replicas"), []string{"autoscaler/scale"}, false},
		"a key with dots":                {path("metadata", "annotations", "a.b/c"), []string{"bob"}, false},
		"something with fields in it":    {path("metadata", "annotations"), []string{"ann", "bob", "helm"}, false},
		"a field that was theirs":        {path(append(containers, "image")...), nil, true},
		"a field of theirs and ours":     {path("spec", "selector"), []string{"helm"}, true},
		"a field within a list as a whole": {path("spec", "template", "spec", "tolerations", 0, "key"),
			[]string{"helm"}, false},
		"a field within ours as a whole": {path("spec", "selector", "matchLabels", "app"), []string{"helm"}, true},
		"an item of a list":              {path(containers...), []string{"helm"}, true},
		"another item": {
			path("spec", "template", "spec", "containers", fieldpath.KeyByFields("name", "other")), nil, false,
		},
		"a value":                  {path("metadata", "finalizers", value.NewValueInterface("x")), nil, false},
		"a field without an owner": {path("spec", "paused"), nil, false},
		"nothing":                  {nil, []string{"ann", "autoscaler/scale", "bob", "helm"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			owners := slices.DeleteFunc(ownership.Owners(entries, row.path), func(owner string) bool {
				// These controllers write at any time.
				return owner == "kube-controller-manager" || owner == "kube-controller-manager/status"
			})
			if diff := cmp.Diff(row.want, owners, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("owners (-want +got):\n%s", diff)
			}
			if ours := ownership.Owns(entries, row.path); ours != row.ours {
				t.Errorf("it is ours: %t", ours)
			}
		})
	}
}
