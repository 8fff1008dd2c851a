package runtimehook_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/runlevel/runlevel/internal/machines/runtimehook"
)

// TestDiscoveriesThatAreRefused checks that errors name the handler and its problem.
func TestDiscoveriesThatAreRefused(t *testing.T) {
	const update = `"requestHook":{"apiVersion":"hooks.runtime.cluster.x-k8s.io/v1alpha1","hook":"UpdateMachine"}`
	const can = `"requestHook":{"apiVersion":"hooks.runtime.cluster.x-k8s.io/v1alpha1","hook":"CanUpdateMachineSet"}`
	for handlers, want := range map[string]string{
		`{"name":"u","failurePolicy":"Ignore",` + update +
			`}`: `handler "u": failurePolicy Ignore of UpdateMachine is refused`,
		`{"name":"u",` + update + `},{"name":"u",` + can + `}`: `two handlers are called "u"`,
		`{"name":"u","timeoutSeconds":31,` + update +
			`}`: `handler "u": timeoutSeconds is 31, and must be between 0 and 30`,
		`{"name":"u","timeoutSeconds":-1,` + update + `}`: `timeoutSeconds is -1`,
		`{"name":"u","failurePolicy":"Maybe",` + can +
			`}`: `failurePolicy is "Maybe"`,
		`{"name":"U.x",` + update + `}`: `handler "U.x": its name is not a DNS label`,
		`{"name":"u","requestHook":{"apiVersion":"hooks.runtime.cluster.x-k8s.io/v1alpha1","hook":"Explode"}}`:   `unknown hook Explode of "hooks.runtime.cluster.x-k8s.io/v1alpha1"`,
		`{"name":"u","requestHook":{"apiVersion":"a/b/c","hook":"UpdateMachine"}}`:                               `unknown hook UpdateMachine of "a/b/c"`,
		`{"name":"u","requestHook":{"apiVersion":"hooks.runtime.cluster.x-k8s.io/v1alpha1","hook":"Discovery"}}`: `unknown hook Discovery`,
		strings.Repeat(`{},`, 600) +
			`{}`: "there are 601 of them, and 512 is the most",
		`{"name":"\u001b[2J\n",` + can + `}`: `its name is not a DNS label`,
	} {
		s := newScene(t)
		s.Answer("Discovery", fmt.Sprintf(`{"status":"Success","handlers":[%s]}`, handlers))
		found, err := (&runtimehook.Client{}).Discover(t.Context(), s.config)
		checkError(t, err, "extension ext sent invalid handlers for Discovery (")
		if err == nil || !strings.Contains(err.Error(), want) || found != nil {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// Fields that a handler does not set get Cluster API's defaults. Handlers of hooks that are never called count, too.
func TestDiscoveryFillsIn(t *testing.T) {
	s := newScene(t)
	s.Answer("Discovery", `{"status":"Success","handlers":[
		{"name":"u","requestHook":{"apiVersion":"hooks.runtime.cluster.x-k8s.io/v1alpha1","hook":"UpdateMachine"}},
		{"name":"b","timeoutSeconds":30,"failurePolicy":"Ignore","requestHook":{"apiVersion":"hooks.runtime.cluster.x-k8s.io/v1alpha1","hook":"BeforeClusterDelete"}}]}`)
	found, err := (&runtimehook.Client{}).Discover(t.Context(), s.config)
	if err != nil || len(found) != 2 {
		t.Fatal(found, err)
	}
	if u := found[0]; u.Name != "u.ext" || u.TimeoutSeconds != 10 || u.FailurePolicy != "Fail" {
		t.Errorf("%+v", u)
	}
	if b := found[1]; b.Name != "b.ext" || b.TimeoutSeconds != 30 || b.FailurePolicy != "Ignore" {
		t.Errorf("%+v", b)
	}
}

func TestNamesWithDotsAreRefused(t *testing.T) {
	s := newScene(t)
	s.config.Name = "a.b"
	_, err := (&runtimehook.Client{}).Discover(t.Context(), s.config)
	checkError(t, err, "extension a.b has a name that is not a DNS label")
}
