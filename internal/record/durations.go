package record

import (
	"maps"
	"math"
	"time"
)

// Durations are how long the last run of a mode took that was completed, in seconds. They are
// for those who want to know how long the next one will take.
type Durations struct {
	All   float64            `json:"all"`
	Nodes map[string]float64 `json:"nodes,omitempty"` // those that took a while, by "level NN, component"
}

// aWhile is how long a node must have taken to be worth remembering.
const aWhile = 100 * time.Millisecond

// Remember notes how long a run of a mode took, and its nodes.
func (r *Record) Remember(mode string, all time.Duration, nodes map[string]time.Duration) {
	d := Durations{All: seconds(all), Nodes: map[string]float64{}}
	for name, took := range nodes {
		if took >= aWhile {
			d.Nodes[name] = seconds(took)
		}
	}
	durations := maps.Clone(r.Durations) // which may be read at the same time
	if durations == nil {
		durations = map[string]Durations{}
	}
	durations[mode] = d
	r.Durations = durations
}

// seconds is a duration to a tenth of a second, enough to plan by.
func seconds(d time.Duration) float64 { return math.Round(d.Seconds()*10) / 10 }
