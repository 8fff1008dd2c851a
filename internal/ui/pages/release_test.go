package pages_test

import (
	"context"
	"html"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/session"
)

const (
	db = `
-- 0000_10_db_deployment.yaml --
apiVersion: apps/v1
kind: Deployment
metadata: {name: db, namespace: NS}
spec:
  selector: {matchLabels: {app: LABEL}}
  template:
    metadata: {labels: {app: LABEL}}
    spec: {nodeSelector: {SELECTOR}, containers: [{name: db, image: registry.example/db}]}
-- 0000_20_web_settings.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: NS}, data: {colour: blue}}
`
	held = `
-- 0000_10_db_old.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: old, namespace: NS, finalizers: [example.com/hold]}}
`
	deleted = `
-- 0000_10_db_old.yaml --
apiVersion: v1
kind: ConfigMap
metadata: {name: old, namespace: NS, annotations: {release.openshift.io/delete: "true"}}
-- 0000_30_shop_prices.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: prices, namespace: NS}}
`
)

// dbWith returns the manifests with a label in the selector of the Deployment, and a selector of nodes.
func dbWith(label, selector string) string {
	return strings.NewReplacer("LABEL", label, "SELECTOR", selector).Replace(db)
}

// section returns a section of a page without tags, with single spaces; "" if the page does not have it.
func section(page, id string) string {
	_, after, isThere := strings.Cut(page, `<section id="`+id+`">`)
	if !isThere {
		return ""
	}
	body, _, _ := strings.Cut(after, "</section>")
	text := regexp.MustCompile(`<[^>]*>`).ReplaceAllString(body, " ")
	return strings.Join(strings.Fields(html.UnescapeString(text)), " ")
}

func TestAnUpdateInProgressNamesTheWaitAndWhatItHoldsUp(t *testing.T) {
	r := newRelease(t)
	r.must("1.0.0", dbWith("db", "")+held)
	site, done := r.site(), make(chan error, 1)
	t.Cleanup(func() { <-done })
	go func() {
		done <- r.apply("1.1.0", dbWith("db", "no: where")+deleted, func(options *session.Options) {
			options.Apply.Timeout = time.Hour
		})
	}()
	var page string
	sandboxtest.Eventually(t, "the page has the wait and the delete", func(context.Context) bool {
		page = r.page(site, "")
		return strings.Contains(page, "2 not applied yet") && strings.Contains(page, "held by finalizer")
	})
	contains(t, section(page, "summary"), "update from 1.0.0 to 1.1.0", "Applying",
		"1 of 4 objects applied and ready, 1 waiting, 2 not applied yet")
	contains(t, section(page, "graph"), "Level 10")
	contains(t, section(page, "attention"), "Deployment "+r.namespace+"/db not ready , for", "it waits: ",
		"it has no node", "runlevel why Deployment.apps/"+r.namespace+"/db --record-namespace "+r.namespace)
	contains(t, section(page, "graph"), "waiting 1 of 4 manifests Deployment "+r.namespace+"/db : ")
	contains(t, section(page, "deletes"), "ConfigMap "+r.namespace+"/old 1.1.0",
		"finalizer example.com/hold: set by runlevel; its controller removes it",
		"if that controller does not exist any more: kubectl patch configmap/old",
		"runlevel why ConfigMap/"+r.namespace+"/old")
	contains(t, section(page, "gate"), "PendingDelete blocks the next minor version , for", "held by finalizer")
	contains(t, section(page, "events"), "ReleaseBegun", "update has begun")
	lacks(t, section(page, "summary"), "runlevel apply") // somebody does
	contains(t, render(t, site, "/"), "Applying", "25%", "it waits: ")
	checkOutline(t, page)
}

// checkOutline checks that no heading skips a level, and that IDs are unique and valid.
func checkOutline(t *testing.T, page string) {
	t.Helper()
	last, seen := byte('0'), map[string]bool{}
	for _, heading := range regexp.MustCompile(`<h(\d)`).FindAllStringSubmatch(page, -1) {
		if heading[1][0] > last+1 {
			t.Errorf("a heading of level %s comes after one of level %c:\n%s", heading[1], last, page)
		}
		last = heading[1][0]
	}
	for _, id := range regexp.MustCompile(` id="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		if seen[id[1]] || strings.ContainsAny(id[1], " \t\n") {
			t.Errorf("the ID %q is used twice, or has a space", id[1])
		}
		seen[id[1]] = true
	}
}

func TestAFailureHasItsReasonAndTheCommandsThatHelp(t *testing.T) {
	r := newRelease(t)
	r.must("1.0.0", dbWith("db", ""))
	named := func(options *session.Options) { options.Source = "./shop" }
	if err := r.apply("1.1.0", dbWith("web", ""), named); err == nil {
		t.Fatal("a selector was changed")
	}
	page := r.page(r.site(), "")
	contains(t, section(page, "summary"), "update from 1.0.0 to 1.1.0", "Incomplete", "1 failed",
		"fix Deployment "+r.namespace+"/db, then apply it again",
		"or go back to 1.0.0 ( runlevel rollback "+r.namespace+" --record-namespace "+r.namespace,
		"after its manifests are fixed: runlevel apply ./shop --name "+r.namespace+" --record-namespace "+r.namespace)
	lacks(t, section(page, "summary"), r.namespace+"@") // the stored manifests fail again
	contains(t, section(page, "attention"), "Deployment "+r.namespace+"/db failed: ", "spec.selector can't be changed",
		"runlevel why Deployment.apps/"+r.namespace+"/db")
	contains(t, section(page, "history"), "1.1.0", "its apply ended without completing it",
		"spec.selector can't be changed")
	contains(t, section(page, "events"), "Warning: ReleaseFailed")
	checkOutline(t, page)
}

func TestDriftRepairsAndContentionAreShown(t *testing.T) {
	r := newRelease(t)
	r.must("1.0.0", dbWith("db", ""))
	site := r.site()
	page := r.page(site, "")
	contains(t, section(page, "gate"), "No known problem blocks the next version.")
	for _, id := range []string{"attention", "deletes", "drift", "repairs", "hooks", "tests", "unknown", "outage"} {
		if got := section(page, id); got != "" {
			t.Errorf("a complete release has a section %s: %s", id, got)
		}
	}
	client := test.Client(t).CoreV1()
	if _, err := client.ConfigMaps(r.namespace).Patch(t.Context(), "settings", types.MergePatchType,
		[]byte(`{"data":{"colour":"red"}}`), metav1.PatchOptions{FieldManager: "painter"}); err != nil {
		t.Fatal(err)
	}
	store := record.NewStore(test.Client(t), r.namespace, r.namespace)
	known, _, err := store.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	settings := kinds.NewID(kinds.ConfigMap, r.namespace, "settings")
	for range 2 {
		known.AddRepair(record.Repair{ID: settings, Time: metav1.Now(), Message: "configured"})
	}
	if err := store.Save(t.Context(), known); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Events(r.namespace).Create(t.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "contested"},
		InvolvedObject: corev1.ObjectReference{Kind: "ConfigMap", Namespace: r.namespace, Name: "settings"},
		Reason:         "Contested", Message: "painter changes it again and again", LastTimestamp: metav1.Now(),
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	page = r.page(site, "")
	contains(t, section(page, "drift"), "ConfigMap "+r.namespace+"/settings changed since it was applied",
		"changed since by painter", "runlevel diff "+r.namespace,
		"To repair them: apply it again ( runlevel apply "+r.namespace+"@")
	contains(t, section(page, "repairs"), "2 times", "ConfigMap "+r.namespace+"/settings 2 ", "configured contested",
		"painter changes it again and again")
	if got := section(page, "attention"); got != "" {
		t.Errorf("a change needs attention, too: %s", got)
	}
	checkOutline(t, page)
}

func TestAnUninstallAndADeleteOfAReleaseWithoutAVersionNameWhoContinues(t *testing.T) {
	r := newRelease(t)
	r.must("", dbWith("db", "")+held)
	r.must("", dbWith("db", "")+deleted)
	site := r.site()
	page := r.page(site, "")
	contains(t, section(page, "deletes"), "ConfigMap "+r.namespace+"/old the release", "the release deletes it: ")
	contains(t, section(page, "gate"),
		"runlevel gate SOURCE --name "+r.namespace+" --record-namespace "+r.namespace)
	store := record.NewStore(test.Client(t), r.namespace, r.namespace)
	known, _, err := store.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	known.BeginUninstall(record.Uninstall{Since: metav1.Now(), ReportedAt: metav1.Now()})
	if err := store.Save(t.Context(), known); err != nil {
		t.Fatal(err)
	}
	page = r.page(site, "")
	contains(t, section(page, "summary"), "Uninstalling", "no process continues that: run runlevel uninstall "+
		r.namespace+" --record-namespace "+r.namespace+" to continue")
	lacks(t, section(page, "summary"), "rollback")
}

func TestAnApplyThatDidNotWaitIsNoFailure(t *testing.T) {
	r := newRelease(t)
	if err := r.apply("1.0.0", dbWith("db", "no: where"), noWait); err != nil {
		t.Fatal(err)
	}
	site := r.site()
	page := r.page(site, "")
	contains(t, section(page, "summary"), "Incomplete", "It ended: it was applied without waiting")
	contains(t, page, `class="state waiting"`)
	contains(t, section(page, "graph"), "db waiting 0 of 1", "web done 1 of 1 manifest")
	lacks(t, page, `class="state bad"`)
}
