// Package podlogs reads the end of the log of a container, fit to print.
//
// It follows no log, and does not choose the container: its callers know which one matters.
//
// Start with LastLines.
package podlogs

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// Limits of a read.
const (
	maxBytes = 1 << 20 // more than the lines that are printed have, since the server would drop the last ones
	maxLine  = 1000
)

// LastLines returns the last lines of the log of a container; all that fit into a MiB if most is 0. It returns an error
// if the log does not exist yet, or no longer exists.
func LastLines(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod, container string,
	most int64) ([]string, error) {
	options := &corev1.PodLogOptions{Container: container, LimitBytes: new(int64(maxBytes))}
	if most > 0 {
		options.TailLines = &most
	}
	text, err := client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, options).DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	return Lines(string(text)), nil
}

// Lines returns the lines of a log.
func Lines(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, printable.Truncate(printable.Line(strings.TrimRight(line, "\r\n")), maxLine))
	}
	return lines
}
