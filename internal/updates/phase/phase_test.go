package phase_test

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/runlevel/runlevel/internal/updates/phase"
)

var start = time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC)

func ramp(percentage float64, duration time.Duration) phase.Ramp {
	length := metav1.Duration{Duration: duration}
	return phase.Ramp{Start: metav1.NewTime(start), Percentage: percentage, Duration: length}
}

func TestRampOpensForAGrowingShareOfClusters(t *testing.T) {
	const clusters = 10_000
	p := phase.Phase{Ramp: ramp(10, 48*time.Hour)}
	for after, want := range map[time.Duration]float64{
		-time.Second: 0, 0: 0.10, 12 * time.Hour: 0.325, 24 * time.Hour: 0.55, 48 * time.Hour: 1, 96 * time.Hour: 1,
	} {
		open := 0
		for i := range clusters {
			turn, isKnown := p.Turn(phase.Cluster{ID: fmt.Sprint("cluster-", i)}, "1.4.1")
			if isKnown && !turn.After(start.Add(after)) {
				open++
			}
		}
		if share := float64(open) / clusters; math.Abs(share-want) > 0.02 {
			t.Errorf("%s after the start, the update is open for %.3f of the clusters, want %.3f", after, share, want)
		}
	}
}

func TestNoClusterIsAlwaysFirst(t *testing.T) {
	p := phase.Phase{Ramp: ramp(0, time.Hour)}
	early := map[string]int{}
	for i := range 1_000 {
		id := fmt.Sprint("cluster-", i)
		for minor := range 10 {
			turn, _ := p.Turn(phase.Cluster{ID: id}, fmt.Sprintf("1.%d.0", minor))
			if turn.Before(start.Add(6 * time.Minute)) { // the first tenth
				early[id]++
			}
		}
	}
	for id, count := range early {
		if count > 6 {
			t.Errorf("%s is among the first tenth in %d of 10 versions", id, count)
		}
	}
	if len(early) < 500 {
		t.Errorf("only %d of 1,000 clusters were among the first tenth in any of 10 versions", len(early))
	}
}

func TestTurn(t *testing.T) {
	one := phase.Cluster{ID: "one"}
	for name, test := range map[string]struct {
		phase   phase.Phase
		cluster phase.Cluster
		want    string
	}{
		"not started":         {phase.Phase{}, one, "never"},
		"all at once":         {phase.Phase{Ramp: ramp(100, 0)}, one, "0s"},
		"paused":              {phase.Phase{Ramp: ramp(5, 0)}, phase.Cluster{Wariness: ptr.To(0.05)}, "never"},
		"before the pause":    {phase.Phase{Ramp: ramp(5, 0)}, phase.Cluster{Wariness: ptr.To(0.04)}, "0s"},
		"wary":                {phase.Phase{Ramp: ramp(0, time.Hour)}, phase.Cluster{Wariness: ptr.To(1.0)}, "1h0m0s"},
		"eager":               {phase.Phase{Ramp: ramp(0, time.Hour)}, phase.Cluster{Wariness: ptr.To(0.0)}, "0s"},
		"half way":            {phase.Phase{Ramp: ramp(50, time.Hour)}, phase.Cluster{Wariness: ptr.To(0.75)}, "30m0s"},
		"first":               {phase.Phase{First: []string{"one"}}, one, "now"},
		"first, but halted":   {phase.Phase{First: []string{"one"}, Halt: "3 failed"}, one, "never"},
		"halted":              {phase.Phase{Ramp: ramp(100, 0), Halt: "3 failed"}, one, "never"},
		"ring":                {inRing(ramp(100, 0)), phase.Cluster{ID: "one", Ring: "canary"}, "0s"},
		"ring of its own":     {inRing(ramp(100, 0)), one, "never"},
		"ring without a ramp": {phase.Phase{Ramp: ramp(100, 0)}, phase.Cluster{ID: "one", Ring: "late"}, "0s"},
	} {
		t.Run(name, func(t *testing.T) {
			got := "never"
			if turn, isKnown := test.phase.Turn(test.cluster, "1.4.1"); isKnown && turn.IsZero() {
				got = "now"
			} else if isKnown {
				got = turn.Sub(start).String()
			}
			if got != test.want {
				t.Errorf("the update opens %s after the start, want %s", got, test.want)
			}
		})
	}
}

func inRing(canary phase.Ramp) phase.Phase {
	return phase.Phase{Rings: map[string]phase.Ramp{"canary": canary}}
}

func TestIsOpenForAll(t *testing.T) {
	p := phase.Phase{Ramp: ramp(0, time.Hour), Rings: map[string]phase.Ramp{"late": ramp(0, 2*time.Hour)}}
	for after, want := range map[time.Duration]bool{time.Hour: false, 2 * time.Hour: true} {
		if got := p.IsOpenForAll(start.Add(after)); got != want {
			t.Errorf("open for all after %s: %t", after, got)
		}
	}
	p.Halt = "3 failed"
	if p.IsOpenForAll(start.Add(2 * time.Hour)) {
		t.Error("a halted phase is open for all")
	}
}

func TestPhaseIsReadAsItWasWritten(t *testing.T) {
	text := `{"edges":[{"from":"1.4.0","to":"1.4.1"}],"ramp":{"start":"2026-12-01T08:00:00Z","percentage":5,` +
		`"duration":"48h0m0s"},"rings":{"late":{}}}`
	var p phase.Phase
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	if written, err := json.Marshal(p); err != nil || string(written) != text {
		t.Errorf("written as %s, %v", written, err)
	}
}
