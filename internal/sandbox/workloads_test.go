package sandbox_test

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

func TestDeploymentBecomesAvailable(t *testing.T) {
	t.Parallel()
	namespace := createDeployment(t, cluster, 3, nil)
	deployment := sandboxtest.Await(t, cluster, deployments, namespace+"/web", available)
	if deployment.Status.ReadyReplicas != 3 {
		t.Errorf("%d replicas are ready, want 3", deployment.Status.ReadyReplicas)
	}
}

func TestEvictionIsRefusedByABudgetAndAllowedAfter(t *testing.T) {
	t.Parallel()
	namespace, client := createDeployment(t, cluster, 1, nil), cluster.Client(t)
	sandboxtest.Await(t, cluster, deployments, namespace+"/web", available)
	intOrString := intstr.FromInt32(1)
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &intOrString,
			Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{"app": "test"}},
		},
	}
	if _, err := client.PolicyV1().PodDisruptionBudgets(namespace).Create(t.Context(), budget,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	sandboxtest.Await(t, cluster, budgets, namespace+"/web", func(b *policyv1.PodDisruptionBudget) bool {
		return b != nil && b.Status.ExpectedPods == 1 && b.Status.CurrentHealthy == 1
	})
	found, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(found.Items) != 1 {
		t.Fatalf("got %d pods, %v; want one", len(found.Items), err)
	}
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: found.Items[0].Name, Namespace: namespace}}

	if err := client.CoreV1().Pods(namespace).EvictV1(t.Context(), eviction); !apierrors.IsTooManyRequests(err) {
		t.Fatalf("the eviction was not refused by the budget: %v", err)
	}
	if err := client.PolicyV1().PodDisruptionBudgets(namespace).Delete(t.Context(), "web",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.CoreV1().Pods(namespace).EvictV1(t.Context(), eviction); err != nil {
		t.Errorf("the eviction was refused without a budget: %v", err)
	}
	sandboxtest.Await(t, cluster, pods, namespace+"/"+eviction.Name, func(p *corev1.Pod) bool { return p == nil })
}

func TestJobEndsWithItsPod(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		annotations map[string]string
		want        batchv1.JobConditionType
	}{
		"succeeds": {want: batchv1.JobComplete},
		"breaks":   {annotations: map[string]string{"pod": "fail"}, want: batchv1.JobFailed},
	}
	namespace := cluster.Namespace(t)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			job := &batchv1.Job{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: batchv1.JobSpec{
					BackoffLimit: new(int32),
					Template:     podTemplate(test.annotations, corev1.RestartPolicyNever),
				},
			}
			if _, err := cluster.Client(t).BatchV1().Jobs(namespace).Create(t.Context(), job,
				metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			sandboxtest.Await(t, cluster, jobs, namespace+"/"+name, func(j *batchv1.Job) bool {
				return j != nil && slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
					return c.Type == test.want && c.Status == corev1.ConditionTrue
				})
			})
		})
	}
}

func TestNamespaceTerminationWaitsForFinalizers(t *testing.T) {
	t.Parallel()
	namespace, client := cluster.Namespace(t), cluster.Client(t)
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "held", Finalizers: []string{"example.com/hold"}}}
	free := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "free"}}
	maps := client.CoreV1().ConfigMaps(namespace)
	for _, m := range []*corev1.ConfigMap{held, free} {
		if _, err := maps.Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	sandboxtest.Await(t, cluster, namespaces, namespace, func(n *corev1.Namespace) bool {
		return n != nil && slices.ContainsFunc(n.Status.Conditions, func(c corev1.NamespaceCondition) bool {
			return c.Type == corev1.NamespaceFinalizersRemaining && c.Status == corev1.ConditionTrue
		})
	})
	if _, err := maps.Get(t.Context(), "free", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("an object without a finalizer still exists: %v", err)
	}
	if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "late"}},
		metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("creating an object in a terminating namespace: %v, want Forbidden", err)
	}
	last, err := maps.Get(t.Context(), "held", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	last.Finalizers = nil
	if _, err := maps.Update(t.Context(), last, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	sandboxtest.Await(t, cluster, namespaces, namespace, func(n *corev1.Namespace) bool { return n == nil })
}

// createDeployment creates the Deployment web in a new namespace.
func createDeployment(t *testing.T, on *sandboxtest.SharedSandbox, replicas int32,
	settings map[string]string) (namespace string) {
	t.Helper()
	namespace = on.Namespace(t)
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "test"}},
			Template: podTemplate(settings, corev1.RestartPolicyAlways),
		},
	}
	if _, err := on.Client(t).AppsV1().Deployments(namespace).Create(t.Context(), deployment,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return namespace
}

func podTemplate(settings map[string]string, restart corev1.RestartPolicy) corev1.PodTemplateSpec {
	pod := newPod(settings)
	pod.Name = ""
	pod.Spec.RestartPolicy = restart
	return corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}
}

func available(d *appsv1.Deployment) bool {
	return d != nil && slices.ContainsFunc(d.Status.Conditions, func(c appsv1.DeploymentCondition) bool {
		return c.Type == appsv1.DeploymentAvailable && c.Status == corev1.ConditionTrue
	})
}
