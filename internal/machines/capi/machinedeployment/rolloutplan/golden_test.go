package rolloutplan_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/runlevel/runlevel/internal/machines/capi/machinedeployment/rolloutplan"
	"github.com/runlevel/runlevel/internal/sandbox/transcript"
)

// rounds is a limit that no rollout reaches.
const rounds = 200

// TestRolloutLogs rolls out a changed template in deployments of 3, 6 and 12 machines with each surge and
// unavailability from 0 to 3, by replacement and in place.
func TestRolloutLogs(t *testing.T) {
	for _, replicas := range []int{3, 6, 12} {
		var logs []txtar.File
		for surge := range 4 {
			for unavailable := range 4 {
				for _, how := range []string{"replace", "in place"} {
					spec := specOf(replicas, surge, unavailable)
					name := fmt.Sprintf("%s, maxSurge %d, maxUnavailable %d", how, surge, unavailable)
					w := newWorld(spec)
					w.isInPlace = how == "in place"
					w.rollOut(t, name, nil)
					logs = append(logs, txtar.File{Name: name, Data: []byte(strings.Join(w.log, "\n") + "\n")})
				}
			}
		}
		transcript.Expect(t, fmt.Sprintf("testdata/%02d-replicas.txtar", replicas), logs)
	}
}

// specOf returns the spec of a deployment. If it allows neither, one machine may be unavailable.
func specOf(replicas, surge, unavailable int) rolloutplan.RolloutSpec {
	if surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return rolloutplan.RolloutSpec{Replicas: replicas, MaxSurge: surge, MaxUnavailable: min(unavailable, replicas)}
}

// rollOut runs rounds until one changes nothing. A change happens before the round of its number.
func (w *world) rollOut(t *testing.T, name string, changes map[int]func(*world)) {
	t.Helper()
	limits, lastChange := &invariants{world: w}, slices.Max(append(slices.Collect(maps.Keys(changes)), 0))
	for round := 1; round <= rounds; round++ {
		if change := changes[round]; change != nil {
			w.logf("change in round %d", round)
			change(w)
			limits.begin()
		}
		check := func() {
			if problem := limits.check(); problem != "" {
				t.Errorf("%s: %s after\n%s", name, problem, strings.Join(w.log, "\n"))
			}
		}
		if !w.round(check) && round > lastChange {
			break
		}
	}
	w.logf("end: %s", w.machines())
	if !w.isSettled() && !w.spec.IsOnDelete && !w.spec.IsPaused {
		t.Errorf("%s does not end:\n%s", name, strings.Join(w.log, "\n"))
	}
}
