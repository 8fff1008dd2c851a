package payload

import (
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// This file gives levels to releases whose files have none, such as what another tool has rendered: what is needed comes before
// what needs it. One file that begins with 0000_ is enough for the names of files to decide.

// The levels by kinds.
const (
	namespaceLevel     = "10"
	definitionLevel    = "20"
	rightsLevel        = "30" // and classes and quotas
	configurationLevel = "40"
	foreignLevel       = "50" // custom resources of controllers that are there already
	workloadLevel      = "60"
	trafficLevel       = "70" // what leads to workloads, and what the API server calls
	customLevel        = "80" // custom resources whose definitions are in the release, with their controllers
)

// levelsOfKinds are the levels of kinds whose API group has others, and levelsOfGroups those of all other kinds of a group.
var (
	levelsOfKinds = map[schema.GroupKind]string{
		kinds.Namespace: namespaceLevel, kinds.CustomResourceDefinition: definitionLevel,
		{Kind: "ServiceAccount"}: rightsLevel, {Kind: "ResourceQuota"}: rightsLevel, {Kind: "LimitRange"}: rightsLevel,
		{Kind: "Pod"}: workloadLevel, {Kind: "ReplicationController"}: workloadLevel,
		{Group: "networking.k8s.io", Kind: "NetworkPolicy"}: configurationLevel,
	}
	levelsOfGroups = map[string]string{
		"rbac.authorization.k8s.io": rightsLevel, "scheduling.k8s.io": rightsLevel, "storage.k8s.io": rightsLevel, "node.k8s.io": rightsLevel,
		"": configurationLevel, "apps": workloadLevel, "batch": workloadLevel,
		"networking.k8s.io": trafficLevel, "autoscaling": trafficLevel, "policy": trafficLevel,
		"apiregistration.k8s.io": trafficLevel, "admissionregistration.k8s.io": trafficLevel,
	}
)

// orderByKind gives levels to the manifests of a release without numbered files, with their kinds as the components. It reports
// whether it has.
func orderByKind(files []*manifestFile) bool {
	own := map[schema.GroupKind]bool{}
	for _, file := range files {
		if strings.HasPrefix(path.Base(file.Path), "0000_") {
			return false
		}
		for _, m := range file.manifests {
			if m.GroupVersionKind().GroupKind() == kinds.CustomResourceDefinition {
				own[kinds.DefinedBy(m.object)] = true
			}
		}
	}
	for _, file := range files {
		for _, m := range file.manifests {
			m.order = "0000_" + levelOf(m.GroupVersionKind().GroupKind(), own) + "_" + strings.ToLower(m.object.GetKind()) + "_"
		}
	}
	return true
}

// levelOf returns the level of a kind, by the kinds that the release defines itself.
func levelOf(kind schema.GroupKind, own map[schema.GroupKind]bool) string {
	if level, isKnown := levelsOfKinds[kind]; isKnown {
		return level
	}
	if level, isKnown := levelsOfGroups[kind.Group]; isKnown {
		return level
	}
	if own[kind] {
		return customLevel
	}
	return foreignLevel
}
