package pages_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/ui/pages"
)

func TestTheHistoryHasAllVersions(t *testing.T) {
	r := newRelease(t)
	r.must("1.0.0", shop)
	r.must("1.0.1", strings.ReplaceAll(shop, "blue", "red"))
	err := r.apply("1.0.2", strings.ReplaceAll(shop, "kind: Secret", "kind: ConfigMap"),
		func(options *session.Options) {
			options.Files = session.FileOptions{NotKept: "the disk is full <b>"}
		})
	if err == nil {
		t.Fatal("the apply of an invalid ConfigMap succeeded")
	}
	page := r.page(r.site(), "history")
	contains(t, page, "revision-1", "revision-3", "1.0.0", "1.0.1", "1.0.2", "no files: the disk is full &lt;b&gt;",
		"its apply ended without completing it", "stringData", "from=1&amp;to=2", `<option value="1" selected>`)
	lacks(t, page, "from=2")
	_, notes, _ := strings.Cut(section(page, "versions"), "its apply ended without completing it")
	if count := strings.Count(notes, "stringData"); count != 1 {
		t.Errorf("the only failure is there %d times: %s", count, notes)
	}
}

func TestThePlanBetweenKeptVersions(t *testing.T) {
	r := newRelease(t)
	r.must("1.0.0", shop)
	r.must("1.1.0", strings.NewReplacer("blue", "red", "hunter2hunter2", "another-secret",
		"name: web, namespace", "name: shop, namespace").Replace(shop))
	site := r.site()
	page := r.page(site, "plan?from=1&to=2")
	contains(t, page, "<h1 id=\"title\">Update from 1.0.0 to 1.1.0 (minor)</h1>", "data.colour", "blue", "red",
		"0000_20_web_deployment.yaml", "stringData.password",
		"*** (changed)",
		"Needs attention", "Deployment "+r.namespace+"/web", `<option value="2" selected>`)
	lacks(t, page, "hunter2", "another-secret")
	for query, want := range map[string]string{
		"":              "the address lacks from: name two revisions",
		"from=1&to=1":   "both versions are revision 1",
		"from=1&to=9":   "has no revision 9: it has 2 (1.1.0), 1 (1.0.0)",
		"from=%3Cb&to=": "has no version &lt;b",
	} {
		contains(t, r.page(site, "plan?"+query), want)
	}
	site.Allow = func(_ context.Context, right authorizationv1.ResourceAttributes) error {
		if right.Resource == "secrets" {
			return fmt.Errorf("%w to %s secrets", pages.ErrForbidden, right.Verb)
		}
		return nil
	}
	page = r.page(site, "plan?from=1&to=2")
	contains(t, page, "The files of versions are in Secrets: not allowed to get secrets")
	lacks(t, page, "data.colour")
}
