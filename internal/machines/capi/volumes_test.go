package capi_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// addVolume creates a volume with a claim, and attaches it to a node.
func (s *scene) addVolume(node *corev1.Node, name string) *storagev1.VolumeAttachment {
	s.Helper()
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: s.Namespace + "-" + name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			ClaimRef:    &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: s.Namespace, Name: name},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{
					Driver:       "csi.example.com",
					VolumeHandle: s.Namespace + "-" + name,
				},
			},
		},
	}
	s.MustCreate(volume)
	attachment := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: volume.Name},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "csi.example.com", NodeName: node.Name,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume.Name},
		},
	}
	s.MustCreate(attachment)
	attachment.Status.Attached = true
	s.Must(s.Status().Update(s.Context(), attachment))
	return attachment
}

func TestVolumesAreDetachedBeforeTheInfrastructureGoes(t *testing.T) {
	s := newScene(t)
	m, node := s.runs()
	attachment := s.addVolume(node, "data")
	s.addVolume(node, "logs")
	s.addPod(node, "logs", func(p *corev1.Pod) {
		p.Labels[clusterv1.PodDrainLabel] = "skip"
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "logs"},
		}}}
	})
	s.MustDelete(m)
	seen := s.awaitDeleting("WaitingForVolumeDetach", "\n* PersistentVolumeClaims: "+s.Namespace+"/data")
	if seen.Status.Deletion.WaitForNodeVolumeDetachStartTime.IsZero() {
		t.Error("the start is not recorded")
	}
	s.expectInfrastructure()
	s.MustDelete(attachment)
	s.AwaitGone(m)
}

func TestVolumesOfAnExcludedMachineAreNotWaitedFor(t *testing.T) {
	s := newScene(t)
	m, node := s.runs(clusterv1.ExcludeWaitForNodeVolumeDetachAnnotation)
	s.addVolume(node, "data")
	s.MustDelete(m)
	s.AwaitGone(m)
}
