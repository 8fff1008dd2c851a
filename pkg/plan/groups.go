package plan

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
)

// elsewhere is where kinds are that are, or were, served by two groups: one object is
// seen through both, so to delete it in one deletes it in the other.
var elsewhere = map[schema.GroupKind]string{
	{Group: "extensions", Kind: "Deployment"}:                         "apps",
	{Group: "extensions", Kind: "DaemonSet"}:                          "apps",
	{Group: "extensions", Kind: "ReplicaSet"}:                         "apps",
	{Group: "extensions", Kind: "Ingress"}:                            "networking.k8s.io",
	{Group: "extensions", Kind: "NetworkPolicy"}:                      "networking.k8s.io",
	{Group: "extensions", Kind: "PodSecurityPolicy"}:                  "policy",
	{Group: "authorization.openshift.io", Kind: "Role"}:               "rbac.authorization.k8s.io",
	{Group: "authorization.openshift.io", Kind: "RoleBinding"}:        "rbac.authorization.k8s.io",
	{Group: "authorization.openshift.io", Kind: "ClusterRole"}:        "rbac.authorization.k8s.io",
	{Group: "authorization.openshift.io", Kind: "ClusterRoleBinding"}: "rbac.authorization.k8s.io",
}

// stored says which object a manifest is about, whatever the group that serves it.
func stored(m *payload.Manifest) kinds.ID {
	id := m.ID()
	if group, found := elsewhere[schema.GroupKind{Group: id.Group, Kind: id.Kind}]; found {
		id.Group = group
	}
	return id
}
