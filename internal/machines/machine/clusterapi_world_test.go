package machine_test

import (
	"slices"
	"strings"
	"time"

	"github.com/runlevel/runlevel/internal/machines/machine"
)

// epoch is when worlds begin.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// clusterAPIWorld is what a world has beside in Cluster API's dialect.
type clusterAPIWorld struct {
	isUsed      bool
	isNodeKept  bool
	refusesNode bool // the deletion of the node fails
	began       map[machine.DeletionStage]time.Time
	timeouts    map[machine.DeletionStage]time.Duration
	volumes     machine.Volumes
	attached    []string
	bootstrap   machine.Infrastructure
}

// useClusterAPI has a world be one of Cluster API.
func (w *world) useClusterAPI() {
	w.dialect = machine.ClusterAPI
	w.capi = clusterAPIWorld{
		isUsed: true, isNodeKept: w.node.Name == "",
		began:    map[machine.DeletionStage]time.Time{machine.RemovingNode: epoch},
		timeouts: map[machine.DeletionStage]time.Duration{machine.RemovingNode: 10 * time.Second},
	}
}

func (w *world) clusterAPIFacts() machine.ClusterAPIFacts {
	c := w.capi
	return machine.ClusterAPIFacts{
		Now: epoch.Add(w.now), IsNodeKept: c.isNodeKept, Began: c.began, Timeouts: c.timeouts, Volumes: c.volumes, Bootstrap: c.bootstrap,
	}
}

// nextOfClusterAPI does the actions that only Cluster API's dialect has.
func (w *world) nextOfClusterAPI(step machine.DeletionStep) {
	switch step.Action {
	case machine.RecordStart:
		w.capi.began[step.Stage] = epoch.Add(w.now)
	case machine.LookAtVolumes:
		w.capi.volumes.HasLooked, w.capi.volumes.Left = true, slices.Clone(w.capi.attached)
	case machine.RecordDetached:
		w.capi.volumes.IsDone = true
	case machine.DeleteBootstrap:
		w.capi.bootstrap = machine.Infrastructure{}
	case machine.DeleteNode:
		if w.capi.refusesNode {
			w.node.IsGone, w.node.Problem = false, "refused"
		}
	case machine.Wait:
		w.drain.IsDone, w.node.Problem = false, ""
		w.capi.volumes = machine.Volumes{IsExcluded: w.capi.volumes.IsExcluded}
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
		s.capi.timeouts[machine.Draining] = s.duration(rest[1])
	case strings.HasPrefix(line, "volume timeout"):
		s.capi.timeouts[machine.DetachingVolumes] = s.duration(rest[1])
	case strings.HasPrefix(line, "node timeout"):
		s.capi.timeouts[machine.RemovingNode] = s.duration(rest[1])
	case strings.HasPrefix(line, "attached"):
		s.capi.attached = rest
	case strings.HasPrefix(line, "bootstrap"):
		s.capi.bootstrap = machine.Infrastructure{Exists: true, Name: rest[0]}
	case line == "node deletion refused":
		s.capi.refusesNode = true
	default:
		s.Fatalf("no such command: %q", line)
	}
}
