// Package graphdata reads the folder of an update service, and builds update graphs from it: which release may be
// updated to which others, for a channel and an architecture.
//
// The folder has the format of the graph data that the OpenShift community keeps (channels, blocked edges with risks,
// raw metadata), and gives the graphs that Cincinnati builds from it. It also has what Cincinnati reads from images or
// does not know: releases, phases, barriers, dead ends and halts. The package judges no reports: package halt does.
//
// Start with Read, then Data.Graph.
package graphdata

import (
	"maps"
	"regexp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/updates/halt"
	"github.com/runlevel/runlevel/internal/updates/phase"
)

// Data is the content of a folder.
type Data struct {
	Channels []Channel
	Blocked  []BlockedEdge
	Releases []Release
	Raw      map[string]map[string]string // additional metadata of releases, by version
	Barriers []Notice
	DeadEnds []Notice
	Phases   []Phase
	Halts    []Halt // in the order in which they happened

	nodes    []node
	edges    []edge // by the nodes that they lead to
	riskSets []riskSet
	phasesTo map[int][]*Phase // by nodes
}

// A Channel is a list of versions that clusters may follow.
type Channel struct {
	File     string   `json:"-"`
	Name     string   `json:"name"`
	Versions []string `json:"versions"` // of every architecture, unless they have the suffix of one
	// These are about how versions get into a channel. They change no graph.
	Feeder     any `json:"feeder,omitempty"`
	Tombstones any `json:"tombstones,omitempty"`
}

// A BlockedEdge removes edges to a version, or gives them a risk.
type BlockedEdge struct {
	File string `json:"-"`
	To   string `json:"to"`
	// From is a regular expression, which is matched with versions that have the suffix of their architecture.
	From       string `json:"from"`
	Risk       `json:",inline"`
	FixedIn    string `json:"fixedIn,omitempty"`
	AutoExtend string `json:"autoExtend,omitempty"`

	from *regexp.Regexp
}

// A Risk is a reason why some clusters should not take an edge. It has no name if the edge is blocked for all.
type Risk struct {
	URL           string         `json:"url"`
	Name          string         `json:"name"`
	Message       string         `json:"message"`
	MatchingRules []MatchingRule `json:"matchingRules"`
}

// A MatchingRule decides which clusters have a risk.
type MatchingRule struct {
	Type   string `json:"type"`
	PromQL *struct {
		PromQL string `json:"promql"` // query of a cluster's metrics
	} `json:"promql,omitempty"`
}

// A Release is one that clusters may be updated to.
type Release struct {
	File         string            `json:"-"`
	Version      string            `json:"version"`
	Architecture string            `json:"architecture,omitempty"` // such as amd64, or multi; empty for all
	Image        string            `json:"image"`
	URL          string            `json:"url,omitempty"`
	Previous     []string          `json:"previous,omitempty"` // versions that may be updated to this one
	Next         []string          `json:"next,omitempty"`
	Metadata     map[string]string `json:"metadata,omitempty"`
}

// A Notice is a version with the reason why it is a barrier or a dead end. Versions before a barrier reach those after
// it only through it; no edges leave a dead end.
type Notice struct {
	File    string `json:"-"`
	Version string `json:"version"`
	Reason  string `json:"reason"`
}

// A Phase offers edges to a version in phases, and has the policy by which they are halted.
type Phase struct {
	File        string   `json:"-"`
	To          string   `json:"to"`
	From        string   `json:"from,omitempty"`     // regular expression as in BlockedEdge; empty for all
	Channels    []string `json:"channels,omitempty"` // empty for all
	phase.Ramp  `json:",inline"`
	First       []string              `json:"first,omitempty"`
	Rings       map[string]phase.Ramp `json:"rings,omitempty"`
	halt.Policy `json:",inline"`

	// Begin returns when a ramp with this start begins; zero if it waits for reports. Who has reports sets it. Without
	// it, ramps that wait for reports never begin.
	Begin func(start time.Time) time.Time `json:"-"`

	from *regexp.Regexp
}

// A Halt stops all updates to a version, or lets them continue.
type Halt struct {
	To      string      `json:"to"`
	At      metav1.Time `json:"at"`
	Reason  string      `json:"reason,omitempty"`  // why they are halted
	Resumed string      `json:"resumed,omitempty"` // why they may continue
	By      string      `json:"by,omitempty"`      // who has resumed them
}

// Matches returns whether a phase holds for an edge in a channel; the versions may have the suffix of an architecture.
func (p *Phase) Matches(channel, from, target string) bool {
	isIn := len(p.Channels) == 0 || slices.Contains(p.Channels, channel)
	return isIn && appliesTo(p.To, target) && (p.from == nil || p.from.MatchString(from))
}

// Judged returns the phase as package halt judges it.
func (p *Phase) Judged() halt.Phase { return halt.Phase{To: p.To, From: p.from, Policy: p.Policy} }

// Offer returns the phase as clients get it, without edges and risks.
func (p *Phase) Offer() phase.Phase {
	begin := func(ramp phase.Ramp) phase.Ramp {
		if p.Begin != nil && !ramp.Start.IsZero() {
			ramp.Start = metav1.NewTime(p.Begin(ramp.Start.Time))
		} else if p.After.Successes > 0 {
			ramp.Start = metav1.Time{}
		}
		if ramp.Start.IsZero() {
			return phase.Ramp{}
		}
		return ramp
	}
	offer := phase.Phase{First: p.First, Ramp: begin(p.Ramp), Rings: maps.Clone(p.Rings)}
	for name, ramp := range p.Rings {
		offer.Rings[name] = begin(ramp)
	}
	return offer
}

// Halted returns the halts that hold, by version.
func (d *Data) Halted() map[string]Halt {
	halted := map[string]Halt{}
	for _, halt := range d.Halts {
		if halt.Resumed != "" {
			delete(halted, halt.To)
		} else if _, isHalted := halted[halt.To]; !isHalted {
			halted[halt.To] = halt
		}
	}
	return halted
}

// Resumed returns when updates to a version were last resumed; zero if they were not. Failures before that time have
// been judged by a person.
func (d *Data) Resumed(version string) time.Time {
	for _, halt := range slices.Backward(d.Halts) {
		if halt.To == version && halt.Resumed != "" {
			return halt.At.Time
		}
	}
	return time.Time{}
}
