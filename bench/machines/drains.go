package main

import (
	"context"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubectl/pkg/drain"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// measureDrains deletes machines whose nodes have pods.
func measureDrains(ctx context.Context, s *stand, o options, all *results) error {
	f := newFleet(s, openshift{}, "KwokMachine", o.drained)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	names := f.names()
	if err := f.watch(ctx); err != nil {
		return err
	}
	if err := f.make(ctx, names, 0); err != nil {
		return err
	}
	if err := s.makePods(ctx, names, o.pods); err != nil {
		return err
	}
	measured := span{Fleet: nodesWithPods(o), Phase: "drained and deleted", Machines: len(names)}
	measured, err := s.meter.during(ctx, measured, func() error { return f.deleteAll(ctx, names, nil) })
	if err != nil {
		return err
	}
	all.add(measured)
	return nil
}

func nodesWithPods(o options) string { return fmt.Sprintf("%d nodes, %d pods each", o.drained, o.pods) }

// measureKubectl drains and deletes as many nodes with as many pods by kubectl's own code, without the client's limits.
func measureKubectl(ctx context.Context, s *stand, o options, all *results) error {
	peer, err := kubernetes.NewForConfig(s.peer)
	if err != nil {
		return err
	}
	names := make([]string, o.drained)
	err = each(ctx, o.atOnce, len(names), func(ctx context.Context, i int) error {
		names[i] = fmt.Sprintf("n-%d", i)
		return s.client.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: names[i]}})
	})
	if err != nil {
		return err
	}
	if err := s.makePods(ctx, names, o.pods); err != nil {
		return err
	}
	measured := span{Of: "kubectl drain", Fleet: nodesWithPods(o), Phase: "drained and deleted", Machines: len(names)}
	measured, err = s.ofPeer(measured, func() error {
		return each(ctx, o.atOnce, len(names), func(ctx context.Context, i int) error {
			return drainNode(ctx, peer, names[i])
		})
	})
	if err != nil {
		return err
	}
	all.add(measured)
	return nil
}

// drainNode does what kubectl drain and kubectl delete node do.
func drainNode(ctx context.Context, peer kubernetes.Interface, name string) error {
	node, err := peer.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	helper := drainHelper(ctx, peer)
	if err := drain.RunCordonOrUncordon(helper, node, true); err != nil {
		return err
	}
	if err := drain.RunNodeDrain(helper, name); err != nil {
		return err
	}
	return peer.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
}

// drainHelper is kubectl drain --force --ignore-daemonsets --delete-emptydir-data.
func drainHelper(ctx context.Context, peer kubernetes.Interface) *drain.Helper {
	return &drain.Helper{
		Ctx: ctx, Client: peer, Force: true, IgnoreAllDaemonSets: true, DeleteEmptyDirData: true,
		GracePeriodSeconds: -1, Timeout: patience, Out: io.Discard, ErrOut: io.Discard,
	}
}

// ofPeer measures what a loop of ours does.
func (s *stand) ofPeer(measured span, do func() error) (span, error) {
	audit := &auditLog{file: s.meter.audit.file, account: peerAccount}
	if err := audit.skip(); err != nil {
		return measured, err
	}
	began := time.Now()
	if err := do(); err != nil {
		return measured, fmt.Errorf("%s: %w", measured.Of, err)
	}
	measured.Seconds = time.Since(began).Seconds()
	var err error
	measured.Requests, err = audit.read()
	return measured, err
}

// makePods has each node run so many pods, which nothing makes again.
func (s *stand) makePods(ctx context.Context, nodes []string, perNode int) error {
	err := each(ctx, s.atOnce, len(nodes)*perNode, func(ctx context.Context, i int) error {
		node := nodes[i/perNode]
		return s.client.Create(ctx, newPod(fmt.Sprintf("%s-%d", node, i%perNode), node))
	})
	if err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, time.Second, patience, true, func(ctx context.Context) (bool, error) {
		var pods corev1.PodList
		if err := s.client.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
			return false, err
		}
		running := 0
		for _, pod := range pods.Items {
			if pod.Status.Phase == corev1.PodRunning {
				running++
			}
		}
		return running == len(nodes)*perNode, nil
	})
}

func newPod(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			NodeName: node, AutomountServiceAccountToken: ptr.To(false),
			Containers: []corev1.Container{{Name: "app", Image: "none"}},
		},
	}
}
