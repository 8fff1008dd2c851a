package sandboxtest

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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/runlevel/runlevel/internal/sandbox"
)

// AuditAccount returns an audit policy that logs all requests of a service account.
func AuditAccount(namespace, name string) string {
	return fmt.Sprintf(`
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: ["system:serviceaccount:%s:%s"]
- level: None
`, namespace, name)
}

// A roleRight is a verb on a resource of a group.
type roleRight struct{ group, resource, verb string }

// UnusedRights returns the rights of the roles of some name among objects that the audited account has never used.
// Missing rights are found by the rest of a test. Rights on excepted resources may be unused.
func UnusedRights(t testing.TB, s *sandbox.Sandbox, objects []*unstructured.Unstructured, role string,
	excepted ...string) []string {
	t.Helper()
	used, allowed := usedRights(t, s), rightsOf(t, objects, role)
	if len(allowed) == 0 {
		t.Fatalf("no role has the name %s", role)
	}
	var unused []string
	for _, right := range allowed {
		// only servers that can't stream get list requests
		isStreamed := right.verb == "list" && used[roleRight{right.group, right.resource, "watch"}]
		if !used[right] && !isStreamed && !slices.Contains(excepted, right.resource) {
			unused = append(unused, fmt.Sprintf("%s %s.%s", right.verb, right.resource, right.group))
		}
	}
	return unused
}

// rightsOf returns the rights of the roles with a name.
func rightsOf(t testing.TB, objects []*unstructured.Unstructured, name string) []roleRight {
	t.Helper()
	var all []roleRight
	for _, object := range objects {
		isRole := object.GetKind() == "ClusterRole" || object.GetKind() == "Role"
		if !isRole || object.GetName() != name {
			continue
		}
		var role rbacv1.ClusterRole // a Role has the same rules
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						all = append(all, roleRight{group, resource, verb})
					}
				}
			}
		}
	}
	return all
}

// usedRights returns the rights that the audited account has used.
func usedRights(t testing.TB, s *sandbox.Sandbox) map[roleRight]bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.Logs, "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	used := map[roleRight]bool{}
	for line := range bytes.Lines(text) {
		var request struct {
			Verb      string
			ObjectRef struct{ APIGroup, Resource, Subresource string }
		}
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // the API server is writing this line
		}
		if err := json.Unmarshal(line, &request); err != nil {
			t.Fatal(fmt.Errorf("the audit log: %w", err))
		}
		resource := strings.TrimSuffix(request.ObjectRef.Resource+"/"+request.ObjectRef.Subresource, "/")
		used[roleRight{request.ObjectRef.APIGroup, resource, request.Verb}] = true
	}
	return used
}
