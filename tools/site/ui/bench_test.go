package ui

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/runlevel/runlevel/tools/site/browser"
)

// BenchmarkPage opens the page of a release of 2,000 objects, which an apply keeps in place. It measures the time from
// the request to the first paint, and from a change in the cluster to the document that shows it; the memory of the
// page's script; and the processor time of "runlevel ui" while nothing changes, with one tab and with twenty.
func BenchmarkPage(b *testing.B) {
	const rest = 10 * time.Second
	for b.Loop() {
		s := newStage(b)
		r := release{"many", base + widgets + manyMaps(1990)}
		s.apply(b, r, "1.0.0", "--no-wait")
		s.start(b, r, "1.0.0", "--watch")
		s.open(b, r.path(""))
		s.sees(b, "Applying|Complete")

		b.ReportMetric(s.median(b, func() float64 {
			s.open(b, r.path(""))
			return browser.Read(b, s.Tab, chromedp.Evaluate[float64](firstPaint, chromedp.EvalAwaitPromise))
		}), "ms/paint")
		b.ReportMetric(s.median(b, func() float64 {
			text := fmt.Sprint("reason ", time.Now().UnixNano())
			s.breakWidget(b, r, text)
			began := time.Now()
			s.sees(b, text)
			return float64(time.Since(began).Milliseconds())
		}), "ms/change")
		b.ReportMetric(s.heapMB(b), "heap-MB")
		b.ReportMetric(s.load(b, rest), "%-of-a-core")
		for range 19 {
			s.NewTab(b).Open(b, s.site+r.path(""), 1440)
		}
		b.ReportMetric(s.load(b, rest), "%-of-a-core/20-tabs")
	}
}

// firstPaint is the time of the first paint of a page, in milliseconds since its request.
const firstPaint = `new Promise(done => new PerformanceObserver(list => done(list.getEntries()[0].startTime))
	.observe({type: "paint", buffered: true}))`

// manyMaps returns ConfigMaps in components of 20, which are in 10 levels.
func manyMaps(count int) string {
	var text strings.Builder
	for i := range count {
		fmt.Fprintf(&text, "-- 0000_%d_part-%d_10_map-%d.yaml --\n{apiVersion: v1, kind: ConfigMap, metadata: {name: "+
			"map-%d, namespace: NS}, data: {version: VERSION}}\n", 50+i/20%10, i/20, i, i)
	}
	return text.String()
}

// median returns the median of nine measurements.
func (s *stage) median(b *testing.B, measure func() float64) float64 {
	b.Helper()
	var all []float64
	for range 9 {
		all = append(all, measure())
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// heapMB returns the memory of the document and its script.
func (s *stage) heapMB(b *testing.B) float64 {
	b.Helper()
	if _, err := chromedp.Call(s, heapprofiler.CollectGarbage, cdp.Empty{}); err != nil {
		b.Fatal(err)
	}
	usage, err := chromedp.Call(s, runtime.GetHeapUsage, cdp.Empty{})
	if err != nil {
		b.Fatal(err)
	}
	return (usage.UsedSize + usage.EmbedderHeapUsedSize) / 1e6
}

// load returns the processor time of "runlevel ui" while time passes, in percent of a core.
func (s *stage) load(b *testing.B, passes time.Duration) float64 {
	b.Helper()
	before := s.processorTime(b)
	<-time.NewTimer(passes).C
	return 100 * float64(s.processorTime(b)-before) / float64(passes)
}

func (s *stage) processorTime(b *testing.B) time.Duration {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.process.Pid))
	if err != nil {
		b.Skip("processes are measured on Linux: ", err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond // the kernel counts hundredths of a second
}
