package graphdata

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
)

// An edge is an update between nodes.
type edge struct {
	from, to  int
	isRemoved bool // for clusters that do not know risks
	risks     int  // index of riskSets; 0 for none
}

// A riskSet has the risks of an edge.
type riskSet struct {
	risks []Risk
	text  json.RawMessage
}

// appliesTo returns whether a version in the graph data is the one of a node: without the suffix of an architecture, it
// holds for all.
func appliesTo(version, name string) bool {
	if version == name {
		return true
	}
	base, _, _ := strings.Cut(name, "+")
	return base == version
}

// A linker makes the graph of all channels and architectures.
type linker struct {
	*Data
	byName   map[string]int
	incoming [][]int        // froms, by node
	sets     map[string]int // indexes of riskSets by their texts
	entries  []*BlockedEdge // of the last set
	set      int
	problems []error
}

// link makes the nodes and edges.
func (d *Data) link() []error {
	l := linker{Data: d, byName: make(map[string]int, len(d.Releases)), sets: map[string]int{}}
	d.nodes, d.edges = make([]node, 0, len(d.Releases)), nil
	d.riskSets, d.phasesTo = []riskSet{{}}, map[int][]*Phase{}
	l.addNodes()
	l.addChannels()
	l.addEdges()
	l.judgeEdges()
	l.addPhases()
	return l.problems
}

func (l *linker) problem(file, format string, values ...any) {
	l.problems = append(l.problems, fmt.Errorf("%s: %s", file, fmt.Sprintf(format, values...)))
}

// addEdges adds the previous and next versions in releases and metadata.
func (l *linker) addEdges() {
	l.incoming = make([][]int, len(l.nodes))
	count := 0
	for i := range l.nodes {
		n := &l.nodes[i]
		count += len(n.Previous)
		l.incoming[i] = make([]int, 0, len(n.Previous))
		suffix := n.name[len(n.base):]
		for _, version := range n.Previous {
			l.addEdge(withSuffix(version, suffix), n.name)
		}
		for _, version := range n.Next {
			l.addEdge(n.name, withSuffix(version, suffix))
		}
		for _, version := range split(n.metadata[keyPrevAdd]) {
			l.addEdge(n.neighbor(version), n.name)
		}
		for _, version := range split(n.metadata[keyNextAdd]) {
			l.addEdge(n.name, n.neighbor(version))
		}
	}
	l.edges = make([]edge, 0, count)
	seen := make([]int, len(l.nodes))
	for target, all := range l.incoming {
		for _, from := range all {
			if seen[from] != target+1 {
				seen[from] = target + 1
				l.edges = append(l.edges, edge{from: from, to: target})
			}
		}
	}
}

func (l *linker) addEdge(from, target string) {
	i, hasFrom := l.byName[from]
	j, hasTo := l.byName[target]
	if hasFrom && hasTo && i != j {
		l.incoming[j] = append(l.incoming[j], i)
	}
}

// withSuffix returns a version with the suffix of an architecture in the place of its own.
func withSuffix(version, suffix string) string {
	base, own, hasOwn := strings.Cut(version, "+")
	if hasOwn && own == strings.TrimPrefix(suffix, "+") {
		return version
	}
	return base + suffix
}

// neighbor returns a version in metadata as the name of a node of the same architecture.
func (n *node) neighbor(version string) string {
	if n.arch != "" {
		return withSuffix(version, "+"+n.arch)
	}
	return version
}

// judgeEdges removes edges, and gives them risks.
func (l *linker) judgeEdges() {
	blocked := map[string][]*BlockedEdge{}
	for i := range l.Blocked {
		blocked[l.Blocked[i].To] = append(blocked[l.Blocked[i].To], &l.Blocked[i])
	}
	dropped := map[[2]string]bool{}
	for i := range l.nodes {
		for _, version := range split(l.nodes[i].metadata[keyNextDrop]) {
			dropped[[2]string{l.nodes[i].name, l.nodes[i].neighbor(version)}] = true
		}
	}
	var barriers []semver.Version
	for _, barrier := range l.Barriers {
		barriers = append(barriers, semver.MustParse(barrier.Version))
	}
	kept := l.edges[:0]
	for start := 0; start < len(l.edges); {
		target := l.edges[start].to
		end := start
		for end < len(l.edges) && l.edges[end].to == target {
			end++
		}
		l.judgeEdgesTo(target, l.edges[start:end], blocked)
		for _, e := range l.edges[start:end] {
			from, release := &l.nodes[e.from], &l.nodes[target]
			isAcross := slices.ContainsFunc(barriers, func(barrier semver.Version) bool {
				return from.version.LT(barrier) && barrier.LT(release.version)
			})
			e.isRemoved = e.isRemoved || len(dropped) > 0 && dropped[[2]string{from.name, release.name}]
			if isAcross || from.metadata[DeadEndKey] != "" || e.isRemoved && e.risks == 0 {
				continue
			}
			kept = append(kept, e)
		}
		start = end
	}
	l.edges = kept
}

// judgeEdgesTo judges the edges that lead to a node.
func (l *linker) judgeEdgesTo(target int, edges []edge, blocked map[string][]*BlockedEdge) {
	n := &l.nodes[target]
	dropped := split(n.metadata[keyPrevDrop])
	isDropped := func(from string) bool {
		return slices.ContainsFunc(dropped, func(version string) bool { return n.neighbor(version) == from })
	}
	if len(dropped) == 1 && dropped[0] == "*" {
		isDropped = func(string) bool { return true }
	}
	var removing *regexp.Regexp
	if text := n.metadata[keyPrevRegex]; text != "" {
		var err error
		if removing, err = regexp.Compile(text); err != nil {
			l.problem(n.File, "metadata: %s: %q is not a regular expression: %s", keyPrevRegex, text, err)
		}
	}
	entries := blocked[n.base]
	if n.name != n.base {
		entries = slices.Concat(entries, blocked[n.name])
	}
	for _, entry := range entries {
		n.add(keyPrevRegex, entry.From, "|")
	}
	for i := range edges {
		from := l.nodes[edges[i].from].name
		edges[i].isRemoved = isDropped(from) || removing != nil && removing.MatchString(from)
		var risks []*BlockedEdge
		for _, entry := range entries {
			if entry.From != ".*" && !entry.from.MatchString(from) {
				continue
			}
			edges[i].isRemoved = true
			if entry.Name != "" {
				risks = append(risks, entry)
			}
		}
		if len(risks) > 0 {
			edges[i].risks = l.setOf(risks)
		}
	}
}

// setOf returns the index of a set of risks. Edges to several versions have the same ones.
func (l *linker) setOf(entries []*BlockedEdge) int {
	if slices.Equal(entries, l.entries) {
		return l.set
	}
	var all riskSet
	for _, entry := range entries {
		isSame := func(risk Risk) bool { return reflect.DeepEqual(risk, entry.Risk) }
		if !slices.ContainsFunc(all.risks, isSame) {
			all.risks = append(all.risks, entry.Risk)
		}
	}
	var err error
	if all.text, err = json.Marshal(all.risks); err != nil {
		l.problem(entries[0].File, "%s", err)
	}
	set, isKnown := l.sets[string(all.text)]
	if !isKnown {
		set = len(l.riskSets)
		l.sets[string(all.text)] = set
		l.riskSets = append(l.riskSets, all)
	}
	l.entries, l.set = entries, set
	return set
}

// addPhases finds the nodes that phases lead to, and edges that are in two phases of a channel.
func (l *linker) addPhases() {
	for i := range l.nodes {
		for j := range l.Phases {
			if p := &l.Phases[j]; appliesTo(p.To, l.nodes[i].name) {
				l.phasesTo[i] = append(l.phasesTo[i], p)
			}
		}
	}
	reported := map[*Phase]bool{}
	for _, e := range l.edges {
		from, target := &l.nodes[e.from], &l.nodes[e.to]
		for _, channel := range target.channels {
			var first *Phase
			for _, p := range l.phasesTo[e.to] {
				switch isMatch := !reported[p] && p.Matches(channel, from.name, target.name); {
				case isMatch && first == nil:
					first = p
				case isMatch:
					reported[p] = true
					l.problem(p.File, "the update from %s to %s in channel %s is in this phase and in %s", from.base,
						target.base, channel, first.File)
				}
			}
		}
	}
}
