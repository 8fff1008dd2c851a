package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/runlevel/runlevel/tools/site/browser"
)

// A siteBrowser is a tab of Chromium, on a site.
type siteBrowser struct {
	*browser.Tab
	site string // URL of the version's folder

	noScripts atomic.Bool // scripts of pages do not run
	noSearch  atomic.Bool // the index of the search can't be loaded
}

func startBrowser(t *testing.T) *siteBrowser {
	t.Helper()
	b := &siteBrowser{Tab: browser.Start(t, "node_modules")}
	output := t.TempDir()
	s := site{source: "../..", Version: "v0.1.0", modules: "node_modules"}
	if err := s.write(output); err != nil {
		t.Fatal(err)
	}
	if !s.HasPackages {
		t.Skip("node or pagefind is missing: install node, and the packages (npm ci in tools/site)")
	}
	files := http.StripPrefix(strings.TrimSuffix(publicPath, "/"), http.FileServer(http.Dir(output)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b.noScripts.Load() {
			w.Header().Set("Content-Security-Policy", "script-src 'none'")
		}
		if b.noSearch.Load() && strings.Contains(r.URL.Path, "/pagefind/") {
			http.NotFound(w, r)
			return
		}
		files.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	b.site = server.URL + publicPath + "latest/"
	return b
}

// open opens a page in a window of a width.
func (b *siteBrowser) open(t *testing.T, name string, width int64) {
	t.Helper()
	b.Open(t, b.site+name, width)
}

// TestBrowser opens pages at three widths in both themes: axe finds no barrier, nothing is wider than the window, and
// the console has no errors.
func TestBrowser(t *testing.T) {
	b := startBrowser(t)
	for _, name := range []string{
		"index.html", "operator.html", "machines.html", "rules/bad-ignore.html", "search.html?q=signature",
		"../404.html",
	} {
		for _, width := range []int64{360, 768, 1440} {
			for _, theme := range []string{"light", "dark"} {
				t.Run(fmt.Sprint(strings.ReplaceAll(name, "/", "_"), "/", width, theme), func(t *testing.T) {
					b.checkPage(t, name, width, theme)
				})
			}
		}
	}
	t.Run("search", b.search)
	t.Run("search without its index", b.searchFails)
	t.Run("theme", b.changeTheme)
	t.Run("without JavaScript", b.navigateWithoutScripts)
}

func (b *siteBrowser) checkPage(t *testing.T, name string, width int64, theme string) {
	b.SetTheme(t, theme)
	b.open(t, name, width)
	for _, wait := range []struct{ page, shown string }{
		{"search", "#site-results h2"}, {"machines", ".language-mermaid svg"},
	} {
		if strings.HasPrefix(name, wait.page) {
			b.Do(t, chromedp.WaitVisible(wait.shown))
		}
	}
	b.Check(t)
}

// search writes into the field of a page, and opens the first result.
func (b *siteBrowser) search(t *testing.T) {
	b.open(t, "rules/bad-ignore.html", 1440)
	b.Do(t,
		chromedp.SendKeys("input[type=search]", "quorum guard\r"), chromedp.WaitVisible("#site-results h2 a"),
		chromedp.Click("#site-results h2 a"), chromedp.WaitVisible("main article h2"))
	const want = "Replacing machines that run etcd · Runlevel"
	if title := browser.Read(t, b.Tab, chromedp.Title()); title != want {
		t.Errorf("the search leads to %q, want %q", title, want)
	}
}

// searchFails opens the results while the index can't be loaded.
func (b *siteBrowser) searchFails(t *testing.T) {
	b.noSearch.Store(true)
	defer b.noSearch.Store(false)
	b.open(t, "search.html?q=signature", 1440)
	failed := `document.getElementById("site-results").textContent == "The search could not be loaded."`
	b.Do(t, chromedp.Poll[chromedp.Void](failed))
}

// changeTheme presses the button, and opens another page, which has the same theme.
func (b *siteBrowser) changeTheme(t *testing.T) {
	b.SetTheme(t, "light")
	b.open(t, "gate.html", 1440)
	paper := chromedp.Evaluate[string]("getComputedStyle(document.body).backgroundColor")
	before := browser.Read(t, b.Tab, paper)
	b.Do(t, chromedp.Click("#site-theme"))
	after := browser.Read(t, b.Tab, paper)
	b.open(t, "plan.html", 1440)
	if next := browser.Read(t, b.Tab, paper); before == after || after != next {
		t.Errorf("the background is %s, then %s, and %s on the next page", before, after, next)
	}
	b.Do(t, chromedp.Evaluate[chromedp.Void]("localStorage.clear()"))
}

// navigateWithoutScripts follows the root page, a link, the menu of a narrow screen, and the next page.
func (b *siteBrowser) navigateWithoutScripts(t *testing.T) {
	b.noScripts.Store(true)
	b.open(t, "../index.html", 360)
	b.Do(t,
		chromedp.Click(`article a[href="docs.html"]`), chromedp.WaitVisible("h2#check-a-release-in-ci"),
		chromedp.Click(`article a[href="gate.html"]`), chromedp.WaitVisible("h2#the-checks"),
		chromedp.Click(".menu summary"), chromedp.Click(`.menu a[href="plan.html"]`),
		chromedp.WaitVisible(`a[href="payload.html"][rel=next]`),
		chromedp.Click("a[rel=next]"), chromedp.WaitVisible(`a[href="plan.html"][rel=prev]`))
	if place, want := browser.Read(t, b.Tab, chromedp.Location()), b.site+"payload.html"; place != want {
		t.Errorf("the links lead to %s, want %s", place, want)
	}
	useless := `[...document.querySelectorAll("button, form")]
		.filter(e => e.checkVisibility()).map(e => e.outerHTML)`
	if shown := browser.Read(t, b.Tab, chromedp.EvaluateAsDevTools[[]string](useless)); len(shown) > 0 {
		t.Errorf("elements that need JavaScript are shown: %v", shown)
	}
}
