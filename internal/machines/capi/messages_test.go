package capi

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/runlevel/runlevel/internal/machines/drain"
)

// Each word is a pod, as HOLD:NAME or HOLD:NAME:WHAT-THE-SERVER-SAID.
func TestDrainMessages(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pods string
		want []string
	}{
		"none": {"", nil},
		"one that end": {"Ending:a",
			[]string{"* Pod ns/a: deletionTimestamp set, but still not removed from the Node"}},
		"pods with finalizers are ending, and three are named": {"Ending:d Finalizers:b Ending:a Ending:c Finalizers:e",
			[]string{
				"* Pods ns/a, ns/b, ns/c, ... (2 more): deletionTimestamp set, but still not removed from the Node",
			}},
		"each refusal has a line": {"Refused:a:too-many Refused:b:forbidden Refused:c:too-many", []string{
			"* Pod ns/b: failed to evict Pod, forbidden", "* Pods ns/a, ns/c: failed to evict Pod, too-many"}},
		"without a response, the known reason is reported": {"Refused:a",
			[]string{"* Pod ns/a: failed to evict Pod, a is held"}},
		"five refusals have a line": {"Refused:a:1 Refused:b:2 Refused:c:3 Refused:d:4 Refused:e:5 Refused:f:6",
			[]string{
				"* Pod ns/a: failed to evict Pod, 1", "* Pod ns/b: failed to evict Pod, 2",
				"* Pod ns/c: failed to evict Pod, 3",
				"* Pod ns/d: failed to evict Pod, 4", "* Pod ns/e: failed to evict Pod, 5",
				"* 1 Pod with other issues"}},
		"and how many others there are": {"Refused:a:1 Refused:b:2 Refused:c:3 Refused:d:4 Refused:e:5 Refused:f:6 " +
			"Refused:g:7", []string{
			"* Pod ns/a: failed to evict Pod, 1", "* Pod ns/b: failed to evict Pod, 2",
			"* Pod ns/c: failed to evict Pod, 3",
			"* Pod ns/d: failed to evict Pod, 4", "* Pod ns/e: failed to evict Pod, 5", "* 2 Pods with other issues"}},
		"what waits comes last": {"CompletionLater:a Later:b Completion:c Ending:d", []string{
			"* Pod ns/d: deletionTimestamp set, but still not removed from the Node",
			"* Pod ns/c: waiting for completion",
			"After above Pods have been removed from the Node, the following Pods will be evicted: ns/b",
			"After above Pods have been removed from the Node, waiting for the following Pods to complete without " +
				"eviction: ns/a"}},
		"those that come later are counted, too": {"Later:a Later:b Later:c Later:d",
			[]string{"After above Pods have been removed from the Node, the following Pods will be evicted: ns/a, " +
				"ns/b, ns/c, ... (1 more)"}},
	} {
		var left []drain.HeldPod
		for word := range strings.FieldsSeq(c.pods) {
			parts := strings.Split(word+":", ":")
			left = append(left, drain.HeldPod{
				Namespace: "ns", Name: parts[1], Hold: drain.PodHold(parts[0]), Refusal: parts[2],
				Message: parts[1] + " is held",
			})
		}
		if diff := cmp.Diff(c.want, bullets(left)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Each word is a PersistentVolume, as NAME or NAME@CLAIM. The volume h of the test's driver has the handle h.
func TestAttachedVolumeMessages(t *testing.T) {
	t.Parallel()
	const handle = "kubernetes.io/csi/csi.example.com^"
	for name, c := range map[string]struct {
		volumes, node, attachments, staying string
		want                                []string
	}{
		"nothing":           {"a@x", "", "", "", nil},
		"by an attachment":  {"a@x", "", "a", "", []string{"* PersistentVolumeClaims: ns/x"}},
		"by the node":       {"a@x", "a", "", "", []string{"* PersistentVolumeClaims: ns/x"}},
		"by both it is one": {"a@x", "a", "a", "", []string{"* PersistentVolumeClaims: ns/x"}},
		"of a pod that stays it is not waited": {"a@x b@y", "a b", "b", "ns/x",
			[]string{"* PersistentVolumeClaims: ns/y"}},
		"five claims are named": {"a@1 b@2 c@3 d@4 e@5 f@6", "a b c d e f", "", "",
			[]string{"* PersistentVolumeClaims: ns/1, ns/2, ns/3, ns/4, ns/5, ... (1 more)"}},
		"without a claim": {"a", "", "a", "",
			[]string{"* PersistentVolumes without a .spec.claimRef to a PersistentVolumeClaim: a"}},
		"an attachment without volume": {"", "", "a", "",
			[]string{"* VolumeAttachment with .spec.source.persistentVolumeName not matching a PersistentVolume: a"}},
		"an entry of the node's status": {"", "a", "", "",
			[]string{"* Node with .status.volumesAttached entries not matching a PersistentVolume: " + handle + "a"}},
	} {
		set := func(words, prefix string) sets.Set[string] {
			found := sets.New[string]()
			for word := range strings.FieldsSeq(words) {
				found.Insert(prefix + word)
			}
			return found
		}
		left := attachedVolumes{
			claims: sets.New[string](), withoutClaim: sets.New[string](), onlyAtNode: set(c.node, handle),
			onlyAttachment: set(c.attachments, ""),
		}
		for word := range strings.FieldsSeq(c.volumes) {
			name, claim, _ := strings.Cut(word, "@")
			volume := corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
			volume.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "csi.example.com", VolumeHandle: name}
			if claim != "" {
				volume.Spec.ClaimRef = &corev1.ObjectReference{
					Kind:      "PersistentVolumeClaim",
					Namespace: "ns",
					Name:      claim,
				}
			}
			left.resolve(volume, set(c.staying, ""))
		}
		if diff := cmp.Diff(c.want, left.lines()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Nothing is asked of the API server about the volumes of a node that can't be reached: they are never detached.
func TestVolumesOfANodeThatCanNotBeReached(t *testing.T) {
	t.Parallel()
	d := &deletionScope{machineState: &machineState{node: machineNode{object: &corev1.Node{Status: corev1.NodeStatus{
		Conditions:      []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}},
		VolumesAttached: []corev1.AttachedVolume{{Name: "a"}},
	}}}}}
	if volumes, err := d.attachedVolumes(t.Context()); len(volumes) > 0 || err != nil {
		t.Errorf("got volumes %v, error %v, want none", volumes, err)
	}
}

// A Machine reports the health of its Node. Each word is a condition, as NAME=STATUS.
func TestNodeHealthConditions(t *testing.T) {
	t.Parallel()
	const healthy = "MemoryPressure=False DiskPressure=False PIDPressure=False"
	for conditions, want := range map[string]string{
		"Ready=True " + healthy:  "True NodeHealthy ",
		"Ready=False " + healthy: "False NodeNotHealthy * Node.Ready: Ready is False",
		"Ready=True MemoryPressure=True DiskPressure=Unknown PIDPressure=False": "False NodeNotHealthy " +
			"* Node.MemoryPressure: MemoryPressure is True\n* Node.DiskPressure: DiskPressure is Unknown",
		"Ready=Unknown " + healthy: "Unknown NodeHealthyUnknown * Node.Ready: Ready is Unknown",
		healthy:                    "Unknown NodeHealthyUnknown * Node.Ready: Condition not yet reported",
	} {
		node := &corev1.Node{}
		for word := range strings.FieldsSeq(conditions) {
			name, status, _ := strings.Cut(word, "=")
			node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{
				Type: corev1.NodeConditionType(name), Status: corev1.ConditionStatus(status),
				Message: name + " is " + status,
			})
		}
		got := nodeHealthy(node)
		if text := fmt.Sprintf("%s %s %s", got.Status, got.Reason, got.Message); text != want {
			t.Errorf("%s: %q, not %q", conditions, text, want)
		}
	}
}
