package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// A browser is one tab of Chromium, on a site.
type browser struct {
	context.Context
	site string // URL of the version's folder
	axe  string // script that checks accessibility

	noScripts atomic.Bool // scripts of pages do not run
	noSearch  atomic.Bool // the index of the search can't be loaded

	mutex  sync.Mutex
	errors []string // of the console
}

func startBrowser(t *testing.T) *browser {
	t.Helper()
	if testing.Short() {
		t.Skip("this takes half a minute")
	}
	const remedy = ": install Chromium (apt-get install chromium), node, and the packages (npm ci in tools/site)"
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip(err, remedy)
	}
	axe, err := os.ReadFile("node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Skip(err, remedy)
	}
	output := t.TempDir()
	s := site{source: "../..", Version: "v0.1.0", modules: "node_modules"}
	if err := s.write(output); err != nil {
		t.Fatal(err)
	}
	if !s.HasPackages {
		t.Skip("node or pagefind is missing", remedy)
	}
	b := &browser{axe: string(axe)}
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

	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox)...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b.Context, b.site = ctx, server.URL+publicPath+"latest/"
	if err := chromedp.Listen(ctx, b.noteError); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *browser) noteError(event any) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	switch event := event.(type) {
	case *runtime.EventExceptionThrown:
		b.errors = append(b.errors, fmt.Sprint(event.ExceptionDetails.Text, event.ExceptionDetails.Exception))
	case *runtime.EventConsoleAPICalled:
		if event.Type == runtime.ConsoleAPICalledTypeError {
			b.errors = append(b.errors, fmt.Sprint("console.error: ", event.Args))
		}
	case *log.EventEntryAdded:
		if event.Entry.Level == log.EntryLevelError {
			b.errors = append(b.errors, event.Entry.Text+" "+event.Entry.URL)
		}
	}
}

func (b *browser) do(t *testing.T, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	for i, step := range steps {
		ctx, cancel := context.WithTimeout(b, 20*time.Second)
		err := chromedp.Do(ctx, step)
		cancel()
		if err != nil {
			t.Fatalf("step %d: %v", i+1, err)
		}
	}
}

// read returns the value of an action.
func read[T any](t *testing.T, b *browser, action chromedp.Action[T]) T {
	t.Helper()
	value, err := chromedp.Run(b, action)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// open opens a page in a window of a width.
func (b *browser) open(t *testing.T, name string, width int64) {
	t.Helper()
	b.do(t, chromedp.EmulateViewport(width, 900), chromedp.Navigate(b.site+name))
}

// setTheme sets the theme that the system prefers. Nothing moves.
func (b *browser) setTheme(t *testing.T, theme string) {
	t.Helper()
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: theme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}}
	if _, err := chromedp.Call(b, emulation.SetEmulatedMedia, media); err != nil {
		t.Fatal(err)
	}
}

const (
	violations = `axe.run().then(found => found.violations.map(one =>
		one.id + ": " + one.nodes.slice(0, 3).map(node => node.target.join(" ") + " " + (node.any[0]?.message ?? "")).join("; ")))`
	tooWide = `document.documentElement.scrollWidth > innerWidth`
)

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

func (b *browser) checkPage(t *testing.T, name string, width int64, theme string) {
	b.setTheme(t, theme)
	b.open(t, name, width)
	for _, wait := range []struct{ page, shown string }{
		{"search", "#site-results h2"}, {"machines", ".language-mermaid svg"},
	} {
		if strings.HasPrefix(name, wait.page) {
			b.do(t, chromedp.WaitVisible(wait.shown))
		}
	}
	if read(t, b, chromedp.Evaluate[bool](tooWide)) {
		t.Error("the page scrolls to the side")
	}
	b.do(t, chromedp.Evaluate[chromedp.Void](b.axe))
	for _, found := range read(t, b, chromedp.Evaluate[[]string](violations, chromedp.EvalAwaitPromise)) {
		t.Error("axe:", found)
	}
	b.mutex.Lock()
	defer b.mutex.Unlock()
	for _, text := range b.errors {
		t.Error("console:", text)
	}
	b.errors = nil
}

// search writes into the field of a page, and opens the first result.
func (b *browser) search(t *testing.T) {
	b.open(t, "rules/bad-ignore.html", 1440)
	b.do(t,
		chromedp.SendKeys("input[type=search]", "quorum guard\r"), chromedp.WaitVisible("#site-results h2 a"),
		chromedp.Click("#site-results h2 a"), chromedp.WaitVisible("main article h2"))
	if title, want := read(t, b, chromedp.Title()), "Replacing machines that run etcd · Runlevel"; title != want {
		t.Errorf("the search leads to %q, want %q", title, want)
	}
}

// searchFails opens the results while the index can't be loaded.
func (b *browser) searchFails(t *testing.T) {
	b.noSearch.Store(true)
	defer b.noSearch.Store(false)
	b.open(t, "search.html?q=signature", 1440)
	failed := `document.getElementById("site-results").textContent == "The search could not be loaded."`
	b.do(t, chromedp.Poll[chromedp.Void](failed))
}

// changeTheme presses the button, and opens another page, which has the same theme.
func (b *browser) changeTheme(t *testing.T) {
	b.setTheme(t, "light")
	b.open(t, "gate.html", 1440)
	paper := chromedp.Evaluate[string]("getComputedStyle(document.body).backgroundColor")
	before := read(t, b, paper)
	b.do(t, chromedp.Click("#site-theme"))
	after := read(t, b, paper)
	b.open(t, "plan.html", 1440)
	if next := read(t, b, paper); before == after || after != next {
		t.Errorf("the background is %s, then %s, and %s on the next page", before, after, next)
	}
	b.do(t, chromedp.Evaluate[chromedp.Void]("localStorage.clear()"))
}

// navigateWithoutScripts follows the root page, a link, the menu of a narrow screen, and the next page.
func (b *browser) navigateWithoutScripts(t *testing.T) {
	b.noScripts.Store(true)
	b.open(t, "../index.html", 360)
	b.do(t,
		chromedp.Click(`article a[href="docs.html"]`), chromedp.WaitVisible("h2#check-a-release-in-ci"),
		chromedp.Click(`article a[href="gate.html"]`), chromedp.WaitVisible("h2#the-checks"),
		chromedp.Click(".menu summary"), chromedp.Click(`.menu a[href="plan.html"]`),
		chromedp.WaitVisible(`a[href="payload.html"][rel=next]`),
		chromedp.Click("a[rel=next]"), chromedp.WaitVisible(`a[href="plan.html"][rel=prev]`))
	if place, want := read(t, b, chromedp.Location()), b.site+"payload.html"; place != want {
		t.Errorf("the links lead to %s, want %s", place, want)
	}
	useless := `[...document.querySelectorAll("button, form")].filter(e => e.checkVisibility()).map(e => e.outerHTML)`
	if shown := read(t, b, chromedp.EvaluateAsDevTools[[]string](useless)); len(shown) > 0 {
		t.Errorf("elements that need JavaScript are shown: %v", shown)
	}
}
