package await

import (
	"context"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/ready"
)

// settleTime is for how long a workload without a probe has to be ready. Its pods are from the moment at which their
// containers start, also if they crash at once and start again.
const settleTime = 3 * time.Second

// settle returns the verdict on an object by its status. One that has just become ready, and has no probe
// that shows it, is watched for a while. What was ready when it was first seen is not: this run has not changed it.
func (o *tracked) settle(t *Tracker, verdict ready.Verdict) ready.Verdict {
	if verdict.State != ready.Ready {
		o.hasBroken = o.hasBroken || !o.readySince.IsZero()
		o.isSettled, o.readySince = false, time.Time{}
		return verdict
	}
	if o.isSettled || t.simulates == yes || o.standard != ready.Full || len(ready.WithoutProbe(o.manifest.Object())) == 0 {
		return verdict
	}
	now := time.Now()
	if o.readySince.IsZero() {
		o.readySince = now
		// The cluster's clock may differ: then an object settles for a moment more, or less.
		if since := ready.AvailableSince(o.live); !o.hasBroken && !since.IsZero() && since.Before(now) {
			o.readySince = since
		}
		askNodes(t)
	}
	left := o.readySince.Add(settleTime).Sub(now)
	if left <= 0 {
		o.isSettled = true
		return verdict
	}
	if o.settling != nil {
		o.settling.Stop()
	}
	o.settling = time.AfterFunc(left, func() {
		t.do(func() {
			if t.ctx.Err() == nil {
				t.judge(o)
			}
		})
	})
	return ready.Verdict{State: ready.Waiting, Message: "it is available, and has no readiness probe: it is watched for " + settleTime.String()}
}

// An answer is what is known of something.
type answer int

const (
	unasked answer = iota
	no
	yes
)

// askNodes finds out whether pods run at all: those of simulated nodes do not crash. Who may not know it settles.
func askNodes(t *Tracker) {
	if t.simulates != unasked {
		return
	}
	t.simulates = no
	t.running.Go(func() {
		if !isSimulated(t.ctx, t.cluster) {
			return
		}
		t.do(func() {
			t.simulates = yes
			for _, o := range t.objects {
				if !o.readySince.IsZero() {
					t.judge(o)
				}
			}
		})
	})
}

// isSimulated reports whether the nodes of the cluster are kwok's, judged by the first 20.
func isSimulated(ctx context.Context, c *cluster.Cluster) bool {
	nodes, err := c.Objects.Resource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"}).List(ctx, metav1.ListOptions{Limit: 20})
	if err != nil {
		return false
	}
	isSimulated := false
	for _, node := range nodes.Items {
		runtime, _, _ := unstructured.NestedString(node.Object, "status", "nodeInfo", "containerRuntimeVersion")
		if runtime == "" { // it runs nothing yet
			continue
		}
		if isSimulated = strings.HasPrefix(runtime, "kwok-"); !isSimulated {
			return false
		}
	}
	return isSimulated
}
