package kinds

import "k8s.io/apimachinery/pkg/runtime/schema"

// A Level is the place of a kind in an install or update of a release whose files have no numbers: objects of a lower
// level are applied first.
type Level string

// The levels.
const (
	NamespaceLevel     Level = "10"
	DefinitionLevel    Level = "20"
	RightsLevel        Level = "30" // and classes and quotas
	ConfigurationLevel Level = "40"
	ForeignLevel       Level = "50" // custom resources of controllers that the cluster already has
	WorkloadLevel      Level = "60"
	TrafficLevel       Level = "70" // objects that lead to workloads, or have the API server call them
	CustomLevel        Level = "80" // custom resources that the release defines: it has their controllers, too
)

// levelsOfGroups are the levels of the kinds of a group that have none of their own.
var levelsOfGroups = map[string]Level{
	rbac: RightsLevel, "scheduling.k8s.io": RightsLevel, "storage.k8s.io": RightsLevel, "node.k8s.io": RightsLevel,
	"": ConfigurationLevel, "apps": WorkloadLevel, "batch": WorkloadLevel,
	"networking.k8s.io": TrafficLevel, "autoscaling": TrafficLevel, "policy": TrafficLevel,
	"apiregistration.k8s.io": TrafficLevel, admission: TrafficLevel,
}

// LevelOf returns the level of a kind, and whether it is known: that of a custom resource depends on the release.
func LevelOf(kind schema.GroupKind) (level Level, isKnown bool) {
	if level = kindTable[kind].level; level != "" {
		return level, true
	}
	level, isKnown = levelsOfGroups[kind.Group]
	return level, isKnown
}

// A Stage is the place of a kind in an uninstall: objects of an earlier stage need those of a later one.
type Stage int

// The stages, in order.
const (
	byScope      Stage = iota // the zero value: see StageOf
	PolicyStage               // policies have custom resources as parameters
	CustomStage               // controllers remove the finalizers of custom resources
	CallStage                 // these objects make the API server call Services
	TrafficStage              // these objects lead to workloads, or scale and protect them
	WorkloadStage
	SettingsStage   // Services, configuration and volumes, which workloads use
	BindingStage    // bindings give rights to workloads
	RightsStage     // bindings name roles; other objects without a namespace have this stage, too
	DefinitionStage // a definition is deleted with its custom resources
	NamespaceStage  // a Namespace is deleted with all objects in it
)

// Stages returns all stages, in order.
func Stages() []Stage {
	var stages []Stage
	for stage := PolicyStage; stage <= NamespaceStage; stage++ {
		stages = append(stages, stage)
	}
	return stages
}

// String returns the objects of a stage in words.
func (s Stage) String() string {
	return [...]string{
		PolicyStage: "admission policies", CustomStage: "custom resources", CallStage: "webhooks and APIServices",
		TrafficStage: "ingresses, autoscalers and disruption budgets", WorkloadStage: "workloads",
		SettingsStage: "services, configuration and storage", BindingStage: "role bindings",
		RightsStage:     "roles, accounts and classes",
		DefinitionStage: "definitions", NamespaceStage: "namespaces",
	}[s]
}

// StageOf returns the stage of a kind. Kinds without a stage of their own have that of their scope.
func StageOf(kind schema.GroupKind) Stage {
	switch scope := ScopeOf(kind); {
	case kindTable[kind].stage != byScope:
		return kindTable[kind].stage
	case scope == Unknown:
		return CustomStage
	case scope == Cluster:
		return RightsStage
	default:
		return SettingsStage
	}
}
