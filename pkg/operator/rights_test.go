package operator_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/runlevel/runlevel/install"
)

// auditPolicy has the audit log tell of all that the operator's service account asks for.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: ["system:serviceaccount:runlevel-system:runlevel-operator"]
- level: None
`

// A right is a verb on a resource of a group.
type right struct{ group, resource, verb string }

// onTrouble are rights that are needed only when something goes wrong: to say why pods are not ready and services do not
// answer, and to make definitions again.
var onTrouble = []string{"events", "nodes", "persistentvolumeclaims", "pods", "pods/log", "services", "deployments", "replicasets", "endpointslices", "storageclasses", "customresourcedefinitions"}

// checkRights fails the test unless the operator has asked for each thing that its own roles allow. That it may do all it
// asks for, the rest of the test shows.
func (s *stage) checkRights() {
	s.t.Helper()
	used := s.usedRights()
	for _, one := range ownRights(s.t) {
		isStreamed := one.verb == "list" && used[right{one.group, one.resource, "watch"}] // servers that can't stream are asked for lists
		if !used[one] && !isStreamed && !slices.Contains(onTrouble, one.resource) {
			s.t.Errorf("the operator has the right to %s %s.%s, and has never used it", one.verb, one.resource, one.group)
		}
	}
}

// ownRights returns what the operator's own roles allow, without what it takes to apply a release.
func ownRights(t testing.TB) []right {
	t.Helper()
	var all []right
	for _, object := range install.Objects() {
		isRole := object.GetKind() == "ClusterRole" || object.GetKind() == "Role"
		if !isRole || object.GetName() != "runlevel-operator" {
			continue
		}
		var role rbacv1.ClusterRole // whose rules are as those of a Role
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						all = append(all, right{group, resource, verb})
					}
				}
			}
		}
	}
	if len(all) == 0 {
		t.Fatal("install/ has no roles of the operator")
	}
	return all
}

// usedRights returns what the operator has asked for.
func (s *stage) usedRights() map[right]bool {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.sandbox.Logs, "audit.log"))
	s.must(err)
	used := map[right]bool{}
	for line := range bytes.Lines(text) {
		var request struct {
			Verb      string
			ObjectRef struct{ APIGroup, Resource, Subresource string }
		}
		if err := json.Unmarshal(line, &request); err != nil {
			s.t.Fatal(fmt.Errorf("the audit log: %w", err))
		}
		resource := strings.TrimSuffix(request.ObjectRef.Resource+"/"+request.ObjectRef.Subresource, "/")
		used[right{request.ObjectRef.APIGroup, resource, request.Verb}] = true
	}
	return used
}
