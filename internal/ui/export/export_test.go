package export

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// reading returns an export that makes the page of a file.
func reading(first, file string) *Export {
	return &Export{first: first, current: file, files: map[string]string{}, without: map[string]bool{},
		objects: map[string]*objects{"/releases/ns/shop": {urgent: map[string]bool{"Pod/ns/bad": true}}}}
}

func TestLinksLeadToFiles(t *testing.T) {
	for address, file := range map[string]string{
		"/":                                  "index.html",
		"/cluster":                           "cluster.html",
		"/releases/ns/shop":                  "releases/ns/shop/release.html",
		"/releases/ns/shop/objects":          "releases/ns/shop/objects.html",
		"/releases/ns/shop/objects?page=2":   "releases/ns/shop/objects/2-HASH.html",
		"/releases/ns/shop/objects?q=a":      "",
		"/releases/ns/shop/objects?state=x":  "",
		"/releases/ns/shop/plan?from=3&to=5": "releases/ns/shop/plan/3-5-HASH.html",
		"/releases/ns/shop/object?kind=Role.rbac.authorization.k8s.io&name=system%3Aa%2F..&namespace=ns": "releases/ns/" +
			"shop/object/role_rbac_authorization_k8s_io-ns-system_a___-HASH.html",
	} {
		hash := regexp.MustCompile(`[0-9a-f]{8}\.html`)
		found := hash.ReplaceAllString(reading("/", "index.html").find(address), "HASH.html")
		if found != file {
			t.Errorf("%s leads to %q, want %q", address, found, file)
		}
		below := reading("/", "releases/ns/shop/history.html").find(address)
		if file != "" && hash.ReplaceAllString(below, "HASH.html") != "../../../"+file {
			t.Errorf("from a page below, %s leads to %q", address, below)
		}
	}
	one := reading("/releases/ns/shop", "index.html")
	if got := one.find("/releases/ns/shop"); got != "index.html" {
		t.Errorf("the page of the only release is %q", got)
	}
	for _, address := range []string{"/", "/cluster", "/releases/ns/shopping", "/releases/ns/other/objects"} {
		if got := one.find(address); got != "" {
			t.Errorf("an export of one release has %s", address)
		}
	}
}

// Objects that are not ready always have a page, and file systems that ignore case keep all files apart.
func TestObjectsWithoutPages(t *testing.T) {
	e := reading("/", "index.html")
	files := map[string]bool{}
	for i := range maxReady + 50 {
		name := fmt.Sprintf("Web-%d", i)
		if i%2 == 0 {
			name = fmt.Sprintf("web-%d", i+1)
		}
		if file := e.find(object("ns", name)); file != "" {
			files[strings.ToLower(file)] = true
		}
	}
	if len(files) != maxReady || len(e.without) != 50 {
		t.Errorf("%d files, %d left out", len(files), len(e.without))
	}
	if e.find(object("ns", "bad")) == "" {
		t.Error("an unready object has no page")
	}
	if e.find(object("ns", "web-1")) == "" {
		t.Error("a page has no second link")
	}
}

func object(namespace, name string) string {
	return "/releases/ns/shop/object?" + url.Values{"kind": {"Pod"}, "namespace": {namespace}, "name": {name}}.Encode()
}
