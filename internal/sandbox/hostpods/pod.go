package hostpods

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/sandbox"
)

const (
	// refreshInterval is the interval at which ConfigMaps and Secrets are read again.
	refreshInterval = 5 * time.Second
	// retryPause is the pause after a request that failed.
	retryPause = 500 * time.Millisecond
	// defaultGrace is the grace period of a pod without terminationGracePeriodSeconds.
	defaultGrace = 30 * time.Second
)

// A hostPod is a pod and its processes.
type hostPod struct {
	host       *HostPods
	folder     string
	address    address
	containers []*container
	tokens     map[string][]byte // tokens by audience; used by one goroutine at a time
	// first is the first observed state of the pod. Its spec and names never change.
	first *corev1.Pod
	// ctx ends when the processes must end. reportCtx never ends, so that the exits of the processes are reported.
	ctx, reportCtx context.Context
	cancel         context.CancelFunc

	// Guarded by HostPods.mu.
	latest    *corev1.Pod // the last observed state
	isRemoved bool        // the object no longer exists
	grace     time.Duration
	volumeErr error // delays the start of the containers
}

// newPod returns a pod that does not run yet. The caller holds mu.
func (h *HostPods) newPod(ctx context.Context, pod *corev1.Pod) *hostPod {
	name := pod.Name + "_" + string(pod.UID)[:8]
	p := &hostPod{
		host: h, first: pod, folder: filepath.Join(h.options.volumes(), name),
		grace:  graceOf(pod.Spec.TerminationGracePeriodSeconds),
		tokens: map[string][]byte{},
		address: newAddress(pod.UID, func(a address) bool {
			for _, other := range h.pods {
				if other.address == a {
					return true
				}
			}
			return false
		}),
		reportCtx: context.WithoutCancel(ctx),
	}
	p.ctx, p.cancel = context.WithCancel(ctx)
	for _, spec := range pod.Spec.Containers {
		p.containers = append(p.containers, &container{
			pod: p, spec: spec, folder: filepath.Join(p.folder, "containers", spec.Name),
			log:   filepath.Join(h.options.logs(), name+"_"+spec.Name+".log"),
			state: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reasonCreating}},
		})
	}
	return p
}

func graceOf(seconds *int64) time.Duration {
	if seconds == nil {
		return defaultGrace
	}
	return time.Duration(*seconds) * time.Second
}

// observe stores a new state of the pod, and ends the processes of a deleted pod. The caller holds mu.
func (p *hostPod) observe(pod *corev1.Pod) {
	p.latest = pod
	if pod.DeletionTimestamp == nil {
		return
	}
	grace := pod.DeletionGracePeriodSeconds
	if grace == nil || *grace == 0 { // a forced delete only removes the object
		grace = pod.Spec.TerminationGracePeriodSeconds
	}
	p.terminate(grace)
}

// terminate ends the processes with a grace period, unless they are ending already. The caller holds mu.
func (p *hostPod) terminate(seconds *int64) {
	if p.ctx.Err() == nil {
		p.grace = graceOf(seconds)
		p.cancel()
	}
}

// run runs the pod's processes until they must end, and then removes the pod.
func (p *hostPod) run() {
	ctx, cancel := context.WithCancel(p.reportCtx)
	var helpers sync.WaitGroup
	helpers.Go(func() { p.report(ctx) })
	if p.awaitVolumes() {
		helpers.Go(func() { p.refreshVolumes(ctx) })
		var processes sync.WaitGroup
		for _, c := range p.containers {
			processes.Go(c.keepRunning)
		}
		processes.Wait()
	}
	cancel()
	helpers.Wait()
	p.remove()
}

// awaitVolumes writes the pod's volumes as soon as their sources exist. It returns false if the pod must end before.
func (p *hostPod) awaitVolumes() bool {
	for p.ctx.Err() == nil {
		err := p.writeVolumes(p.ctx)
		p.host.update(func() { p.volumeErr = err })
		if err == nil {
			return true
		}
		pause(p.ctx, retryPause)
	}
	return false
}

// refreshVolumes updates the volumes from their sources until ctx ends. Errors are ignored, since the next attempt may
// succeed.
func (p *hostPod) refreshVolumes(ctx context.Context) {
	for pause(ctx, refreshInterval) {
		_ = p.writeVolumes(ctx)
	}
}

// remove reports the end of the processes, and removes the folder of the pod and, if the pod is deleted, its object.
// Errors of the API server are ignored.
func (p *hostPod) remove() {
	ctx, cancel := context.WithTimeout(p.reportCtx, cleanupTimeout)
	defer cancel()
	p.readLatest(ctx)
	_ = p.patchStatus(ctx)
	p.host.mu.Lock()
	isRemoved := p.isRemoved
	isDeleted := p.latest.DeletionTimestamp != nil
	p.host.mu.Unlock()
	switch {
	case isRemoved:
	case isDeleted:
		p.deleteObject(ctx)
	default:
		_ = p.annotate(ctx, nil, nil) // so that kwok removes the pod after its deletion
	}
	_ = os.RemoveAll(p.folder)
	p.host.update(func() { delete(p.host.pods, p.first.UID) })
}

// readLatest reads the pod again: patchStatus writes only differences, and the watch may lag behind the last written
// status.
func (p *hostPod) readLatest(ctx context.Context) {
	pod, err := p.host.client.CoreV1().Pods(p.first.Namespace).Get(ctx, p.first.Name, metav1.GetOptions{})
	if err == nil && pod.UID == p.first.UID {
		p.host.update(func() { p.latest = pod })
	}
}

// deleteObject removes the object of a pod whose processes have exited, as a kubelet does.
func (p *hostPod) deleteObject(ctx context.Context) {
	for isInTime := true; isInTime; isInTime = pause(ctx, retryPause) {
		err := p.host.client.CoreV1().Pods(p.first.Namespace).Delete(ctx, p.first.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions(string(p.first.UID)),
		})
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return
		}
	}
}

// annotate sets the annotation that keeps kwok from simulating the pod, and the annotation with the pod's address for
// the API server. A nil value removes an annotation.
func (p *hostPod) annotate(ctx context.Context, pod, address any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": p.first.UID, "annotations": map[string]any{podAnnotation: pod, sandbox.AddressAnnotation: address},
	}})
	if err != nil {
		return err
	}
	_, err = p.host.client.CoreV1().Pods(p.first.Namespace).Patch(ctx, p.first.Name, types.MergePatchType, patch,
		metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("annotate the pod: %w", err)
	}
	return nil
}

// pause returns true after a duration, or false if ctx ends before.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
