package apply_test

import (
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/pkg/apply"
)

// TestStateOfHooksIsStoredTwice: if the record or the annotation of the Deployment is lost, an apply does not run hooks
// again. It restores the lost state with its next write.
func TestStateOfHooksIsStoredTwice(t *testing.T) {
	for name, lose := range map[string]func(hookedShop) error{
		"the record": hookedShop.loseRecord,
		"the annotation": func(s hookedShop) error {
			none := []byte(`{"metadata": {"annotations": {"` + deploymenthook.StateAnnotation + `": null}}}`)
			_, err := connect(s).Client.AppsV1().Deployments(s.namespace).Patch(s.Context(), "web",
				types.MergePatchType, none, metav1.PatchOptions{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newHookedShop(t)
			runs := s.watchHooks()
			s.apply(threeHooks("one"), apply.Options{Options: installMode})
			must(t, lose(s))
			again := s.apply(threeHooks("one"), apply.Options{})
			s.expectEvents(again, "not needed pre hook of "+webDeployment, "not needed mid hook of "+webDeployment,
				"unchanged "+webDeployment, "not needed post hook of "+webDeployment, "unchanged "+afterIt)
			must(t, lose(s))
			if did := s.apply(threeHooks("two"), apply.Options{}); did.Err != nil {
				t.Error(did.Err)
			}
			s.isRolledOutWith("two", runs, "mid Succeeded", "post Succeeded", "post Succeeded", "pre Succeeded",
				"pre Succeeded")
		})
	}
}

// TestHooksOfACreateOnlyDeployment: they run once, when the Deployment is created, since it is never updated.
func TestHooksOfACreateOnlyDeployment(t *testing.T) {
	s := newHookedShop(t)
	runs := s.watchHooks()
	release := threeHooks("one")
	release.isCreateOnly = true
	install := s.apply(release, apply.Options{Options: installMode})
	s.expectEvents(install, "ran pre hook of "+webDeployment, "not needed mid hook of "+webDeployment,
		"created "+webDeployment, "ran post hook of "+webDeployment, "created "+afterIt)
	s.isRolledOutWith("one", runs, "post Succeeded", "pre Succeeded")
	release.image = "two"
	update := s.apply(release, apply.Options{})
	s.expectEvents(update, "not needed pre hook of "+webDeployment, "not needed mid hook of "+webDeployment,
		"kept "+webDeployment, "not needed post hook of "+webDeployment, "unchanged "+afterIt)
	s.isRolledOutWith("one", runs, "post Succeeded", "pre Succeeded")
}

// TestNoHookOfAnExistingCreateOnlyDeploymentRuns if it does not have the label of a release: the Deployment of another
// client stays unchanged.
func TestNoHookOfAnExistingCreateOnlyDeploymentRuns(t *testing.T) {
	s := newHookedShop(t)
	runs := s.watchHooks()
	theirs := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{
		Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "zero"}}},
		},
	}}
	if _, err := connect(t).Client.AppsV1().Deployments(s.namespace).Create(t.Context(), theirs,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	release := threeHooks("one")
	release.isCreateOnly = true
	if report := s.preview(release); report.Err != nil {
		t.Error("the preview:", report.Err)
	}
	did := s.apply(release, apply.Options{})
	s.expectEvents(did, "not needed pre hook of "+webDeployment, "not needed mid hook of "+webDeployment,
		"kept "+webDeployment, "not needed post hook of "+webDeployment, "created "+afterIt)
	s.haveRun(runs)
	if live := s.deployment(); live.Generation != 1 || live.Annotations[deploymenthook.StateAnnotation] != "" {
		t.Errorf("the Deployment has changed: %d replicas of %s, %v", *live.Spec.Replicas,
			live.Spec.Template.Spec.Containers[0].Image, live.Annotations)
	}
}

// TestReleaseThatDropsHooksForgetsThem, also if the record was lost that had their state: if they come back with the
// same template, they run with its rollout.
func TestReleaseThatDropsHooksForgetsThem(t *testing.T) {
	s := newHookedShop(t)
	runs := s.watchHooks()
	s.apply(threeHooks("one"), apply.Options{Options: installMode})
	must(t, s.loseRecord())
	if did := s.apply(hookedRelease{image: "two", strategy: "Recreate"}, apply.Options{}); did.Err != nil {
		t.Fatal(did.Err)
	}
	if did := s.apply(threeHooks("one"), apply.Options{}); did.Err != nil {
		t.Fatal(did.Err)
	}
	s.isRolledOutWith("one", runs, "mid Succeeded", "post Succeeded", "post Succeeded", "pre Succeeded",
		"pre Succeeded")
}

// TestReleaseThatDeletesADeploymentForgetsItsHooks: if it creates a Deployment with the same template, its hooks run.
func TestReleaseThatDeletesADeploymentForgetsItsHooks(t *testing.T) {
	s := newHookedShop(t)
	runs := s.watchHooks()
	s.apply(threeHooks("one"), apply.Options{Options: installMode})
	tombstone := strings.Replace(hookedRelease{image: "one", hooks: " "}.files(), "runlevel.dev/lifecycle-hooks: |\n",
		"release.openshift.io/delete: \"true\"\n", 1)
	if did := run(t, t.Context(), load(t, s.namespace, s.namespace, tombstone),
		apply.Options{Options: updateMode}); did.Err != nil {
		t.Fatal(did.Err)
	}
	if did := s.apply(threeHooks("one"), apply.Options{}); did.Err != nil {
		t.Fatal(did.Err)
	}
	s.isRolledOutWith("one", runs, "post Succeeded", "post Succeeded", "pre Succeeded", "pre Succeeded")
}

// loseRecord deletes the record.
func (s hookedShop) loseRecord() error {
	s.Helper()
	return connect(s).Client.CoreV1().ConfigMaps("default").Delete(s.Context(), lock.Name(s.namespace),
		metav1.DeleteOptions{})
}

// TestDeploymentDeletedWhileItsHookRuns: the garbage collector deletes the pod with it. The apply creates both again,
// and continues the rollout.
func TestDeploymentDeletedWhileItsHookRuns(t *testing.T) {
	s := newHookedShop(t)
	release := threeHooks("one")
	s.apply(release, apply.Options{Options: installMode})
	release.image, release.hooks = "two", hookThat("pre", "Retry", runsOn)
	var others sync.WaitGroup
	deployment, wasDeleted, isEnded := s.deployment(), false, false
	s.Cleanup(s.watchPods(func(pods []corev1.Pod) {
		for _, pod := range pods {
			isRunning := pod.Labels[deploymenthook.DeploymentLabel] != "" && pod.Status.Phase == corev1.PodRunning &&
				pod.DeletionTimestamp == nil
			switch {
			case isRunning && pod.OwnerReferences[0].UID != deployment.UID && !isEnded:
				isEnded = true
				others.Go(func() { test.EndPod(t, pod.Namespace, pod.Name, 0) })
			case isRunning && pod.OwnerReferences[0].UID == deployment.UID && !wasDeleted:
				wasDeleted = true
				others.Go(func() {
					must(t, connect(t).Client.AppsV1().Deployments(s.namespace).Delete(t.Context(), "web",
						metav1.DeleteOptions{}))
				})
			}
		}
	}))
	did := s.apply(release, apply.Options{})
	others.Wait()
	if did.Err != nil || !wasDeleted {
		t.Fatalf("deleted: %t, %v", wasDeleted, did.Err)
	}
	s.isRolledOut("two")
}
