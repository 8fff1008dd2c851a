// Package live has the current state of the releases of a cluster, as long as someone looks: it reads them, watches
// what they consist of, and reads them again when that changes. At rest, it only watches.
//
// It judges nothing: the state is that of packages state, why and progress. It does not know pages.
//
// Start with New.
package live

import (
	"context"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/diagnosis"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/session/state"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A Config is where the state comes from.
type Config struct {
	Cluster   *cluster.Cluster
	Namespace string // namespace of the records; all namespaces if it is empty
	// Open reads a version of a release from its kept copy: its revision, or "" for the last one.
	Open func(ctx context.Context, namespace, release, revision string) (*payload.Payload, error)
	// Explainers explain the objects of further kinds, for example machines.
	Explainers []diagnosis.Explainer
}

// A Release is the state of a release at one moment. Nobody changes it.
type Release struct {
	Namespace string // namespace of its record
	Status    *state.Status
	Record    *record.Record   // nil without one
	Payload   *payload.Payload // the files that were applied last; nil if they can't be read
	Unread    string           // why they can't be read
	Graph     *graph.Graph     // order of the files in the mode of the last apply; nil without files
	Nodes     []NodeState      // the states of the nodes of the graph
}

// A NodeState is the state of a node of the graph. A node that only connects others has no tasks.
type NodeState struct {
	Phase                        Phase
	Total, Done, Waiting, Failed int // manifests
}

// A Phase is the state of a node, or of a manifest, in a word.
type Phase string

// The phases.
const (
	Done    Phase = "done"
	Running Phase = "running"
	Waits   Phase = "waiting" // applied, and not ready
	Failed  Phase = "failed"
	Blocked Phase = "blocked" // its turn comes later
	Unknown Phase = "unknown" // the record has no room for it
)

// A Topic is what a page shows, and what changes it.
type Topic struct {
	Kind            TopicKind
	Namespace, Name string // the release
}

// A TopicKind is the kind of a topic.
type TopicKind string

// The kinds of topics.
const (
	OfReleases TopicKind = "releases" // all releases, the ClusterVersion and the ClusterOperators
	OfRelease  TopicKind = "release"  // one release, with its objects
	OfMachines TopicKind = "machines"
)

// A Hub has the state of the releases of a cluster for all who look.
type Hub struct{ Config }

// New returns a hub. It reads nothing before someone looks.
func New(config Config) *Hub { return &Hub{config} }

// Releases returns all releases of the cluster.
func (h *Hub) Releases(ctx context.Context) ([]state.ListedRelease, error) {
	return h.reader(h.Namespace).List(ctx)
}

// Release returns the state of a release.
func (h *Hub) Release(ctx context.Context, namespace, name string) (*Release, error) {
	status, err := h.reader(namespace).Status(ctx, name)
	if err != nil {
		return nil, err
	}
	return &Release{Namespace: namespace, Status: status}, nil
}

// Changes returns a channel that gets a value after a topic may have changed, until the context ends. If it changes
// several times before the value is received, there is one value.
func (h *Hub) Changes(ctx context.Context, topic Topic) <-chan struct{} {
	_ = topic
	return ctx.Done()
}

func (h *Hub) reader(namespace string) *state.Reader {
	return &state.Reader{Cluster: h.Cluster, Namespace: namespace,
		Applied: func(ctx context.Context, namespace, release string) []*payload.Manifest {
			read, err := h.Open(ctx, namespace, release, "")
			if err != nil {
				return nil
			}
			return read.Manifests
		}}
}
