package sandbox

import (
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1conversion "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/utils/ptr"
)

const (
	logAnnotation = "sandbox.runlevel.dev/log"
	logVariable   = "SANDBOX_LOG"
	// defaultLog is the log of a container without the annotation and the variable.
	defaultLog = "simulated by kwok"
	// logTimes is the format of the time of a line, as in the log of a kubelet.
	logTimes = "2006-01-02T15:04:05.000000000Z07:00"
)

// A logLine is a line of a container's log. The time of a line is the container's start, plus a millisecond for each
// earlier line, so that a line has the same time in each request.
type logLine struct {
	time time.Time
	text string
}

// logOf returns the lines that a run of a container has written so far: those of the pod's annotation, or those of the
// container's last variable with the name logVariable.
func logOf(pod *corev1.Pod, container string, run *containerRun) []logLine {
	text := defaultLog
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, variable := range c.Env {
			if c.Name == container && variable.Name == logVariable && variable.Value != "" {
				text = variable.Value
			}
		}
	}
	if annotated := pod.Annotations[logAnnotation]; annotated != "" {
		text = annotated
	}
	var lines []logLine
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		lines = append(lines, logLine{run.started.Add(time.Duration(i) * time.Millisecond), line + "\n"})
	}
	return lines
}

// A containerRun is one run of a container.
type containerRun struct {
	started  time.Time
	hasEnded bool
}

// lastRun returns the run of a container whose log a kubelet shows: the current or last run, or the run before if
// previous is true. The errors are those of a kubelet.
func lastRun(pod *corev1.Pod, container string, previous bool) (*containerRun, error) {
	statuses := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
	i := slices.IndexFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == container })
	if i < 0 {
		return nil, fmt.Errorf("container %q in pod %q is not available", container, pod.Name)
	}
	current := statuses[i].State
	before := statuses[i].LastTerminationState.Terminated
	switch {
	case previous && before == nil:
		return nil, fmt.Errorf("previous terminated container %q in pod %q not found", container, pod.Name)
	case previous:
		return &containerRun{before.StartedAt.Time, true}, nil
	case current.Running != nil:
		return &containerRun{current.Running.StartedAt.Time, false}, nil
	case current.Terminated != nil:
		return &containerRun{current.Terminated.StartedAt.Time, true}, nil
	case before != nil:
		return &containerRun{before.StartedAt.Time, true}, nil
	default:
		return nil, fmt.Errorf("container %q in pod %q is waiting to start: %s", container, pod.Name,
			waitingReason(current.Waiting))
	}
}

// waitingReason returns a kubelet's message about a container that has not been started.
func waitingReason(state *corev1.ContainerStateWaiting) string {
	switch {
	case state == nil:
		return "no logs yet"
	case state.Reason == "ImagePullBackOff":
		return "trying and failing to pull image"
	default:
		return state.Reason
	}
}

// parseLogOptions parses the parameters of a request for a log.
func parseLogOptions(query url.Values) (corev1.PodLogOptions, error) {
	var options corev1.PodLogOptions
	if err := corev1conversion.Convert_url_Values_To_v1_PodLogOptions(&query, &options, nil); err != nil {
		return options, err
	}
	if options.SinceSeconds != nil {
		options.SinceTime = &metav1.Time{Time: time.Now().Add(-time.Duration(*options.SinceSeconds) * time.Second)}
	}
	return options, nil
}

// A logWriter writes the log of one run of a container.
type logWriter struct {
	response  http.ResponseWriter
	container string
	options   corev1.PodLogOptions
	bytesLeft int64

	run     *containerRun // nil until the pod exists
	pod     *corev1.Pod   // the first state of the pod
	written int           // number of lines that were written or skipped
}

func newLogWriter(response http.ResponseWriter, container string, o corev1.PodLogOptions) *logWriter {
	return &logWriter{
		response: response, container: container, options: o, bytesLeft: ptr.Deref(o.LimitBytes, math.MaxInt64),
	}
}

// update writes the lines that a newer state of the pod adds, and reports whether the log is complete.
func (w *logWriter) update(pod *corev1.Pod) (isDone bool) {
	run, err := lastRun(pod, w.container, w.options.Previous)
	switch {
	case w.run == nil && err != nil:
		refuse(w.response, http.StatusBadRequest, err)
		return true
	case w.run == nil:
		w.run, w.pod = run, pod
		if tail := w.options.TailLines; tail != nil {
			w.written = max(0, len(logOf(pod, w.container, run))-int(*tail))
		}
	case err != nil || pod.UID != w.pod.UID || !run.started.Equal(w.run.started):
		return true // a new run, with its own log
	}
	lines := logOf(pod, w.container, w.run)
	for _, line := range lines[min(w.written, len(lines)):] {
		if err := w.write(line); err != nil {
			return true
		}
	}
	w.written = max(w.written, len(lines))
	_ = http.NewResponseController(w.response).Flush()
	return !w.options.Follow || run.hasEnded || w.bytesLeft == 0
}

func (w *logWriter) write(line logLine) error {
	if since := w.options.SinceTime; since != nil && line.time.Before(since.Time) {
		return nil
	}
	text := line.text
	if w.options.Timestamps {
		text = line.time.UTC().Format(logTimes) + " " + text
	}
	text = text[:min(int64(len(text)), w.bytesLeft)]
	w.bytesLeft -= int64(len(text))
	_, err := w.response.Write([]byte(text))
	return err
}
