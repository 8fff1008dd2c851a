// Package drain drains a node: it cordons the node, evicts its pods through the Eviction API, so that
// disruption budgets are honoured, and returns what holds each remaining pod. It never waits: the
// caller repeats the call.
//
// The same pods are evicted as by kubectl drain with --force, --ignore-daemonsets and --delete-emptydir-data: all
// except for mirror pods and pods of existing DaemonSets. An unreachable node can't terminate its pods: they are
// evicted with one second of grace, and are not waited for after that second; budgets are honoured there too.
//
// WriteConditions reports drains, and other stages of a machine, in the conditions of its node.
//
// Start with Evict. HeldPods changes nothing: it is for overviews.
package drain

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// A Client is a connection to a cluster that knows the time of its API server: ages of pods are computed with it, since
// this machine's clock may be wrong.
type Client struct {
	kubernetes.Interface
	Now func() time.Time
}

// NewClient returns a Client that uses the connections of an HTTP client.
func NewClient(config *rest.Config, shared *http.Client) (Client, error) {
	clock, observed := &cluster.ServerClock{}, *shared
	observed.Transport = clock.Observe(shared.Transport)
	client, err := kubernetes.NewForConfigAndClient(config, &observed)
	if err != nil {
		return Client{}, fmt.Errorf("connect for drains: %w", err)
	}
	return Client{Interface: client, Now: clock.Now}, nil
}

// A HeldPod is a pod that remains on a node during its drain.
type HeldPod struct {
	Namespace string
	Name      string
	Hold      PodHold
	// Budgets are the names of the PodDisruptionBudgets that prevent the eviction of the pod.
	Budgets []string
	Message string // a sentence about the hold of the pod, with its name
	Refusal string // the API server's answer when it refused the eviction
	// Toleration is the toleration by which the pod is scheduled to a cordoned node, and IsAfterCordon is true if it
	// was scheduled after the cordon. HeldPods finds both.
	Toleration    string
	IsAfterCordon bool
}

// A PodHold is the kind of thing that keeps a pod on its node.
type PodHold string

// The reasons why pods remain.
const (
	Ending     PodHold = "Ending"     // it was evicted, and is terminating
	Finalizers PodHold = "Finalizers" // it has terminated, and finalizers hold the object
	Budget     PodHold = "Budget"     // a disruption budget allows no disruption
	Refused    PodHold = "Refused"    // the eviction failed
	// ToBeEvicted is the hold of a pod that nothing holds: HeldPods evicts nothing, and Evict leaves a pod that has
	// changed meanwhile to the next pass.
	ToBeEvicted PodHold = "ToBeEvicted"
	// Later is the hold of a pod that, by the order of rules, is evicted after others have left.
	Later PodHold = "Later"
	// Completion is the hold of a pod that a rule lets complete by itself; CompletionLater, if others come before it.
	Completion      PodHold = "Completion"
	CompletionLater PodHold = "CompletionLater"
)

// Cordon cordons a node, also in memory. Another node of the same name is left alone.
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
	node.Spec.Unschedulable = true
	return nil
}

// HeldPods returns the pods of a node that a drain waits for, and their holds. The drain rules are optional.
func HeldPods(ctx context.Context, client Client, node *corev1.Node, rules PodRules) ([]HeldPod, error) {
	p := newPass(client, node)
	pods, held, err := p.turns(ctx, rules)
	if err != nil {
		return nil, err
	}
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

// requestError returns the error of a request in one line, without parts that differ from try to try.
func requestError(err error) error { return printable.Error(printable.RequestError(err)) }

// cordonTaint is the taint by which the scheduler treats spec.unschedulable. The node lifecycle controller writes it
// into the node soon after.
var cordonTaint = corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}

// CordonToleration returns the toleration of a pod by which it is scheduled to a cordoned node, as in a manifest; "" if
// the pod has none. Once such a pod is evicted, its controller creates another one, which may be scheduled to the same
// node.
func CordonToleration(pod *corev1.Pod) string {
	i := slices.IndexFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
		return t.ToleratesTaint(klog.Background(), &cordonTaint, false)
	})
	if i < 0 {
		return ""
	}
	toleration := pod.Spec.Tolerations[i]
	var fields []string
	for _, field := range [][2]string{
		{"key", toleration.Key}, {"operator", string(toleration.Operator)}, {"value", toleration.Value},
		{"effect", string(toleration.Effect)},
	} {
		if field[1] != "" {
			fields = append(fields, fmt.Sprintf("%s: %s", field[0], field[1]))
		}
	}
	return "{" + strings.Join(fields, ", ") + "}"
}

// cordonedAt returns when a node was cordoned; zero if its taint has no time.
func cordonedAt(node *corev1.Node) metav1.Time {
	for _, taint := range node.Spec.Taints {
		if taint.MatchTaint(&cordonTaint) && taint.TimeAdded != nil {
			return *taint.TimeAdded
		}
	}
	return metav1.Time{}
}

// isAfterCordon reports whether a pod was scheduled to the node after the cordon. Times are whole seconds: a pod of the
// same second counts as a later one, since a drain evicts pods at once after the cordon, and others replace them.
func (p *pass) isAfterCordon(pod *corev1.Pod) bool {
	return !p.cordonedAt.IsZero() && !pod.CreationTimestamp.Before(&p.cordonedAt)
}
