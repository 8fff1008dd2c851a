package graphdata

import (
	"fmt"
	"slices"
	"strings"

	"github.com/blang/semver/v4"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// A Finding is something that can be used, but is probably not meant.
type Finding struct {
	File    string `json:"file"`
	IsError bool   `json:"error,omitempty"` // clusters may go back, or in circles
	Message string `json:"message"`
}

// Lint returns findings, by files.
func (d *Data) Lint() []Finding {
	l := linter{Data: d, found: []Finding{}, next: make([][]int, len(d.nodes)), versions: map[string]bool{}}
	for _, e := range d.edges {
		l.next[e.from] = append(l.next[e.from], e.to)
	}
	for i := range d.nodes {
		l.versions[d.nodes[i].base], l.versions[d.nodes[i].name] = true, true
	}
	l.lintEdges()
	l.lintChannels()
	l.lintNotices()
	l.lintPhases()
	for version := range d.Halted() {
		if !l.versions[version] {
			l.add(HaltsFile, "%s is halted, and no release has this version", version)
		}
	}
	slices.SortFunc(l.found, func(a, b Finding) int {
		return strings.Compare(a.File+"\n"+a.Message, b.File+"\n"+b.Message)
	})
	return l.found
}

type linter struct {
	*Data
	found    []Finding
	next     [][]int // by nodes
	versions map[string]bool
}

func (l *linter) add(file, format string, values ...any) {
	l.found = append(l.found, Finding{File: file, Message: fmt.Sprintf(format, values...)})
}

// lintEdges finds edges to older versions, and releases that no channel has.
func (l *linter) lintEdges() {
	for _, e := range l.edges {
		from, target := &l.nodes[e.from], &l.nodes[e.to]
		if from.version.LE(target.version) {
			continue
		}
		cycle := ""
		if l.leads(e.to, e.from) {
			cycle = ", which leads back to it: clusters would go in circles, and Cincinnati refuses the whole graph"
		}
		l.add(target.File, "an update leads from %s to the older version %s%s", from.name, target.name, cycle)
		l.found[len(l.found)-1].IsError = true
	}
	for i := range l.nodes {
		if len(l.nodes[i].channels) == 0 {
			l.add(l.nodes[i].File, "no channel has %s, so no cluster gets it", l.nodes[i].name)
		}
	}
}

// leads returns whether a path leads from a node to another.
func (l *linter) leads(from, target int) bool {
	seen := map[int]bool{from: true}
	for queue := []int{from}; len(queue) > 0; queue = queue[1:] {
		for _, next := range l.next[queue[0]] {
			if next == target {
				return true
			}
			if !seen[next] {
				seen[next] = true
				queue = append(queue, next)
			}
		}
	}
	return false
}

// lintChannels finds versions that clusters of a channel can't reach or leave, or should not be offered.
func (l *linter) lintChannels() {
	channels := map[string]Channel{}
	for _, channel := range l.Channels {
		channels[channel.Name] = channel
	}
	for _, channel := range l.Channels {
		l.addList(channel, "no release has %s, so clusters are not offered it",
			func(version string) bool { return !l.versions[version] })
		if feeder, isKnown := channels[feederOf(channel)]; isKnown {
			l.addList(channel, "%s is not in "+feeder.Name+", which feeds the channel: it was not tried there",
				func(version string) bool { return !slices.Contains(feeder.Versions, version) })
		}
		l.lintReach(channel)
	}
}

func feederOf(channel Channel) string {
	if channel.Feeder == nil {
		return ""
	}
	return channel.Feeder.Name
}

// addList adds a finding with the versions of a channel that a function accepts.
func (l *linter) addList(channel Channel, format string, accepts func(version string) bool) {
	var found []string
	for _, version := range channel.Versions {
		if accepts(version) {
			found = append(found, version)
		}
	}
	if len(found) > 0 {
		l.add(channel.File, format, printable.Few(found, 5))
	}
}

// lintReach finds versions of a channel that are not the first one, and that no edge leads to; and the reverse.
func (l *linter) lintReach(channel Channel) {
	isIn := make([]bool, len(l.nodes))
	first, last := map[string]int{}, map[string]int{} // by architectures
	for i := range l.nodes {
		if n := &l.nodes[i]; slices.Contains(n.channels, channel.Name) {
			isIn[i] = true
			if _, isKnown := first[n.arch]; !isKnown {
				first[n.arch] = i
			}
			last[n.arch] = i
		}
	}
	isReached, isLeft := make([]bool, len(l.nodes)), make([]bool, len(l.nodes))
	for _, e := range l.edges {
		if isIn[e.from] && isIn[e.to] {
			isReached[e.to], isLeft[e.from] = true, true
		}
	}
	var unreachable, stuck []string
	for i := range l.nodes {
		n := &l.nodes[i]
		if isIn[i] && !isReached[i] && first[n.arch] != i {
			unreachable = append(unreachable, n.name)
		}
		if isIn[i] && !isLeft[i] && last[n.arch] != i && n.metadata[DeadEndKey] == "" {
			stuck = append(stuck, n.name)
		}
	}
	if len(unreachable) > 0 {
		l.add(channel.File, "no update leads to %s", printable.Few(unreachable, 5))
	}
	if len(stuck) > 0 {
		l.add(channel.File, "no update leads from %s to a newer version: add one, or a file in dead-ends with the "+
			"reason", printable.Few(stuck, 5))
	}
}

// lintNotices finds barriers that nothing leads to, or that channels lack, and notices of unknown versions.
func (l *linter) lintNotices() {
	for _, notice := range slices.Concat(l.Barriers, l.DeadEnds) {
		if !l.versions[notice.Version] {
			l.add(notice.File, "no release has version %s", notice.Version)
		}
	}
	for _, barrier := range l.Barriers {
		version := semver.MustParse(barrier.Version)
		isReached := slices.ContainsFunc(l.edges, func(e edge) bool {
			return appliesTo(barrier.Version, l.nodes[e.to].name)
		})
		hasOlder := false
		for i := range l.nodes {
			hasOlder = hasOlder || l.nodes[i].version.LT(version)
		}
		if l.versions[barrier.Version] && hasOlder && !isReached {
			l.add(barrier.File, "no update leads to the barrier %s, so older versions can't pass it", barrier.Version)
		}
		for _, channel := range l.ChannelNames() {
			var isBefore, isAt, isAfter bool
			for i := range l.nodes {
				if slices.Contains(l.nodes[i].channels, channel) {
					order := l.nodes[i].version.Compare(version)
					isBefore, isAt, isAfter = isBefore || order < 0, isAt || order == 0, isAfter || order > 0
				}
			}
			if isBefore && isAfter && !isAt {
				l.add(barrier.File, "channel %s has versions before and after the barrier %s, and not the barrier: "+
					"add it, or its clusters can't pass", channel, barrier.Version)
			}
		}
	}
}

// lintPhases finds phases that hold for no edge.
func (l *linter) lintPhases() {
	for i := range l.Phases {
		p := &l.Phases[i]
		isOffered := func(channel string) bool {
			return slices.ContainsFunc(l.edges, func(e edge) bool {
				from, target := &l.nodes[e.from], &l.nodes[e.to]
				return slices.Contains(from.channels, channel) && slices.Contains(target.channels, channel) &&
					p.Matches(channel, from.name, target.name)
			})
		}
		names := p.Channels
		if len(names) == 0 {
			names = l.ChannelNames()
		}
		switch {
		case !l.versions[p.To]:
			l.add(p.File, "no release has version %s", p.To)
		case !slices.ContainsFunc(names, isOffered):
			l.add(p.File, "no update in its channels leads to %s from a version that it names: it has no effect",
				p.To)
		}
	}
}
