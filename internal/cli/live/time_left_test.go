package live_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/runlevel/runlevel/internal/session/progress"
	"github.com/runlevel/runlevel/pkg/apply"
)

// timeLeft returns the remaining time that a screen shows, or "".
func (f *film) timeLeft() string {
	head, _, _ := strings.Cut(ansi.Strip(f.screen(120, 10)), "\n")
	return regexp.MustCompile(`about .* left`).FindString(head)
}

func TestTimeLeft(t *testing.T) {
	items := many()
	minute := map[string]time.Duration{} // level -> duration of its slowest node
	for _, item := range items {
		minute[item.Node] = 10 * time.Second
	}
	minute["level 50, frontend"], minute["level 60, frontend"] = 60*time.Second, 60*time.Second
	for name, c := range map[string]struct {
		film *film
		want string
	}{
		"nothing is known": {start(progress.Intent{Planned: planned(items), InOrder: true}).after(30 * time.Second),
			""},
		"by the rate": {start(progress.Intent{Planned: planned(items), InOrder: true}).play(items[:307], 3*time.Second),
			"about 3m00s left"},
		"by the rate, but nothing happens now": {
			start(progress.Intent{Planned: planned(items)}).play(items[:307], 3*time.Second).after(6 * time.Second), "",
		},
		"too early for a rate": {start(progress.Intent{Planned: planned(items)}).play(items[:50], time.Second), ""},
		"an install, by the last one": {start(progress.Intent{
			Planned: planned(items),
			Before:  5 * time.Minute,
		}).after(100 * time.Second), "about 3m20s left"},
		"an install over time": {start(progress.Intent{
			Planned: planned(items[:5]),
			Before:  5 * time.Minute,
		}).play(items[:5], time.Second).after(10 * time.Second), ""},
		"an install that takes longer": {
			start(progress.Intent{Planned: planned(items), Before: time.Minute}).after(100 * time.Second), "",
		},
		"an update, by its slowest nodes": {start(progress.Intent{
			Planned: planned(items),
			InOrder: true,
			Before:  time.Hour,
			Nodes:   minute,
		}).after(2 * time.Second), "about 8m20s left"},
		"an update, near its end": {start(progress.Intent{
			Planned: planned(items),
			InOrder: true,
			Before:  time.Hour,
			Nodes:   minute,
		}).play(items[:598], time.Second), "about 20s left"},
		"a stuck update": {
			stuck().after(time.Minute*3, waiting(few()[5], 5*time.Second, "0 of 1 replicas are available")), "",
		},
		"an update as fast as the last one": {stuck(), "about 1m50s left"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.film.timeLeft(); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// A wrong estimate is corrected gradually.
func TestTimeLeftDoesNotJump(t *testing.T) {
	items := many()
	nodes := map[string]time.Duration{"level 10, frontend": 10 * time.Minute, "level 50, frontend": time.Minute}
	f := start(progress.Intent{
		Planned: planned(items),
		InOrder: true,
		Before:  11 * time.Minute,
		Nodes:   nodes,
	}).after(2 * time.Second)
	if got := f.timeLeft(); got != "about 11m00s left" {
		t.Fatalf("got %q at the start, want about 11m00s left", got)
	}
	for _, component := range []string{"database", "frontend", "monitoring"} { // far sooner than expected
		f.add(apply.Event{Type: apply.Began, Node: "level 10, " + component})
		f.add(apply.Event{Type: apply.Ended, Node: "level 10, " + component})
	}
	if got := f.after(time.Second).timeLeft(); got != "about 9m20s left" {
		t.Errorf("after a second: got %q", got)
	}
	if got := f.after(25 * time.Second).timeLeft(); got != "about 1m10s left" && got != "about 1m00s left" {
		t.Errorf("after 26 seconds: got %q", got)
	}
}

func BenchmarkState(b *testing.B) {
	f := crowded()
	event := waiting(f.items[9], 0, "0 of 3 replicas are available")
	for b.Loop() {
		f.add(event)
		f.State(&f.state)
	}
}

func BenchmarkScreen(b *testing.B) {
	f := crowded()
	for b.Loop() {
		f.screen(200, 50)
	}
}
