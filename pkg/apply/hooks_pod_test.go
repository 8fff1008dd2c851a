package apply_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/graph"
)

// webService selects the pods of the Deployment.
const webService = `-- 0000_05_shop_10.yaml --
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: NS}, spec: {selector: {app: web}, ports: [{port: 80}]}}
`

// applyWith applies a hookedRelease with more manifests.
func (s hookedShop) applyWith(release hookedRelease, more string, options apply.Options) applied {
	s.Helper()
	options.Mode = graph.Update
	did := run(s.T, s.Context(), load(s.T, s.namespace, s.namespace, more+release.files()), options)
	if did.Err != nil {
		s.Error(did.Err)
	}
	return did
}

// TestNoControllerAdoptsThePodsOfHooks: no Service selects them, no ReplicaSet adopts or releases them, and they are
// deleted with their owner.
func TestNoControllerAdoptsThePodsOfHooks(t *testing.T) {
	s := newHookedShop(t)
	// The field replaces replicas, which are then not fields of the release.
	release := hookedRelease{image: "one", strategy: "Recreate", replicas: "minReadySeconds: 0"}
	s.applyWith(release, webService, apply.Options{})
	release.image = "two"
	for _, stage := range []string{"pre", "mid", "post"} {
		release.hooks += hookWith(stage, "Retry", runsOn, "keep: Always")
	}
	owners := map[string]map[string]bool{}
	stop := s.watchPods(func(pods []corev1.Pod) {
		for _, pod := range pods {
			if stage := pod.Labels["runlevel.dev/hook"]; stage != "" {
				s.noteOwners(owners, stage, pod)
			}
		}
	})
	s.applyWith(release, webService, onceRunning(func(pod string) {
		if s.pod(pod).Labels["runlevel.dev/hook"] != "mid" {
			s.awaitEndpoints(pod)
		}
		test.EndPod(s, s.namespace, pod, 0)
	}))
	stop()
	set := s.newReplicaSet("two")
	for stage, want := range map[string]string{"pre": "Deployment web", "mid": "Deployment web",
		"post": "ReplicaSet " + set} {
		if got := owners[stage]; len(got) != 1 || !got[want] {
			t.Errorf("got owners %v of the pod of the %s hook, want %s", got, stage, want)
		}
	}
	if err := connect(t).Client.AppsV1().Deployments(s.namespace).Delete(t.Context(), "web",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, pod := range s.hookPodNames() {
		sandboxtest.Await(t, test, corev1.SchemeGroupVersion.WithResource("pods"), s.namespace+"/"+pod,
			func(pod *corev1.Pod) bool {
				return pod == nil
			})
	}
}

// noteOwners notes the owners of a hook's pod. None is its controller.
func (s hookedShop) noteOwners(owners map[string]map[string]bool, stage string, pod corev1.Pod) {
	if owners[stage] == nil {
		owners[stage] = map[string]bool{}
	}
	var all []string
	for _, owner := range pod.OwnerReferences {
		all = append(all, owner.Kind+" "+owner.Name)
		if owner.Controller != nil && *owner.Controller {
			s.Errorf("%s %s controls pod %s", owner.Kind, owner.Name, pod.Name)
		}
	}
	owners[stage][strings.Join(all, ", ")] = true
}

// pod reads a pod.
func (s hookedShop) pod(name string) *corev1.Pod {
	s.Helper()
	pod, err := connect(s).Client.CoreV1().Pods(s.namespace).Get(s.Context(), name, metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return pod
}

// awaitEndpoints scales the Deployment, and waits until its Service has the endpoints of all its pods. If the Service
// selected the pod of a hook, it would have this endpoint by then.
func (s hookedShop) awaitEndpoints(hook string) {
	s.Helper()
	if pod := s.pod(hook); pod.Status.PodIP == "" || pod.Labels["app"] != "" {
		s.Errorf("pod %s has the address %q, and the labels %v", hook, pod.Status.PodIP, pod.Labels)
	}
	replicas := *s.deployment().Spec.Replicas + 1
	s.scale(replicas)
	target := connect(s).Client.DiscoveryV1().EndpointSlices(s.namespace)
	sandboxtest.Eventually(s.T, "the Service does not have the endpoints of all pods", func(ctx context.Context) bool {
		list, err := target.List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=web"})
		if err != nil {
			s.Fatal(err)
		}
		var names []string
		for _, endpointSlice := range list.Items {
			for _, endpoint := range endpointSlice.Endpoints {
				names = append(names, endpoint.TargetRef.Name)
			}
		}
		if slices.Contains(names, hook) {
			s.Errorf("the Service has the endpoint of %s", hook)
		}
		return len(names) >= int(replicas)
	})
}

// newReplicaSet returns the name of the ReplicaSet of an image.
func (s hookedShop) newReplicaSet(image string) string {
	s.Helper()
	list, err := connect(s).Client.AppsV1().ReplicaSets(s.namespace).List(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	for _, replicaSet := range list.Items {
		if replicaSet.Spec.Template.Spec.Containers[0].Image == image {
			return replicaSet.Name
		}
	}
	s.Fatalf("there is no ReplicaSet of %s", image)
	return ""
}

// TestPreOfAnInstall: while the hook runs, the Deployment exists, is paused, and has no pods.
func TestPreOfAnInstall(t *testing.T) {
	s := newHookedShop(t)
	release := hookedRelease{image: "one", hooks: hookThat("pre", "Abort", runsOn)}
	did := s.apply(release, onceRunning(func(pod string) {
		live := sandboxtest.Await(t, test, appsv1.SchemeGroupVersion.WithResource("deployments"), s.namespace+"/web",
			func(live *appsv1.Deployment) bool {
				return live != nil && live.Status.ObservedGeneration == live.Generation
			})
		list, err := connect(t).Client.CoreV1().Pods(s.namespace).List(t.Context(),
			metav1.ListOptions{LabelSelector: "app=web"})
		if err != nil || len(list.Items) > 0 || !live.Spec.Paused {
			t.Errorf("the Deployment has %d pods, paused: %t, %v", len(list.Items), live.Spec.Paused, err)
		}
		test.EndPod(t, s.namespace, pod, 0)
	}))
	s.expectEvents(did, "ran pre hook of "+webDeployment, "created "+webDeployment, "created "+afterIt)
	if live := s.deployment(); live.Spec.Paused || live.Status.AvailableReplicas != 2 {
		t.Errorf("%d replicas are available, paused: %t", live.Status.AvailableReplicas, live.Spec.Paused)
	}
}

// TestReplicasOfAnAutoscalerOutliveMid, whether the manifest has replicas or not.
func TestReplicasOfAnAutoscalerOutliveMid(t *testing.T) {
	together(t, map[string]string{"with replicas": "replicas: 2", "without": "minReadySeconds: 0"},
		func(s hookedShop, spec string) {
			hpa := "-- 0000_05_shop_10.yaml --" + onDeployment
			release := hookedRelease{image: "one", strategy: "Recreate", replicas: spec}
			s.applyWith(release, hpa, apply.Options{})
			s.scale(5)
			release.image, release.hooks = "two", hookThat("mid", "Abort", runsOn)
			s.applyWith(release, hpa, onceRunning(func(pod string) {
				if live := s.deployment(); *live.Spec.Replicas != 0 {
					s.Errorf("the Deployment has %d replicas while mid runs", *live.Spec.Replicas)
				}
				test.EndPod(s, s.namespace, pod, 0)
			}))
			if live := s.deployment(); *live.Spec.Replicas != 5 || live.Status.AvailableReplicas != 5 {
				s.Errorf("got %d replicas, %d available", *live.Spec.Replicas, live.Status.AvailableReplicas)
			}
		})
}

// TestKeptPodWhosePhaseComesLater: a kubelet reports that the container of a hook has ended, and the phase of its pod
// a moment later. The apply does not delete a kept pod in either state.
func TestKeptPodWhosePhaseComesLater(t *testing.T) {
	s := newHookedShop(t)
	s.whenRunning(1, func(pods []corev1.Pod) {
		ended := fmt.Sprintf(`{"status": {"containerStatuses": [{"name": "app", "image": "one", "imageID": "", "ready": false, "restartCount": 0,
			"state": {"terminated": {"exitCode": 0, "finishedAt": %q}}}]}}`, time.Now().UTC().Format(time.RFC3339))
		_, err := connect(s).Client.CoreV1().Pods(s.namespace).Patch(t.Context(), pods[0].Name, types.MergePatchType,
			[]byte(ended), metav1.PatchOptions{}, "status")
		must(t, err)
	})
	did := s.apply(hookedRelease{image: "one", hooks: hookWith("pre", "Abort", runsOn, "keep: Always")},
		apply.Options{Options: installMode})
	s.expectEvents(did, "ran pre hook of "+webDeployment, "created "+webDeployment, "created "+afterIt)
	if pods := s.hookPods(); !slices.Equal(pods, []string{"pre 1 Running"}) {
		t.Errorf("got pods of hooks %q", pods)
	}
	if pod := s.pod(s.hookPodNames()[0]); pod.DeletionTimestamp != nil {
		t.Error("the pod is being deleted")
	}
}
