package pages_test

import (
	"fmt"
	"strings"
	"testing"
)

func TestTheObjectsArePagedAndSearched(t *testing.T) {
	r := newRelease(t)
	var manifests strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&manifests, "-- 0000_%d_part-%d_%d.yaml --\napiVersion: v1\nkind: ConfigMap\n"+
			"metadata: {name: settings-%04d, namespace: NS}\n", 10+i/1000, i/500, i, i)
	}
	r.must("1.0.0", manifests.String())
	site := r.site()
	rows := func(page string) int { return strings.Count(page, `<tr id="object-`) }
	page := r.page(site, "objects")
	contains(t, page, "2000 objects, page 1 of 20", "settings-0099", "Next page")
	lacks(t, page, "settings-0100")
	if rows(page) != 100 {
		t.Error("the page has", rows(page), "rows")
	}
	contains(t, r.page(site, "objects?page=20"), "page 20 of 20", "settings-1999", "Previous page")
	contains(t, r.page(site, "objects?page=99"), "page 20 of 20")
	page = r.page(site, "objects?q=SETTINGS-1+99&component=part-3")
	contains(t, page, "14 objects of 2000", `value="SETTINGS-1 99"`, `<option value="part-3" selected>`)
	contains(t, r.page(site, "objects?level=11&page=2"), "1000 objects of 2000, page 2 of 10", "level=11&amp;page=3")
	contains(t, r.page(site, "objects?kind=Secret"), "None of the 2000 objects matches the filter.",
		"Show all objects", `<option value="Secret" selected>Secret (0)`)
	lacks(t, r.page(site, "objects?q="+`%22%3E%3Cscript%3E`), "<script>")
}

func TestTheWorstObjectsComeFirst(t *testing.T) {
	r := newRelease(t)
	err := r.apply("1.0.0", strings.ReplaceAll(shop, "image: registry.example/web,",
		"image: registry.example/web, env: [{name: SANDBOX_POD, value: image-pull}],"), noWait)
	if err != nil {
		t.Fatal(err)
	}
	page := r.page(r.site(), "objects")
	contains(t, page, "not ready", "3 objects")
	_, rows, _ := strings.Cut(page, "<tbody>")
	if strings.Index(rows, ">web</a>") > strings.Index(rows, ">settings</a>") {
		t.Error("a ready object comes before an unready one:", page)
	}
	contains(t, r.page(r.site(), "objects?state=ready"), "2 objects of 3")
}
