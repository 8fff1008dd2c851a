package machinetest

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Limit limits how many objects of a resource a namespace may have, and returns the ResourceQuota once it counts them.
// The quota controller discovers definitions twice a minute, and does not retry a quota that it could not count before:
// so the quota is recreated until it is counted.
func (s *SharedSandbox) Limit(t testing.TB, namespace, counted string, limit int64) *corev1.ResourceQuota {
	t.Helper()
	c, name := s.Client(t), corev1.ResourceName("count/"+counted)
	var quota *corev1.ResourceQuota
	err := wait.PollUntilContextTimeout(t.Context(), time.Second, patience, true,
		func(ctx context.Context) (bool, error) {
			if quota != nil {
				if err := c.Get(ctx, client.ObjectKeyFromObject(quota), quota); err != nil {
					return false, err
				}
				if _, isCounted := quota.Status.Used[name]; isCounted {
					return true, nil
				}
				if err := c.Delete(ctx, quota); err != nil {
					return false, err
				}
			}
			quota = &corev1.ResourceQuota{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "limit"},
				Spec: corev1.ResourceQuotaSpec{
					Hard: corev1.ResourceList{name: *resource.NewQuantity(limit, resource.DecimalSI)},
				},
			}
			return false, c.Create(ctx, quota)
		})
	if err != nil {
		t.Fatalf("limit %s: %v", counted, err)
	}
	return quota
}
