package sandbox

import (
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	logAnnotation = "sandbox.runlevel.dev/log"
	logVariable   = "SANDBOX_LOG"
	// defaultLog is the log of a container without the annotation and the variable.
	defaultLog = "simulated by kwok"
	// logTimes is how a kubelet writes the time of a line.
	logTimes = "2006-01-02T15:04:05.000000000Z07:00"
)

// A logLine is a line of a container's log. Its time is that of the container's start and a millisecond more for
// each line, so that a line keeps its time from request to request.
type logLine struct {
	time time.Time
	text string
}

// logOf returns the lines that a run of a container has written so far: those of the pod's annotation, or else those
// of the container's last variable of the name.
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

// A containerRun is one of the times that a container was started.
type containerRun struct {
	started time.Time
	ended   bool
}

// lastRun returns the run of a container whose log a kubelet shows: the present or last one, or with previous the one
// before. Its errors are a kubelet's.
func lastRun(pod *corev1.Pod, container string, previous bool) (*containerRun, error) {
	statuses := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
	i := slices.IndexFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == container })
	if i < 0 {
		return nil, fmt.Errorf("container %q in pod %q is not available", container, pod.Name)
	}
	now, before := statuses[i].State, statuses[i].LastTerminationState.Terminated
	switch {
	case previous && before == nil:
		return nil, fmt.Errorf("previous terminated container %q in pod %q not found", container, pod.Name)
	case previous:
		return &containerRun{before.StartedAt.Time, true}, nil
	case now.Running != nil:
		return &containerRun{now.Running.StartedAt.Time, false}, nil
	case now.Terminated != nil:
		return &containerRun{now.Terminated.StartedAt.Time, true}, nil
	case before != nil:
		return &containerRun{before.StartedAt.Time, true}, nil
	default:
		return nil, fmt.Errorf("container %q in pod %q is waiting to start: %s", container, pod.Name,
			waitingReason(now.Waiting))
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

// logOptions are the parameters of a request for a log.
type logOptions struct {
	follow, previous, timestamps bool
	since                        time.Time
	tail, bytes                  int // limits of lines and bytes
}

func parseLogOptions(query url.Values) (o logOptions, err error) {
	is := func(name string) bool { return query.Get(name) == "true" }
	number := func(name string, otherwise int) int {
		if !query.Has(name) {
			return otherwise
		}
		n, failed := strconv.Atoi(query.Get(name))
		if failed != nil {
			err = fmt.Errorf("%s: %w", name, failed)
		}
		return n
	}
	o = logOptions{
		follow: is("follow"), previous: is("previous"), timestamps: is("timestamps"),
		tail: number("tailLines", math.MaxInt), bytes: number("limitBytes", math.MaxInt),
	}
	if query.Has("sinceSeconds") {
		o.since = time.Now().Add(-time.Duration(number("sinceSeconds", 0)) * time.Second)
	}
	if query.Has("sinceTime") {
		at, failed := time.Parse(time.RFC3339, query.Get("sinceTime"))
		if failed != nil {
			err = fmt.Errorf("sinceTime: %w", failed)
		}
		o.since = at
	}
	return o, err
}

// A logAnswer writes the log of one run of a container.
type logAnswer struct {
	logOptions
	to        http.ResponseWriter
	container string

	run  *containerRun // nil until there is a pod
	pod  *corev1.Pod   // its first state
	read int           // lines that are written or skipped
}

// proceed writes the lines that a newer state of the pod adds, and reports whether they are the last.
func (a *logAnswer) proceed(pod *corev1.Pod) (isDone bool) {
	run, err := lastRun(pod, a.container, a.previous)
	switch {
	case a.run == nil && err != nil:
		refuse(a.to, http.StatusBadRequest, err)
		return true
	case a.run == nil:
		a.run, a.pod = run, pod
		a.read = max(0, len(logOf(pod, a.container, run))-a.tail)
	case err != nil || pod.UID != a.pod.UID || !run.started.Equal(a.run.started):
		return true // a new run, with a log of its own
	}
	lines := logOf(pod, a.container, a.run)
	for _, line := range lines[min(a.read, len(lines)):] {
		if err := a.write(line); err != nil {
			return true
		}
	}
	a.read = max(a.read, len(lines))
	_ = http.NewResponseController(a.to).Flush()
	return !a.follow || run.ended || a.bytes == 0
}

func (a *logAnswer) write(line logLine) error {
	if line.time.Before(a.since) {
		return nil
	}
	text := line.text
	if a.timestamps {
		text = line.time.UTC().Format(logTimes) + " " + text
	}
	text = text[:min(len(text), a.bytes)]
	a.bytes -= len(text)
	_, err := a.to.Write([]byte(text))
	return err
}
