package validation

import (
	"context"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/apps"
	appsv1 "k8s.io/kubernetes/pkg/apis/apps/v1"
	appsvalidation "k8s.io/kubernetes/pkg/apis/apps/validation"
	"k8s.io/kubernetes/pkg/apis/autoscaling"
	autoscalingv1 "k8s.io/kubernetes/pkg/apis/autoscaling/v1"
	autoscalingv2 "k8s.io/kubernetes/pkg/apis/autoscaling/v2"
	"k8s.io/kubernetes/pkg/apis/batch"
	batchv1 "k8s.io/kubernetes/pkg/apis/batch/v1"
	batchvalidation "k8s.io/kubernetes/pkg/apis/batch/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/networking"
	networkingv1 "k8s.io/kubernetes/pkg/apis/networking/v1"
	"k8s.io/kubernetes/pkg/apis/node"
	nodev1 "k8s.io/kubernetes/pkg/apis/node/v1"
	"k8s.io/kubernetes/pkg/apis/policy"
	policyv1 "k8s.io/kubernetes/pkg/apis/policy/v1"
	"k8s.io/kubernetes/pkg/apis/rbac"
	rbacv1 "k8s.io/kubernetes/pkg/apis/rbac/v1"
	"k8s.io/kubernetes/pkg/apis/scheduling"
	schedulingv1 "k8s.io/kubernetes/pkg/apis/scheduling/v1"
	"k8s.io/kubernetes/pkg/apis/storage"
	storagev1 "k8s.io/kubernetes/pkg/apis/storage/v1"
	"k8s.io/kubernetes/pkg/registry/apps/daemonset"
	"k8s.io/kubernetes/pkg/registry/apps/deployment"
	"k8s.io/kubernetes/pkg/registry/apps/statefulset"
	"k8s.io/kubernetes/pkg/registry/autoscaling/horizontalpodautoscaler"
	"k8s.io/kubernetes/pkg/registry/batch/cronjob"
	"k8s.io/kubernetes/pkg/registry/core/limitrange"
	"k8s.io/kubernetes/pkg/registry/core/resourcequota"
	"k8s.io/kubernetes/pkg/registry/networking/ingress"
	"k8s.io/kubernetes/pkg/registry/networking/ingressclass"
	"k8s.io/kubernetes/pkg/registry/networking/networkpolicy"
	"k8s.io/kubernetes/pkg/registry/node/runtimeclass"
	"k8s.io/kubernetes/pkg/registry/policy/poddisruptionbudget"
	"k8s.io/kubernetes/pkg/registry/rbac/clusterrole"
	"k8s.io/kubernetes/pkg/registry/rbac/clusterrolebinding"
	"k8s.io/kubernetes/pkg/registry/rbac/role"
	"k8s.io/kubernetes/pkg/registry/rbac/rolebinding"
	"k8s.io/kubernetes/pkg/registry/scheduling/priorityclass"
	"k8s.io/kubernetes/pkg/registry/storage/csidriver"
	"k8s.io/kubernetes/pkg/registry/storage/storageclass"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// A validation returns the problems of an object, in its internal version.
type validation func(context.Context, runtime.Object) field.ErrorList

// validations are those of the kinds that releases have. They are the strategies of the API server where these need
// nothing else from the server, and otherwise the functions that strategies call.
var validations = map[schema.GroupKind]validation{
	kinds.ConfigMap:             byFunction(corevalidation.ValidateConfigMap),
	kinds.LimitRange:            byStrategy(limitrange.Strategy),
	kinds.Namespace:             byFunction(corevalidation.ValidateNamespace),
	kinds.PersistentVolume:      byFunction(validateVolume),
	kinds.PersistentVolumeClaim: byFunction(validateClaim),
	kinds.Pod:                   byFunction(validatePod),
	kinds.ReplicationController: byFunction(validateReplicationController),
	kinds.ResourceQuota:         byStrategy(resourcequota.Strategy),
	kinds.Secret:                byFunction(corevalidation.ValidateSecret),
	kinds.Service:               byFunction(validateService),
	kinds.ServiceAccount:        byFunction(corevalidation.ValidateServiceAccount),

	kinds.DaemonSet:   byStrategy(daemonset.Strategy),
	kinds.Deployment:  byStrategy(deployment.Strategy),
	kinds.ReplicaSet:  byFunction(validateReplicaSet),
	kinds.StatefulSet: byStrategy(statefulset.Strategy),
	kinds.CronJob:     byStrategy(cronjob.Strategy),
	kinds.Job:         byFunction(validateJob),

	kinds.HorizontalPodAutoscaler: byStrategy(horizontalpodautoscaler.Strategy),
	kinds.PodDisruptionBudget:     byStrategy(poddisruptionbudget.Strategy),
	kinds.PriorityClass:           byStrategy(priorityclass.Strategy),
	kinds.RuntimeClass:            byStrategy(runtimeclass.Strategy),
	kinds.CSIDriver:               byStrategy(csidriver.Strategy),
	kinds.StorageClass:            byStrategy(storageclass.Strategy),

	kinds.Ingress:       byStrategy(ingress.Strategy),
	kinds.IngressClass:  byStrategy(ingressclass.Strategy),
	kinds.NetworkPolicy: byStrategy(networkpolicy.Strategy),

	kinds.ClusterRole:        byStrategy(clusterrole.Strategy),
	kinds.ClusterRoleBinding: byStrategy(clusterrolebinding.Strategy),
	kinds.Role:               byStrategy(role.Strategy),
	kinds.RoleBinding:        byStrategy(rolebinding.Strategy),
}

// scheme returns the scheme of the strategies, with the versions that API servers serve. The packages that register all
// versions of a group make the program larger, and slower to start.
var scheme = sync.OnceValue(func() *runtime.Scheme {
	utilruntime.Must((&runtime.SchemeBuilder{
		apps.AddToScheme, appsv1.AddToScheme, batch.AddToScheme, batchv1.AddToScheme,
		autoscaling.AddToScheme, autoscalingv1.AddToScheme, autoscalingv2.AddToScheme,
		core.AddToScheme, corev1.AddToScheme, networking.AddToScheme, networkingv1.AddToScheme,
		node.AddToScheme, nodev1.AddToScheme, policy.AddToScheme, policyv1.AddToScheme,
		rbac.AddToScheme, rbacv1.AddToScheme, scheduling.AddToScheme, schedulingv1.AddToScheme,
		storage.AddToScheme, storagev1.AddToScheme,
	}).AddToScheme(legacyscheme.Scheme))
	return legacyscheme.Scheme
})

// byStrategy returns the validation of a strategy.
func byStrategy(strategy rest.RESTCreateStrategy) validation {
	return func(ctx context.Context, object runtime.Object) field.ErrorList {
		strategy.PrepareForCreate(ctx, object)
		return strategy.Validate(ctx, object)
	}
}

// byFunction returns the validation of a function for one type.
func byFunction[T runtime.Object](validate func(T) field.ErrorList) validation {
	return func(_ context.Context, object runtime.Object) field.ErrorList {
		typed, isOfType := object.(T)
		if !isOfType {
			return nil
		}
		return validate(typed)
	}
}

func validateVolume(volume *core.PersistentVolume) field.ErrorList {
	return corevalidation.ValidatePersistentVolume(volume,
		corevalidation.ValidationOptionsForPersistentVolume(volume, nil))
}

func validateClaim(claim *core.PersistentVolumeClaim) field.ErrorList {
	return corevalidation.ValidatePersistentVolumeClaim(claim,
		corevalidation.ValidationOptionsForPersistentVolumeClaim(claim, nil))
}

func validatePod(p *core.Pod) field.ErrorList {
	return corevalidation.ValidatePodCreate(p,
		pod.GetValidationOptionsFromPodSpecAndMeta(&p.Spec, nil, &p.ObjectMeta, nil))
}

func validateReplicationController(controller *core.ReplicationController) field.ErrorList {
	return corevalidation.ValidateReplicationController(controller,
		pod.GetValidationOptionsFromPodTemplate(controller.Spec.Template, nil))
}

func validateReplicaSet(set *apps.ReplicaSet) field.ErrorList {
	return appsvalidation.ValidateReplicaSet(set, pod.GetValidationOptionsFromPodTemplate(&set.Spec.Template, nil))
}

// allocated are the fields of a Service that the API server fills in.
var allocated = []string{"spec.clusterIPs", "spec.healthCheckNodePort"}

// validateService ignores missing addresses and ports of a Service: the API server allocates them.
func validateService(service *core.Service) field.ErrorList {
	if address := service.Spec.ClusterIP; address != "" && len(service.Spec.ClusterIPs) == 0 {
		service.Spec.ClusterIPs = []string{address}
	}
	return slices.DeleteFunc(corevalidation.ValidateServiceCreate(service), func(problem *field.Error) bool {
		return slices.Contains(allocated, problem.Field) && problem.Type == field.ErrorTypeRequired
	})
}

// validateJob gives a Job the labels and the selector that the API server generates.
func validateJob(job *batch.Job) field.ErrorList {
	if job.Spec.ManualSelector == nil || !*job.Spec.ManualSelector {
		generated := map[string]string{
			batch.LegacyJobNameLabel: job.Name, batch.JobNameLabel: job.Name,
			batch.LegacyControllerUidLabel: string(job.UID), batch.ControllerUidLabel: string(job.UID),
		}
		maps.Copy(generated, job.Spec.Template.Labels)
		job.Spec.Template.Labels = generated
		if job.Spec.Selector == nil {
			job.Spec.Selector = &metav1.LabelSelector{
				MatchLabels: map[string]string{batch.ControllerUidLabel: string(job.UID)},
			}
		}
	}
	return batchvalidation.ValidateJobCreate(job, batchvalidation.JobValidationOptions{
		PodValidationOptions:  pod.GetValidationOptionsFromPodTemplate(&job.Spec.Template, nil),
		RequirePrefixedLabels: true,
	})
}
