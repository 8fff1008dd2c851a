package rolloutplan_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/runlevel/runlevel/internal/machines/capi/machinedeployment/rolloutplan"
)

var rewrite = flag.Bool("rewrite", false, "write the logs of testdata again")

// rounds is far more than a rollout takes.
const rounds = 200

// TestLogs rolls out a changed template in deployments of 3, 6 and 12 machines with each surge and unavailability from
// 0 to 3, by replacement and in place.
func TestLogs(t *testing.T) {
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
		compare(t, fmt.Sprintf("testdata/%02d-replicas.txtar", replicas), logs)
	}
}

// specOf returns what a deployment asks for; where neither is allowed, one machine may be unavailable.
func specOf(replicas, surge, unavailable int) rolloutplan.RolloutSpec {
	if surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return rolloutplan.RolloutSpec{Replicas: replicas, MaxSurge: surge, MaxUnavailable: min(unavailable, replicas)}
}

// rollOut goes on until nothing is left to do. The change is made before the round of that number.
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

// compare compares logs with a file's.
func compare(t *testing.T, path string, logs []txtar.File) {
	t.Helper()
	if *rewrite {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, txtar.Format(&txtar.Archive{Files: logs}), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i, log := range logs {
		if i >= len(want.Files) || want.Files[i].Name != log.Name {
			t.Fatalf("%s does not have %q in its place: run the test with -rewrite", path, log.Name)
		}
		if diff := cmp.Diff(string(want.Files[i].Data), string(log.Data)); diff != "" {
			t.Errorf("%s, %s (-want +got):\n%s", path, log.Name, diff)
		}
	}
}
