package uninstall_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/session/uninstall"
)

// isLost reports whether the release is taken for one whose record is lost.
func (s shop) isLost() bool {
	s.Helper()
	lost, err := session.FindLost(s.Context(), s.connect())
	if err != nil {
		s.Fatal(err)
	}
	return slices.ContainsFunc(lost, func(l session.LostRelease) bool { return l.Name == s.name })
}

func TestKeptObjectsAreNotALostRelease(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.must(base)
	keepOne := func(o *uninstall.Options) { o.Choice.Keep = s.patterns("configmap/one") }
	if s.mustUninstall(keepOne); s.isLost() || len(s.remaining()) != 2 {
		t.Errorf("lost: %t, remaining: %v", s.isLost(), s.remaining())
	}
	s.mustUninstall(keepOne) // it is found by its label, and kept again
	if s.isLost() || len(s.remaining()) != 2 {
		t.Errorf("after another uninstall, lost: %t, remaining: %v", s.isLost(), s.remaining())
	}

	outcome := s.apply(base)
	if outcome.Err != nil || outcome.Mode != "install" || outcome.Previous != "" {
		t.Errorf("an apply after the uninstall is an %s after %q: %v", outcome.Mode, outcome.Previous, outcome.Err)
	}
	client := test.Client(t)
	for _, err := range []error{
		client.CoreV1().ConfigMaps(records).Delete(t.Context(), lock.Name(s.name), metav1.DeleteOptions{}),
		client.CoordinationV1().Leases(records).Delete(t.Context(), lock.Name(s.name), metav1.DeleteOptions{}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if !s.isLost() {
		t.Error("a record that was deleted later is not reported as lost")
	}
}

// The claims of a StatefulSet have no label of the release: the report has the command that deletes them.
func TestClaimsOfStatefulSetsAreNamed(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.must(base)
	for _, name := range []string{"data-db-0", "data-db-1"} {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
				},
			}}
		if _, err := test.Client(t).CoreV1().PersistentVolumeClaims(s.name).Create(t.Context(), claim,
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	report := s.mustUninstall()
	const want = `if the data is not needed, run "kubectl delete persistentvolumeclaim -n NS data-db-0 data-db-1", ` +
		"and uninstall again"
	if len(report.Kept) != 1 || !strings.HasSuffix(s.text(report.Kept[0].Message), want) {
		t.Errorf("kept %+v", report.Kept)
	}
}
