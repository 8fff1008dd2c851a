package capi

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/internal/machines/drain"
)

const (
	mostPods     = 3 // that a line names
	mostRefusals = 5 // that have a line of their own
	mostVolumes  = 5 // that a line names
)

// bullets returns what holds the remaining pods, a line for each cause, in Cluster API's words.
func bullets(left []drain.HeldPod) []string {
	byHold, refusals := map[drain.PodHold][]string{}, map[string][]string{}
	for _, pod := range left {
		name := pod.Namespace + "/" + pod.Name
		switch pod.Hold {
		case drain.Budget, drain.Refused, drain.ToBeEvicted:
			refusals[refusalOf(pod)] = append(refusals[refusalOf(pod)], name)
		case drain.Finalizers:
			byHold[drain.Ending] = append(byHold[drain.Ending], name)
		default:
			byHold[pod.Hold] = append(byHold[pod.Hold], name)
		}
	}
	var lines []string
	if pods := byHold[drain.Ending]; len(pods) > 0 {
		lines = append(lines, fmt.Sprintf("* %s: deletionTimestamp set, but still not removed from the Node", podList(pods)))
	}
	lines = append(lines, refusalLines(refusals)...)
	if pods := byHold[drain.Completion]; len(pods) > 0 {
		lines = append(lines, fmt.Sprintf("* %s: waiting for completion", podList(pods)))
	}
	const after = "After above Pods have been removed from the Node, "
	if pods := byHold[drain.Later]; len(pods) > 0 {
		lines = append(lines, after+"the following Pods will be evicted: "+few(pods, mostPods))
	}
	if pods := byHold[drain.CompletionLater]; len(pods) > 0 {
		lines = append(lines, after+"waiting for the following Pods to complete without eviction: "+few(pods, mostPods))
	}
	return lines
}

// refusalOf returns why a pod was not evicted.
func refusalOf(pod drain.HeldPod) string {
	if rest, ok := strings.CutPrefix(pod.Refusal, "Cannot evict pod as it would violate"); ok {
		return "cannot evict pod as it would violate" + rest
	}
	if pod.Refusal == "" {
		return "failed to evict Pod, " + pod.Message
	}
	return "failed to evict Pod, " + pod.Refusal
}

// refusalLines returns a line for each of the first refusals, and one for the others.
func refusalLines(refusals map[string][]string) []string {
	var lines []string
	others := 0
	for i, refusal := range slices.Sorted(maps.Keys(refusals)) {
		if i < mostRefusals {
			lines = append(lines, fmt.Sprintf("* %s: %s", podList(refusals[refusal]), refusal))
		} else {
			others += len(refusals[refusal])
		}
	}
	switch others {
	case 0:
	case 1:
		lines = append(lines, "* 1 Pod with other issues")
	default:
		lines = append(lines, fmt.Sprintf("* %d Pods with other issues", others))
	}
	return lines
}

func podList(names []string) string {
	if len(names) == 1 {
		return "Pod " + names[0]
	}
	return "Pods " + few(names, mostPods)
}

// few returns the first names, and how many more there are.
func few(names []string, most int) string {
	names = slices.Sorted(slices.Values(names))
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s, ... (%d more)", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}
