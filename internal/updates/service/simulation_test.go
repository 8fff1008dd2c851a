package service_test

import (
	"container/heap"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/runlevel/runlevel/internal/updates/graphdata"
	"github.com/runlevel/runlevel/internal/updates/phase"
	"github.com/runlevel/runlevel/internal/updates/report"
	"github.com/runlevel/runlevel/internal/updates/service"
)

const (
	fleet     = 10_000
	rampHours = 48
	interval  = 3 * time.Minute // of polls
	tick      = 30 * time.Second
	oldest    = "1.4.0"
	newest    = "1.4.1"
)

var begin = time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC)

// A scenario is a rollout of a version to a fleet.
type scenario struct {
	policy    string // more lines of the phase file
	isHealthy bool   // otherwise the version breaks one cluster in twenty
	skew      func(cluster int) time.Duration
	lost      float64                                     // share of reports that never arrive
	copies    int                                         // of each report
	away      [2]time.Duration                            // of the service, since the beginning
	isStatic  bool                                        // graphs are files that are built every hour
	forged    func(elapsed time.Duration) []report.Report // that arrive in a minute
}

// A member is a cluster of the fleet.
type member struct {
	id, ring string
	offset   time.Duration // of its polls
	skew     time.Duration // of its clock
	turn     time.Time     // on its clock; zero if unknown
	hasBegun bool
	unsent   []report.Report
}

// An event is the end of an update on a cluster.
type event struct {
	time   time.Time
	member *member
	report report.Report
}

type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].time.Before(e[j].time) }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// A world is a fleet with its service.
type world struct {
	*testing.T
	scenario
	folder  string
	now     time.Time
	random  *rand.Rand
	members []*member
	service *service.Service
	handler http.Handler
	due     events
	tag     string // of the graph that clusters have
	lines   []string

	begun, succeeded, failed, begunAtHalt int
	halt                                  string
	haltedAt, completed                   time.Time
}

func writeFiles(t testing.TB, folder string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// graphFiles returns graph data with an update in a phase.
func graphFiles(policy string) map[string]string {
	return map[string]string{
		"version":              "1.1.0\n",
		"channels/stable.yaml": "name: stable\nversions: [1.4.0, 1.4.1]\n",
		"releases/1.4.0.yaml":  "version: 1.4.0\nimage: registry.example/shop@sha256:" + strings.Repeat("a", 64) + "\n",
		"releases/1.4.1.yaml": "version: 1.4.1\nprevious: [1.4.0]\nimage: registry.example/shop@sha256:" +
			strings.Repeat("b", 64) + "\n",
		"phases/1.4.1.yaml": fmt.Sprintf("to: 1.4.1\nstart: %s\nduration: %dh\n%s", begin.Format(time.RFC3339),
			rampHours, policy),
	}
}

func simulate(t *testing.T, s scenario) *world {
	t.Helper()
	w := &world{T: t, scenario: s, folder: t.TempDir(), now: begin.Add(-time.Hour)}
	w.random = rand.New(rand.NewPCG(1, 2))
	writeFiles(t, w.folder, graphFiles(s.policy))
	for i := range fleet {
		m := &member{id: fmt.Sprintf("cluster-%016d", i), offset: time.Duration(w.random.Int64N(int64(interval)))}
		if s.skew != nil {
			m.skew = s.skew(i)
		}
		w.members = append(w.members, m)
	}
	slices.SortFunc(w.members, func(a, b *member) int { return int(a.offset - b.offset) })
	w.open()
	ticked := w.now
	for cycle := begin; cycle.Before(begin.Add(5 * 24 * time.Hour)); cycle = cycle.Add(interval) {
		for _, m := range w.members {
			moment := cycle.Add(m.offset)
			for ticked.Add(tick).Before(moment) {
				ticked = ticked.Add(tick)
				w.end(ticked)
				w.now = ticked
				w.tick()
			}
			w.end(moment)
			w.now = moment
			w.poll(m)
		}
		isOver := w.begun == fleet || w.halt != "" && w.now.Sub(w.haltedAt) > 3*time.Hour
		if isOver && len(w.due) == 0 {
			break
		}
	}
	t.Logf("%d began, %d succeeded, %d failed; %d had begun when it halted after %s: %s", w.begun, w.succeeded,
		w.failed, w.begunAtHalt, w.haltedAt.Sub(begin).Round(time.Minute), w.halt)
	return w
}

func (w *world) logFile() string { return filepath.Join(w.folder, "reports.jsonl") }

func (w *world) open() {
	var err error
	w.service, err = service.New(service.Options{
		Folder: w.folder, Reports: w.logFile(), Now: func() time.Time { return w.now },
		Log: func(line string) { w.lines = append(w.lines, line) },
	})
	if err != nil {
		w.Fatal(err)
	}
	w.handler = w.service.Handler()
	w.fetch()
}

// tick is the regular work of the service.
func (w *world) tick() {
	elapsed := w.now.Sub(begin)
	isAway := elapsed >= w.away[0] && elapsed < w.away[1]
	switch {
	case isAway && w.service != nil:
		if err := w.service.Close(); err != nil {
			w.Fatal(err)
		}
		w.service = nil
	case !isAway && w.service == nil:
		w.open()
	case !isAway:
		if w.forged != nil {
			for _, r := range w.forged(elapsed) {
				w.post(r, "203.0.113.9:4711")
			}
		}
		if err := w.service.Update(); err != nil {
			w.Fatal(err)
		}
		if !w.isStatic || elapsed.Truncate(tick)%time.Hour == 0 {
			w.fetch()
		}
	}
}

// fetch gets the graph that clusters read until the next one.
func (w *world) fetch() {
	var graph graphdata.Graph
	if w.isStatic {
		data, err := graphdata.Read(os.DirFS(w.folder))
		if err != nil {
			w.Fatal(err)
		}
		if _, _, err := service.Judge(data, w.logFile(), w.now); err != nil {
			w.Fatal(err)
		}
		graph = *data.Graph("stable", "amd64", w.now)
	} else {
		request := httptest.NewRequest(http.MethodGet, "/graph?channel=stable&arch=amd64&version="+oldest, nil)
		request.Header.Set("If-None-Match", w.tag)
		answer := httptest.NewRecorder()
		w.handler.ServeHTTP(answer, request)
		if answer.Code == http.StatusNotModified {
			return
		}
		if err := json.Unmarshal(answer.Body.Bytes(), &graph); err != nil {
			w.Fatal(err)
		}
		w.tag = answer.Header().Get("ETag")
	}
	offer := phase.Phase{Ramp: phase.Ramp{Percentage: 100}}
	offer.Ramp.Start.Time = begin
	if len(graph.PhasedEdges) > 0 {
		offer = graph.PhasedEdges[0]
	}
	if offer.Halt != "" && w.halt == "" {
		w.halt, w.haltedAt, w.begunAtHalt = offer.Halt, w.now, w.begun
	}
	for _, m := range w.members {
		if m.turn, _ = offer.Turn(phase.Cluster{ID: m.id, Ring: m.ring}, newest); m.hasBegun {
			m.turn = time.Time{}
		}
	}
}

// poll is the work of a cluster every three minutes.
func (w *world) poll(m *member) {
	if w.service == nil {
		return
	}
	for len(m.unsent) > 0 && w.send(m, m.unsent[0]) {
		m.unsent = m.unsent[1:]
	}
	if m.turn.IsZero() || w.now.Add(m.skew).Before(m.turn) {
		return
	}
	m.turn, m.hasBegun = time.Time{}, true
	w.begun++
	w.queue(m, report.Report{Condition: report.Began})
	length := 5*time.Minute + time.Duration(w.random.Int64N(int64(10*time.Minute)))
	end := event{w.now.Add(length), m, report.Report{Condition: report.Succeeded}}
	if !w.isHealthy && w.random.IntN(20) == 0 {
		end.report = report.Report{Condition: report.Failed, Reason: "ClusterOperatorDegraded: web is degraded"}
	}
	heap.Push(&w.due, end)
}

// end ends the updates that end until a moment.
func (w *world) end(moment time.Time) {
	for len(w.due) > 0 && !w.due[0].time.After(moment) {
		e := heap.Pop(&w.due).(event)
		w.now = e.time
		if e.report.Condition == report.Failed {
			w.failed++
		} else if w.succeeded++; w.succeeded == fleet {
			w.completed = w.now
		}
		w.queue(e.member, e.report)
	}
}

// queue sends a report; if the service does not answer, the cluster sends it at its next poll.
func (w *world) queue(m *member, r report.Report) {
	r.ID, r.From, r.Version, r.Time = m.id, oldest, newest, w.now.Add(m.skew)
	if len(m.unsent) > 0 || !w.send(m, r) {
		m.unsent = append(m.unsent, r)
	}
}

func (w *world) send(m *member, r report.Report) bool {
	if w.service == nil {
		return false
	}
	for range max(1, w.copies) {
		if w.random.Float64() >= w.lost {
			w.post(r, "10.0.0.7:4711")
		}
	}
	return true
}

func (w *world) post(r report.Report, address string) {
	text, err := json.Marshal(r)
	if err != nil {
		w.Fatal(err)
	}
	request := httptest.NewRequest(http.MethodPost, "/reports", strings.NewReader(string(text)))
	request.RemoteAddr = address
	answer := httptest.NewRecorder()
	if w.handler.ServeHTTP(answer, request); answer.Code != http.StatusNoContent {
		w.Fatalf("%s: %d %s", text, answer.Code, answer.Body)
	}
}

// TestAVersionThatBreaksOneInTwentyHalts: 11 failures are expected among 220 clusters, which begin in an hour.
func TestAVersionThatBreaksOneInTwentyHalts(t *testing.T) {
	const policy = "maxFailures: 10\nclusters: 10000\nminSuccessTime: 1h\n"
	forge := func(condition report.Condition, count int) func(time.Duration) []report.Report {
		return func(elapsed time.Duration) []report.Report {
			if elapsed.Truncate(tick) != 20*time.Minute {
				return nil
			}
			var all []report.Report
			for i := range count {
				all = append(all, report.Report{ID: fmt.Sprintf("forged-%016d", i), From: oldest, Version: newest,
					Condition: condition, Reason: "forged", Time: begin})
			}
			return all
		}
	}
	spread := func(most time.Duration) func(int) time.Duration {
		return func(i int) time.Duration { return time.Duration(i%201-100) * most / 100 }
	}
	for name, test := range map[string]struct {
		scenario
		least, most int // clusters that had begun
		reason      string
	}{
		"plain":           {scenario{}, 150, 450, "more than maxFailures 10: 11× ClusterOperatorDegraded: web is degraded"},
		"doubled reports": {scenario{copies: 3}, 150, 450, "of 10000 clusters failed"},
		"lost reports":    {scenario{lost: 0.2}, 150, 450, "of 10000 clusters failed"},
		"skewed clocks":   {scenario{skew: spread(10 * time.Minute)}, 150, 450, "of 10000 clusters failed"},
		// One cluster in a hundred is a day ahead: half of these begin at once.
		"clocks of another day": {scenario{skew: func(i int) time.Duration {
			return time.Duration(i%100/99) * 24 * time.Hour
		}}, 150, 450, "of 10000 clusters failed"},
		"service away for a day": {scenario{away: [2]time.Duration{30 * time.Minute, 24*time.Hour + 30*time.Minute}},
			150, 450, "of 10000 clusters failed"},
		"static files": {scenario{isStatic: true}, 150, 600, "of 10000 clusters failed"},
		// Forged successes do not dilute failures; forged failures only halt.
		"forged successes": {scenario{forged: forge(report.Succeeded, 5000)}, 150, 450, "more than maxFailures 10"},
		"forged failures":  {scenario{forged: forge(report.Failed, 500)}, 20, 150, "500 from 203.0.113.9"},
		"more clusters than there are": {scenario{forged: forge(report.Began, 10_001)}, 20, 150,
			"some reports are forged, or clusters is wrong; 10001 are behind 203.0.113.9"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.policy = policy
			w := simulate(t, test.scenario)
			if w.begunAtHalt < test.least || w.begunAtHalt > test.most {
				t.Errorf("%d clusters had begun, want %d to %d", w.begunAtHalt, test.least, test.most)
			}
			if w.begun > w.begunAtHalt {
				t.Errorf("%d clusters began after the halt", w.begun-w.begunAtHalt)
			}
			halts, err := os.ReadFile(filepath.Join(w.folder, graphdata.HaltsFile))
			if err != nil || strings.Count(string(halts), "\n") != 1 || !strings.Contains(string(halts), test.reason) {
				t.Errorf("halts.yaml: %s, %v; want one line with %q", halts, err, test.reason)
			}
			lines := strings.Join(w.lines, "\n")
			if !strings.Contains(lines, "halted 1.4.1: ") || !strings.Contains(lines, test.reason) {
				t.Errorf("log: %s", lines)
			}
		})
	}
}

func TestAHealthyVersionReachesAllClusters(t *testing.T) {
	for name, s := range map[string]scenario{
		"plain": {}, "lost answers": {copies: 2}, "static files": {isStatic: true},
		"service away for an hour": {away: [2]time.Duration{10 * time.Hour, 11 * time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.policy, s.isHealthy = "maxFailures: 10\nclusters: 10000\nprogressDeadline: 1h\n", true
			w := simulate(t, s)
			end := begin.Add(rampHours*time.Hour + (s.away[1] - s.away[0]) + interval + 20*time.Minute)
			if w.halt != "" || w.succeeded != fleet || w.completed.After(end) {
				t.Errorf("%d clusters have it, the last since %s; %s", w.succeeded, w.completed, w.halt)
			}
		})
	}
}
