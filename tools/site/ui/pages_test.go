// Package ui tests the pages of "runlevel ui" in Chromium, on a sandbox: while a release is applied, when an object or
// the API server fails, with a keyboard, on a phone, and with texts of an attacker.
//
// It has only tests. The pages are those of internal/ui, whose packages have tests of their own, without a browser.
//
// Start with TestPages.
package ui

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/tools/site/browser"
)

// base is a release of two levels.
const base = `
-- 0000_10_base_00_namespace.yaml --
{apiVersion: v1, kind: Namespace, metadata: {name: NS}}
-- 0000_10_base_10_settings.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: NS}, data: {version: VERSION}}
-- 0000_40_web_10_deployment.yaml --
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: NS}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web, version: "VERSION"}}
    spec:
      containers:
      - name: web
        image: registry.example/web:VERSION
        envFrom: [{configMapRef: {name: settings}}]
`

// tombstone is the annotation of an object that an update deletes.
const tombstone = `release.openshift.io/delete: "true"`

// migrate is a Job before the last level, which runs until a test ends its pod.
const migrate = `
-- 0000_20_database_10_migrate.yaml --
apiVersion: batch/v1
kind: Job
metadata: {name: migrate, namespace: NS}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: migrate
        image: registry.example/migrate
        env: [{name: SANDBOX_POD, value: run}, {name: SANDBOX_LOG, value: "relation orders does not exist"}]
`

// TestPages opens the pages in one browser, whose tests follow each other.
func TestPages(t *testing.T) {
	s := newStage(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"update", s.watchUpdate},
		{"failure", s.explainFailure},
		{"delete", s.holdDelete},
		{"killed", s.killApply},
		{"hostile", s.showHostileTexts},
		{"keyboard", s.useKeyboard},
		{"barriers", s.findNoBarriers},
		{"export", s.openExport},
		{"pictures", s.takePictures},
		{"without JavaScript", s.readWithoutScripts},
		{"tabs", s.openManyTabs},
		{"links", s.followLinks},
		{"outage", s.outliveServer},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.run(t)
			s.isQuiet(t)
		})
	}
}

// watchUpdate watches an update from its start to its completion, in two tabs that are not loaded again.
func (s *stage) watchUpdate(t *testing.T) {
	r := release{"watched", base}
	s.apply(t, r, "1.0.0")
	s.open(t, "/")
	s.sees(t, "watched[^]*Complete")
	s.Do(t, chromedp.Click(`main a[href="`+r.path("")+`"]`))
	s.sees(t, `1\.0\.0`)
	s.stay(t)

	r.files += migrate
	update := s.start(t, r, "1.1.0")
	s.sees(t, `1\.1\.0`)
	s.sees(t, "migrate[^]*0 of 1")
	s.sees(t, "Level 10\n[^]*done[^]*Level 20\n[^]*waiting[^]*Level 40\n[^]*later")
	s.Check(t)
	endJob(t, r, "migrate", 0)
	if err := update.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, update.Stdout)
	}
	s.sees(t, "Complete")
	s.stayed(t)
}

// explainFailure opens the object of a failure from the page of its release: reason, log and command are shown.
func (s *stage) explainFailure(t *testing.T) {
	r := release{"failing", base + migrate}
	update := s.start(t, r, "1.0.0")
	s.open(t, r.path(""))
	endJob(t, r, "migrate", 3)
	_ = update.Wait()
	s.sees(t, "migrate[^]*BackoffLimitExceeded")
	s.sees(t, "runlevel why ")
	s.Do(t, chromedp.Click(`main a[href*="kind=Job.batch"]`))
	s.sees(t, "BackoffLimitExceeded")
	s.sees(t, "relation orders does not exist")
	s.Check(t)
}

// holdDelete shows a delete that a finalizer holds, until it is released.
func (s *stage) holdDelete(t *testing.T) {
	const old = `
-- 0000_15_old_10.yaml --
apiVersion: v1
kind: ConfigMap
metadata: {name: old, namespace: NS, finalizers: [example.com/hold], annotations: {TOMBSTONE}}
`
	r := release{"held", base + strings.ReplaceAll(old, "TOMBSTONE", "")}
	s.apply(t, r, "1.0.0")
	r.files = base + strings.ReplaceAll(old, "TOMBSTONE", tombstone)
	s.apply(t, r, "1.1.0")
	s.open(t, r.path(""))
	s.stay(t)
	s.sees(t, `ConfigMap held/old[^]*example\.com/hold`)
	s.Check(t)
	if _, err := cluster.Client(t).CoreV1().ConfigMaps(r.name).Patch(t.Context(), "old", types.MergePatchType,
		[]byte(`{"metadata": {"finalizers": null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Await(t, `!document.querySelector("main").innerText.includes("example.com/hold")`)
	s.stayed(t)
}

// killApply kills an apply: once its lock expires, the page says that nobody applies the release.
func (s *stage) killApply(t *testing.T) {
	r := release{"killed", base + migrate}
	update := s.start(t, r, "1.0.0", "--lock-duration", "2s")
	s.open(t, r.path(""))
	s.sees(t, "Applying")
	_ = update.Process.Signal(syscall.SIGKILL)
	s.sees(t, "Incomplete")
	s.Check(t)
}

// useKeyboard opens a level, its objects, a search and an object by keys alone, while the release is updated. The focus
// is always visible, and neither it nor the open level is lost when the page changes.
func (s *stage) useKeyboard(t *testing.T) {
	r := release{"keyboard", base}
	s.apply(t, r, "1.0.0")
	s.open(t, r.path(""))
	s.press(t, kb.Tab)
	if !s.isFocused(t, "[href='#main']") {
		t.Error("the first stop of the tabulator is not the link to the content")
	}
	s.press(t, kb.Enter)
	s.Await(t, `document.activeElement.id == "main"`)
	s.stay(t)
	r.files += migrate
	update := s.start(t, r, "1.1.0")
	s.sees(t, "migrate[^]*0 of 1[^]*Level 40\n")
	s.tabTo(t, "#graph-level-40 > summary")
	s.press(t, kb.Enter)
	endJob(t, r, "migrate", 0)
	if err := update.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, update.Stdout)
	}
	s.sees(t, "after 1\\.0\\.0: complete")
	if !s.isFocused(t, "#graph-level-40[open] > summary") {
		t.Error("the change of the page has closed the level, or has taken the focus")
	}
	s.stayed(t)

	s.tabTo(t, "#graph-level-40 a")
	s.press(t, kb.Enter)
	s.sees(t, `Deployment\.apps\s+keyboard\s+web`)
	s.tabTo(t, "input[type=search]")
	s.press(t, "web"+kb.Enter)
	s.Await(t, `location.search.includes("q=web")`)
	s.tabTo(t, "main a[href*='name=web']")
	s.press(t, kb.Enter)
	s.Await(t, `document.querySelector("h1")?.innerText == "Deployment keyboard/web"`)
}

// press presses keys, and reports an invisible focus.
func (s *stage) press(t *testing.T, keys string) {
	t.Helper()
	s.Do(t, chromedp.KeyEvent(keys))
	const hidden = `(() => {
		const focused = document.activeElement
		if (!focused) return "" // another page is being loaded
		const style = getComputedStyle(focused)
		const hasOutline = parseFloat(style.outlineWidth) > 0 && style.outlineStyle != "none"
		return hasOutline || focused.matches("body, main") ? "" : focused.outerHTML.slice(0, 200)
	})()`
	if element := browser.Read(t, s.Tab, chromedp.Evaluate[string](hidden)); element != "" {
		t.Error("the focus is not visible on", element)
	}
}

// tabTo presses the tabulator until an element has the focus.
func (s *stage) tabTo(t *testing.T, selector string) {
	t.Helper()
	var stops []string
	for range 50 {
		if s.isFocused(t, selector) {
			return
		}
		s.press(t, kb.Tab)
		stops = append(stops, browser.Read(t, s.Tab, chromedp.Evaluate[string](
			"document.activeElement.outerHTML.slice(0, 200)")))
	}
	t.Fatalf("the tabulator does not reach %s, only\n%s", selector, strings.Join(stops, "\n"))
}

func (s *stage) isFocused(t *testing.T, selector string) bool {
	t.Helper()
	return browser.Read(t, s.Tab, chromedp.Evaluate[bool](fmt.Sprintf("document.activeElement.matches(%q)", selector)))
}

// findNoBarriers opens all views in the dark theme, and in the light one on a narrow phone.
func (s *stage) findNoBarriers(t *testing.T) {
	watched, failing := release{name: "watched"}, release{name: "failing"}
	deployment := url.Values{"kind": {"Deployment.apps"}, "namespace": {watched.name}, "name": {"web"}}.Encode()
	for _, view := range []string{
		"/", "/cluster", "/machines", "/nothing", "/releases/none/none",
		watched.path(""), watched.path("/objects"), watched.path("/objects?q=web&kind=Deployment.apps"),
		watched.path("/object?" + deployment), watched.path("/history"), watched.path("/plan?from=1&to=2"),
		failing.path(""), release{name: "hostile"}.path(""),
	} {
		for theme, width := range map[string]int64{"light": 320, "dark": 1440} {
			t.Run(theme+strings.ReplaceAll(view, "/", "_"), func(t *testing.T) {
				s.SetTheme(t, theme)
				s.Open(t, s.site+view, width)
				if strings.Contains(view, "/no") {
					s.Problems() // the browser logs each answer with status 404
				}
				s.Check(t)
			})
		}
	}
}

// openExport opens files that "runlevel ui --export" and other verbs write.
func (s *stage) openExport(t *testing.T) {
	folder, r := t.TempDir(), release{"failing", base + migrate}
	older, newer := r.folder(t, "1.0.0"), r.folder(t, "1.1.0")
	const dropped = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n---\n" +
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: b}}\n"
	if err := os.WriteFile(filepath.Join(older, "0000_90_dropped_01.yaml"), []byte(dropped), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"plan": {"plan", older, newer}, "lint": {"lint", newer}, "status": {"status", r.name},
		"inspect": {"inspect", filepath.Join(folder, "report")},
	} {
		file := filepath.Join(folder, name+".html")
		if err := os.WriteFile(file, s.run(t, append(args, "-o", "html")...), 0o644); err != nil {
			t.Fatal(err)
		}
		for theme, width := range map[string]int64{"light": 320, "dark": 1440} {
			s.SetTheme(t, theme)
			s.Open(t, "file://"+file, width)
			s.Await(t, `document.querySelector("h1").innerText != ""`)
			s.Await(t, `[...document.querySelectorAll(".table")].every(t => t.scrollWidth <= t.clientWidth)`)
			s.Check(t)
		}
	}

	folder = filepath.Join(folder, "export")
	s.run(t, "ui", "--export", folder)
	s.Open(t, "file://"+folder+"/index.html", 1440)
	s.Check(t)
	s.Do(t, chromedp.Click("main a[href*=failing]"))
	s.sees(t, "BackoffLimitExceeded")
	s.Check(t)
}

// readWithoutScripts follows links from the list of releases to an object while scripts are disabled.
func (s *stage) readWithoutScripts(t *testing.T) {
	tab := s.NewTab(t)
	disabled := emulation.SetScriptExecutionDisabledParams{Value: true}
	if _, err := chromedp.Call(tab, emulation.SetScriptExecutionDisabled, disabled); err != nil {
		t.Fatal(err)
	}
	failing := release{name: "failing"}
	tab.Open(t, s.site+"/", 1440)
	tab.Do(t, chromedp.Click(`main a[href="`+failing.path("")+`"]`), chromedp.Click(`main a[href*="kind=Job.batch"]`))
	(&stage{Tab: tab}).sees(t, "relation orders does not exist")
}

// openManyTabs opens twenty tabs, which all show a change.
func (s *stage) openManyTabs(t *testing.T) {
	r := release{"tabs", base}
	s.apply(t, r, "1.0.0")
	tabs := make([]*stage, 20)
	for i := range tabs {
		tabs[i] = &stage{Tab: s.NewTab(t)}
		tabs[i].Open(t, s.site+r.path(""), 1440)
		tabs[i].stay(t)
	}
	s.apply(t, r, "1.1.0")
	for _, tab := range tabs {
		tab.sees(t, `1\.1\.0`)
		tab.stayed(t)
	}
}

// followLinks opens the pages by links on another site, with and without the token, and by a file as a browser gets it.
func (s *stage) followLinks(t *testing.T) {
	file := filepath.Join(t.TempDir(), "open.html")
	for _, text := range []string{
		`<a href="` + s.first + `">Runlevel</a>`,
		`<a href="` + s.site + `/">Runlevel</a>`,
		`<meta http-equiv="refresh" content="0; url=` + s.first + `">`,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		other := &stage{Tab: s.NewTab(t)}
		other.Open(t, "file://"+file, 1440)
		if strings.HasPrefix(text, "<a") {
			other.Await(t, `document.querySelector("a").click() === undefined`)
		}
		other.sees(t, "Releases")
	}
}

// outliveServer stops the API server: the page says so, and keeps the last state. It is current again afterwards.
func (s *stage) outliveServer(t *testing.T) {
	r := release{"outage", base}
	s.apply(t, r, "1.0.0")
	s.open(t, r.path(""))
	s.sees(t, "Complete")
	s.stay(t)
	if err := cluster.Sandbox(t).Kill(sandbox.APIServer); err != nil {
		t.Fatal(err)
	}
	s.Await(t, `/does not respond|not current/.test(document.body.innerText)`)
	s.sees(t, "Complete")
	s.Check(t)
	if err := cluster.Sandbox(t).Resume(t.Context(), sandbox.APIServer); err != nil {
		t.Fatal(err)
	}
	s.Await(t, `!/does not respond|not current/.test(document.body.innerText)`)
	s.apply(t, r, "1.1.0")
	s.sees(t, `1\.1\.0`)
	s.stayed(t)
}
