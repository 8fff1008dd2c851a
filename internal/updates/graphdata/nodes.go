package graphdata

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
)

// Metadata of releases.
const (
	prefix       = "io.openshift.upgrades.graph."
	keyArch      = prefix + "release.arch"
	keyChannels  = prefix + "release.channels"
	keyPrevAdd   = prefix + "previous.add"
	keyNextAdd   = prefix + "next.add"
	keyPrevDrop  = prefix + "previous.remove"
	keyNextDrop  = prefix + "next.remove"
	keyPrevRegex = prefix + "previous.remove_regex"
)

// Metadata of nodes with the reason why a version is a barrier, or a dead end.
const (
	BarrierKey = "dev.runlevel.barrier"
	DeadEndKey = "dev.runlevel.dead-end"
)

// A node is a release of one architecture.
type node struct {
	*Release
	name          string // version with the suffix of its architecture
	base          string // version without it
	version       semver.Version
	metadata      map[string]string
	arch          string   // a list, in metadata of upstream
	architectures []string // empty for all
	channels      []string
}

func (l *linker) addNodes() {
	for i := range l.Releases {
		release := &l.Releases[i]
		n := node{Release: release, name: release.Version, metadata: make(map[string]string, 8)}
		maps.Copy(n.metadata, release.Metadata)
		if release.Architecture != "" {
			n.name += "+" + release.Architecture
		}
		if release.URL != "" {
			n.metadata["url"] = release.URL
		}
		n.base, _, _ = strings.Cut(n.name, "+")
		n.version = semver.MustParse(n.name)
		l.nodes = append(l.nodes, n)
	}
	slices.SortStableFunc(l.nodes, func(a, b node) int {
		return cmp.Or(a.version.Compare(b.version), strings.Compare(a.name, b.name))
	})
	raw := map[string]map[string]string{}
	for version, metadata := range l.Raw {
		base, _, _ := strings.Cut(version, "+")
		raw[base] = metadata
	}
	barriers, deadEnds := reasons(l.Barriers), reasons(l.DeadEnds)
	for i := range l.nodes {
		n := &l.nodes[i]
		if i > 0 && l.nodes[i-1].base == n.base && (l.nodes[i-1].name == n.name || l.nodes[i-1].name == n.base) {
			l.problem(n.File, "version %s is also in %s: give both an architecture of their own", n.base,
				l.nodes[i-1].File)
		}
		l.byName[n.name] = i
		for key, value := range raw[n.base] {
			n.add(key, value, ",")
		}
		n.note(BarrierKey, barriers)
		n.note(DeadEndKey, deadEnds)
		n.arch = cmp.Or(n.Architecture, n.metadata[keyArch])
		n.architectures = split(n.arch)
		l.checkNames(n, n.metadata[keyArch], architectureName)
		l.checkNames(n, n.metadata[keyChannels], channelName)
		delete(n.metadata, keyArch)
	}
}

// checkNames checks a list of names in metadata.
func (l *linker) checkNames(n *node, list string, valid *regexp.Regexp) {
	for _, name := range split(list) {
		if !valid.MatchString(name) {
			l.problem(n.File, "metadata: %q is not a name of the form %s", name, valid)
		}
	}
}

// note adds the reason of a notice to the metadata.
func (n *node) note(key string, reasons map[string]string) {
	if reason := cmp.Or(reasons[n.name], reasons[n.base]); reason != "" {
		n.metadata[key] = reason
	}
}

// add adds to a list in the metadata.
func (n *node) add(key, value, separator string) {
	if known := n.metadata[key]; known != "" {
		value = known + separator + value
	}
	n.metadata[key] = value
}

func reasons(notices []Notice) map[string]string {
	all := map[string]string{}
	for _, notice := range notices {
		all[notice.Version] = notice.Reason
	}
	return all
}

// split returns the items of a list in metadata.
func split(list string) []string {
	if list == "" {
		return nil
	}
	items := strings.Split(list, ",")
	for i, item := range items {
		items[i] = strings.TrimSpace(item)
	}
	return items
}

func (l *linker) addChannels() {
	files := map[string]string{}
	names := map[string][]string{} // by version
	for _, channel := range l.Channels {
		if other, isKnown := files[channel.Name]; isKnown {
			l.problem(channel.File, "channel %s is also in %s", channel.Name, other)
		}
		files[channel.Name] = channel.File
		for _, version := range channel.Versions {
			names[version] = append(names[version], channel.Name)
		}
	}
	for i := range l.nodes {
		n := &l.nodes[i]
		n.channels = slices.Concat(split(n.metadata[keyChannels]), names[n.base])
		if n.name != n.base {
			n.channels = append(n.channels, names[n.name]...)
		}
		// As Cincinnati sorts them: those of 1.4 before those of 1.5.
		slices.SortFunc(n.channels, func(a, b string) int {
			_, versionA, _ := strings.Cut(a, "-")
			_, versionB, _ := strings.Cut(b, "-")
			return cmp.Or(strings.Compare(versionA, versionB), strings.Compare(a, b))
		})
		n.channels = slices.Compact(n.channels)
		if len(n.channels) > 0 {
			n.metadata[keyChannels] = strings.Join(n.channels, ",")
		}
	}
}
