package sandbox

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

const (
	// storageClass is the name of the default StorageClass.
	storageClass = "sandbox"
	// folderProvisioner is the provisioner of all volumes.
	folderProvisioner = "sandbox.runlevel.dev/folder"
)

// createStorageClass creates the default StorageClass.
func createStorageClass(ctx context.Context, client kubernetes.Interface) error {
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{
			Name:        storageClass,
			Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"},
		},
		Provisioner: folderProvisioner,
	}
	_, err := client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{})
	return err
}

// A provisioner creates volumes for the claims of all StorageClasses, because their own provisioners do not run here.
// Each volume is a folder of this machine, which all real nodes reach.
type provisioner struct {
	client kubernetes.Interface
	folder string
}

// run provides volumes until stop is closed, also after the end of ctx. Failures are ignored, since the next attempt
// may succeed.
func (p *provisioner) run(ctx context.Context, stop <-chan struct{}) {
	ctx = context.WithoutCancel(ctx)
	claims := cache.NewListWatchFromClient(p.client.CoreV1().RESTClient(), "persistentvolumeclaims", "",
		fields.Everything())
	const resync = time.Second // the class of a claim may be created later
	informer := cache.NewSharedInformer(claims, &corev1.PersistentVolumeClaim{}, resync)
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(claim any) { p.provide(ctx, claim.(*corev1.PersistentVolumeClaim)) },
		UpdateFunc: func(_, claim any) { p.provide(ctx, claim.(*corev1.PersistentVolumeClaim)) },
		DeleteFunc: func(object any) {
			if missed, isMissed := object.(cache.DeletedFinalStateUnknown); isMissed {
				object = missed.Obj
			}
			if claim, isClaim := object.(*corev1.PersistentVolumeClaim); isClaim {
				p.remove(ctx, claim)
			}
		},
	})
	_ = informer.SetWatchErrorHandler(func(*cache.Reflector, error) {}) // a test may have killed the API server
	informer.Run(stop)
}

// provide creates a volume for a pending claim.
func (p *provisioner) provide(ctx context.Context, claim *corev1.PersistentVolumeClaim) {
	if claim.Status.Phase != corev1.ClaimPending || claim.Spec.VolumeName != "" || !p.needsVolume(ctx, claim) {
		return
	}
	volume := p.volumeFor(claim)
	path := volume.Spec.HostPath.Path
	if err := os.MkdirAll(path, 0o700); err != nil {
		return
	}
	if err := os.Chmod(path, 0o777); err == nil { // the containers of a pod may have any user
		_, _ = p.client.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{})
	}
}

// needsVolume reports whether the provisioner must create a volume for a claim: the class of the claim exists, and, if
// the class has no provisioner, no volume of the class is unclaimed.
func (p *provisioner) needsVolume(ctx context.Context, claim *corev1.PersistentVolumeClaim) bool {
	name := claim.Spec.StorageClassName
	if name == nil { // an admission controller sets the default class
		return false
	}
	if *name != "" {
		class, err := p.client.StorageV1().StorageClasses().Get(ctx, *name, metav1.GetOptions{})
		if err != nil || class.Provisioner != "kubernetes.io/no-provisioner" {
			return err == nil
		}
	}
	volumes, err := p.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	return err == nil && !slices.ContainsFunc(volumes.Items, func(v corev1.PersistentVolume) bool {
		return v.Spec.StorageClassName == *name && v.Spec.ClaimRef == nil
	})
}

func volumeName(claim *corev1.PersistentVolumeClaim) string { return "pvc-" + string(claim.UID) }

func (p *provisioner) volumeFor(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	name := volumeName(claim)
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": folderProvisioner},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: claim.Spec.Resources.Requests, AccessModes: claim.Spec.AccessModes,
			VolumeMode:                    claim.Spec.VolumeMode,
			StorageClassName:              *claim.Spec.StorageClassName,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			ClaimRef: &corev1.ObjectReference{
				Kind:       "PersistentVolumeClaim",
				APIVersion: "v1",
				Namespace:  claim.Namespace,
				Name:       claim.Name,
				UID:        claim.UID,
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: filepath.Join(p.folder, name)},
			},
		},
	}
	if claim.Spec.Selector != nil {
		volume.Labels = claim.Spec.Selector.MatchLabels
	}
	return volume
}

// remove deletes the volume of a deleted claim, unless its reclaim policy retains it.
func (p *provisioner) remove(ctx context.Context, claim *corev1.PersistentVolumeClaim) {
	volumes := p.client.CoreV1().PersistentVolumes()
	volume, err := volumes.Get(ctx, volumeName(claim), metav1.GetOptions{})
	if err == nil && volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete {
		_ = os.RemoveAll(filepath.Join(p.folder, volume.Name))
		_ = volumes.Delete(ctx, volume.Name, metav1.DeleteOptions{})
	}
}
