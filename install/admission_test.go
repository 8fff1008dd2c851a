package install

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

var inVersions = schema.GroupVersionResource{Group: "config.openshift.io", Version: "v1", Resource: "clusterversions"}

// images are releases, by their place in the list of updates.
var images = map[string]string{}

func init() {
	for i, place := range []string{"AVAILABLE", "CONDITIONAL", "APPLIED", "OTHER"} {
		images[place] = "registry.example/shop@sha256:" + strings.Repeat(fmt.Sprint(i), 64)
	}
}

// withImages replaces the places of images in a text by their names.
func withImages(text string) string {
	for place, image := range images {
		text = strings.ReplaceAll(text, place, image)
	}
	return text
}

// setVersion creates the ClusterVersion, with a spec and a list of updates.
func setVersion(t *testing.T, c *cluster.Cluster, spec string) {
	t.Helper()
	versions := c.Objects.Resource(inVersions)
	err := versions.Delete(t.Context(), "version", metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	made := newVersion(t, `{clusterID: 00000000-0000-0000-0000-000000000000`+spec+`}`)
	sandboxtest.Eventually(t, "there is a ClusterVersion", func(ctx context.Context) bool { // whose kind may be new
		var created *unstructured.Unstructured
		if created, err = versions.Create(ctx, made, metav1.CreateOptions{}); err == nil {
			made = created
		}
		return err == nil
	})
	made.Object["status"] = map[string]any{
		"availableUpdates": []any{map[string]any{"version": "1.1.0", "image": images["AVAILABLE"]}},
		"conditionalUpdates": []any{map[string]any{
			"release": map[string]any{"version": "1.2.0", "image": images["CONDITIONAL"]},
			"risks": []any{map[string]any{
				"name":          "Slow",
				"message":       "it is slow",
				"url":           "https://example.com",
				"matchingRules": []any{map[string]any{"type": "Always"}},
			}},
		}},
		"history": []any{map[string]any{
			"version": "1.0.0", "image": images["APPLIED"], "state": "Completed", "verified": false,
			"startedTime": "2026-01-01T00:00:00Z", "completionTime": nil,
		}},
		"desired": map[string]any{"version": "1.0.0", "image": images["APPLIED"]}, "observedGeneration": int64(1),
		"versionHash": "",
	}
	if _, err := versions.UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// newVersion returns a ClusterVersion with a spec.
func newVersion(t *testing.T, spec string) *unstructured.Unstructured {
	t.Helper()
	made := &unstructured.Unstructured{}
	text := withImages(`{apiVersion: config.openshift.io/v1, kind: ClusterVersion, metadata: {name: version}, spec: ` +
		spec + `}`)
	if err := yaml.Unmarshal([]byte(text), &made.Object); err != nil {
		t.Fatal(err)
	}
	return made
}

// editor returns a client for ClusterVersions of a user who may edit them, and who has additional verbs.
func editor(t *testing.T, name string, verbs ...string) dynamic.ResourceInterface {
	t.Helper()
	all := append([]string{"get", "list", "watch", "create", "update", "patch", "delete"}, verbs...)
	grant(t, name, rbacv1.PolicyRule{
		APIGroups: []string{inVersions.Group},
		Resources: []string{inVersions.Resource},
		Verbs:     all,
	})
	return shared.ConnectAs(t, name).Objects.Resource(inVersions)
}

// grant gives a user a role of one rule.
func grant(t *testing.T, user string, rule rbacv1.PolicyRule) {
	t.Helper()
	bindRole(t, user, user)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{rule}}
	_, err := shared.Client(t).RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// bindRole binds a ClusterRole to a user.
func bindRole(t *testing.T, user, role string) {
	t.Helper()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
	}
	_, err := shared.Client(t).RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// as returns a client for ClusterVersions that impersonates a user with groups.
func as(t *testing.T, user string, groups ...string) dynamic.ResourceInterface {
	t.Helper()
	config := rest.CopyConfig(shared.Sandbox(t).Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
	return sandboxtest.Connect(t, config).Objects.Resource(inVersions)
}

// edit tries a merge patch of the spec, and changes nothing.
func edit(ctx context.Context, versions dynamic.ResourceInterface, spec string) error {
	patch := []byte(withImages(`{"spec":` + spec + `}`))
	_, err := versions.Patch(ctx, "version", types.MergePatchType, patch,
		metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// guarded installs all objects, creates a ClusterVersion, and waits until the policy is in force and rights are known.
func guarded(t *testing.T, spec string) *cluster.Cluster {
	t.Helper()
	c := applyManifests(t)
	setVersion(t, c, spec)
	plain := editor(t, "ana")
	sandboxtest.Eventually(t, "the policy is in force", func(ctx context.Context) bool {
		err := edit(ctx, plain, `{"desiredUpdate":{"image":"registry.example/other","force":true}}`)
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "runlevel-clusterversions")
	})
	return c
}

// edits are changes of a ClusterVersion, each with the verb that it requires, if any.
var edits = []struct{ name, before, spec, verb, field string }{
	{"the channel", "", `{"channel":"stable"}`, "", ""},
	{"an available update", "", `{"desiredUpdate":{"image":"AVAILABLE","version":"1.1.0"}}`, "", ""},
	{"a conditional update", "", `{"desiredUpdate":{"image":"CONDITIONAL"}}`, "", ""},
	{"the applied release", "", `{"desiredUpdate":{"image":"APPLIED"}}`, "", ""},
	{"a version", "", `{"desiredUpdate":{"version":"1.1.0"}}`, "", ""},
	{"another image", "", `{"desiredUpdate":{"image":"OTHER"}}`, "update-to-any-image", "spec.desiredUpdate.image"},
	{"a preflight of another image", "", `{"desiredUpdate":{"image":"OTHER","mode":"Preflight"}}`,
		"update-to-any-image", "spec.desiredUpdate.image"},
	{"force", "", `{"desiredUpdate":{"image":"AVAILABLE","force":true}}`, "force", "spec.desiredUpdate.force"},
	{"an override", "",
		`{"overrides":[{"kind":"ConfigMap","group":"","namespace":"shop","name":"a","unmanaged":true}]}`, "override",
		"spec.overrides"},
	{"a server for updates", "", `{"upstream":"https://updates.example"}`, "update-to-any-image", "spec.upstream"},

	{"the channel beside all", all, `{"channel":"stable"}`, "", ""},
	{"the version beside all", `, desiredUpdate: {image: "OTHER"}`, `{"desiredUpdate":{"version":"1.9.0"}}`, "", ""},
	{"a preflight of the update", `, desiredUpdate: {image: "OTHER"}`, `{"desiredUpdate":{"mode":"Preflight"}}`, "", ""},
	{"the channel beside a preflight", preflight, `{"channel":"stable"}`, "", ""},
	{"an update after its preflight", preflight, `{"desiredUpdate":{"mode":null}}`, "update-to-any-image",
		"spec.desiredUpdate.image"},
	{"take the update back", all, `{"desiredUpdate":null}`, "", ""},
	{"no force any more", all, `{"desiredUpdate":{"force":false}}`, "", ""},
	{"force for another image", all, `{"desiredUpdate":{"image":"AVAILABLE"}}`, "force", "spec.desiredUpdate.force"},
	{"another server for updates", all, `{"upstream":"https://updates.example/b"}`, "update-to-any-image",
		"spec.upstream"},
	{"no server for updates", all, `{"upstream":null}`, "", ""},
	{"no overrides", all, `{"overrides":null}`, "override", "spec.overrides"},
}

const preflight = `, desiredUpdate: {image: "OTHER", mode: Preflight}`

// all is a spec with all fields that require a verb.
const all = `, desiredUpdate: {image: "OTHER", force: true}, upstream: "https://updates.example/a",
	overrides: [{kind: ConfigMap, group: "", namespace: shop, name: a, unmanaged: true}]`

// Three users try each edit: one who may only edit, one with the required verb, and one with all other verbs.
func TestAnEditorOfClusterVersionsNeedsAVerb(t *testing.T) {
	admin := guarded(t, "")
	verbs := []string{"force", "override", "update-to-any-image"}
	plain := editor(t, "ana")
	with, without := map[string]dynamic.ResourceInterface{}, map[string]dynamic.ResourceInterface{}
	for _, verb := range verbs {
		with[verb] = editor(t, "with-"+verb, verb)
		others := slices.DeleteFunc(slices.Clone(verbs), func(other string) bool { return other == verb })
		without[verb] = editor(t, "without-"+verb, others...)
	}
	for _, item := range edits {
		t.Run(item.name, func(t *testing.T) {
			setVersion(t, admin, item.before)
			if item.verb == "" {
				if err := edit(t.Context(), plain, item.spec); err != nil {
					t.Error(err)
				}
				return
			}
			sandboxtest.Eventually(t, "the edit passes with the verb", func(ctx context.Context) bool {
				return edit(ctx, with[item.verb], item.spec) == nil
			})
			for name, user := range map[string]dynamic.ResourceInterface{"ana": plain,
				"without-" + item.verb: without[item.verb]} {
				sandboxtest.Eventually(t, "the user may edit", func(ctx context.Context) bool {
					return edit(ctx, user, `{"channel":"fast"}`) == nil
				})
				err := edit(t.Context(), user, item.spec)
				wanted := []string{`user "` + name + `" may not`, item.field,
					`the verb "` + item.verb + `" on clusterversions.config.openshift.io`}
				if !apierrors.IsForbidden(err) ||
					slices.ContainsFunc(wanted, func(part string) bool {
						return !strings.Contains(err.Error(), part)
					}) {
					t.Errorf("user %s: got error %v, want Forbidden with %q", name, err, wanted)
				}
			}
		})
	}
}

// The operator may apply a ClusterVersion of its release, and an administrator any ClusterVersion.
func TestAdministratorsAndTheOperatorNeedNoVerb(t *testing.T) {
	guarded(t, "")
	bindRole(t, "root", "cluster-admin")
	for _, user := range []dynamic.ResourceInterface{
		as(t, "kubeadmin", "system:masters"), as(t, "root"),
		as(t, operator, "system:serviceaccounts", "system:serviceaccounts:runlevel-system"),
	} {
		// "oc adm upgrade --to-image OTHER --allow-explicit-upgrade --force" sends the first one
		for _, spec := range []string{`{"desiredUpdate":{"architecture":"","force":true,"image":"OTHER","version":""}}`,
			`{"overrides":[]}`, `{"upstream":"https://updates.example"}`} {
			sandboxtest.Eventually(t, "it passes: "+spec, func(ctx context.Context) bool {
				return edit(ctx, user, spec) == nil
			})
		}
	}
}

// A user can't bypass the policy by deleting and creating the ClusterVersion: a new ClusterVersion has no list of
// updates, regardless of the status that it is created with.
func TestANewClusterVersionIsGuardedAsWell(t *testing.T) {
	admin := guarded(t, "")
	plain := editor(t, "ana")
	for spec, passes := range map[string]bool{"": true, `, desiredUpdate: {image: AVAILABLE}`: false,
		`, desiredUpdate: {version: 1.1.0, force: true}`: false} {
		before, err := plain.Get(t.Context(), "version", metav1.GetOptions{})
		if err == nil {
			err = plain.Delete(t.Context(), "version", metav1.DeleteOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
		made := newVersion(t, `{clusterID: 00000000-0000-0000-0000-000000000000`+spec+`}`)
		made.Object["status"] = before.Object["status"]
		made, err = plain.Create(t.Context(), made, metav1.CreateOptions{})
		if passes != (err == nil) || !passes && !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", spec, err)
		}
		if err == nil && made.Object["status"] != nil {
			t.Errorf("ClusterVersion was created with a status: %v", made.Object["status"])
		}
		setVersion(t, admin, "")
	}
}

// The history of the ClusterVersion is in its status, which needs a separate right; the record and the lock are in the
// operator's namespace.
func TestAnEditorOfClusterVersionsCantForgeTheHistory(t *testing.T) {
	admin := guarded(t, "")
	plain := editor(t, "ana")
	before, err := plain.Get(t.Context(), "version", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	forged := before.DeepCopy()
	_ = unstructured.SetNestedSlice(forged.Object, nil, "status", "history")
	after, err := plain.Update(t.Context(), forged, metav1.UpdateOptions{})
	if err != nil || !equality.Semantic.DeepEqual(before.Object["status"], after.Object["status"]) {
		t.Errorf("an update wrote the status %v: %v", after.Object["status"], err)
	}
	if _, err := plain.UpdateStatus(t.Context(), forged, metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("the status was updated: %v", err)
	}
	for _, what := range []authorizationv1.ResourceAttributes{
		{Resource: "configmaps", Name: "runlevel-release-default"}, {Resource: "pods"}, {Resource: "secrets"},
		{Group: "coordination.k8s.io", Resource: "leases", Name: "runlevel-release-default"},
		{Group: "apps", Resource: "deployments", Name: "runlevel-operator"},
	} {
		what.Namespace = "runlevel-system"
		for _, what.Verb = range []string{"create", "update", "patch", "delete"} {
			if may(t, admin, authorizationv1.SubjectAccessReviewSpec{
				User:               "ana",
				Groups:             []string{"system:authenticated"},
				ResourceAttributes: &what,
			}) {
				t.Errorf("the editor may %s %s", what.Verb, what.Resource)
			}
		}
	}
}

// The API server reports a field that the policy misspells or uses with a wrong type.
func TestAdmissionPolicyFitsTheDefinition(t *testing.T) {
	guarded(t, "")
	policies := admissionregistrationv1.SchemeGroupVersion.WithResource("validatingadmissionpolicies")
	var warnings []admissionregistrationv1.ExpressionWarning
	sandboxtest.Await(t, shared, policies, "runlevel-clusterversions",
		func(p *admissionregistrationv1.ValidatingAdmissionPolicy) bool {
			if p.Status.TypeChecking == nil {
				return false
			}
			warnings = p.Status.TypeChecking.ExpressionWarnings
			return p.Status.ObservedGeneration == p.Generation
		})
	for _, warning := range warnings {
		t.Errorf("%s: %s", warning.FieldRef, warning.Warning)
	}
}
