// Package live has the current state of the releases of a cluster, as long as someone looks: it reads them, watches
// what they consist of, and reads them again when that changes. At rest, it only watches.
//
// It judges nothing: the state is that of packages state, why and progress. It does not know pages.
//
// Start with New.
package live

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/diagnosis"
	"github.com/runlevel/runlevel/internal/cluster/waiter"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/session/progress"
	"github.com/runlevel/runlevel/internal/session/state"
	"github.com/runlevel/runlevel/internal/text/printable"
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
	Tasks     []Phase          // the states of the tasks of the graph
	// Progress is that of an apply that has not completed, with an estimate of the time left; else nil.
	Progress *progress.Progress

	objects func() *state.ObjectList
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
	Unknown Phase = "unknown" // not reported, or the record has no room for it
)

// A Topic is the subject of a page: a page is made again when its topic changes.
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

// A Hub has the state of the releases of a cluster for all who look. It is safe for concurrent use.
type Hub struct {
	Config

	mu       sync.Mutex
	subjects map[Topic]*subject
	files    map[Topic]*appliedFiles

	discovery sync.Mutex
	refreshed time.Time // when the kinds of the cluster were last forgotten
}

// New returns a hub. It reads nothing before someone looks.
func New(config Config) *Hub {
	return &Hub{Config: config, subjects: map[Topic]*subject{}, files: map[Topic]*appliedFiles{}}
}

// Releases returns all releases of the cluster. With an error, it also returns those that are known.
func (h *Hub) Releases(ctx context.Context) ([]state.ListedRelease, error) {
	found, err := h.subject(Topic{Kind: OfReleases}).read(ctx)
	releases, _ := found.(*releaseList)
	if releases == nil {
		return nil, err
	}
	return releases.listed, err
}

// Release returns the state of a release. If the cluster does not respond, it is the last known state, and its status
// is marked as unreachable.
func (h *Hub) Release(ctx context.Context, namespace, name string) (*Release, error) {
	found, err := h.subject(Topic{OfRelease, namespace, name}).read(ctx)
	release, _ := found.(*Release)
	if release == nil || err != nil && !waiter.IsOutage(err) {
		return nil, err
	}
	if err != nil {
		status := *release.Status
		status.Unreachable, status.Done = printable.Line(err.Error()), false
		outdated := *release
		outdated.Status = &status
		release = &outdated
	}
	return release, nil
}

// Objects returns the objects of the release.
func (r *Release) Objects() (*state.ObjectList, error) {
	if list := r.objects(); list != nil {
		return list, nil
	}
	return nil, errors.New("the objects of the release could not be listed: " +
		printable.Few(r.Status.Unknown, maxUnknown))
}

// maxUnknown limits the reasons in an error.
const maxUnknown = 3

// Changes returns a channel that gets a value after a topic may have changed, until the context ends. If it changes
// several times before the value is received, there is one value. A reader of a topic that subscribes to it gets the
// last result of a read until the topic changes.
func (h *Hub) Changes(ctx context.Context, topic Topic) <-chan struct{} {
	return h.subject(topic).subscribe(ctx)
}

// subject returns the subject of a topic.
func (h *Hub) subject(topic Topic) *subject {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.subjects[topic]
	if s == nil {
		s = newSubject(h, topic)
		h.subjects[topic] = s
	}
	return s
}

// A releaseList is the result of a read of all releases.
type releaseList struct {
	listed  []state.ListedRelease
	records []*record.Record
}

// isComplete reports whether all facts of a result could be read.
func isComplete(result any) bool {
	switch result := result.(type) {
	case *Release:
		return len(result.Status.Unknown) == 0
	case *releaseList:
		return !slices.ContainsFunc(result.listed, func(r state.ListedRelease) bool { return len(r.Unknown) > 0 })
	default:
		return true
	}
}

// read reads the state of a topic. It returns nil for topics that pages read themselves.
func (h *Hub) read(ctx context.Context, topic Topic) (any, error) {
	h.RefreshKinds()
	switch topic.Kind {
	case OfRelease:
		return nilIfFailed(h.readRelease(ctx, topic))
	case OfReleases:
		return nilIfFailed(h.readReleases(ctx))
	default:
		return nil, nil
	}
}

func nilIfFailed[T any](result *T, err error) (any, error) {
	if result == nil {
		return nil, err
	}
	return result, err
}

// kindsInterval is the interval at which a read discovers the kinds of the cluster again.
const kindsInterval = 10 * time.Second

// RefreshKinds makes the next read discover the kinds of the cluster, if the last discovery is old.
func (h *Hub) RefreshKinds() { h.refreshKinds(false) }

// refreshKinds makes the next read discover the kinds of the cluster, if the last discovery is old or the kinds have
// changed.
func (h *Hub) refreshKinds(haveChanged bool) {
	h.discovery.Lock()
	defer h.discovery.Unlock()
	if now := time.Now(); haveChanged || now.Sub(h.refreshed) > kindsInterval {
		h.refreshed = now
		h.Cluster.Refresh()
	}
}

func (h *Hub) readReleases(ctx context.Context) (*releaseList, error) {
	if err := waiter.Reach(ctx, h.Cluster); err != nil {
		return nil, err
	}
	listed, err := h.reader(h.Namespace).List(ctx)
	records, recordsErr := record.List(ctx, h.Cluster.Client, h.Namespace) // only for the kinds to watch
	return &releaseList{listed, records}, cmp.Or(err, recordsErr)
}

func (h *Hub) readRelease(ctx context.Context, topic Topic) (*Release, error) {
	status, err := h.reader(topic.Namespace).CurrentStatus(ctx, topic.Name)
	if err == nil && status.IsUnread() {
		err = errors.New(status.Unknown[0])
	}
	if err != nil {
		return nil, err
	}
	release := &Release{Namespace: topic.Namespace, Status: status, Record: status.Record()}
	release.objects = sync.OnceValue(status.AllObjects)
	h.addFiles(ctx, release)
	release.estimate()
	return release, nil
}

func (h *Hub) reader(namespace string) *state.Reader {
	return &state.Reader{Cluster: h.Cluster, Namespace: namespace,
		Applied: func(ctx context.Context, namespace string, known *record.Record) []*payload.Manifest {
			files := h.filesOf(namespace, known)
			defer files.mu.Unlock()
			if files.read(ctx, h, namespace, known); files.payload == nil {
				return nil
			}
			return files.payload.Manifests
		}}
}
