package pages_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/ui/pages"
)

func TestReleasesAreListedWorstFirstAndFiltered(t *testing.T) {
	good, bad := newRelease(t), newRelease(t)
	settings := "-- 0000_10_a_b.yaml --\n{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: NS}}\n"
	good.must("1.0.0", settings)
	bad.must("2.0.0", settings)
	err := test.Client(t).CoreV1().ConfigMaps(bad.namespace).Delete(t.Context(), "settings", metav1.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	site := bad.site()
	site.Hub.Namespace = metav1.NamespaceAll
	row := func(r *release) string { return fmt.Sprintf(`<tr id="release-%[1]s%%2F%[1]s">`, r.namespace) }
	page := render(t, site, "/")
	contains(t, page, row(good), row(bad), "Degraded", "missing: ", `href="/releases/`+bad.namespace+"/"+bad.namespace)
	if strings.Index(page, row(good)) < strings.Index(page, row(bad)) {
		t.Error("a complete release comes first:", page)
	}
	checkOutline(t, page)
	for query, isShown := range map[string][2]bool{
		"?state=Complete":                           {true, false},
		"?state=Degraded":                           {false, true},
		"?q=" + strings.ToUpper(good.namespace):     {true, false},
		"?q=missing+2.0.0+" + bad.namespace:         {false, true},
		"?q=%3Cscript%3Ealert(1)%3C/script%3E%22":   {false, false},
		"?state=Complete&q=" + bad.namespace + "++": {false, false},
	} {
		page := render(t, site, "/"+query)
		if got := [2]bool{strings.Contains(page, row(good)), strings.Contains(page, row(bad))}; got != isShown {
			t.Errorf("%s: the complete and the degraded release are shown: %v, want %v", query, got, isShown)
		}
		lacks(t, page, "<script>")
	}
	contains(t, render(t, site, "/?q=no+such+release"), "matches the filter", "Show all releases")

	site.Allow = func(_ context.Context, right authorizationv1.ResourceAttributes) error {
		if right.Namespace == bad.namespace && right.Verb == "get" && right.Resource == "configmaps" {
			return fmt.Errorf("get %s: %w", right.Name, pages.ErrForbidden)
		}
		return nil
	}
	page = render(t, site, "/")
	contains(t, page, row(good), "Some releases are not listed")
	lacks(t, page, bad.namespace)
}

func TestAnEmptyClusterIsExplained(t *testing.T) {
	site := newRelease(t).site()
	site.Allow = func(context.Context, authorizationv1.ResourceAttributes) error {
		return pages.ErrForbidden // the releases of other tests
	}
	page := render(t, site, "/")
	contains(t, page, "No release has been applied to this cluster yet", "runlevel apply ./manifests")
	lacks(t, page, "<form")
}
