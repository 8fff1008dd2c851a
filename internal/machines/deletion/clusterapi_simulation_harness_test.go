package deletion_test

import (
	"slices"
	"strings"
	"time"

	"github.com/runlevel/runlevel/internal/machines/deletion"
)

// epoch is when worlds begin.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// clusterAPIWorld is what a world has beside in Cluster API's dialect.
type clusterAPIWorld struct {
	isUsed      bool
	isNodeKept  bool
	refusesNode bool // the deletion of the node fails
	began       map[deletion.DeletionStage]time.Time
	timeouts    map[deletion.DeletionStage]time.Duration
	volumes     deletion.Volumes
	attached    []string
	bootstrap   deletion.Infrastructure
}

// useClusterAPI has a world be one of Cluster API.
func (w *world) useClusterAPI() {
	w.dialect = deletion.ClusterAPI
	w.capi = clusterAPIWorld{
		isUsed: true, isNodeKept: w.node.Name == "",
		began:    map[deletion.DeletionStage]time.Time{deletion.RemovingNode: epoch},
		timeouts: map[deletion.DeletionStage]time.Duration{deletion.RemovingNode: 10 * time.Second},
	}
}

func (w *world) clusterAPIFacts() deletion.ClusterAPIFacts {
	c := w.capi
	return deletion.ClusterAPIFacts{
		Now: epoch.Add(w.now), IsNodeKept: c.isNodeKept, Began: c.began, Timeouts: c.timeouts, Volumes: c.volumes, Bootstrap: c.bootstrap,
	}
}

// nextOfClusterAPI does the actions that only Cluster API's dialect has.
func (w *world) nextOfClusterAPI(step deletion.DeletionStep) {
	switch step.Action {
	case deletion.RecordStart:
		w.capi.began[step.Stage] = epoch.Add(w.now)
	case deletion.LookAtVolumes:
		w.capi.volumes.HasLooked, w.capi.volumes.Left = true, slices.Clone(w.capi.attached)
	case deletion.RecordDetached:
		w.capi.volumes.IsDone = true
	case deletion.DeleteBootstrap:
		w.capi.bootstrap = deletion.Infrastructure{}
	case deletion.DeleteNode:
		if w.capi.refusesNode {
			w.node.IsGone, w.node.Problem = false, "refused"
		}
	case deletion.Wait:
		w.drain.IsDone, w.node.Problem = false, ""
		w.capi.volumes = deletion.Volumes{IsExcluded: w.capi.volumes.IsExcluded}
	}
}

// setClusterAPI does the commands of scripts that only Cluster API's dialect has.
func (s *script) setClusterAPI(line string, rest []string) {
	switch {
	case strings.HasPrefix(line, "cluster-api"):
		s.useClusterAPI()
	case line == "cluster deleting", line == "no control plane left":
		s.capi.isNodeKept = true
	case strings.HasPrefix(line, "drain timeout"):
		s.capi.timeouts[deletion.Draining] = s.duration(rest[1])
	case strings.HasPrefix(line, "volume timeout"):
		s.capi.timeouts[deletion.DetachingVolumes] = s.duration(rest[1])
	case strings.HasPrefix(line, "node timeout"):
		s.capi.timeouts[deletion.RemovingNode] = s.duration(rest[1])
	case strings.HasPrefix(line, "attached"):
		s.capi.attached = rest
	case strings.HasPrefix(line, "bootstrap"):
		s.capi.bootstrap = deletion.Infrastructure{Exists: true, Name: rest[0]}
	case line == "node deletion refused":
		s.capi.refusesNode = true
	default:
		s.Fatalf("no such command: %q", line)
	}
}
