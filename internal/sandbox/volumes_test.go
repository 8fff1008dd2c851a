package sandbox_test

import (
	"context"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// newClaim returns a claim of a StorageClass; nil is the default.
func newClaim(name string, class *string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			},
		}}
}

// Each claim gets a volume: a claim of the default class, of another class whose provisioner does not run, and of no
// class. A pod with a claim runs. The volume is deleted with its claim.
func TestClaimsGetVolumes(t *testing.T) {
	t.Parallel()
	client, namespace := cluster.Client(t), cluster.Namespace(t)
	other := &storagev1.StorageClass{
		ObjectMeta:        metav1.ObjectMeta{Name: namespace},
		Provisioner:       "disks.example.com",
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	}
	claims := client.CoreV1().PersistentVolumeClaims(namespace)
	for name, class := range map[string]*string{"of-default": nil, "of-other": &other.Name, "of-none": ptr.To("")} {
		if _, err := claims.Create(t.Context(), newClaim(name, class), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// after its claim
	if _, err := client.StorageV1().StorageClasses().Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	volumes := map[string]string{}
	for _, name := range []string{"of-default", "of-other", "of-none"} {
		sandboxtest.Eventually(t, name+" is bound", func(ctx context.Context) bool {
			got, err := claims.Get(ctx, name, metav1.GetOptions{})
			volumes[name] = got.Spec.VolumeName
			return err == nil && got.Status.Phase == corev1.ClaimBound
		})
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "db", Image: "registry.example/db"}},
		Volumes: []corev1.Volume{{
			Name: "data",
			VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "of-default"},
			},
		}},
	}}
	if _, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	sandboxtest.Await(t, cluster, pods, namespace+"/db", func(p *corev1.Pod) bool {
		return p != nil && p.Status.Phase == corev1.PodRunning
	})

	volume, err := client.CoreV1().PersistentVolumes().Get(t.Context(), volumes["of-other"], metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(volume.Spec.HostPath.Path); err != nil {
		t.Error("the volume is not a folder:", err)
	}
	if err := claims.Delete(t.Context(), "of-other", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	sandboxtest.Eventually(t, "the volume is deleted with its claim", func(ctx context.Context) bool {
		_, err := client.CoreV1().PersistentVolumes().Get(ctx, volume.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	if _, err := os.Stat(volume.Spec.HostPath.Path); !os.IsNotExist(err) {
		t.Error("the folder still exists:", err)
	}
}

// TestClaimWithoutProvisionedVolume checks two claims: one whose class does not exist stays pending, as on any cluster,
// and one whose class has no provisioner gets the existing volume.
func TestClaimWithoutProvisionedVolume(t *testing.T) {
	t.Parallel()
	client, namespace := cluster.Client(t), cluster.Namespace(t)
	static := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:               newClaim("", nil).Spec.Resources.Requests,
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName:       "static-" + namespace,
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv"}},
		}}
	class := &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: static.Spec.StorageClassName},
		Provisioner: "kubernetes.io/no-provisioner",
	}
	_, err := client.CoreV1().PersistentVolumes().Create(t.Context(), static, metav1.CreateOptions{})
	if err == nil {
		_, err = client.StorageV1().StorageClasses().Create(t.Context(), class, metav1.CreateOptions{})
	}
	claims := client.CoreV1().PersistentVolumeClaims(namespace)
	for name, class := range map[string]string{"missing": "missing-" + namespace, "static": class.Name} {
		if err == nil {
			_, err = claims.Create(t.Context(), newClaim(name, &class), metav1.CreateOptions{})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	sandboxtest.Eventually(t, "the claim is bound to the existing volume", func(ctx context.Context) bool {
		got, err := claims.Get(ctx, "static", metav1.GetOptions{})
		return err == nil && got.Status.Phase == corev1.ClaimBound && got.Spec.VolumeName == static.Name
	})
	if got, err := claims.Get(t.Context(), "missing", metav1.GetOptions{}); err != nil ||
		got.Status.Phase != corev1.ClaimPending {
		t.Errorf("the claim of a missing class is %+v, %v; want Pending", got.Status, err)
	}
}
