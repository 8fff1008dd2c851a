// Package hostpods runs pods of a sandbox as processes of this machine. Tests and the demo use it for programs that
// must run on a sandbox as they are shipped: with the command, the arguments, the environment, the volumes and the
// rights that their Deployment defines.
//
// A HostPods is a small kubelet beside kwok. It selects the scheduled pods of one namespace by their labels, runs a
// process for each of their containers, restarts the process when it exits, reports it in the pod's status, and deletes
// the pod after its processes have exited. kwok simulates all other pods, and those with an annotation that makes them
// fail or hang.
//
// A HostPods is not a container runtime: processes use this machine's files and network, and run as this user. A volume
// is a folder, and paths into it are rewritten in arguments and environment. Images, init containers, resources,
// liveness and startup probes, lifecycle hooks and security contexts are ignored. Containers are restarted even if the
// pod's restart policy is not Always.
//
// Start with Start.
package hostpods

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Options select the pods that run as processes, and their programs.
type Options struct {
	// Config is an administrator's connection to the sandbox. Processes get only its address and the certificate of its
	// authority.
	Config *rest.Config
	// Namespace is the namespace of the pods. It may be created later.
	Namespace string
	// Selector has the labels of the pods, such as "app=web,tier=front". Empty means all pods.
	Selector string
	// Programs has paths on this machine, by the base name of a container's command. For a container without a command,
	// the key is its own name.
	Programs map[string]string
	// Folder is for volumes, kubeconfigs and logs. Logs stay there after Stop.
	Folder string
}

// HostPods runs pods as processes.
type HostPods struct {
	options  Options
	client   kubernetes.Interface
	selector labels.Set
	stop     context.CancelFunc
	running  sync.WaitGroup // the watch, and a goroutine per pod
	awaitEnd func() error

	// mu guards the pods and their states.
	mu      sync.Mutex
	pods    map[types.UID]*hostPod
	changed chan struct{} // closed, and replaced, with each change
}

// Start runs the existing pods and all new pods until Stop or the end of ctx. It returns when kwok no longer simulates
// new pods.
func Start(ctx context.Context, o Options) (*HostPods, error) {
	h, err := prepare(o)
	if err != nil {
		return nil, fmt.Errorf("run pods of namespace %s: %w", o.Namespace, err)
	}
	policy, err := h.claimPods(ctx)
	if err != nil {
		return nil, fmt.Errorf("run pods of namespace %s: %w", o.Namespace, err)
	}
	ctx, h.stop = context.WithCancel(ctx)
	h.awaitEnd = sync.OnceValue(func() error {
		h.running.Wait()
		return h.deletePolicy(context.WithoutCancel(ctx), policy)
	})
	h.running.Go(func() { h.watch(ctx) })
	return h, nil
}

func prepare(o Options) (*HostPods, error) {
	selector, err := labels.ConvertSelectorToLabelsMap(o.Selector)
	if err != nil {
		return nil, fmt.Errorf("selector %q: %w", o.Selector, err)
	}
	config := rest.CopyConfig(o.Config)
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	if o.Folder, err = filepath.Abs(o.Folder); err != nil {
		return nil, err
	}
	if err := errors.Join(os.MkdirAll(o.logs(), 0o700), os.MkdirAll(o.volumes(), 0o700)); err != nil {
		return nil, err
	}
	return &HostPods{
		options: o, client: client, selector: selector,
		pods: map[types.UID]*hostPod{}, changed: make(chan struct{}),
	}, nil
}

func (o Options) logs() string    { return filepath.Join(o.Folder, "logs") }
func (o Options) volumes() string { return filepath.Join(o.Folder, "pods") }

// Stop ends all processes, each within its pod's grace period, and returns after they have exited. The pods stay, not
// ready, and another runner may take over. Stop may be called any number of times.
func (h *HostPods) Stop() error {
	h.stop()
	return h.awaitEnd()
}

// watch observes the pods until ctx ends.
func (h *HostPods) watch(ctx context.Context) {
	choose := func(o *metav1.ListOptions) { o.LabelSelector = h.selector.String() }
	client := h.client.CoreV1().RESTClient()
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewFilteredListWatchFromClient(client, "pods", h.options.Namespace, choose),
		ObjectType:    &corev1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { h.observe(ctx, object) },
			UpdateFunc: func(_, object any) { h.observe(ctx, object) },
			DeleteFunc: h.observeRemoval,
		},
	})
	informer.RunWithContext(ctx)
}

// observe starts the processes of a new pod, or stores the new state of a pod that it has observed before.
func (h *HostPods) observe(ctx context.Context, object any) {
	pod := object.(*corev1.Pod)
	h.update(func() {
		existing, isObserved := h.pods[pod.UID]
		switch {
		case isObserved:
			existing.observe(pod)
		case isRunnable(pod) && ctx.Err() == nil:
			added := h.newPod(ctx, pod)
			h.pods[pod.UID] = added
			added.observe(pod)
			h.running.Go(added.run)
		}
	})
}

// observeRemoval ends the processes of a pod whose object no longer exists.
func (h *HostPods) observeRemoval(object any) {
	if missed, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = missed.Obj
	}
	h.update(func() {
		if pod, isKnown := h.pods[object.(*corev1.Pod).UID]; isKnown {
			pod.isRemoved = true
			pod.terminate(pod.latest.Spec.TerminationGracePeriodSeconds)
		}
	})
}

// isRunnable reports whether hostpods runs a pod: the pod has a node, is not simulated, and has not ended.
func isRunnable(pod *corev1.Pod) bool {
	annotation := pod.Annotations[podAnnotation]
	switch {
	case pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		return false
	case pod.DeletionTimestamp != nil: // kwok removes the pods without our annotation, and finalizers may hold ours
		return annotation == podOfHost && pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds > 0
	default:
		return annotation == "" || annotation == podOfHost
	}
}

// update changes the state that mu guards, and wakes all functions that wait for changes.
func (h *HostPods) update(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
	close(h.changed)
	h.changed = make(chan struct{})
}
