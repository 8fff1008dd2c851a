package record

import (
	"maps"
	"math"
	"time"
)

// Durations are how long the last completed run of a mode took, in seconds, as an estimate for
// the next run.
type Durations struct {
	All   float64            `json:"all"`
	Nodes map[string]float64 `json:"nodes,omitempty"` // the nodes that took at least aWhile, by "level NN, component"
}

// aWhile is the minimum duration of a node to be recorded.
const aWhile = 100 * time.Millisecond

// Remember records how long a run of a mode took, and its nodes.
func (r *Record) Remember(mode string, all time.Duration, nodes map[string]time.Duration) {
	d := Durations{All: seconds(all), Nodes: map[string]float64{}}
	for name, took := range nodes {
		if took >= aWhile {
			d.Nodes[name] = seconds(took)
		}
	}
	durations := maps.Clone(r.Durations) // they may be read at the same time
	if durations == nil {
		durations = map[string]Durations{}
	}
	durations[mode] = d
	r.Durations = durations
}

// seconds returns a duration in seconds, rounded to a tenth.
func seconds(d time.Duration) float64 { return math.Round(d.Seconds()*10) / 10 }
