package fields

import (
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
)

// podDefaults are what fields of pods are where they are not set, wherever they stand in
// a pod. What else may be written out, such as a serviceAccount beside the
// serviceAccountName, is not known here.
var podDefaults = map[string]any{
	"terminationGracePeriodSeconds": int64(30), "dnsPolicy": "ClusterFirst", "restartPolicy": "Always",
	"schedulerName": "default-scheduler", "enableServiceLinks": true, "securityContext": map[string]any{},
	"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
	"imagePullPolicy": "IfNotPresent", // of all images that are not the latest
	"resources":       map[string]any{}, "protocol": "TCP", "defaultMode": int64(420), "scheme": "HTTP",
	"successThreshold": int64(1), "failureThreshold": int64(3), "periodSeconds": int64(10), "timeoutSeconds": int64(1),
}

// freeKeys are the mappings whose keys have no fixed names.
var freeKeys = []string{"labels", "annotations", "nodeSelector", "matchLabels"}

// isPodDefault says whether a change only writes out a default, or takes it away.
func isPodDefault(change Difference) bool {
	last := change.Path[len(change.Path)-1]
	value, known := podDefaults[last.Key]
	if !known || last.Index != none || slices.ContainsFunc(change.Path, func(step PathStep) bool { return slices.Contains(freeKeys, step.Key) }) {
		return false
	}
	return change.Old == nil && reflect.DeepEqual(change.New, value) || change.New == nil && reflect.DeepEqual(change.Old, value)
}

// isSameQuantity says whether a change only writes a quantity in another way: 1Gi is
// 1024Mi.
func isSameQuantity(change Difference) bool {
	keys := change.Path.Keys()
	if len(keys) < 3 || keys[len(keys)-3] != "resources" || !slices.Contains([]string{"requests", "limits"}, keys[len(keys)-2]) {
		return false
	}
	old, err := resource.ParseQuantity(fmt.Sprint(change.Old))
	next, nextErr := resource.ParseQuantity(fmt.Sprint(change.New))
	return err == nil && nextErr == nil && old.Cmp(next) == 0
}
