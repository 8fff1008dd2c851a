package nodelink

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func aNode(name, providerID, ip string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}}
	node.Spec.ProviderID, node.Status.Addresses = providerID, internal(ip)
	return node
}

func aMachine(name, providerID, ip, nodeName string) *machinev1beta1.Machine {
	machine := &machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop",
		Name:      name,
		UID:       types.UID("uid-" + name),
	}}
	if providerID != "" {
		machine.Spec.ProviderID = &providerID
	}
	machine.Status.Addresses = internal(ip)
	if nodeName != "" {
		machine.Status.NodeRef = &corev1.ObjectReference{
			Kind: "Node",
			Name: nodeName,
			UID:  types.UID("uid-" + nodeName),
		}
	}
	return machine
}

func internal(ip string) []corev1.NodeAddress {
	if ip == "" {
		return nil
	}
	return []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "h"}, {Type: corev1.NodeInternalIP, Address: ip}}
}

func deleting(machine *machinev1beta1.Machine) *machinev1beta1.Machine {
	machine.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	return machine
}

// rejoined returns a node that has joined after another one of its name was deleted.
func rejoined(node *corev1.Node) *corev1.Node {
	node.UID = "later"
	return node
}

func TestJudge(t *testing.T) {
	n := aNode("n", "p", "10.0.0.1")
	machines := func(all ...*machinev1beta1.Machine) []*machinev1beta1.Machine { return all }
	for name, test := range map[string]struct {
		seen    candidates
		machine string
		problem string
	}{
		"a node without a Machine": {seen: candidates{node: n}},
		"equal providerIDs": {
			seen:    candidates{node: n, machines: machines(aMachine("m", "p", "", "")), nodes: []*corev1.Node{n}},
			machine: "m",
		},
		"an equal address, and a Machine without a providerID": {
			seen: candidates{
				node:     n,
				machines: machines(aMachine("m", "", "10.0.0.1", "")),
				nodes:    []*corev1.Node{n},
			},
			machine: "m",
		},
		"an equal address, and a node without a providerID": {
			seen: candidates{
				node:     aNode("n", "", "10.0.0.1"),
				machines: machines(aMachine("m", "q", "10.0.0.1", "")),
			},
			machine: "m",
		},
		"an equal address, and different providerIDs": {
			seen: candidates{node: n, machines: machines(aMachine("m", "q", "10.0.0.1", "")), nodes: []*corev1.Node{n}},
			problem: "node n is not linked, it has an internal IP of Machine shop/m, but another providerID: " +
				"p instead of q",
		},
		"two Machines of one providerID": {
			seen: candidates{node: n, machines: machines(aMachine("m", "p", "", ""), aMachine("l", "p", "", ""))},
			problem: "node n is not linked, it could be that of several Machines: " +
				"shop/l (providerID p), shop/m (providerID p)",
		},
		"one Machine by providerID, and another one by address": {
			seen: candidates{
				node:     n,
				machines: machines(aMachine("l", "p", "", ""), aMachine("m", "q", "10.0.0.1", "")),
			},
			problem: "node n is not linked, it could be that of several Machines: " +
				"shop/l (providerID p), shop/m (internal IP 10.0.0.1)",
		},
		"two nodes of one providerID": {
			seen: candidates{
				node: n, machines: machines(aMachine("m", "p", "", "n")),
				nodes: []*corev1.Node{n, aNode("o", "p", "10.0.0.2")},
			},
			problem: "Machine shop/m is not linked, several nodes could be its node: n (providerID p), o (providerID p)",
		},
		"linked already": {
			seen: candidates{
				node:     n,
				machines: machines(aMachine("m", "p", "", "n")),
				owners:   machines(aMachine("m", "p", "", "n")),
			},
			machine: "m",
		},
		"a Machine whose node was deleted": {
			seen: candidates{node: n, machines: machines(aMachine("m", "p", "", "o"))}, machine: "m",
		},
		"a Machine whose node exists": {
			seen: candidates{node: n, machines: machines(aMachine("m", "p", "", "o")), former: aNode("o", "", "")},
			problem: "node n is not linked, its Machine shop/m is linked to node o, " +
				"which exists",
		},
		"a Machine being deleted, and another node": {
			seen:    candidates{node: n, machines: machines(deleting(aMachine("m", "p", "", "o")))},
			problem: "node n is not linked, its Machine shop/m is being deleted with node o",
		},
		"a Machine being deleted, and another host of its node's name and address": {
			seen: candidates{
				node:     rejoined(aNode("n", "", "10.0.0.1")),
				machines: machines(deleting(aMachine("m", "q", "10.0.0.1", "n"))),
			},
			problem: "node n is not linked, its Machine shop/m is being deleted with an earlier node of that name, " +
				"which may " +
				"be another host: they have no providerID in common",
		},
		"a Machine being deleted, whose host joins again": {
			seen: candidates{
				node:     rejoined(aNode("n", "p", "")),
				machines: machines(deleting(aMachine("m", "p", "", "n"))),
			}, machine: "m",
		},
		"a Machine being deleted, whose node joins late": {
			seen: candidates{node: n, machines: machines(deleting(aMachine("m", "p", "", "")))}, machine: "m",
		},
		"a node that another Machine names": {
			seen: candidates{
				node:     n,
				machines: machines(aMachine("m", "p", "", "")),
				owners:   machines(aMachine("l", "", "", "n")),
			},
			problem: "node n is not linked to Machine shop/m, it is linked to Machine shop/l",
		},
	} {
		t.Run(name, func(t *testing.T) {
			machine, problem := judge(test.seen)
			got := ""
			if machine != nil {
				got = machine.Name
			}
			if got != test.machine || problem != test.problem {
				t.Errorf("linked to %q, problem %q;\nwant %q, %q", got, problem, test.machine, test.problem)
			}
		})
	}
}

func TestWantedNode(t *testing.T) {
	machine := aMachine("m", "p", "", "n")
	machine.Spec.Labels = map[string]string{"role": "web"}
	machine.Spec.Annotations = map[string]string{"note": "x", MachineAnnotation: "made/up"}
	machine.Spec.Taints = []corev1.Taint{
		{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule},
		{Key: "gpu", Value: "again", Effect: corev1.TaintEffectNoSchedule},
		{Key: "gpu", Effect: corev1.TaintEffectNoExecute},
	}
	node := aNode("n", "p", "")
	node.Labels = map[string]string{"role": "db", "theirs": "stays"}
	node.Spec.Taints = []corev1.Taint{
		{Key: "theirs", Effect: corev1.TaintEffectNoSchedule},
		{Key: "gpu", Value: "other", Effect: corev1.TaintEffectNoExecute},
	}

	wanted, hasNewTaints := wantedNode(node, machine)
	if !hasNewTaints {
		t.Error("no new taints")
	}
	want := node.DeepCopy()
	want.Labels = map[string]string{"role": "web", "theirs": "stays"}
	want.Annotations = map[string]string{"note": "x", MachineAnnotation: "shop/m"}
	want.Spec.Taints = append(want.Spec.Taints, machine.Spec.Taints[0])
	if diff := cmp.Diff(want, wanted); diff != "" {
		t.Errorf("the node (-want +got):\n%s", diff)
	}
	if changed, _ := wantedNode(wanted, machine); changed != nil {
		t.Errorf("second call: got node %v, want no change", changed)
	}
	machine.Spec.Labels, machine.Spec.Annotations, machine.Spec.Taints = nil, nil, nil
	if changed, _ := wantedNode(wanted, machine); changed != nil {
		t.Errorf("without settings of the Machine: got node %v, want no change", changed)
	}
}
