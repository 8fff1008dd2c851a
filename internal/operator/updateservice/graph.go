package updateservice

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/google/go-containerregistry/pkg/name"
	configv1 "github.com/openshift/api/config/v1"

	"github.com/runlevel/runlevel/internal/operator/clusterversion"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/internal/updates/phase"
)

// An updateGraph is the answer of a service.
type updateGraph struct {
	Nodes            bounded[graphNode]
	Edges            bounded[[]int] // edges between nodes, as indexes of Nodes
	ConditionalEdges bounded[conditionalEdges]
	PhasedEdges      bounded[phasedEdges]
}

type graphNode struct {
	Version  string
	Image    string `json:"payload"`
	Metadata struct {
		URL      string
		Channels string `json:"io.openshift.upgrades.graph.release.channels"`
	}
}

// conditionalEdges are edges that have the same risks.
type conditionalEdges struct {
	Edges bounded[struct{ From, To string }]
	Risks json.RawMessage // those of most edges are never read
}

// phasedEdges are a phase.Phase whose other fields are only read if one of the edges matters.
type phasedEdges struct {
	Edges                           bounded[phase.Edge]
	Risks, First, Ramp, Rings, Halt json.RawMessage
}

// maxItems limits the items of a list: a small document can have large lists of empty items.
const maxItems = 50_000

// A bounded list refuses a text that has more than maxItems.
type bounded[T any] []T

func (b *bounded[T]) UnmarshalJSON(text []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	if start, err := decoder.Token(); err != nil || start != json.Delim('[') {
		return err // null has none
	}
	for decoder.More() {
		if len(*b) == maxItems {
			return fmt.Errorf("a list has more than %d items, which is the limit", maxItems)
		}
		var item T
		if err := decoder.Decode(&item); err != nil {
			return err
		}
		*b = append(*b, item)
	}
	return nil
}

// read returns the offer of a graph for the version of the query.
func read(text []byte, query Query) (*clusterversion.Offer, error) {
	var graph updateGraph
	if err := json.Unmarshal(text, &graph); err != nil {
		return nil, &reason.Error{
			Reason:  ResponseInvalid,
			Message: "the response is not an update graph",
			Err:     errors.New(short(err.Error())),
		}
	}
	current := slices.IndexFunc(graph.Nodes, func(n graphNode) bool { return n.Version == query.Version })
	if current < 0 {
		text := fmt.Sprintf("the update service does not know version %s in channel %q", query.Version,
			short(query.Channel))
		return nil, &reason.Error{Reason: VersionNotFound, Message: text}
	}
	r := reader{
		nodes:   map[string]graphNode{},
		several: map[string]bool{},
		offer:   &clusterversion.Offer{Current: graph.Nodes[current].release()},
	}
	for _, node := range graph.Nodes {
		if known, isKnown := r.nodes[node.Version]; isKnown && known.Image != node.Image {
			r.several[node.Version] = true
		}
		r.nodes[node.Version] = node
	}
	risks, phases := graph.risksFrom(query.Version), graph.phasesFrom(query.Version)
	plain, err := graph.plainFrom(current)
	if err != nil {
		return nil, err
	}
	for _, version := range slices.AppendSeq(plain, maps.Keys(phases)) {
		if _, hasRisks := risks[version]; !hasRisks { // an update with both kinds of edges has risks
			risks[version] = nil
		}
	}
	delete(risks, query.Version) // an update to itself is none
	versions, invalid := newestFirst(slices.Collect(maps.Keys(risks)))
	for _, version := range versions {
		if rejection := r.add(version, risks[version], phases[version]); rejection != "" {
			r.offer.LeftOut = append(r.offer.LeftOut, short(version)+": "+rejection)
		}
	}
	for _, version := range invalid {
		r.offer.LeftOut = append(r.offer.LeftOut, short(version)+": not a semantic version")
	}
	return r.offer, nil
}

// plainFrom returns the versions that edges without risks lead to.
func (g *updateGraph) plainFrom(current int) ([]string, error) {
	var versions []string
	for _, edge := range g.Edges {
		if len(edge) != 2 || min(edge[0], edge[1]) < 0 || max(edge[0], edge[1]) >= len(g.Nodes) {
			return nil, &reason.Error{
				Reason:  ResponseInvalid,
				Message: "the response is not an update graph: an edge has no node",
			}
		}
		if edge[0] == current {
			versions = append(versions, g.Nodes[edge[1]].Version)
		}
	}
	return versions, nil
}

// risksFrom returns the versions that edges with risks lead to, with these risks.
func (g *updateGraph) risksFrom(version string) map[string][]json.RawMessage {
	found := map[string][]json.RawMessage{}
	for _, group := range g.ConditionalEdges {
		for _, edge := range group.Edges {
			if edge.From == version {
				found[edge.To] = append(found[edge.To], group.Risks)
			}
		}
	}
	return found
}

// phasesFrom returns the versions that phased edges lead to, with their phases.
func (g *updateGraph) phasesFrom(version string) map[string][]phasedEdges {
	found := map[string][]phasedEdges{}
	for _, group := range g.PhasedEdges {
		for _, edge := range group.Edges {
			if edge.From == version {
				found[edge.To] = append(found[edge.To], group)
			}
		}
	}
	return found
}

// newestFirst sorts semantic versions, and returns those of another form apart.
func newestFirst(versions []string) (sorted, invalid []string) {
	parsed := map[string]semver.Version{}
	for _, version := range versions {
		if v, err := semver.Parse(version); err != nil {
			invalid = append(invalid, version)
		} else {
			parsed[version] = v
		}
	}
	sorted = slices.SortedFunc(maps.Keys(parsed), func(a, b string) int {
		return cmp.Or(parsed[b].Compare(parsed[a]), strings.Compare(a, b))
	})
	slices.Sort(invalid)
	return sorted, invalid
}

// Bounds of an offer. The definition of ClusterVersion has the first; the second keeps the object below the size that
// etcd takes: the conditions of an update and of its risks repeat the texts of the risks.
const (
	maxUpdates    = 500
	maxOfferBytes = 192 << 10
)

// A reader adds updates to an offer.
type reader struct {
	nodes   map[string]graphNode
	several map[string]bool // versions that nodes with several images have
	offer   *clusterversion.Offer
	bytes   int // size of the offer
}

// add adds the update to a version, or returns why it is rejected. Risks has an item for each edge with risks that
// leads to it, and none if edges without risks do. An update that also has edges without a phase opens by its phase.
func (r *reader) add(version string, risks []json.RawMessage, phases []phasedEdges) (rejection string) {
	for _, group := range phases {
		if len(group.Risks) > 0 {
			risks = append(risks, group.Risks)
		}
	}
	node, isKnown := r.nodes[version]
	_, notDigest := name.NewDigest(node.Image)
	switch {
	case !isKnown:
		return "the update service has no image for this version"
	case r.several[version]:
		return "the update service has several images for this version"
	case notDigest != nil:
		return fmt.Sprintf("its image %q is not named by digest", short(node.Image))
	case len(risks) > 1:
		return "the update service offers it with different risks"
	case len(phases) > 1:
		return "the update service offers it in several phases"
	}
	update := configv1.ConditionalUpdate{Release: node.release()}
	if len(risks) == 1 {
		if update.Risks, rejection = readRisks(risks[0]); rejection != "" {
			return rejection
		}
	}
	if len(phases) == 0 {
		return r.take(update, nil)
	}
	p, err := phases[0].read()
	if err != nil {
		return "its phase can't be read: " + short(err.Error())
	}
	return r.take(update, p)
}

// take adds an update, if there is room for it. The phase may be nil.
func (r *reader) take(update configv1.ConditionalUpdate, p *phase.Phase) (rejection string) {
	text, err := json.Marshal(update)
	if err != nil || r.bytes+len(text) > maxOfferBytes ||
		len(r.offer.Updates)+len(r.offer.Conditional)+len(r.offer.Phased) == maxUpdates {
		return "a ClusterVersion has no room for it"
	}
	r.bytes += len(text)
	switch {
	case p != nil:
		r.offer.Phased = append(r.offer.Phased, clusterversion.PhasedUpdate{ConditionalUpdate: update, Phase: *p})
	case update.Risks == nil:
		r.offer.Updates = append(r.offer.Updates, update.Release)
	default:
		r.offer.Conditional = append(r.offer.Conditional, update)
	}
	return ""
}

// maxRings is the maximum length of the rings of a phase, as JSON.
const maxRings = 64 << 10

// read returns the phase, or the error in it.
func (p *phasedEdges) read() (*phase.Phase, error) {
	read := &phase.Phase{}
	var first bounded[string]
	if len(p.Rings) > maxRings {
		return nil, fmt.Errorf("rings are longer than %d KiB", maxRings>>10)
	}
	for _, field := range []struct {
		text json.RawMessage
		into any
	}{{p.First, &first}, {p.Ramp, &read.Ramp}, {p.Rings, &read.Rings}, {p.Halt, &read.Halt}} {
		if len(field.text) == 0 {
			continue
		}
		if err := json.Unmarshal(field.text, field.into); err != nil {
			return nil, err
		}
	}
	if err := read.Ramp.Validate(); err != nil {
		return nil, fmt.Errorf("ramp: %w", err)
	}
	for ring, ramp := range read.Rings {
		if err := ramp.Validate(); err != nil {
			return nil, fmt.Errorf("ring %q: %w", ring, err)
		}
	}
	read.First, read.Halt = first, short(read.Halt)
	return read, nil
}

// maxMetadata is the maximum length of a URL, and of a list of channels.
const maxMetadata = 8 << 10

// release returns a node as a ClusterVersion has it.
func (n graphNode) release() configv1.Release {
	release := configv1.Release{Version: n.Version, Image: n.Image}
	if _, err := url.Parse(n.Metadata.URL); err == nil && len(n.Metadata.URL) <= maxMetadata {
		release.URL = configv1.URL(printable.Line(n.Metadata.URL))
	}
	if len(n.Metadata.Channels) > maxMetadata {
		return release
	}
	for channel := range strings.SplitSeq(n.Metadata.Channels, ",") {
		if channel != "" {
			release.Channels = append(release.Channels, printable.Line(channel))
		}
	}
	slices.Sort(release.Channels)
	release.Channels = slices.Compact(release.Channels)
	return release
}

// readRisks returns risks that a ClusterVersion can hold, or the error in them. Matching rules of types that the API
// does not know are left out: another rule of the same risk is enough.
func readRisks(text json.RawMessage) (risks []configv1.ConditionalUpdateRisk, rejection string) {
	const maxRisks, maxName = 200, 256 // the definition of ClusterVersion has them
	var all bounded[configv1.ConditionalUpdateRisk]
	if err := json.Unmarshal(text, &all); err != nil || len(all) == 0 || len(all) > maxRisks {
		return nil, fmt.Sprintf("its risks can't be read: there must be 1 to %d", maxRisks)
	}
	for _, conditionalUpdateRisk := range all {
		risk := configv1.ConditionalUpdateRisk{
			Name:    printable.Line(conditionalUpdateRisk.Name),
			URL:     conditionalUpdateRisk.URL,
			Message: printable.Line(conditionalUpdateRisk.Message),
		}
		_, notURL := url.ParseRequestURI(risk.URL)
		isSame := func(other configv1.ConditionalUpdateRisk) bool { return other.Name == risk.Name }
		switch {
		case risk.Name == "" || risk.Message == "" || notURL != nil || slices.ContainsFunc(risks, isSame):
			return nil, fmt.Sprintf("its risk %q needs a name of its own, a message and a URL", short(risk.Name))
		case len(risk.Name) > maxName:
			return nil, fmt.Sprintf("the name of its risk %q is longer than %d bytes", short(risk.Name), maxName)
		}
		for _, rule := range conditionalUpdateRisk.MatchingRules {
			switch {
			case rule.Type == "Always":
				risk.MatchingRules = append(risk.MatchingRules, configv1.ClusterCondition{Type: rule.Type})
			case rule.Type == "PromQL" && rule.PromQL != nil && rule.PromQL.PromQL != "":
				query := &configv1.PromQLClusterCondition{PromQL: rule.PromQL.PromQL}
				risk.MatchingRules = append(risk.MatchingRules,
					configv1.ClusterCondition{Type: rule.Type, PromQL: query})
			}
		}
		if len(risk.MatchingRules) == 0 {
			return nil, fmt.Sprintf("its risk %q has no matching rule of a known type", short(risk.Name))
		}
		risks = append(risks, risk)
	}
	return risks, ""
}

// short returns a text of a service in a short line.
func short(text string) string {
	return printable.Line(printable.Truncate(text, 200))
}
