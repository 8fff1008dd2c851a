package plan

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
)

// A HookPlan is the plan of one lifecycle hook of a Deployment.
type HookPlan struct {
	Stage         deploymenthook.Stage         `json:"stage"`
	FailurePolicy deploymenthook.FailurePolicy `json:"failurePolicy"`
	// Runs is true if the update runs the hook.
	Runs bool `json:"runs"`
	// Change has the difference to the old hook; "" if there is none.
	Change HookChange `json:"change,omitempty"`
	// Why has the reason why the update does not run a hook of the release.
	Why string `json:"why,omitempty"`
}

// A HookChange is the difference between the old and the new hook.
type HookChange string

// The changes of a hook.
const (
	HookAdded   HookChange = "added"
	HookChanged HookChange = "changed"
	HookRemoved HookChange = "removed"
)

// The reasons why hooks do not run.
const (
	templateStays = "the pod template stays"
	noOldPods     = "there are no old pods"
	notDue        = "it has run already, or is not needed"
)

// A deployment contains the hooks and the template of a manifest or a live object.
type deployment struct {
	hooks    *deploymenthook.Hooks
	template string // the hash; "" if there is no Deployment
}

// readDeployment reads a Deployment. It returns the zero value for any other object, and for an invalid one.
func readDeployment(object map[string]any) deployment {
	if object == nil {
		return deployment{}
	}
	u := &unstructured.Unstructured{Object: object}
	if u.GroupVersionKind() != appsv1.SchemeGroupVersion.WithKind("Deployment") {
		return deployment{}
	}
	var typed appsv1.Deployment
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, &typed); err != nil {
		return deployment{}
	}
	hooks, _ := deploymenthook.Parse(u)
	return deployment{hooks, deploymenthook.HashTemplate(&typed)}
}

// compareHooks returns the hooks of two manifests of a Deployment, in the order of a rollout. The old one may be nil.
func compareHooks(old, next map[string]any) []HookPlan {
	before, after := readDeployment(old), readDeployment(next)
	return planHooks(before, after, before.template != after.template)
}

// planHooks returns the plans of the hooks of a Deployment, given whether the update changes the pod template.
func planHooks(before, after deployment, isTemplateNew bool) []HookPlan {
	var hooks []HookPlan
	for _, stage := range deploymenthook.Stages {
		old, next := before.hooks.Of(stage), after.hooks.Of(stage)
		if old == nil && next == nil {
			continue
		}
		hook := next
		if hook == nil {
			hook = old
		}
		hookPlan := HookPlan{Stage: stage, FailurePolicy: hook.Policy(), Change: changeOfHook(old, next)}
		if before.template == "" {
			hookPlan.Change = "" // all hooks of a new Deployment are new
		}
		switch {
		case next == nil:
		case !isTemplateNew:
			hookPlan.Why = templateStays
		case stage == deploymenthook.Mid && before.template == "":
			hookPlan.Why = noOldPods
		default:
			hookPlan.Runs = true
		}
		hooks = append(hooks, hookPlan)
	}
	return hooks
}

// changeOfHook compares a hook with the previous one.
func changeOfHook(old, next *deploymenthook.Hook) HookChange {
	switch {
	case next == nil:
		return HookRemoved
	case old == nil:
		return HookAdded
	case !equality.Semantic.DeepEqual(old, next):
		return HookChanged
	default:
		return ""
	}
}

// hooks returns the plans of the hooks of a Deployment in a cluster, of which the preview has found those that are
// due.
func (o ObjectPreview) hooks() []HookPlan {
	live, wanted := readDeployment(o.Live), readDeployment(o.Manifest.Object().Object)
	isWritten := o.Action == Created || o.Action == Changed
	if wanted.template == "" || !isWritten && len(o.DueHooks) == 0 {
		return nil
	}
	hooks := planHooks(live, wanted, len(o.DueHooks) > 0)
	for i, hookPlan := range hooks {
		if hookPlan.Runs && !slices.Contains(o.DueHooks, hookPlan.Stage) {
			hooks[i].Runs, hooks[i].Why = false, notDue
		}
	}
	return hooks
}

// RunningHooks returns the hooks that an update of the object runs.
func (o ObjectPlan) RunningHooks() []HookPlan {
	return slices.DeleteFunc(slices.Clone(o.Hooks), func(hookPlan HookPlan) bool { return !hookPlan.Runs })
}
