package fields

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// Immutable returns the changes from one object to another, as returned by Diff, that
// an API server refuses. It knows the built-in kinds; for custom resources see the
// rules of their CustomResourceDefinitions.
func Immutable(before, after map[string]any, changes []Difference) []Difference {
	kind := groupKind(after)
	if groupKind(before) != kind {
		return nil // the objects have different names
	}
	var refused []Difference
	for _, change := range changes {
		if slices.ContainsFunc(immutableFields[kind], func(f immutableField) bool {
			return f.refuses(before, after, change)
		}) {
			refused = append(refused, change)
		}
	}
	return refused
}

func groupKind(object map[string]any) schema.GroupKind {
	apiVersion, _ := object["apiVersion"].(string)
	kind, _ := object["kind"].(string)
	return schema.FromAPIVersionAndKind(apiVersion, kind).GroupKind()
}

// An immutableField is a field that can't be changed once it is set, with all fields in it.
type immutableField struct {
	field  string   // keys, separated by dots
	except []string // parts of the field that can be changed; "*" is any item of a list
	when   func(before, after map[string]any) bool
	// removable is true if the field may be missing from an apply: its value is kept.
	removable bool
	// fallback is the default of the field, and defaults are those of its parts.
	fallback   any
	defaults   map[string]any
	hasPodSpec bool // the field is or contains the spec of a pod, whose defaults are known
}

// refuses reports whether a change is one of this field.
func (f immutableField) refuses(before, after map[string]any, change Difference) bool {
	if !change.Path.overlaps(f.field) || f.when != nil && !f.when(before, after) {
		return false
	}
	if slices.ContainsFunc(f.except, func(part string) bool { return change.Path.isWithin(f.field + "." + part) }) {
		return false
	}
	if isSameQuantity(change) || f.hasPodSpec && isPodDefault(change) {
		return false
	}
	for part, value := range f.defaults {
		if change.Path.isWithin(f.field+"."+part) &&
			reflect.DeepEqual(valueOr(change.Old, value), valueOr(change.New, value)) {
			return false
		}
	}
	keys := strings.Split(f.field, ".")
	if len(change.Path) > len(keys) {
		return true // a part of the field
	}
	previous, current := valueOr(valueAt(change.Old, keys[len(change.Path):]), f.fallback),
		valueOr(valueAt(change.New, keys[len(change.Path):]), f.fallback)
	if f.removable && current == nil {
		return false
	}
	return !reflect.DeepEqual(previous, current)
}

// valueAt returns the value below some keys.
func valueAt(value any, keys []string) any {
	for _, key := range keys {
		fields, _ := value.(map[string]any)
		value = fields[key]
	}
	return value
}

func valueOr(value, fallback any) any {
	if value == nil {
		return fallback
	}
	return value
}

// isMarkedImmutable reports whether a ConfigMap or Secret has immutable: true.
func isMarkedImmutable(before, _ map[string]any) bool { return before["immutable"] == true }

// hasAddress reports whether a Service had a cluster IP: only ExternalName Services
// have none.
func hasAddress(before, _ map[string]any) bool {
	return valueAt(before, typeOfService) != "ExternalName"
}

// requestsLessStorage reports whether a claim gets smaller.
func requestsLessStorage(before, after map[string]any) bool {
	size := func(claim map[string]any) (resource.Quantity, error) {
		return resource.ParseQuantity(fmt.Sprint(valueAt(claim, []string{"spec", "resources", "requests", "storage"})))
	}
	previous, wasErr := size(before)
	current, isErr := size(after)
	return wasErr == nil && isErr == nil && current.Cmp(previous) < 0
}

// staysLoadBalancer reports whether a Service is a LoadBalancer before and after.
func staysLoadBalancer(before, after map[string]any) bool {
	return valueAt(before, typeOfService) == "LoadBalancer" && valueAt(after, typeOfService) == "LoadBalancer"
}

// isNotElastic reports whether the completions of a Job are immutable: those of an
// Indexed Job may change together with its parallelism.
func isNotElastic(_, after map[string]any) bool {
	spec := func(field string) any { return valueAt(after, []string{"spec", field}) }
	return spec("completionMode") != "Indexed" || !reflect.DeepEqual(spec("completions"), spec("parallelism"))
}

// typeOfService is the field with the type of a Service.
var typeOfService = []string{"spec", "type"}

// workloadSelector is the selector of workloads.
var workloadSelector = []immutableField{{field: "spec.selector"}}

// roleRef is the role of bindings.
var roleRef = []immutableField{{field: "roleRef", defaults: map[string]any{"apiGroup": "rbac.authorization.k8s.io"}}}

// immutableFields are the fields that API servers refuse to change, by kind. A test
// compares the table with a real API server.
var immutableFields = map[schema.GroupKind][]immutableField{
	kinds.ConfigMap: {
		{field: "data", when: isMarkedImmutable}, {field: "binaryData", when: isMarkedImmutable},
		{field: "immutable", when: isMarkedImmutable},
	},
	kinds.Secret: {
		{field: "data", when: isMarkedImmutable}, {field: "stringData", when: isMarkedImmutable},
		{field: "immutable", when: isMarkedImmutable},
		{field: "type", fallback: "Opaque"},
	},
	kinds.Service: {
		{field: "spec.clusterIP", removable: true, when: hasAddress},
		{field: "spec.clusterIPs", removable: true, when: hasAddress},
		{field: "spec.loadBalancerClass", when: staysLoadBalancer},
	},
	kinds.PersistentVolumeClaim: {
		{
			field:    "spec",
			except:   []string{"resources", "volumeAttributesClassName"},
			defaults: map[string]any{"volumeMode": "Filesystem"},
		},
		{field: "spec.resources.requests.storage", when: requestsLessStorage},
	},
	kinds.PersistentVolume: {
		{field: "spec.csi"}, {field: "spec.hostPath"}, {field: "spec.local"}, {field: "spec.nfs"},
		{field: "spec.volumeMode", fallback: "Filesystem"},
	},
	kinds.ResourceQuota: {{field: "spec.scopes"}},
	kinds.Pod: {
		{
			field:      "spec",
			hasPodSpec: true,
			except: []string{"containers.*.image", "initContainers.*.image", "activeDeadlineSeconds", "tolerations",
				"schedulingGates"},
		},
	},
	kinds.Deployment: workloadSelector,
	kinds.ReplicaSet: workloadSelector,
	kinds.DaemonSet:  workloadSelector,
	kinds.StatefulSet: {
		{field: "spec", except: []string{"replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
			"persistentVolumeClaimRetentionPolicy", "minReadySeconds"},
			defaults: map[string]any{
				"podManagementPolicy":                    "OrderedReady",
				"volumeClaimTemplates.*.spec.volumeMode": "Filesystem",
			}},
	},
	kinds.Job: {
		{field: "spec.selector"}, {field: "spec.template", hasPodSpec: true},
		{field: "spec.completions", when: isNotElastic}, {field: "spec.podFailurePolicy"},
		{field: "spec.backoffLimitPerIndex"}, {field: "spec.successPolicy"}, {field: "spec.managedBy"},
		{field: "spec.completionMode", fallback: "NonIndexed"},
	},
	kinds.RoleBinding:        roleRef,
	kinds.ClusterRoleBinding: roleRef,
	kinds.StorageClass: {
		{field: "provisioner"}, {field: "parameters"},
		{field: "reclaimPolicy", fallback: "Delete"}, {field: "volumeBindingMode", fallback: "Immediate"},
	},
	kinds.VolumeAttributesClass: {{field: "driverName"}, {field: "parameters"}},
	kinds.CSIDriver: {{field: "spec.attachRequired", fallback: true},
		{field: "spec.volumeLifecycleModes", fallback: []any{"Persistent"}}},
	kinds.IngressClass: {{field: "spec.controller"}},
	kinds.PriorityClass: {
		{field: "value", fallback: int64(0)}, {field: "preemptionPolicy", fallback: "PreemptLowerPriority"},
	},
	kinds.RuntimeClass:          {{field: "handler"}},
	kinds.EndpointSlice:         {{field: "addressType"}},
	kinds.ResourceClaim:         {{field: "spec"}},
	kinds.ResourceClaimTemplate: {{field: "spec"}},
	kinds.CustomResourceDefinition: {
		{field: "spec.group"}, {field: "spec.scope"}, {field: "spec.names.plural"}, {field: "spec.names.kind"},
	},
}

// podDefaults are the defaults of fields of pods, at any depth.
var podDefaults = map[string]any{
	"terminationGracePeriodSeconds": int64(30), "dnsPolicy": "ClusterFirst", "restartPolicy": "Always",
	"schedulerName": "default-scheduler", "enableServiceLinks": true, "securityContext": map[string]any{},
	"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
	"imagePullPolicy": "IfNotPresent", // default for images with a tag other than latest
	"resources":       map[string]any{}, "protocol": "TCP", "defaultMode": int64(420), "scheme": "HTTP",
	"successThreshold": int64(1), "failureThreshold": int64(3), "periodSeconds": int64(10), "timeoutSeconds": int64(1),
}

// freeKeys are the mappings whose keys are not field names.
var freeKeys = []string{"labels", "annotations", "nodeSelector", "matchLabels"}

// IsSamePod reports whether a change within a template of pods only writes the same in another way. The API server sets
// the deprecated serviceAccount to serviceAccountName.
func IsSamePod(change Difference, template map[string]any) bool {
	account, _, _ := unstructured.NestedString(template, "spec", "serviceAccountName")
	isDerived := account != "" && change.Path[len(change.Path)-1].Key == "serviceAccount"
	return isDerived || isSameQuantity(change) || isPodDefault(change)
}

// isPodDefault reports whether a change only adds or removes a default.
func isPodDefault(change Difference) bool {
	last := change.Path[len(change.Path)-1]
	value, known := podDefaults[last.Key]
	if !known || last.Index != none ||
		slices.ContainsFunc(change.Path, func(step PathStep) bool { return slices.Contains(freeKeys, step.Key) }) {
		return false
	}
	return change.Old == nil && reflect.DeepEqual(change.New, value) ||
		change.New == nil && reflect.DeepEqual(change.Old, value)
}

// isSameQuantity reports whether a change only writes a quantity in another way: 1Gi
// is 1024Mi.
func isSameQuantity(change Difference) bool {
	keys := change.Path.Keys()
	if len(keys) < 3 || keys[len(keys)-3] != "resources" ||
		!slices.Contains([]string{"requests", "limits"}, keys[len(keys)-2]) {
		return false
	}
	old, err := resource.ParseQuantity(fmt.Sprint(change.Old))
	next, nextErr := resource.ParseQuantity(fmt.Sprint(change.New))
	return err == nil && nextErr == nil && old.Cmp(next) == 0
}
