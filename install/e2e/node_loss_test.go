package e2e_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// small is a release of one object beside the operator.
const small = `
-- release-manifests/0000_20_shop_00_map.yaml --
apiVersion: v1
kind: ConfigMap
metadata: {name: shop, namespace: default}
data: {version: VERSION}
`

// TestNodeIsLost freezes the operator and the kubelet of its node, as if the node were lost. An operator on another
// node continues with the release. The frozen operator wakes up later, and exits without a write.
func TestNodeIsLost(t *testing.T) {
	sandboxtest.NeedRealNodes(t)
	t.Parallel()
	lost := sandboxtest.Start(t, sandbox.Options{RealNodes: 2, Offline: true})
	s := newStageOn(t, lost)
	releases := s.newRegistry()
	releases.trust()
	image := s.pushRunlevel("1")
	s.configure(releases)
	s.run("install", "--release", releases.push("1.0.0", s.release("1.0.0", small, image)), "--image", image)
	s.untilComplete("1.0.0")

	pods, err := s.core.CoreV1().Pods(system).List(t.Context(), metav1.ListOptions{})
	s.must(err)
	if len(pods.Items) != 1 {
		t.Fatalf("%d pods in %s, want the operator's", len(pods.Items), system)
	}
	old, process := pods.Items[0], s.operatorProcesses()[0]
	s.must(lost.Kill("kubelet-" + strings.TrimPrefix(old.Spec.NodeName, "node-")))
	s.must(syscall.Kill(process, syscall.SIGSTOP))
	s.breakMap()
	s.eventually("another node continues", func(ctx context.Context) bool { return s.mapIsRepaired(ctx) })
	if holder := *s.lease().Spec.HolderIdentity; strings.Contains(holder, string(old.UID)) {
		t.Errorf("the lock is held by %s, on the lost node", holder)
	}

	term := *s.lease().Spec.LeaseTransitions
	s.must(syscall.Kill(process, syscall.SIGCONT))
	s.eventually("the frozen operator ends", func(context.Context) bool {
		_, err := os.Stat(fmt.Sprintf("/proc/%d/root", process))
		return err != nil
	})
	if now := *s.lease().Spec.LeaseTransitions; now != term {
		t.Errorf("the lock went from term %d to %d: the frozen operator acquired it", term, now)
	}
	s.breakMap()
	s.eventually("it is repaired again", func(ctx context.Context) bool { return s.mapIsRepaired(ctx) })
}

// breakMap changes the object of the release.
func (s *stage) breakMap() {
	s.t.Helper()
	maps := s.core.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	found, err := maps.Get(s.t.Context(), "shop", metav1.GetOptions{})
	s.must(err)
	found.Data = map[string]string{"version": "none"}
	_, err = maps.Update(s.t.Context(), found, metav1.UpdateOptions{})
	s.must(err)
}

func (s *stage) mapIsRepaired(ctx context.Context) bool {
	var found *corev1.ConfigMap
	found, err := s.core.CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(ctx, "shop", metav1.GetOptions{})
	return err == nil && found.Data["version"] == "1.0.0"
}
