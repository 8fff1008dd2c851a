package pages

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/session/progress"
	"github.com/runlevel/runlevel/internal/session/state"
	"github.com/runlevel/runlevel/internal/session/why"
	"github.com/runlevel/runlevel/internal/ui/live"
)

// sectionsOf returns the HTML of the sections on a release with a status, by ID, and their order.
func sectionsOf(t *testing.T, status *state.Status) (map[string]string, []string) {
	t.Helper()
	v := releaseView{Release: &live.Release{Namespace: "records", Status: status}, site: &Site{}}
	found, order := map[string]string{}, []string(nil)
	for _, section := range v.sections(url.Values{}) {
		var out strings.Builder
		if err := section.Node().Render(&out); err != nil {
			t.Fatal(err)
		}
		found[section.ID], order = out.String(), append(order, section.ID)
	}
	return found, order
}

func objectIn(node, name string, s why.ObjectState, after ...string) *why.Answer {
	return &why.Answer{Object: kinds.NewID(kinds.Deployment, "shop", name), State: s, Node: node, After: after}
}

func TestAPartNamesWhatItWaitsForInTheEnd(t *testing.T) {
	db, since := objectIn("level 10, db", "db", why.NotReady), time.Now().Add(-time.Hour)
	db.For, db.Since = "0 of 1 are available", &since
	objects := []*why.Answer{
		db, objectIn("level 10, cache", "cache", why.NotReady),
		objectIn("level 20, web", "web", why.Blocked, "level 10, db"),
		objectIn("level 30, shop", "shop", why.Blocked, "level 20, web"),
		objectIn("level 40, ads", "ads", why.Blocked, "level 35, unknown"),
	}
	var levels []progress.Level
	for name, component := range map[string]string{"30": "shop", "40": "ads"} {
		levels = append(levels, progress.Level{Name: name, Components: []progress.Component{
			{Name: component, StateCounts: progress.StateCounts{Total: 1}}}})
	}
	sections, _ := sectionsOf(t, &state.Status{Release: "shop", State: record.Partial, Time: time.Now(),
		Objects: objects, Progress: &progress.Progress{Levels: levels}})
	rowOf := func(component string) string {
		_, row, _ := strings.Cut(sections["graph"], ">"+component+"</a>")
		row, _, _ = strings.Cut(row, "</tr>")
		return row
	}
	shop := rowOf("shop")
	if !strings.Contains(shop, ">Deployment shop/db</a>, for <time") ||
		!strings.Contains(shop, "0 of 1 are available") {
		t.Error("the row of level 30:", shop)
	}
	if strings.Contains(shop, "cache") {
		t.Error("level 30 does not wait for the cache:", shop)
	}
	if ads := rowOf("ads"); ads == "" || strings.Contains(ads, "Deployment") {
		t.Error("the row of level 40:", ads)
	}
}

func TestManyProblemsAreFoldedAndCounted(t *testing.T) {
	status := &state.Status{Release: "shop", State: record.Completed, Version: "1.0.0",
		Unreachable: "connection refused"}
	for i := range 500 {
		status.Objects = append(status.Objects, objectIn("", fmt.Sprintf("web-%03d", i), why.NotReady))
	}
	status.NotKept = &why.NotKept{Message: "the operator is scaled to 0 replicas",
		Resolution: "kubectl -n runlevel-system scale deployment/operator --replicas=1"}
	sections, order := sectionsOf(t, status)
	if order[0] != "outage" || !strings.Contains(sections["outage"], `role="alert"`) {
		t.Errorf("the outage is not an alert at the top: %v, %s", order, sections["outage"])
	}
	attention := sections["attention"]
	for _, want := range []string{
		"web-000", "To find out more:", "runlevel why Deployment.apps/shop/web-011 --record-namespace records",
		">488 more objects</a>",
		`>kubectl -n runlevel-system scale deployment/operator --replicas=1</code>`,
	} {
		if !strings.Contains(attention, want) {
			t.Errorf("the section lacks %q", want)
		}
	}
	isFirst := strings.Index(attention, "scaled to 0") < strings.Index(attention, "web-000")
	if strings.Contains(attention, "web-012") || !isFirst {
		t.Error("more than 12 objects, or the operator does not come first:", attention)
	}
}
