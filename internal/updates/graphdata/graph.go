package graphdata

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/runlevel/runlevel/internal/updates/phase"
)

// A Graph is what clients of an update service get.
type Graph struct {
	Version          int                `json:"version"` // of the format
	Nodes            []Node             `json:"nodes"`
	Edges            [][2]int           `json:"edges"` // indexes of nodes
	ConditionalEdges []ConditionalEdges `json:"conditionalEdges"`
	PhasedEdges      []phase.Phase      `json:"phasedEdges,omitempty"`
}

// A Node is a release.
type Node struct {
	Version  string            `json:"version"`
	Image    string            `json:"payload"`
	Metadata map[string]string `json:"metadata"`
}

// ConditionalEdges are edges with the same risks.
type ConditionalEdges struct {
	Edges []phase.Edge `json:"edges"`
	Risks []Risk       `json:"risks"`
}

// Graph returns the graph of a channel and an architecture at a time. It has the nodes in the order of their versions.
func (d *Data) Graph(channel, arch string, now time.Time) *Graph {
	b := builder{
		Data: d, channel: channel, now: now, halted: d.Halted(), offers: map[*Phase]*phase.Phase{},
		groups: map[group]int{},
		graph: &Graph{
			Version: 1, Nodes: make([]Node, 0, len(d.nodes)), Edges: make([][2]int, 0, len(d.edges)),
			ConditionalEdges: []ConditionalEdges{},
		},
	}
	for i := range d.Phases {
		if offer := d.Phases[i].Offer(); !offer.IsOpenForAll(now) {
			b.offers[&d.Phases[i]] = &offer
		}
	}
	indexes := make([]int, len(d.nodes)) // in the graph, plus one
	for i := range d.nodes {
		n := &d.nodes[i]
		if !slices.Contains(n.channels, channel) || n.architectures != nil && !slices.Contains(n.architectures, arch) {
			continue
		}
		b.graph.Nodes = append(b.graph.Nodes, Node{n.versionFor(arch), n.Image, n.metadata})
		indexes[i] = len(b.graph.Nodes)
	}
	for i := range d.edges {
		e := &d.edges[i]
		if from, target := indexes[e.from]-1, indexes[e.to]-1; from >= 0 && target >= 0 {
			b.add(e, from, target)
		}
	}
	return b.graph
}

// versionFor returns the version without the suffix of an architecture.
func (n *node) versionFor(arch string) string {
	if n.name == n.base || n.name[len(n.base)+1:] == arch {
		return n.base
	}
	parts := strings.Split(n.name[len(n.base)+1:], ".")
	return n.base + "+" + strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == arch }), ".")
}

// A builder builds a graph.
type builder struct {
	*Data
	channel string
	now     time.Time
	halted  map[string]Halt
	offers  map[*Phase]*phase.Phase // as clients get them; without those that are open for all
	groups  map[group]int           // indexes of ConditionalEdges, or PhasedEdges
	graph   *Graph
}

// A group is what edges have in common.
type group struct {
	phase *Phase
	risks int
	halt  string
}

// add adds an edge between nodes with these indexes.
func (b *builder) add(e *edge, from, target int) {
	release := &b.nodes[e.to]
	key := group{risks: e.risks, halt: cmp.Or(b.halted[release.name].Reason, b.halted[release.base].Reason)}
	for _, p := range b.phasesTo[e.to] {
		if b.offers[p] != nil && p.Matches(b.channel, b.nodes[e.from].name, release.name) {
			key.phase = p
		}
	}
	if key == (group{}) {
		b.graph.Edges = append(b.graph.Edges, [2]int{from, target})
		return
	}
	isPhased := key.phase != nil || key.halt != ""
	i, isKnown := b.groups[key]
	switch {
	case isKnown:
	case isPhased:
		i = len(b.graph.PhasedEdges)
		offer := phase.Phase{}
		if key.phase != nil {
			offer = *b.offers[key.phase]
		}
		offer.Halt, offer.Risks = key.halt, b.riskSets[key.risks].text
		b.graph.PhasedEdges = append(b.graph.PhasedEdges, offer)
	default:
		i = len(b.graph.ConditionalEdges)
		added := ConditionalEdges{Risks: b.riskSets[e.risks].risks}
		b.graph.ConditionalEdges = append(b.graph.ConditionalEdges, added)
	}
	b.groups[key] = i
	named := phase.Edge{From: b.graph.Nodes[from].Version, To: b.graph.Nodes[target].Version}
	if isPhased {
		b.graph.PhasedEdges[i].Edges = append(b.graph.PhasedEdges[i].Edges, named)
	} else {
		b.graph.ConditionalEdges[i].Edges = append(b.graph.ConditionalEdges[i].Edges, named)
	}
}

// An Update is an edge between releases, whose names are their versions with the suffix of an architecture.
type Update struct {
	From, To         *Release
	FromName, ToName string
}

// UpdatesTo returns the updates to a version that have no risk yet, also outside of channels.
func (d *Data) UpdatesTo(version string) []Update {
	var found []Update
	for _, e := range d.edges {
		from, target := &d.nodes[e.from], &d.nodes[e.to]
		if appliesTo(version, target.name) && e.risks == 0 {
			found = append(found, Update{from.Release, target.Release, from.name, target.name})
		}
	}
	return found
}

// ChannelNames returns the names of all channels, also of those that only releases name.
func (d *Data) ChannelNames() []string {
	var names []string
	for _, channel := range d.Channels {
		names = append(names, channel.Name)
	}
	for i := range d.nodes {
		names = append(names, d.nodes[i].channels...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Architectures returns the architectures that releases have. If one has none, clients of the usual ones may ask.
func (d *Data) Architectures() []string {
	var all []string
	for i := range d.nodes {
		if all = append(all, d.nodes[i].architectures...); d.nodes[i].architectures == nil {
			all = append(all, "amd64", "arm64", "multi", "ppc64le", "s390x")
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
