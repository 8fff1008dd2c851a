// Package drain gets the pods off a node: it cordons the node, evicts through the Eviction API, so that
// disruption budgets are honoured, and says of each pod that is left what holds it. It never waits: the
// caller comes back.
//
// Which pods go is what kubectl drain decides with --force, --ignore-daemonsets and --delete-emptydir-data:
// all but mirror pods and those of DaemonSets that exist. A node that can't be reached can't end its pods. They
// are evicted with one second of grace, and not waited for once that is over; budgets count there too.
//
// Evict is the call to start from, and EvictByRules where pods have an order, or are to be left alone. HeldPods changes nothing,
// and serves those who only want to know.
package drain

import (
	"context"
	"encoding/json"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// A HeldPod is one that is still on a node that is drained.
type HeldPod struct {
	Namespace string
	Name      string
	Hold      PodHold
	// Budgets are the PodDisruptionBudgets that keep the pod from being evicted, by name.
	Budgets []string
	Message string // what holds the pod, in words, with its name
	Refusal string // what the API server said when it refused the eviction
	// Toleration is that by which the pod may come back to a cordoned node, and IsAfterCordon says that the pod has come after
	// the cordon. HeldPods finds both.
	Toleration    string
	IsAfterCordon bool
}

// A PodHold is what keeps a pod on its node.
type PodHold string

// What keeps pods.
const (
	Ending     PodHold = "Ending"     // it was evicted, and ends
	Finalizers PodHold = "Finalizers" // it has ended, and finalizers hold the object
	Budget     PodHold = "Budget"     // a disruption budget allows no disruption
	Refused    PodHold = "Refused"    // the eviction failed
	// ToBeEvicted is what nothing holds: HeldPods evicts nothing, and Evict leaves a pod that has changed meanwhile
	// to the next pass.
	ToBeEvicted PodHold = "ToBeEvicted"
	// Later is of a pod whose turn comes when others are gone, by the order of rules.
	Later PodHold = "Later"
	// Completion is of a pod that is to complete by itself, by a rule; CompletionLater that others are in front of it.
	Completion      PodHold = "Completion"
	CompletionLater PodHold = "CompletionLater"
)

// evictionsAtOnce is how many pods of one node are evicted at the same time.
const evictionsAtOnce = 8

// Cordon has a node take no more pods. One of the same name that is not the same node is left alone.
func Cordon(ctx context.Context, client kubernetes.Interface, node *corev1.Node) error {
	if node.Spec.Unschedulable {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": node.UID},
		"spec":     map[string]any{"unschedulable": true},
	})
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("cordon node %s: %w", node.Name, requestError(err))
	}
	return nil
}

// Evict evicts the pods of a node, once, and returns those that are still there. An error concerns all pods:
// a right is missing, or the API server does not answer; some may have been evicted nevertheless.
func Evict(ctx context.Context, client kubernetes.Interface, node *corev1.Node) ([]HeldPod, error) {
	return EvictByRules(ctx, client, node, func(context.Context, *corev1.Pod) (PodRule, error) { return PodRule{Behavior: EvictPod}, nil })
}

// evictAll evicts pods, and returns those that are still there.
func (p *pass) evictAll(ctx context.Context, pods []corev1.Pod) ([]HeldPod, error) {
	held := make([]*HeldPod, len(pods))
	group, ctxOfGroup := errgroup.WithContext(ctx)
	group.SetLimit(evictionsAtOnce)
	for i := range pods {
		group.Go(func() (err error) {
			held[i], err = p.evict(ctxOfGroup, &pods[i])
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return p.nameBudgets(ctx, pods, held), nil
}

// HeldPods returns the pods of a node that draining it would have to get off, and what holds them.
func HeldPods(ctx context.Context, client kubernetes.Interface, node *corev1.Node) ([]HeldPod, error) {
	p := newPass(client, node)
	pods, _, err := p.pods(ctx)
	if err != nil {
		return nil, err
	}
	var held []HeldPod
	for i := range pods {
		h, err := p.inspect(ctx, &pods[i])
		if err != nil {
			return nil, err
		}
		h.Toleration, h.IsAfterCordon = CordonToleration(&pods[i]), p.isAfterCordon(&pods[i])
		held = append(held, h)
	}
	return held, nil
}

// requestError returns the error of a request in one line, without what differs from try to try.
func requestError(err error) error { return printable.Error(printable.RequestError(err)) }
