package keep_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/session/keep"
)

// every sets the interval of resyncs.
func every(pause time.Duration) func(*plan) { return func(p *plan) { p.keep.Every = pause } }

// A resync finds, repairs and reports drift that the watches have missed.
func TestResyncFindsMissedDrift(t *testing.T) {
	t.Parallel()
	s := keepIn(t, two, every(time.Second))
	resume := s.keeping.stall()
	defer resume()
	s.patch("ConfigMap", "settings", `{"data":{"colour":"blue"}}`)
	s.until("it is reported", func() bool { return len(s.all(keep.Missed)) == 1 })
	s.until("the pass is over", func() bool {
		return strings.Contains(strings.Join(s.lines(), "\n"),
			"passed checked 2 objects, of which the watches had missed 1")
	})
	reported := s.all(keep.Missed)[0]
	if reported.Object.Name != "settings" ||
		reported.Message != "it differed from the release, and no watch had shown it" || s.colour("settings") != "red" {
		t.Errorf("reported %+v, the colour is %s", reported, s.colour("settings"))
	}
}

// Without the right to watch, only resyncs find drift.
func TestResyncNeedsNoWatch(t *testing.T) {
	t.Parallel()
	name := test.Namespace(t)
	s := keepAs(t, name, one, by(test.Account(t, name, "user", may("configmaps", everything...))), every(time.Second))
	s.patch("ConfigMap", "settings", `{"data":{"colour":"blue"}}`)
	s.until("it is repaired", func() bool { return s.colour("settings") == "red" })
}

// A resync ends before the next one begins, and objects without drift are not reported.
func TestResyncsAreSequential(t *testing.T) {
	t.Parallel()
	files := ""
	for i := range 60 {
		files += fmt.Sprintf("-- 0000_20_shop_%02d.yaml --\n{apiVersion: v1, kind: ConfigMap, metadata: {name: "+
			"map-%d, namespace: NS}, data: {colour: red}}\n", i, i)
	}
	s := keepIn(t, files, every(10*time.Millisecond))
	const whole = "passed checked 60 objects, of which the watches had missed 0"
	count := func() (passes int) {
		for _, line := range s.lines() {
			if line == whole {
				passes++
			}
		}
		return passes
	}
	s.until("there were three", func() bool { return count() >= 3 })
	_ = s.stop()
	passes := count()
	partly := regexp.MustCompile(`^passed checked \d+ objects?, of which the watches had missed 0$`)
	// objects were still handed over
	reported := slices.DeleteFunc(s.lines(), func(line string) bool {
		return line != whole && partly.MatchString(line)
	})
	want := append([]string{"keeping 60 objects of 1 kind"}, slices.Repeat([]string{whole}, passes)...)
	if diff := cmp.Diff(want, reported); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := s.keeping.count(is("patch", "configmaps")); got < 60*(passes-1) || got > 60*(passes+2) {
		t.Errorf("%d passes over 60 objects have applied %d", passes, got)
	}
}
