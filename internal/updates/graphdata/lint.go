package graphdata

import (
	"fmt"
	"slices"
	"strings"

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
	l := linter{Data: d, found: []Finding{}, versions: map[string]bool{}}
	for i := range d.nodes {
		l.versions[d.nodes[i].base], l.versions[d.nodes[i].name] = true, true
		if len(d.nodes[i].channels) == 0 {
			l.add(d.nodes[i].File, "no channel has %s, so no cluster gets it", d.nodes[i].name)
		}
	}
	for _, e := range d.edges {
		if from, target := &d.nodes[e.from], &d.nodes[e.to]; from.version.GT(target.version) {
			l.found = append(l.found, Finding{target.File, true, fmt.Sprintf("an update leads from %s to the older "+
				"version %s: clusters could go in circles, and Cincinnati refuses a graph with a circle", from.name,
				target.name)})
		}
	}
	for _, channel := range d.Channels {
		l.lintChannel(channel)
	}
	for _, notice := range slices.Concat(d.Barriers, d.DeadEnds) {
		l.lintVersion(notice.File, notice.Version)
	}
	for i := range d.Phases {
		l.lintPhase(&d.Phases[i])
	}
	for version := range d.Halted() {
		l.lintVersion(HaltsFile, version)
	}
	slices.SortFunc(l.found, func(a, b Finding) int {
		return strings.Compare(a.File+"\n"+a.Message, b.File+"\n"+b.Message)
	})
	return l.found
}

type linter struct {
	*Data
	found    []Finding
	versions map[string]bool // of releases
}

func (l *linter) add(file, format string, values ...any) {
	l.found = append(l.found, Finding{File: file, Message: fmt.Sprintf(format, values...)})
}

// lintVersion finds a version that no release has.
func (l *linter) lintVersion(file, version string) {
	if !l.versions[version] {
		l.add(file, "no release has version %s", version)
	}
}

// addAll adds a finding about versions of a channel.
func (l *linter) addAll(channel Channel, versions []string, format string) {
	if len(versions) > 0 {
		l.add(channel.File, format, printable.Few(versions, 5))
	}
}

// lintChannel finds versions that are not the first one of the channel, and that no update leads to; and the reverse.
func (l *linter) lintChannel(channel Channel) {
	unknown := slices.DeleteFunc(slices.Clone(channel.Versions), func(v string) bool { return l.versions[v] })
	l.addAll(channel, unknown, "no release has %s, so clusters are not offered it")
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
	l.addAll(channel, unreachable, "no update leads to %s")
	l.addAll(channel, stuck, "no update leads from %s to a newer version: add one, or a file in dead-ends")
}

// lintPhase finds a phase that holds for no update.
func (l *linter) lintPhase(p *Phase) {
	isOffered := func(channel string) bool {
		return slices.ContainsFunc(l.edges, func(e edge) bool {
			from, target := &l.nodes[e.from], &l.nodes[e.to]
			return slices.Contains(from.channels, channel) && slices.Contains(target.channels, channel) &&
				p.Matches(channel, from.name, target.name)
		})
	}
	l.lintVersion(p.File, p.To)
	if l.versions[p.To] && !slices.ContainsFunc(l.ChannelNames(), isOffered) {
		l.add(p.File, "no update in its channels leads to %s from a version that it names: it has no effect", p.To)
	}
}
