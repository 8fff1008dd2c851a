package state

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// A ListedCluster is a cluster in the list of several, with its releases. It is an element of the output of -o json.
type ListedCluster struct {
	Cluster  string          `json:"cluster"`
	Time     time.Time       `json:"time,omitzero"`   // server time
	Releases []ListedRelease `json:"releases"`        // those that could be read
	Error    string          `json:"error,omitempty"` // why it could not be read, or only a part
}

// A ClusterSource is a cluster to list, and how to connect to it.
type ClusterSource struct {
	Name    string
	Connect func(context.Context) (*Reader, error)
}

// maxClusters limits the clusters that are read at the same time.
const maxClusters = 64

// ListClusters lists the releases on several clusters, in the order of the clusters' names. A cluster that can't be
// read before the timeout has an error, and does not hold up the others.
func ListClusters(ctx context.Context, sources []ClusterSource, timeout time.Duration) []ListedCluster {
	clusters := make([]ListedCluster, len(sources))
	var group errgroup.Group
	group.SetLimit(maxClusters)
	for i, source := range sources {
		group.Go(func() error {
			clusters[i] = source.list(ctx, timeout)
			return nil
		})
	}
	_ = group.Wait() // an error is in the element of its cluster
	slices.SortFunc(clusters, func(a, b ListedCluster) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return clusters
}

// list lists the releases on a cluster. It returns at the timeout even if the cluster's login program does not.
func (s ClusterSource) list(ctx context.Context, timeout time.Duration) ListedCluster {
	limited, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not read within %s", timeout))
	defer cancel()
	done := make(chan ListedCluster, 1)
	go func() { done <- s.read(limited) }()
	select {
	case listed := <-done:
		return listed
	case <-limited.Done():
		return s.failed(context.Cause(limited))
	}
}

func (s ClusterSource) read(ctx context.Context) ListedCluster {
	reader, err := s.Connect(ctx)
	if err != nil {
		return s.failed(err)
	}
	releases, err := reader.ListWithVersion(ctx)
	if ctx.Err() != nil {
		return s.failed(context.Cause(ctx))
	}
	listed := s.failed(err)
	listed.Time = reader.Cluster.Now().UTC().Truncate(time.Second)
	listed.Releases = append(listed.Releases, releases...)
	return listed
}

// failed returns an element without releases, and with the text of an error, if there is one.
func (s ClusterSource) failed(err error) ListedCluster {
	listed := ListedCluster{Cluster: s.Name, Releases: []ListedRelease{}}
	if err != nil {
		listed.Error = printable.Line(strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return listed
}
