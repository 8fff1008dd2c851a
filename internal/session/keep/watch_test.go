package keep_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/session/keep"
)

// two is a payload of two kinds.
const two = one + `
-- 0000_20_shop_20.yaml --
{apiVersion: v1, kind: Secret, metadata: {name: key, namespace: NS}, stringData: {token: pssst}}
`

// paint changes a ConfigMap to blue, and waits until it is red again.
func (s *site) paint(name string) {
	s.t.Helper()
	s.patch("ConfigMap", name, `{"data":{"colour":"blue"}}`)
	s.until(name+" is repaired", func() bool { return s.colour(name) == "red" })
}

// A server ends watches every few minutes. They continue where they ended: nothing is listed, and no handler is called.
func TestWatchesContinueWhereTheServerEndsThem(t *testing.T) {
	t.Parallel()
	s := keepIn(t, two)
	s.paint("settings")
	s.keeping.forget()
	for range 3 {
		s.keeping.cut()
		s.paint("settings")
	}
	s.quiet()
	if looks := s.keeping.all(isLook); len(looks) > 6 || s.keeping.count(is("list", "configmaps")) > 0 {
		t.Errorf("after three ends of two watches, got requests %v", looks)
	}
	if got := len(s.all(keep.Unwatched)); got > 0 {
		t.Errorf("reported %q", s.lines())
	}
}

// If the version of a watch has expired, the objects are listed once.
func TestExpiredWatchListsObjects(t *testing.T) {
	t.Parallel()
	s := keepIn(t, two)
	s.paint("settings")
	s.keeping.forget()
	var refused atomic.Int64
	s.keeping.disturb(func(request *http.Request, parsed sandboxtest.Request) (*http.Response, error) {
		if parsed.Verb != "watch" || request.URL.Query().Get("sendInitialEvents") != "" || refused.Add(1) > 2 {
			return nil, nil
		}
		const expired = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}}`
		return &http.Response{
			StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(strings.NewReader(expired)), Request: request,
		}, nil
	})
	resume := s.keeping.stall()
	s.patch("ConfigMap", "settings", `{"data":{"colour":"blue"}}`)
	s.delete("Secret", "key")
	s.keeping.cut()
	resume()
	s.until("both are repaired", func() bool { return s.colour("settings") == "red" && s.get("Secret", "key") != nil })
	s.quiet()
	if looks := s.keeping.all(isLook); refused.Load() == 0 || len(looks) > 6 || len(s.all(keep.Unwatched)) > 0 {
		t.Errorf("%d watches were refused, and got requests %v", refused.Load(), looks)
	}
}

// Drift during an outage of the API server is repaired when the server responds again.
func TestTheAPIServerIsRestarted(t *testing.T) {
	t.Parallel()
	own := sandboxtest.Start(t, sandbox.Options{Nodes: sandbox.NoNodes})
	s := keepAs(t, "default", two, func(p *plan) { p.sandbox = own })
	s.paint("settings")
	s.keeping.disturb(func(*http.Request, sandboxtest.Request) (*http.Response, error) {
		return nil, context.DeadlineExceeded
	})
	s.must(own.Kill(sandbox.APIServer))
	s.must(own.Resume(t.Context(), sandbox.APIServer))
	s.until("somebody is served", func() bool { return s.get("Secret", "key") != nil })
	s.patch("ConfigMap", "settings", `{"data":{"colour":"blue"}}`)
	s.delete("Secret", "key")
	s.keeping.forget()
	s.keeping.disturb(nil)
	s.until("both are repaired", func() bool { return s.colour("settings") == "red" && s.get("Secret", "key") != nil })
	s.quiet()
	if looks := s.keeping.all(isLook); len(looks) > 12 {
		t.Errorf("got requests %v", looks)
	}
	s.paint("settings")
}

// A deleted definition is created again, and then its objects, which were deleted with it.
func TestDeletedDefinitionIsRecreated(t *testing.T) {
	t.Parallel()
	files := hats
	for i := range 5 {
		files += fmt.Sprintf("---\n{apiVersion: NS.example.com/v1, kind: Hat, metadata: {name: hat-%d, namespace: "+
			"NS}, size: 3}\n", i)
	}
	s := keepIn(t, files)
	s.keeping.forget()
	s.delete("CustomResourceDefinition.apiextensions.k8s.io", "hats.NS.example.com")
	s.until("all are back", func() bool { return len(s.all(keep.Repaired)) >= 7 })
	s.quiet()
	if got := s.keeping.count(is("patch", "hats")); got > 40 {
		t.Errorf("six objects took %d applies", got)
	}
	if got := s.keeping.count(isLook); got > 30 {
		t.Errorf("got requests %v", s.keeping.all(isLook))
	}
	if first := s.all(keep.Repaired)[0]; first.Object.Kind != "CustomResourceDefinition" {
		t.Errorf("the first that was repaired is %s", first.Object)
	}
	s.patch("Hat.NS.example.com", "hat", `{"size":4}`)
	s.until("it is watched again", func() bool {
		return len(s.of(keep.Repaired, "Hat."+s.name+".example.com", "hat")) == 2
	})
}

// A change of a definition may change its objects without a change of their metadata.
func TestADefinitionIsChanged(t *testing.T) {
	t.Parallel()
	s := keepIn(t, hats)
	s.keeping.forget()
	s.patch("CustomResourceDefinition.apiextensions.k8s.io", "hats.NS.example.com",
		`{"spec":{"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`)
	s.until("it is repaired", func() bool { return len(s.all(keep.Repaired)) > 0 })
	s.until("its object is checked", func() bool { return s.keeping.count(of("hats", "hat")) > 0 })
	s.quiet()
	if got := s.keeping.count(isWrite); got > 6 {
		t.Errorf("the repair took %d writes", got)
	}
}

// everything has all verbs for ConfigMaps except watch.
var everything = []string{"get", "create", "update", "patch", "delete"}

func may(resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{resource}, Verbs: verbs}
}

// by is a user with some rights in the namespace.
func by(config *rest.Config) func(*plan) { return func(p *plan) { p.config = config } }

// allow replaces the rights of a user.
func (s *site) allow(name string, rules ...rbacv1.PolicyRule) {
	s.t.Helper()
	roles := s.admin.Client.RbacV1().Roles(s.name)
	role, err := roles.Get(s.t.Context(), name, metav1.GetOptions{})
	s.must(err)
	role.Rules = rules
	_, err = roles.Update(s.t.Context(), role, metav1.UpdateOptions{})
	s.must(err)
}

// A user who may watch in one namespace only gets no report about other namespaces.
func TestRoleInOneNamespaceSuffices(t *testing.T) {
	t.Parallel()
	name := test.Namespace(t)
	user := test.Account(t, name, "user", may("configmaps", "*"), may("secrets", "*"))
	s := keepAs(t, name, two, by(user))
	s.paint("settings")
	s.delete("Secret", "key")
	s.until("it is repaired", func() bool { return s.get("Secret", "key") != nil })
	s.quiet()
	if looks := s.keeping.all(isLook); len(looks) > 8 {
		t.Errorf("got requests %v", looks)
	}
	if got := len(s.all(keep.Unwatched)); got > 0 {
		t.Errorf("reported %q", s.lines())
	}
}

// If a user may not watch a kind, the missing right is reported once. When the right is granted, all drift is repaired.
func TestRightToWatchIsGrantedLater(t *testing.T) {
	t.Parallel()
	name := test.Namespace(t)
	user := test.Account(t, name, "user", may("configmaps", everything...))
	s := keepAs(t, name, one, by(user))
	s.patch("ConfigMap", "settings", `{"data":{"colour":"blue"}}`)
	s.until("it is reported", func() bool { return len(s.all(keep.Unwatched)) > 0 })
	if reported := s.all(keep.Unwatched)[0].Message; reported != "changes of configmaps in namespace "+name+
		" are not seen: allow this user to list and watch them" {
		t.Errorf("reported %q", reported)
	}
	s.allow("user", may("configmaps", "*"))
	s.until("it is repaired", func() bool { return s.colour("settings") == "red" })
	if got, again := len(s.all(keep.Unwatched)), len(s.all(keep.Watched)); got != 1 || again != 1 {
		t.Errorf("reported %q", s.lines())
	}
}

// If a user may list and not watch, changes are not seen, which is reported once.
func TestRightToListDoesNotSuffice(t *testing.T) {
	t.Parallel()
	name := test.Namespace(t)
	user := test.Account(t, name, "user", may("configmaps", append(everything, "list")...))
	s := keepAs(t, name, one, by(user))
	s.until("it is reported", func() bool { return len(s.all(keep.Unwatched)) > 0 })
	s.keeping.forget()
	s.until("it is tried again", func() bool { return s.keeping.count(is("watch", "configmaps")) > 3 })
	if got, again := len(s.all(keep.Unwatched)), len(s.all(keep.Watched)); got != 1 || again != 0 {
		t.Errorf("reported %q", s.lines())
	}
}

// If a user may list everywhere and watch in a namespace only, the changes in the namespace are seen.
func TestRightToListEverywhereAndWatchInOneNamespace(t *testing.T) {
	t.Parallel()
	name := test.Namespace(t)
	user := test.Account(t, name, "user", may("configmaps", "*"))
	allowEverywhere(t, name, "user", may("configmaps", "list"))
	s := keepAs(t, name, one, by(user))
	s.paint("settings")
	if got := len(s.all(keep.Unwatched)); got > 0 { // lists show changes, too
		t.Errorf("reported %q", s.lines())
	}
}

// allowEverywhere grants an account rights in the whole cluster, until its result is called.
func allowEverywhere(t *testing.T, namespace, name string, rule rbacv1.PolicyRule) (take func()) {
	t.Helper()
	meta, rights := metav1.ObjectMeta{Name: namespace + "-" + name}, test.Client(t).RbacV1()
	_, err := rights.ClusterRoles().Create(t.Context(),
		&rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{})
	if err == nil {
		_, err = rights.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := rights.ClusterRoleBindings().Delete(t.Context(), meta.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// If the right to watch in the whole cluster is revoked, and the right in the namespace of the release remains, nothing
// is reported, and drift is repaired. If the right in the namespace is revoked, too, the kind is not watched until it
// is granted again.
func TestRightToWatchEverywhereIsRevoked(t *testing.T) {
	t.Parallel()
	name := test.Namespace(t)
	user := test.Account(t, name, "user", may("configmaps", "*"))
	take := allowEverywhere(t, name, "user", may("configmaps", "list", "watch"))
	s := keepAs(t, name, one, by(user))
	s.paint("settings")
	s.keeping.forget()
	take()
	inNamespace := func(r sandboxtest.Request) bool { return r.Verb == "watch" && r.Namespace == name }
	s.until("the namespace is watched", func() bool { s.keeping.cut(); return s.keeping.count(inNamespace) > 0 })
	s.paint("settings")
	if got := len(s.all(keep.Unwatched)); got > 0 {
		t.Errorf("reported %q", s.lines())
	}
	s.allow("user", may("configmaps", everything...))
	s.until("it is reported", func() bool { s.keeping.cut(); return len(s.all(keep.Unwatched)) > 0 })
	s.patch("ConfigMap", "settings", `{"data":{"colour":"blue"}}`)
	s.allow("user", may("configmaps", "*"))
	s.until("it is repaired", func() bool { return s.colour("settings") == "red" })
	s.until("it is reported", func() bool { return len(s.all(keep.Watched)) == 1 })
}

// A revoked right to watch is noticed when a watch ends.
func TestRightToWatchIsRevoked(t *testing.T) {
	t.Parallel()
	name := test.Namespace(t)
	user := test.Account(t, name, "user", may("configmaps", "*"))
	s := keepAs(t, name, one, by(user))
	s.paint("settings")
	s.allow("user", may("configmaps", everything...))
	s.keeping.forget()
	s.until("it is reported", func() bool { s.keeping.cut(); return len(s.all(keep.Unwatched)) > 0 })
	s.patch("ConfigMap", "settings", `{"data":{"colour":"blue"}}`)
	began := time.Now()
	s.until("two seconds have passed", func() bool { return time.Since(began) > 2*time.Second })
	if got := s.keeping.count(isLook); got > 20 {
		t.Errorf("sent %d requests without the right", got)
	}
	s.allow("user", may("configmaps", "*"))
	s.until("it is repaired", func() bool { return s.colour("settings") == "red" })
	s.until("it is reported", func() bool { return len(s.all(keep.Watched)) == 1 })
	s.paint("settings")
}

// A revoked right to write is reported once for each object. When it is granted again, all objects are repaired as soon
// as the first is.
func TestRightToWriteIsRevoked(t *testing.T) {
	t.Parallel()
	const maps = 10
	files := ""
	for i := range maps {
		files += fmt.Sprintf("-- 0000_20_shop_%02d.yaml --\n{apiVersion: v1, kind: ConfigMap, metadata: {name: "+
			"map-%d, namespace: NS}, data: {colour: red}}\n", i, i)
	}
	name := test.Namespace(t)
	user := test.Account(t, name, "user", may("configmaps", "*"))
	s := keepAs(t, name, files, by(user))
	s.paint("map-0")
	s.allow("user", may("configmaps", "get", "list", "watch"))
	s.until("the right is revoked", func() bool {
		s.patch("ConfigMap", "map-0", `{"data":{"colour":"blue"}}`)
		return len(s.all(keep.Failing)) > 0
	})
	for i := 1; i < maps; i++ {
		s.patch("ConfigMap", fmt.Sprintf("map-%d", i), `{"data":{"colour":"blue"}}`)
	}
	s.until("all failures are reported", func() bool { return len(s.all(keep.Failing)) == maps })
	if reported := s.all(keep.Failing)[0].Message; !strings.Contains(reported, "cannot patch resource \"configmaps\"") {
		t.Errorf("reported %q", reported)
	}
	s.allow("user", may("configmaps", "*"))
	s.until("all are repaired", func() bool {
		for i := range maps {
			if s.colour(fmt.Sprintf("map-%d", i)) != "red" {
				return false
			}
		}
		return true
	})
	if got := s.keeping.count(isWrite); got > 15*maps {
		t.Errorf("the repair took %d writes", got)
	}
	if got := len(s.all(keep.Failing)); got != maps {
		t.Errorf("reported %d times", got)
	}
}
