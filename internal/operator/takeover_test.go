package operator_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	configv1 "github.com/openshift/api/config/v1"
	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/install"
)

// theirs is the field manager of the cluster-version operator.
const theirs = client.FieldOwner("cluster-version-operator")

// once is a create-only object.
const once = `
-- 0000_20_shop_20_once.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: once, namespace: shop, annotations: {release.openshift.io/create-only: "true"}}, data: {colour: red}}
`

// leave creates the state that the cluster-version operator leaves behind: the ClusterVersion has a history, and owns
// all objects of a release, and the definitions.
func (s *stage) leave(image, version, files string) *configv1.ClusterVersion {
	s.t.Helper()
	for _, definition := range install.Definitions() {
		s.must(s.client.Create(s.t.Context(), definition, theirs))
	}
	left := &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "version"}, Spec: configv1.ClusterVersionSpec{
		ClusterID: "11111111-2222-4333-8444-555555555555", Channel: "stable-1.0",
		DesiredUpdate: &configv1.Update{Version: version, Image: image},
	}}
	s.await("there is a ClusterVersion", func() bool {
		return s.client.Create(s.t.Context(), left.DeepCopy(), client.FieldOwner("kubectl-create")) == nil
	})
	left = s.version()
	begun := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	done := metav1.NewTime(begun.Add(time.Minute))
	left.Status = configv1.ClusterVersionStatus{
		Desired: configv1.Release{Version: version, Image: image}, ObservedGeneration: left.Generation,
		History: []configv1.UpdateHistory{
			{
				State:          configv1.CompletedUpdate,
				Version:        version,
				Image:          image,
				StartedTime:    begun,
				CompletionTime: &done,
				Verified:       true,
			},
			{
				State:          configv1.CompletedUpdate,
				Version:        "0.9.0",
				Image:          "example.com/release@sha256:" + strings.Repeat("9", 64),
				StartedTime:    begun,
				CompletionTime: &begun,
				AcceptedRisks:  "Forced",
			},
		},
		Conditions: []configv1.ClusterOperatorStatusCondition{
			condition(configv1.RetrievedUpdates, configv1.ConditionTrue),
			condition(configv1.OperatorAvailable, configv1.ConditionTrue),
			condition("Failing", configv1.ConditionFalse),
			condition(configv1.OperatorProgressing, configv1.ConditionFalse),
		},
	}
	s.must(s.client.Status().Update(s.t.Context(), left, theirs))
	s.own(left, files)
	return s.version()
}

// own creates the objects of a release, and makes a ClusterVersion the owner of the objects and the definitions.
func (s *stage) own(left *configv1.ClusterVersion, files string) {
	s.t.Helper()
	owner := metav1.OwnerReference{
		APIVersion: "config.openshift.io/v1",
		Kind:       "ClusterVersion",
		Name:       left.Name,
		UID:        left.UID,
		Controller: ptr.To(true),
	}
	for _, file := range txtar.Parse([]byte(files)).Files {
		object := &unstructured.Unstructured{}
		s.must(yaml.Unmarshal(file.Data, &object.Object))
		object.SetOwnerReferences([]metav1.OwnerReference{owner})
		s.must(s.client.Create(s.t.Context(), object, theirs))
	}
	for _, definition := range install.Definitions() {
		s.must(s.client.Get(s.t.Context(), client.ObjectKeyFromObject(definition), definition))
		patch := client.MergeFrom(definition.DeepCopy()) // the API server may write the status now
		definition.SetOwnerReferences([]metav1.OwnerReference{owner})
		s.must(s.client.Patch(s.t.Context(), definition, patch, theirs))
	}
}

// TestTheClusterVersionOperatorIsReplaced: the history continues, the operator takes over the objects, and no object is
// deleted with the ClusterVersion any more.
func TestTheClusterVersionOperatorIsReplaced(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	files := strings.ReplaceAll(shop+once, "VERSION", "1.0.0")
	image := s.push("1.0.0", strings.ReplaceAll(files, "data: {version", "data: {added: by-1.0.0, version"))
	left := s.leave(image, "1.0.0", strings.ReplaceAll(files, "data: {version", "data: {dropped: long-ago, version"))
	watched := s.watchAvailable()
	s.beginWith("1.0.0", strings.ReplaceAll(files, "data: {version", "data: {added: by-1.0.0, version"))
	s.await("the settings are taken over", func() bool { return s.settings().Data["added"] != "" })
	taken := s.until("it is in place", func(v *configv1.ClusterVersion) bool {
		return isAt("1.0.0")(v) && find(v, "ReleaseAccepted").Status == configv1.ConditionTrue
	})
	if diff := cmp.Diff(left.Status.History, taken.Status.History); diff != "" {
		t.Errorf("the history is another (-before +now):\n%s", diff)
	}
	if diff := cmp.Diff(left.Spec, taken.Spec); diff != "" {
		t.Errorf("the spec is another (-before +now):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"added": "by-1.0.0", "version": "1.0.0"}, s.settings().Data); diff != "" {
		t.Errorf("the settings (-want +got):\n%s", diff)
	}
	if conditions := watched(); len(conditions) > 0 {
		t.Errorf("conditions were %v meanwhile, want Available and not Failing", conditions)
	}

	s.must(s.client.Delete(t.Context(), taken))
	s.until("recreated", func(v *configv1.ClusterVersion) bool { return v.UID != taken.UID && isAt("1.0.0")(v) })
	s.checkAdopted(left)
	s.update(s.push("1.0.1", strings.ReplaceAll(shop+once, "VERSION", "1.0.1")))
	s.until("updated", isAt("1.0.1"))
}

// checkAdopted fails the test unless all objects are the ones that a ClusterVersion owned, and it owns none now.
func (s *stage) checkAdopted(by *configv1.ClusterVersion) {
	s.t.Helper()
	var created corev1.ConfigMap
	s.must(s.client.Get(s.t.Context(), client.ObjectKey{Namespace: "shop", Name: "once"}, &created))
	var namespace corev1.Namespace
	s.must(s.client.Get(s.t.Context(), client.ObjectKey{Name: "shop"}, &namespace))
	all := []client.Object{&created, &namespace, s.settings()}
	for _, definition := range install.Definitions() {
		s.must(s.client.Get(s.t.Context(), client.ObjectKeyFromObject(definition), definition))
		all = append(all, definition)
	}
	for _, object := range all {
		if len(object.GetOwnerReferences()) > 0 || object.GetDeletionTimestamp() != nil {
			s.t.Errorf("%s has owners %v, and goes at %v", object.GetName(), object.GetOwnerReferences(),
				object.GetDeletionTimestamp())
		}
	}
}

// watchAvailable watches the ClusterVersion, and returns a function that returns the bad conditions that it had
// meanwhile: Available=False or Failing=True.
func (s *stage) watchAvailable() func() []string {
	ctx, cancel := context.WithCancel(s.t.Context())
	existing := make(chan []string, 1)
	go func() {
		var all []string
		_ = wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(context.Context) (bool, error) {
			for _, c := range s.version().Status.Conditions {
				isBad := c.Type == configv1.OperatorAvailable && c.Status != configv1.ConditionTrue ||
					c.Type == "Failing" && c.Status == configv1.ConditionTrue
				if isBad && len(all) < 5 {
					all = append(all, string(c.Type)+"="+string(c.Status)+": "+c.Message)
				}
			}
			return false, nil
		})
		existing <- all
	}()
	return func() []string {
		cancel()
		return <-existing
	}
}
