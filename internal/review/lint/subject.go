package lint

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/references"
	"github.com/runlevel/runlevel/internal/review/plan"
	"github.com/runlevel/runlevel/internal/review/refusals"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A manifest is a manifest of a payload, with the values that many rules need.
type manifest struct {
	*payload.Manifest
	id          kinds.ID
	kind        schema.GroupVersionKind
	annotations map[string]string
	isTombstone bool
	isPrevious  bool // whether it is in the previous payload
	isTest      bool // a test of this payload, which runs after all manifests are applied

	references []references.Reference // references of a normal manifest of this payload

	profiles []string // the cluster profiles that include the manifest
	choices  *string  // see chosenBy

	rank int // rank in the order of an update: manifests of a lower rank are applied before
	node int // node of the graph: manifests of one node are applied one after the other
	task int
}

// groupKind returns the kind without its version.
func (m *manifest) groupKind() schema.GroupKind { return m.kind.GroupKind() }

// get returns a field of the object, nil if it does not exist.
func (m *manifest) get(path ...string) any {
	value, _, _ := unstructured.NestedFieldNoCopy(m.Object().Object, path...)
	return value
}

// text returns a field of the object, "" if it is not a string.
func (m *manifest) text(path ...string) string {
	text, _ := m.get(path...).(string)
	return text
}

// where returns the file of a manifest, for messages.
func (m *manifest) where() string {
	if m.isPrevious {
		return "the previous " + m.Path
	}
	return m.Path
}

// place returns the file and the line of a manifest, for messages.
func (m *manifest) place() string { return fmt.Sprintf("%s:%d", m.where(), m.Line) }

// named returns the object of a manifest with its place, for messages: Service shop/web (50_web.yaml:7).
func (m *manifest) named() string { return fmt.Sprintf("%s (%s)", m.id, m.place()) }

// An index finds manifests of a payload.
type index struct {
	*payload.Payload
	manifests  []*manifest
	normal     []*manifest
	tombstones []*manifest
	byID       map[kinds.ID][]*manifest
	byKind     map[schema.GroupKind][]*manifest
	inside     map[string][]*manifest           // manifests by namespace
	excluded   map[kinds.ID]*payload.Exclusion  // manifests that filters exclude
	defines    map[schema.GroupKind][]*manifest // CustomResourceDefinitions by the kind that they define
	pods       func() map[string][]podSet       // see findPods
}

func newIndex(p *payload.Payload, isPrevious bool) *index {
	x := &index{
		Payload: p, byID: map[kinds.ID][]*manifest{}, byKind: map[schema.GroupKind][]*manifest{},
		inside: map[string][]*manifest{}, excluded: map[kinds.ID]*payload.Exclusion{},
		defines: map[schema.GroupKind][]*manifest{},
	}
	x.pods = sync.OnceValue(x.findPods)
	for i, m := range p.Manifests {
		entry := newManifest(m)
		entry.isPrevious, entry.task = isPrevious, i
		x.add(entry)
	}
	x.order()
	if !isPrevious { // tests of the previous payload are not in clusters
		x.addTests()
	}
	for i, exclusion := range p.Excluded {
		x.excluded[exclusion.Manifest.ID()] = &p.Excluded[i]
	}
	return x
}

// addTests adds the tests of the release. They run when all manifests are applied.
func (ix *index) addTests() {
	last := 0
	for _, m := range ix.manifests {
		last = max(last, m.rank)
	}
	for i, m := range ix.Tests {
		entry := newManifest(m)
		entry.isTest, entry.rank, entry.node, entry.task = true, last+1, -1, i
		ix.add(entry)
	}
}

func newManifest(m *payload.Manifest) *manifest {
	made := &manifest{
		Manifest: m, id: m.ID(), kind: m.GroupVersionKind(),
		annotations: m.Object().GetAnnotations(), isTombstone: m.IsTombstone(),
	}
	for key, value := range made.annotations {
		if profile, found := strings.CutPrefix(key, payload.IncludePrefix); found && value == "true" {
			made.profiles = append(made.profiles, profile)
		}
	}
	return made
}

func (ix *index) add(m *manifest) {
	ix.manifests = append(ix.manifests, m)
	if m.isTombstone {
		ix.tombstones = append(ix.tombstones, m)
	} else {
		ix.normal = append(ix.normal, m)
	}
	ix.byID[m.id] = append(ix.byID[m.id], m)
	ix.byKind[m.groupKind()] = append(ix.byKind[m.groupKind()], m)
	if m.id.Namespace != "" {
		ix.inside[m.id.Namespace] = append(ix.inside[m.id.Namespace], m)
	}
	if defined := kinds.DefinedBy(m.Object()); m.groupKind() == kinds.CustomResourceDefinition && defined.Kind != "" {
		ix.defines[defined] = append(ix.defines[defined], m)
	}
}

// order ranks manifests by the graph of an update. A node's rank is its row in the graph: all nodes
// of a row are applied before any node of the next.
func (ix *index) order() {
	g := graph.Build(ix.Manifests, graph.Options{Mode: graph.Update})
	ranks := make([]int, len(g.Nodes))
	for i, node := range g.Nodes { // nodes come after those that they wait for
		for _, before := range node.In {
			ranks[i] = max(ranks[i], ranks[before]+1)
		}
		for _, task := range node.Tasks {
			ix.manifests[task].rank, ix.manifests[task].node = ranks[i], i
		}
	}
}

// before reports whether an update always applies one manifest before another.
func before(a, b *manifest) bool {
	return a.rank < b.rank || a.node == b.node && a.task < b.task
}

// namespaces returns the manifests of the Namespace of a name.
func (ix *index) namespaces(name string) []*manifest {
	return ix.byID[kinds.NewID(kinds.Namespace, "", name)]
}

// A subject is the linted payload, with its context.
type subject struct {
	*index
	ctx               context.Context
	problems          []payload.Problem
	previous          *index // nil if there is none
	config            Config
	change            *ComponentChange // see Input
	rehearsal         *Rehearsal       // nil if there was none
	schemas           *schemaChecker
	outages           *outageFinder
	update            *plan.Plan             // update from the previous payload; nil if there is none
	data              func() references.Data // objects with data in the previous payload
	overlaps          map[[2]string]overlap
	bindings          map[kinds.ID][]*manifest     // see bindingsOf
	graph             *references.Graph[*manifest] // references in this payload
	refusals          func() map[*payload.Manifest][]fields.Refusal
	implied           func() *graph.Graph // graph of an update, with the dependencies that objects imply
	calls             func() []call       // see findCalls
	creators          func() creatorFinder
	containers        func() []*container       // see findContainers
	missingReferences func() []missingReference // see findMissingReferences
	rights            func() *authorizer        // rights after the payload is applied
	resources         func() *resourceNames
	profiles          bool // whether any manifest names a cluster profile
}

// An overlap is a cluster that two sets of annotations have in common, if there is one.
type overlap struct {
	where payload.Filter
	found bool
}

func newSubject(ctx context.Context, input Input) *subject {
	s := &subject{
		index: newIndex(input.Payload, false), ctx: ctx, problems: input.Problems, config: input.Config,
		change: input.Change, rehearsal: input.Rehearsal,
		overlaps: map[[2]string]overlap{},
	}
	if input.Previous != nil {
		s.previous = newIndex(input.Previous, true)
		s.update = plan.Compare(input.Previous, input.Payload, nil) // rules report refusals
	}
	s.data = sync.OnceValue(func() references.Data { return references.DataOf(s.previous.manifests) })
	s.graph = s.newGraph()
	s.implied = sync.OnceValue(func() *graph.Graph {
		return graph.Build(s.Manifests, graph.Options{Mode: graph.Update, Implied: true})
	})
	s.containers = sync.OnceValue(func() []*container { return s.findContainers() })
	s.creators = sync.OnceValue(func() creatorFinder { return s.newCreatorFinder() })
	s.refusals = sync.OnceValue(func() map[*payload.Manifest][]fields.Refusal {
		return refusals.Find(ctx, slices.Concat(s.Manifests, s.Tests), s.problems)
	})
	s.calls = sync.OnceValue(func() []call { return s.findCalls() })
	s.missingReferences = sync.OnceValue(func() []missingReference { return s.findMissingReferences() })
	s.rights = sync.OnceValue(func() *authorizer {
		return newAuthorizer(slices.Concat(s.manifests, s.droppedObjects()))
	})
	s.resources = sync.OnceValue(func() *resourceNames { return s.newResourceNames() })
	s.schemas, s.outages = newSchemaChecker(s), &outageFinder{subject: s}
	s.profiles = slices.ContainsFunc(s.manifests, (*manifest).hasProfile)
	return s
}

// newGraph finds the references between the objects of the payload.
func (s *subject) newGraph() *references.Graph[*manifest] {
	var before []*manifest
	if s.previous != nil {
		before = s.previous.manifests
	}
	found := references.NewGraph(s.normal, before)
	for i, m := range s.normal {
		m.references = found.References[i]
	}
	return found
}

// hasProfile reports whether a manifest is for some profiles only.
func (m *manifest) hasProfile() bool {
	for key := range m.annotations {
		if strings.HasPrefix(key, payload.IncludePrefix) {
			return true
		}
	}
	return false
}

// isMissing reports whether the input lacks a part that a rule needs.
func (s *subject) isMissing(n need) bool {
	switch n {
	case needsPrevious:
		return s.previous == nil
	case needsVersions:
		return s.previous == nil || s.previous.Version == "" || s.Version == ""
	case needsImages:
		return len(s.Images) == 0
	default:
		return false
	}
}

// sharedCluster returns a cluster to which two manifests are both applied, if there is one.
func (s *subject) sharedCluster(a, b *manifest) (payload.Filter, bool) {
	if haveDisjointProfiles(a, b) {
		return payload.Filter{}, false
	}
	key := [2]string{a.chosenBy(), b.chosenBy()}
	found, isKnown := s.overlaps[key]
	if !isKnown {
		found.where, found.found = s.Filter.CommonCluster(a.Manifest, b.Manifest)
		s.overlaps[key] = found
	}
	return s.withoutMajorVersion(found.where), found.found
}

// haveDisjointProfiles reports whether two manifests are for different profiles. It is quick: an object may have
// thousands of variants.
func haveDisjointProfiles(a, b *manifest) bool {
	if len(a.profiles) == 0 || len(b.profiles) == 0 {
		return false
	}
	return !slices.ContainsFunc(a.profiles, func(profile string) bool { return slices.Contains(b.profiles, profile) })
}

// clusterWithout returns a cluster that has a manifest and none of the others, if there is one.
func (s *subject) clusterWithout(m *manifest, others []*manifest) (payload.Filter, bool) {
	var near []*payload.Manifest
	for _, other := range others {
		if !haveDisjointProfiles(m, other) {
			near = append(near, other.Manifest)
		}
	}
	cluster, isWithout := s.Filter.ClusterWithout(m.Manifest, near)
	return s.withoutMajorVersion(cluster), isWithout
}

// shareCluster reports whether two manifests are applied to the same cluster.
func (s *subject) shareCluster(a, b *manifest) bool {
	_, found := s.sharedCluster(a, b)
	return found
}

// chosenBy returns a key of the annotations that choose clusters, and of the kind, since some of these annotations
// depend on the kind.
func (m *manifest) chosenBy() string {
	if m.choices == nil {
		parts := []string{m.kind.Kind}
		for key, value := range m.annotations {
			if domain, _, _ := strings.Cut(key, "/"); strings.HasSuffix(domain, "release.openshift.io") {
				parts = append(parts, key+"="+value)
			}
		}
		slices.Sort(parts)
		m.choices = new(strings.Join(parts, "\n"))
	}
	return *m.choices
}

// withoutMajorVersion returns a cluster without the major version of the release itself, which all of its clusters
// have.
func (s *subject) withoutMajorVersion(cluster payload.Filter) payload.Filter {
	if s.Filter.MajorVersion != 0 {
		cluster.MajorVersion = 0
	}
	return cluster
}

// onCluster returns the clusters that a finding is for, in words; "" for all clusters.
func onCluster(cluster payload.Filter) string {
	if text := cluster.String(); text != "" {
		return " (on a cluster with " + text + ")"
	}
	return ""
}

// sortedKeys returns the keys of a map in order.
func sortedKeys[V any](fields map[string]V) []string { return slices.Sorted(maps.Keys(fields)) }
