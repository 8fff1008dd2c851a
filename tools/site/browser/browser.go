// Package browser opens pages in Chromium, for tests, and reports problems of their users: barriers that axe finds,
// errors in the console, dialogs, requests to other servers, and content wider than the window.
//
// It does not serve pages, and knows the content of none.
//
// Start with Start.
package browser

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// A Tab is one tab of Chromium.
type Tab struct {
	context.Context
	axe string // script that checks accessibility

	mutex    sync.Mutex
	problems []string // errors of the console, and dialogs
}

// patience is how long a step may take, much longer than each takes on a busy machine.
const patience = 30 * time.Second

// Start starts Chromium, and returns its first tab. It skips the test where Chromium or axe is missing; modules is the
// folder that npm has filled.
func Start(t testing.TB, modules string) *Tab {
	t.Helper()
	if testing.Short() {
		t.Skip("this takes half a minute")
	}
	const remedy = ": install Chromium (apt-get install chromium), node, and the packages (npm ci in tools/site)"
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip(err, remedy)
	}
	axe, err := os.ReadFile(filepath.Join(modules, "axe-core", "axe.min.js"))
	if err != nil {
		t.Skip(err, remedy)
	}
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox)...)
	t.Cleanup(cancel)
	return open(t, ctx, string(axe))
}

// NewTab opens another tab of the same browser, which shares its cookies.
func (t *Tab) NewTab(test testing.TB) *Tab {
	test.Helper()
	return open(test, t.Context, t.axe)
}

func open(t testing.TB, parent context.Context, axe string) *Tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(parent)
	t.Cleanup(cancel)
	tab := &Tab{Context: ctx, axe: axe}
	if err := chromedp.Listen(ctx, tab.note); err != nil {
		t.Fatal(err)
	}
	return tab
}

func (t *Tab) note(event any) {
	switch event := event.(type) {
	case *runtime.EventExceptionThrown:
		t.complain(event.ExceptionDetails.Text, event.ExceptionDetails.Exception)
	case *runtime.EventConsoleAPICalled:
		if event.Type == runtime.ConsoleAPICalledTypeError {
			t.complain("console.error: ", event.Args)
		}
	case *log.EventEntryAdded:
		if event.Entry.Level == log.EntryLevelError {
			t.complain(event.Entry.Text, event.Entry.URL)
		}
	case *page.EventJavascriptDialogOpening:
		t.complain("dialog: ", event.Message)
	}
}

func (t *Tab) complain(words ...any) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.problems = append(t.problems, strings.TrimSpace(fmt.Sprintln(words...)))
}

// Do takes steps.
func (t *Tab) Do(test testing.TB, steps ...chromedp.Action[chromedp.Void]) {
	test.Helper()
	for i, step := range steps {
		ctx, cancel := context.WithTimeout(t, patience)
		err := chromedp.Do(ctx, step)
		cancel()
		if err != nil {
			test.Fatalf("step %d: %v", i+1, err)
		}
	}
}

// Read returns the value of an action.
func Read[T any](test testing.TB, t *Tab, action chromedp.Action[T]) T {
	test.Helper()
	ctx, cancel := context.WithTimeout(t, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, action)
	if err != nil {
		test.Fatal(err)
	}
	return value
}

// Await waits until an expression of JavaScript is true, also in a page that forbids to evaluate text.
func (t *Tab) Await(test testing.TB, expression string) {
	test.Helper()
	ctx, cancel := context.WithTimeout(t, patience)
	defer cancel()
	for tick := time.NewTicker(10 * time.Millisecond); ; {
		if isTrue, err := chromedp.Run(ctx, chromedp.Evaluate[bool](expression)); isTrue && err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			text := Read(test, t, chromedp.Evaluate[string]("location.href + '\\n' + document.body?.innerText"))
			test.Fatalf("wait until %s; the page:\n%s", expression, text)
		}
	}
}

// Open opens a page in a window of a width.
func (t *Tab) Open(test testing.TB, address string, width int64) {
	test.Helper()
	t.Do(test, chromedp.EmulateViewport(width, 900), chromedp.Navigate(address))
}

// SetTheme sets the theme that the system prefers. Nothing moves.
func (t *Tab) SetTheme(test testing.TB, theme string) {
	test.Helper()
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: theme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}}
	if _, err := chromedp.Call(t, emulation.SetEmulatedMedia, media); err != nil {
		test.Fatal(err)
	}
}

const (
	violations = `axe.run().then(found => found.violations.map(one => one.id + ": " +
		one.nodes.slice(0, 3).map(node => node.target.join(" ") + " " + (node.any[0]?.message ?? "")).join("; ")))`
	tooWide = `document.documentElement.scrollWidth > innerWidth`
	moves   = `matchMedia("(prefers-reduced-motion: reduce)").matches && document.getAnimations().length > 0`
	foreign = `performance.getEntriesByType("resource").map(one => one.name)
		.filter(name => !name.startsWith(location.origin) && !name.startsWith("data:"))`
)

// Check reports barriers, content wider than the window, unwanted motion, requests to other servers, and problems in
// the tab since the last check.
func (t *Tab) Check(test testing.TB) {
	test.Helper()
	if Read(test, t, chromedp.Evaluate[bool](tooWide)) {
		test.Error("the page scrolls to the side")
	}
	t.Do(test, chromedp.Evaluate[chromedp.Void](t.axe))
	for _, found := range Read(test, t, chromedp.Evaluate[[]string](violations, chromedp.EvalAwaitPromise)) {
		test.Error("axe:", found)
	}
	if Read(test, t, chromedp.Evaluate[bool](moves)) {
		test.Error("something moves, though the user prefers reduced motion")
	}
	for _, name := range Read(test, t, chromedp.Evaluate[[]string](foreign)) {
		test.Error("request to another server:", name)
	}
	for _, problem := range t.Problems() {
		test.Error("console:", problem)
	}
}

// Problems returns errors of the console and dialogs since it was called last.
func (t *Tab) Problems() []string {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	problems := slices.Clone(t.problems)
	t.problems = nil
	return problems
}
