package rolloutplan_test

import (
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/runlevel/runlevel/internal/sandbox/transcript"
)

// TestRolloutLogsWithChanges changes a deployment during a rollout.
func TestRolloutLogsWithChanges(t *testing.T) {
	scaleTo := func(replicas int) func(*world) { return func(w *world) { w.spec.Replicas = replicas } }
	var logs []txtar.File
	for _, c := range []struct {
		name                         string
		replicas, surge, unavailable int
		isInPlace, isOnDelete        bool
		changes                      map[int]func(*world)
	}{
		{
			name:        "replace 6, 3/1, scaled up to 12",
			replicas:    6,
			surge:       3,
			unavailable: 1,
			changes:     map[int]func(*world){2: scaleTo(12)},
		},
		{
			name:        "in place 6, 3/1, scaled up to 12",
			replicas:    6,
			surge:       3,
			unavailable: 1,
			isInPlace:   true,
			changes:     map[int]func(*world){2: scaleTo(12)},
		},
		{
			name:        "replace 12, 3/1, scaled down to 6",
			replicas:    12,
			surge:       3,
			unavailable: 1,
			changes:     map[int]func(*world){2: scaleTo(6)},
		},
		{
			name:        "in place 12, 3/1, scaled down to 6",
			replicas:    12,
			surge:       3,
			unavailable: 1,
			isInPlace:   true,
			changes:     map[int]func(*world){2: scaleTo(6)},
		},
		{
			name:        "replace 6, 3/1, another template",
			replicas:    6,
			surge:       3,
			unavailable: 1,
			changes:     map[int]func(*world){3: changeTemplate},
		},
		{
			name:        "in place 6, 3/1, another template",
			replicas:    6,
			surge:       3,
			unavailable: 1,
			isInPlace:   true,
			changes:     map[int]func(*world){3: changeTemplate},
		},
		{
			name:        "replace 6, 1/1, back to the first template",
			replicas:    6,
			surge:       1,
			unavailable: 1,
			changes:     map[int]func(*world){3: rollBack},
		},
		{
			name:     "replace 3, 1/0, a machine that never becomes available",
			replicas: 3,
			surge:    1,
			changes:  map[int]func(*world){1: breakOne},
		},
		{
			name:      "in place 3, 1/0, a machine that never becomes available",
			replicas:  3,
			surge:     1,
			isInPlace: true,
			changes:   map[int]func(*world){1: breakOne},
		},
		{name: "on delete 3", replicas: 3, isOnDelete: true, changes: map[int]func(*world){2: deleteOne, 4: deleteOne}},
		{
			name:       "on delete 6, scaled down to 4",
			replicas:   6,
			isOnDelete: true,
			changes:    map[int]func(*world){2: deleteOne, 4: scaleTo(4)},
		},
		{
			name:     "replace 3, 1/0, paused, scaled to 5, resumed",
			replicas: 3,
			surge:    1,
			changes:  map[int]func(*world){2: pause, 4: scaleTo(5), 6: resume},
		},
		{
			name:        "replace 6, 1/1, paused, scaled to 2, resumed",
			replicas:    6,
			surge:       1,
			unavailable: 1,
			changes:     map[int]func(*world){3: pause, 5: scaleTo(2), 7: resume},
		},
		{
			name:        "in place 3, 0/1, paused, resumed",
			replicas:    3,
			unavailable: 1,
			isInPlace:   true,
			changes:     map[int]func(*world){2: pause, 5: resume},
		},
		{name: "in place 3, 0/2, then on delete, then in place", replicas: 3, unavailable: 2, isInPlace: true,
			changes: map[int]func(*world){
				2: func(w *world) { w.spec.IsOnDelete = true }, 5: func(w *world) { w.spec.IsOnDelete = false },
			}},
	} {
		w := newWorld(specOf(c.replicas, c.surge, c.unavailable))
		w.isInPlace = c.isInPlace
		if w.spec.IsOnDelete = c.isOnDelete; c.isOnDelete {
			w.spec.MaxUnavailable = w.spec.Replicas
		}
		w.rollOut(t, c.name, c.changes)
		logs = append(logs, txtar.File{Name: c.name, Data: []byte(strings.Join(w.log, "\n") + "\n")})
	}
	transcript.Expect(t, "testdata/changes.txtar", logs)
}

func changeTemplate(w *world) { w.template++ }

func rollBack(w *world) { w.template = 1 }

func breakOne(w *world) { w.sets[0].machines[1].isBroken = true }

func pause(w *world) { w.spec.IsPaused = true }

func resume(w *world) { w.spec.IsPaused = false }

// deleteOne deletes a machine, as a person does.
func deleteOne(w *world) {
	w.logf("%s is deleted by a person", w.sets[0].machines[0])
	w.sets[0].machines = w.sets[0].machines[1:]
}
