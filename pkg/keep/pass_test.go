package keep_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/pkg/keep"
)

// every has a slow pass begin again after a time.
func every(pause time.Duration) func(*plan) { return func(p *plan) { p.keep.Every = pause } }

// What the watches have missed, the slow pass finds, mends, and says.
func TestTheSlowPassFindsWhatTheWatchesMissed(t *testing.T) {
	t.Parallel()
	s := keepIn(t, two, every(time.Second))
	resume := s.keeping.stall()
	defer resume()
	s.patch("ConfigMap", "settings", `{"data":{"colour":"blue"}}`)
	s.until("it is told", func() bool { return len(s.all(keep.Missed)) == 1 })
	s.until("the pass is over", func() bool {
		return strings.Contains(strings.Join(s.told(), "\n"), "passed looked at 2 objects, of which the watches had missed 1")
	})
	told := s.all(keep.Missed)[0]
	if told.Object.Name != "settings" || told.Message != "no watch had told that it was not as the release says" || s.colour("settings") != "red" {
		t.Errorf("told %+v; it is %s", told, s.colour("settings"))
	}
}

// Where nobody may watch, the slow pass is all there is.
func TestTheSlowPassNeedsNoWatch(t *testing.T) {
	t.Parallel()
	name := test.Namespace(t)
	s := keepAs(t, name, one, by(test.Account(t, name, "user", may("configmaps", everything...))), every(time.Second))
	s.patch("ConfigMap", "settings", `{"data":{"colour":"blue"}}`)
	s.until("it is repaired", func() bool { return s.colour("settings") == "red" })
}

// One pass ends before the next begins, and what is as it should is not told of.
func TestPassesComeOneAfterTheOther(t *testing.T) {
	t.Parallel()
	files := ""
	for i := range 60 {
		files += fmt.Sprintf("-- 0000_20_shop_%02d.yaml --\n{apiVersion: v1, kind: ConfigMap, metadata: {name: map-%d, namespace: NS}, data: {colour: red}}\n", i, i)
	}
	s := keepIn(t, files, every(10*time.Millisecond))
	s.until("there were three", func() bool { return len(s.all(keep.Passed)) >= 3 })
	_ = s.stop()
	passes := len(s.all(keep.Passed))
	var want []string
	want = append(want, "keeping 60 objects of 1 kind")
	for range passes {
		want = append(want, "passed looked at 60 objects, of which the watches had missed 0")
	}
	told := s.told()
	told[1] = want[1] // objects may still be handed over while the first pass looks
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := s.keeping.count(is("patch", "configmaps")); got < 60*(passes-1) || got > 60*(passes+1) {
		t.Errorf("%d passes over 60 objects have applied %d", passes, got)
	}
}
