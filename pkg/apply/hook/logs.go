package hook

import (
	"bufio"
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/runlevel/runlevel/internal/cluster/podlogs"
	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// Limits of a followed log, of the log of a failed hook, and of the wait for the end of a followed log.
const (
	lastLines = 20
	maxBytes  = 1 << 20 // bytes of a line
	lastWords = 2 * time.Second
)

// A stream is the log of a pod, while it is followed.
type stream struct {
	cancel context.CancelFunc
	ended  chan struct{}
}

// podLogs are the logs of hooks.
type podLogs struct {
	client  kubernetes.Interface
	hooks   *deploymenthook.Hooks
	onLine  func(stage deploymenthook.Stage, line string) // nil if logs are not followed
	streams map[types.UID]*stream                         // keyed by pod, including streams that have ended
}

// follow passes on the log of a pod that runs, or has succeeded before the hook saw it run.
func (l *podLogs) follow(ctx context.Context, stage deploymenthook.Stage, pod *corev1.Pod) {
	if l.onLine == nil || pod == nil || l.streams[pod.UID] != nil ||
		pod.Status.Phase != corev1.PodRunning && pod.Status.Phase != corev1.PodSucceeded {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &stream{cancel: cancel, ended: make(chan struct{})}
	l.streams[pod.UID] = s
	go func() {
		defer close(s.ended)
		body, err := l.client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name,
			&corev1.PodLogOptions{Container: l.container(stage), Follow: true}).Stream(ctx)
		if err != nil {
			return // the last lines are reported if the pod fails
		}
		defer body.Close()
		lines := bufio.NewScanner(body)
		for lines.Buffer(nil, maxBytes); lines.Scan(); {
			l.onLine(stage, printable.Line(lines.Text()))
		}
	}()
}

// container returns the name of a hook's container: the cluster may have added others to its pod.
func (l *podLogs) container(stage deploymenthook.Stage) string {
	return l.hooks.Of(stage).ExecNewPod.ContainerName
}

// drain ends all streams, after a moment for their last lines.
func (l *podLogs) drain() {
	for _, s := range l.streams {
		timer := time.NewTimer(lastWords)
		select {
		case <-s.ended:
		case <-timer.C:
		}
		timer.Stop()
		s.cancel()
		<-s.ended
	}
}

// lastLines returns the end of the log of a pod, from the kubelet or else from the status of the pod. The status also
// has the reason why a container could not start.
func (l *podLogs) lastLines(ctx context.Context, stage deploymenthook.Stage, pod *corev1.Pod) []string {
	lines, err := podlogs.LastLines(ctx, l.client, pod, l.container(stage), lastLines)
	if err != nil || len(lines) == 0 {
		return podlogs.Lines(deploymenthook.LastLines(pod))
	}
	return lines
}
