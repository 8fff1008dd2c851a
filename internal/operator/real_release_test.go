package operator_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/install"
	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
)

// TestAWholeRelease of OpenShift goes through the operator from its image, with definitions in variants of which the
// cluster's feature set chooses, and stays up to date.
func TestAWholeRelease(t *testing.T) {
	folder := os.Getenv("RUNLEVEL_TEST_RELEASE")
	if folder == "" {
		t.Skip("RUNLEVEL_TEST_RELEASE names no release")
	}
	t.Parallel()
	const profile = "self-managed-high-availability"
	files := os.DirFS(folder)
	release, _, err := payload.Load(t.Context(), files, payload.Options{Filter: payload.Filter{Profile: profile}})
	if err != nil {
		t.Fatal(err)
	}
	s := newStage(t)
	s.makeVersion(configv1.ClusterVersionSpec{
		ClusterID: "3b1f1c1e-7f2a-4b6e-9c1d-2a3b4c5d6e7f",
		// It lacks fields that its definition requires: OpenShift's own API server fills them in.
		Overrides: []configv1.ComponentOverride{{
			Group:     "security.openshift.io",
			Kind:      "SecurityContextConstraints",
			Name:      "machine-api-termination-handler",
			Unmanaged: true,
		}},
	})
	s.standIn(release)
	s.labelNodes()
	s.prepare("0.0.0", shop)
	s.options.Profile, s.options.Payload = profile, s.pushRelease(release.Version, files)
	s.start()
	for _, m := range release.Manifests {
		if m.ID().GroupKind() == kinds.ClusterOperator && !m.IsTombstone() {
			related, _, _ := unstructured.NestedSlice(m.Object().Object, "status", "relatedObjects")
			s.await("ClusterOperator "+m.ID().Name+" is created with its related objects", func() bool {
				var operator configv1.ClusterOperator
				err := s.client.Get(t.Context(), client.ObjectKey{Name: m.ID().Name}, &operator)
				return err == nil && len(operator.Status.RelatedObjects) == len(related)
			})
			versions, _, _ := unstructured.NestedSlice(m.Object().Object, "status", "versions")
			s.report(m.ID().Name, release.Version, func(o *configv1.ClusterOperatorStatus) {
				o.Versions = nil
				for _, version := range versions {
					named, _ := version.(map[string]any)
					o.Versions = append(o.Versions,
						configv1.OperandVersion{Name: fmt.Sprint(named["name"]), Version: fmt.Sprint(named["version"])})
				}
			})
		}
	}
	s.until("the whole release is installed", isAt(release.Version))
	installed := s.version()
	s.restart()
	s.until("it stays up to date after a restart", func(v *configv1.ClusterVersion) bool {
		return isAt(release.Version)(v) &&
			find(v, "ReleaseAccepted").LastTransitionTime == find(installed, "ReleaseAccepted").LastTransitionTime &&
			len(v.Status.History) == 1
	})
}

// makeVersion creates the ClusterVersion, before an operator does.
func (s *stage) makeVersion(spec configv1.ClusterVersionSpec) {
	s.t.Helper()
	for _, definition := range install.Definitions() {
		s.must(s.client.Create(s.t.Context(), definition))
	}
	version := &configv1.ClusterVersion{Spec: spec}
	version.Name = "version"
	s.await("there is a ClusterVersion", func() bool {
		return s.client.Create(s.t.Context(), version.DeepCopy()) == nil
	})
}

// standIn makes definitions of the kinds and the namespaces that a release uses, and neither it nor the cluster has.
func (s *stage) standIn(release *payload.Payload) {
	s.t.Helper()
	c, err := cluster.Connect(s.sandbox.Config)
	s.must(err)
	has := map[string]bool{"default": true, "kube-system": true, "kube-public": true}
	for _, m := range release.Manifests {
		switch id := m.ID(); id.GroupKind() {
		case kinds.Namespace:
			has[id.Name] = true
		case kinds.CustomResourceDefinition:
			group, _, _ := unstructured.NestedString(m.Object().Object, "spec", "group")
			kind, _, _ := unstructured.NestedString(m.Object().Object, "spec", "names", "kind")
			has[kind+"."+group] = true
		}
	}
	for _, m := range release.Manifests {
		id, kind := m.ID(), m.GroupVersionKind()
		if id.Namespace != "" && !has[id.Namespace] && !m.IsTombstone() {
			has[id.Namespace] = true
			place := &corev1.Namespace{}
			place.Name = id.Namespace
			s.must(s.client.Create(s.t.Context(), place))
		}
		if _, err := c.Find(s.t.Context(), kind); err == nil || has[kind.Kind+"."+kind.Group] {
			continue
		}
		has[kind.Kind+"."+kind.Group] = true
		s.must(s.client.Create(s.t.Context(), definitionOf(m)))
	}
}

// definitionOf returns a definition of the kind of a manifest, which takes any fields.
func definitionOf(m *payload.Manifest) *unstructured.Unstructured {
	id, scope := m.ID(), "Cluster"
	if id.Namespace != "" {
		scope = "Namespaced"
	}
	made := &unstructured.Unstructured{}
	_ = yaml.Unmarshal(fmt.Appendf(nil, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: %[1]s.%[2]s
  annotations: {api-approved.kubernetes.io: unapproved}
spec:
  group: %[2]s
  names: {kind: %[3]s, plural: %[1]s}
  scope: %[4]s
  versions: [{name: %[5]s, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`, strings.ToLower(id.Kind)+"s", id.Group, id.Kind, scope, m.GroupVersionKind().Version), &made.Object)
	return made
}

// labelNodes adds the labels of control plane nodes to the nodes.
func (s *stage) labelNodes() {
	s.t.Helper()
	var nodes corev1.NodeList
	s.must(s.client.List(s.t.Context(), &nodes))
	for _, node := range nodes.Items {
		labels := []byte(`{"metadata": {"labels": {"node-role.kubernetes.io/master": "", "node-role.kubernetes.io/control-plane": ""}}}`)
		s.must(s.client.Patch(s.t.Context(), &node, client.RawPatch("application/merge-patch+json", labels)))
	}
}
