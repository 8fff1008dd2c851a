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
	// refreshInterval is how often ConfigMaps and Secrets are read again, and tokens looked after.
	refreshInterval = 5 * time.Second
	// retryPause is the pause after a request that has failed.
	retryPause = 500 * time.Millisecond
	// defaultGrace is terminationGracePeriodSeconds where a pod has none.
	defaultGrace = 30 * time.Second
)

// A hostPod is a pod, and its processes.
type hostPod struct {
	host       *HostPods
	folder     string
	address    address
	containers []*container
	tokens     map[string][]byte // by audience; used by one goroutine at a time
	// first is the pod as it was when it was taken on. Its spec and names never change.
	first *corev1.Pod
	// ctx ends when the processes are to end, lasting when the pod is done with.
	ctx, lasting context.Context
	end          context.CancelFunc

	// Guarded by HostPods.mu.
	seen    *corev1.Pod // as it was last seen
	isGone  bool        // there is no such object any more
	grace   time.Duration
	problem error // why the containers can't be started yet
}

// newPod is called with mu held.
func (h *HostPods) newPod(ctx context.Context, seen *corev1.Pod) *hostPod {
	name := seen.Name + "_" + string(seen.UID)[:8]
	p := &hostPod{
		host: h, first: seen, folder: filepath.Join(h.options.volumes(), name),
		grace:  graceOf(seen.Spec.TerminationGracePeriodSeconds),
		tokens: map[string][]byte{},
		address: newAddress(seen.UID, func(a address) bool {
			for _, other := range h.pods {
				if other.address == a {
					return true
				}
			}
			return false
		}),
		lasting: context.WithoutCancel(ctx),
	}
	p.ctx, p.end = context.WithCancel(ctx)
	for _, spec := range seen.Spec.Containers {
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

// see notes what the pod has become. It is called with mu held.
func (p *hostPod) see(seen *corev1.Pod) {
	p.seen = seen
	if seen.DeletionTimestamp == nil {
		return
	}
	grace := seen.DeletionGracePeriodSeconds
	if grace == nil || *grace == 0 { // a forced delete is one of the object
		grace = seen.Spec.TerminationGracePeriodSeconds
	}
	p.terminate(grace)
}

// terminate ends the processes, and gives them a time to do so, if they are not ending already. It is called with
// mu held.
func (p *hostPod) terminate(seconds *int64) {
	if p.ctx.Err() == nil {
		p.grace = graceOf(seconds)
		p.end()
	}
}

// run runs the pod's processes until they are to end, and then does away with the pod.
func (p *hostPod) run() {
	lasting, cancel := context.WithCancel(p.lasting)
	var beside sync.WaitGroup
	beside.Go(func() { p.report(lasting) })
	if p.awaitVolumes() {
		beside.Go(func() { p.refresh(lasting) })
		var processes sync.WaitGroup
		for _, c := range p.containers {
			processes.Go(c.keepRunning)
		}
		processes.Wait()
	}
	cancel()
	beside.Wait()
	p.leave()
}

// awaitVolumes writes the pod's volumes, as soon as there is all that they are made of, unless the pod is to end
// before.
func (p *hostPod) awaitVolumes() bool {
	for p.ctx.Err() == nil {
		err := p.writeVolumes(p.ctx)
		p.host.update(func() { p.problem = err })
		if err == nil {
			return true
		}
		pause(p.ctx, retryPause)
	}
	return false
}

// refresh keeps volumes as what they are made of. What can't be read now is read the next time.
func (p *hostPod) refresh(ctx context.Context) {
	for pause(ctx, refreshInterval) {
		_ = p.writeVolumes(ctx)
	}
}

// leave reports the end of the processes, and removes what there is of the pod, as far as the API server answers.
func (p *hostPod) leave() {
	ctx, cancel := context.WithTimeout(p.lasting, cleanupTimeout)
	defer cancel()
	p.look(ctx)
	_ = p.patchStatus(ctx) // without it, the pod is seen as it was
	p.host.mu.Lock()
	isDeleted := p.seen.DeletionTimestamp != nil && !p.isGone
	isLeft := p.seen.DeletionTimestamp == nil && !p.isGone
	p.host.mu.Unlock()
	switch {
	case isDeleted:
		p.deleteObject(ctx)
	case isLeft:
		_ = p.annotate(ctx, nil, nil) // for kwok, which removes the pod once it is deleted
	}
	_ = os.RemoveAll(p.folder)
	p.host.update(func() { delete(p.host.pods, p.first.UID) })
}

// look reads the pod once more: the watch may be behind what was reported last, and what is reported is only what
// differs.
func (p *hostPod) look(ctx context.Context) {
	now, err := p.host.client.CoreV1().Pods(p.first.Namespace).Get(ctx, p.first.Name, metav1.GetOptions{})
	if err == nil && now.UID == p.first.UID {
		p.host.update(func() { p.seen = now })
	}
}

// deleteObject removes the object of a pod that has ended, as a kubelet does.
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

// annotate sets the annotations that keep kwok away, and lead the API server here; nil removes them.
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

// pause returns true after a time, or false when ctx ends before.
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
