package rolloutplan_test

import (
	"testing"

	"github.com/runlevel/runlevel/internal/machines/capi/machinedeployment/rolloutplan"
)

// TestMake compares the plans for states that a simulated rollout rarely reaches.
func TestMake(t *testing.T) {
	t.Parallel()
	stuck := rolloutplan.RolloutState{
		Spec: specOf(3, 1, 0), New: &rolloutplan.SetState{
			Name:      "new",
			Replicas:  1,
			Current:   1,
			Available: 1,
			UpToDate:  1,
		},
		Old: []rolloutplan.SetState{{Name: "old", Replicas: 3, Current: 3, Available: 2}},
	}
	updating := stuck
	updating.Updating = []string{"m1"}
	unmoved := rolloutplan.SetState{Name: "old", Replicas: 1, Current: 3, Available: 3, Unmoved: 2}
	paused := specOf(3, 0, 1)
	paused.IsPaused = true
	arrived := &rolloutplan.SetState{Name: "new", Current: 1, Arrived: []string{"m1"}}
	for name, c := range map[string]struct {
		state rolloutplan.RolloutState
		want  string
	}{
		"a stuck rollout removes a machine": {stuck,
			"scale old down from 3 to 2: the rollout is stuck, 1 not available"},
		"a machine during its update is kept": {updating, ""},
		"a deleted machine counts once": {rolloutplan.RolloutState{
			Spec: specOf(3, 1, 0), New: &rolloutplan.SetState{
				Name:      "new",
				Replicas:  3,
				Current:   3,
				Available: 3,
				UpToDate:  3,
			},
			Old: []rolloutplan.SetState{{Name: "old", Replicas: 1, Current: 2}},
		}, ""},
		"a pause keeps unmoved machines": {
			rolloutplan.RolloutState{
				Spec: paused,
				New:  &rolloutplan.SetState{Name: "new"},
				Old:  []rolloutplan.SetState{unmoved},
			},
			"scale old up from 1 to 3: 2 machines are not moved any more",
		},
		"a pause keeps moved machines": {
			rolloutplan.RolloutState{
				Spec: paused,
				New:  arrived,
				Old:  []rolloutplan.SetState{{Name: "old", Replicas: 2, Current: 2, Available: 2}},
			},
			"scale new up from 0 to 1: moved to it: m1",
		},
		"OnDelete keeps both": {
			rolloutplan.RolloutState{Spec: rolloutplan.RolloutSpec{Replicas: 3, IsOnDelete: true}, New: arrived,
				Old: []rolloutplan.SetState{
					{Name: "old", Replicas: 1, Current: 2, Available: 2, Unmoved: 1},
				}},
			"scale new up from 0 to 1: moved to it: m1\nscale old up from 1 to 2: 1 machines are not moved any more",
		},
	} {
		if got := textOf(rolloutplan.Make(c.state)); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
