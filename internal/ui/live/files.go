package live

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// appliedFiles are the files of the last version of a release, which are read once.
type appliedFiles struct {
	mu      sync.Mutex
	version string // what identifies them
	payload *payload.Payload
	graphs  map[graph.Mode]*graph.Graph
	unread  string
	tried   time.Time
}

const (
	openTimeout = 20 * time.Second
	retryAfter  = time.Minute // after files could not be read
)

// addFiles adds the files of the last version, and their graph with the state of its nodes.
func (h *Hub) addFiles(ctx context.Context, r *Release) {
	switch {
	case r.Record == nil:
		r.Unread = "the record of the release does not exist, or can't be read"
		return
	case r.Record.Newest() == nil:
		r.Unread = "no version was applied yet"
		return
	}
	files := h.filesOf(r.Namespace, r.Record)
	defer files.mu.Unlock()
	files.read(ctx, h, r.Namespace, r.Record)
	if r.Payload, r.Unread = files.payload, files.unread; r.Payload == nil {
		return
	}
	mode := graph.Mode(cmp.Or(r.Status.Mode, string(graph.Update)))
	if files.graphs[mode] == nil {
		files.graphs[mode] = graph.Build(r.Payload.Manifests, graph.Options{Mode: mode, Implied: true})
	}
	r.Graph = files.graphs[mode]
	r.setStates()
}

// filesOf returns the files of a release, locked.
func (h *Hub) filesOf(namespace string, known *record.Record) *appliedFiles {
	h.mu.Lock()
	topic := Topic{OfRelease, namespace, known.Release}
	if h.files[topic] == nil {
		h.files[topic] = &appliedFiles{}
	}
	files := h.files[topic]
	h.mu.Unlock()
	files.mu.Lock()
	return files
}

// read reads the files, unless they are those that were read last.
func (f *appliedFiles) read(ctx context.Context, h *Hub, namespace string, known *record.Record) {
	newest := known.Newest()
	version := fmt.Sprint(newest.Revision, " ", newest.Hash, " ", newest.Capabilities)
	if newest.Files != nil {
		version += newest.Files.Digest
	}
	if version == f.version && (f.payload != nil || time.Since(f.tried) < retryAfter) {
		return
	}
	f.version, f.payload, f.unread, f.graphs = version, nil, whyNotKept(newest), map[graph.Mode]*graph.Graph{}
	if f.unread != "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	var err error
	if f.payload, err = h.Open(ctx, namespace, known.Release, ""); err != nil {
		f.payload, f.unread, f.tried = nil, printable.Line(err.Error()), time.Now()
	}
}

// whyNotKept returns why the cluster does not have the files of a version; "" if it has.
func whyNotKept(entry *record.HistoryEntry) string {
	switch {
	case entry.Files == nil:
		return fmt.Sprintf("the files of revision %d were not stored", entry.Revision)
	case entry.Files.Digest == "":
		return fmt.Sprintf("the files of revision %d were not stored: %s", entry.Revision,
			printable.Line(entry.Files.NotKept))
	default:
		return ""
	}
}
