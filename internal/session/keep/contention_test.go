package keep_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/session/keep"
)

// A fight is a manager that changes an object again and again.
type fight struct {
	after    time.Duration // the fixing
	rounds   int
	reported int           // the first round in which it is a contention, from 1; 0 for never
	repaired int           // minimum number of repairs in the first minute
	mostly   int           // maximum number of repairs in the first minute
	finally  time.Duration // the pause at the end is no longer
	atLeast  time.Duration // minimum of that pause
	givesIn  time.Duration // then nothing happens for so long
	isClosed bool          // the next drift is repaired at once
}

var fights = map[string]fight{
	"a controller answers at once": {
		after:    20 * time.Millisecond,
		rounds:   40,
		reported: 5,
		repaired: 5,
		mostly:   15,
		finally:  5 * time.Minute,
		atLeast:  5 * time.Minute,
	},
	"it has given in, for a while": {
		after:    20 * time.Millisecond,
		rounds:   8,
		reported: 5,
		repaired: 5,
		mostly:   8,
		finally:  4 * time.Second,
		atLeast:  time.Second,
		givesIn:  time.Minute,
		isClosed: true,
	},
	"it has given in for long": {
		after:    20 * time.Millisecond,
		rounds:   40,
		reported: 5,
		repaired: 5,
		mostly:   15,
		finally:  5 * time.Minute,
		atLeast:  5 * time.Minute,
		givesIn:  11 * time.Minute,
		isClosed: true,
	},
	"another tool looks every ten seconds": {
		after:    10 * time.Second,
		rounds:   100,
		reported: 20,
		repaired: 6,
		mostly:   7,
		finally:  5 * time.Minute,
		atLeast:  10 * time.Second,
	},
	"a person changes it each minute": {
		after:    time.Minute,
		rounds:   100,
		repaired: 1,
		mostly:   2,
		isClosed: true,
	},
	"a person changes it four times in haste": {
		after:    300 * time.Millisecond,
		rounds:   4,
		repaired: 4,
		mostly:   4,
		isClosed: true,
	},
	"a person changes it once a second": {
		after:    time.Second,
		rounds:   10,
		repaired: 10,
		mostly:   10,
		isClosed: true,
	},
}

func TestContention(t *testing.T) {
	t.Parallel()
	for name, fight := range fights {
		t.Run(name, func(t *testing.T) { fight.hold(t) })
	}
}

// hold holds a fight over a clock of its own.
func (f fight) hold(t *testing.T) {
	var q keep.Contention
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	now, reported, early := began, 0, 0
	for round := 1; round <= f.rounds; round++ {
		q.Drift(now)
		now = now.Add(q.Pause(now))
		if q.Note(now, true) > 0 {
			if reported != 0 {
				t.Errorf("reported in round %d, and again in round %d", reported, round)
			}
			reported = round
		}
		if now.Sub(began) < time.Minute {
			early++
		}
		now = now.Add(f.after)
	}
	if reported != f.reported {
		t.Errorf("reported in round %d, want %d", reported, f.reported)
	}
	if early < f.repaired || early > f.mostly {
		t.Errorf("repaired %d times in the first minute, want %d to %d", early, f.repaired, f.mostly)
	}
	if pause := q.Pause(now.Add(-f.after)); pause < f.atLeast || pause > max(f.finally, f.atLeast) {
		t.Errorf("the pause is %s at the end, want %s to %s", pause, f.atLeast, f.finally)
	}
	if isOver := q.Left(now.Add(-f.after)) <= 0; isOver != (reported == 0) {
		t.Errorf("right after the last repair: the contention is over: %t", isOver)
	}
	now = now.Add(f.givesIn)
	if f.givesIn > 0 && q.Left(now) > 0 {
		t.Errorf("after a quiet time: the contention lasts for %s", q.Left(now))
	}
	q.Drift(now)
	if pause := q.Pause(now); f.isClosed && pause > 0 {
		t.Errorf("after a quiet time: the repair waits for %s", pause)
	}
	if q.Note(now, true); f.givesIn > 0 && q.Pause(now) > 0 {
		t.Errorf("after peace, the first drift is a contention, with a pause of %s", q.Pause(now))
	}
}

// Checks that find no difference have growing pauses, up to a limit.
func TestIdleChecksHaveGrowingPauses(t *testing.T) {
	t.Parallel()
	var q keep.Contention
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	looks := 0
	for begun := now; now.Sub(begun) < 10*time.Second; looks++ {
		q.Note(now, false)
		now = now.Add(max(time.Millisecond, q.Pause(now)))
	}
	if looks < 20 || looks > 50 {
		t.Errorf("%d looks in ten seconds", looks)
	}
	if pause := q.Pause(now.Add(-time.Second)); pause > time.Second {
		t.Errorf("the next repair waits for %s", pause)
	}
	q.Note(now, true)
	q.Note(now, false)
	if pause := q.Pause(now); pause > 0 {
		t.Errorf("after a repair: the next repair waits for %s", pause)
	}
}

// A rival changes a ConfigMap to blue whenever it is red.
type rival struct {
	rounds atomic.Int64
	stop   func()
}

func (s *site) rival(manager, name string) *rival {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	watch, err := s.at("ConfigMap").Watch(ctx,
		metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()})
	s.must(err)
	r := &rival{}
	var ended sync.WaitGroup
	ended.Go(func() {
		defer watch.Stop()
		for event := range watch.ResultChan() {
			object, isObject := event.Object.(*unstructured.Unstructured)
			if !isObject || ctx.Err() != nil {
				return
			}
			if colour, _, _ := unstructured.NestedString(object.Object, "data", "colour"); colour == "red" {
				r.rounds.Add(1)
				_, _ = s.at("ConfigMap").Patch(ctx, name, types.MergePatchType, []byte(`{"data":{"colour":"blue"}}`),
					metav1.PatchOptions{FieldManager: manager})
			}
		}
	})
	r.stop = func() { cancel(); watch.Stop(); ended.Wait() }
	s.t.Cleanup(r.stop)
	return r
}

// A client that deletes an object again and again is not known by its name. It is in contention, too.
func TestRepeatedDeletesAreAContention(t *testing.T) {
	t.Parallel()
	s := keepIn(t, one)
	s.until("it is reported", func() bool {
		_ = s.at("ConfigMap").Delete(t.Context(), "settings", metav1.DeleteOptions{})
		return len(s.all(keep.Contested)) > 0
	})
	if reported := s.all(keep.Contested)[0].Message; reported != "another client deletes it, or changes it, again "+
		"and again; it is repaired after longer and longer pauses, now 250ms" {
		t.Errorf("reported %q", reported)
	}
	s.until("it is there", func() bool { return s.get("ConfigMap", "settings") != nil })
}

// If a controller reverts each repair, it is reported once, also by an event on the object, and repairs follow after
// growing pauses. When the controller stops, the object is repaired.
func TestPersistentWriterIsAContention(t *testing.T) {
	t.Parallel()
	s := keepIn(t, one)
	r := s.rival("painter", "settings")
	s.until("it is reported", func() bool { return len(s.all(keep.Contested)) > 0 })
	reported := s.all(keep.Contested)[0]
	if reported.Message != "other managers change it again and again: data.colour (painter); it is repaired after "+
		"longer and longer pauses, now 250ms" ||
		len(reported.Lost) != 1 || reported.Lost[0].Manager != "painter" || reported.Lost[0].Field != "data.colour" ||
		reported.File != "0000_10_shop_10.yaml" {
		t.Errorf("reported %+v", reported)
	}
	if got := len(s.all(keep.Repaired)); got > 20 { // a slow machine repairs some rounds late
		t.Errorf("reported after %d rounds", got)
	}
	s.until("there is an event on the object", func() bool {
		about := fields.Set{"involvedObject.name": "settings", "reportingComponent": cluster.FieldManager}.String()
		events, err := s.admin.Client.CoreV1().Events(s.name).List(t.Context(),
			metav1.ListOptions{FieldSelector: about})
		s.must(err)
		for _, event := range events.Items {
			if event.Reason == "Contested" &&
				strings.HasPrefix(event.Message, "it does not match release "+s.name+
					": other managers change it again and again: data.colour (painter); ") && event.Type == "Warning" {
				return true
			}
		}
		return false
	})
	began := time.Now()
	s.until("five seconds have passed", func() bool { return time.Since(began) > 5*time.Second })
	if got := r.rounds.Load(); got > 15 {
		t.Errorf("%d rounds in five seconds", got)
	}
	if got := len(s.all(keep.Contested)); got != 1 {
		t.Errorf("reported %d times", got)
	}
	r.stop()
	s.until("it is repaired", func() bool { return s.colour("settings") == "red" })
}
