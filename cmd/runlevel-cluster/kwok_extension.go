package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
)

// coveredOfMachine and coveredOfNode are the fields that change in place: of a Machine's spec, and of a KwokMachine's. A label or a version
// that is taken away is not covered: what the Node would be without it is not known.
var (
	coveredOfMachine = []string{"version"}
	coveredOfNode    = []string{"node.kubeletVersion", "node.osImage", "node.labels"}
)

func canUpdateMachineSet(_ context.Context, asked *hooksv1.CanUpdateMachineSetRequest, told *hooksv1.CanUpdateMachineSetResponse) error {
	machines, err := covers(asked.Desired.MachineSet, "spec.template.spec.", coveredOfMachine)
	told.MachineSetPatch = machines
	if err == nil {
		told.InfrastructureMachineTemplatePatch, err = covers(asked.Desired.InfrastructureMachineTemplate, "spec.template.spec.", coveredOfNode)
	}
	return err
}

func canUpdateMachine(_ context.Context, asked *hooksv1.CanUpdateMachineRequest, told *hooksv1.CanUpdateMachineResponse) error {
	machine, err := covers(asked.Desired.Machine, "spec.", coveredOfMachine)
	told.MachinePatch = machine
	if err == nil {
		told.InfrastructureMachinePatch, err = covers(asked.Desired.InfrastructureMachine, "spec.", coveredOfNode)
	}
	return err
}

// covers returns the patch that sets fields to what a desired object has.
func covers(desired any, prefix string, fields []string) (hooksv1.Patch, error) {
	text, err := json.Marshal(desired)
	var object map[string]any
	if err == nil {
		err = json.Unmarshal(text, &object)
	}
	if err != nil {
		return hooksv1.Patch{}, err
	}
	patch := map[string]any{}
	for _, field := range fields {
		path := strings.Split(prefix+field, ".")
		if value, isSet, err := unstructured.NestedFieldNoCopy(object, path...); err == nil && isSet {
			_ = unstructured.SetNestedField(patch, runtime.DeepCopyJSONValue(value), path...) // which has maps only
		}
	}
	text, err = json.Marshal(patch)
	return hooksv1.Patch{PatchType: hooksv1.JSONMergePatchType, Patch: text}, err
}

// An extension changes Nodes of simulated machines.
type extension struct {
	nodes typedcorev1.NodeInterface
	now   func() time.Time
}

// The settings of the ExtensionConfig.
const (
	delaySetting = "delay" // how long an update takes
	failSetting  = "fail"  // the message with which updates fail
)

// updateMachine changes the Node of a machine, once the delay is over that begins with the first call.
func (e *extension) updateMachine(ctx context.Context, asked *hooksv1.UpdateMachineRequest, told *hooksv1.UpdateMachineResponse) error {
	var machine v1alpha1.KwokMachine
	if err := json.Unmarshal(asked.Desired.InfrastructureMachine.Raw, &machine); err != nil {
		return fmt.Errorf("the infrastructure is no KwokMachine: %w", err)
	}
	node, err := e.nodes.Get(ctx, machine.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("there is no Node %s: delete the Machine, so that another one takes its place", machine.Name)
	case err != nil:
		return err
	case node.Spec.ProviderID != machine.Spec.ProviderID:
		return fmt.Errorf("the Node %s is of another machine: its providerID is %q", node.Name, node.Spec.ProviderID)
	}
	wanted := wantedNode(node, &machine, asked.Desired.Machine.Spec.Version)
	if message := asked.Settings[failSetting]; message != "" && !isShown(node, wanted) {
		return errors.New(message)
	}
	left, err := e.wait(ctx, node, wanted, asked.Settings[delaySetting])
	if err != nil || left > 0 {
		told.RetryAfterSeconds = int32(left.Seconds()) + 1 // in full seconds, and never 0, which is done
		told.Message = fmt.Sprintf("takes %s", asked.Settings[delaySetting])
		return err
	}
	return e.show(ctx, node, wanted)
}

// wantedNode returns the Node as the machine is to have it. As at the machine's start, what the KwokMachine says counts for more than
// the Machine's version.
func wantedNode(node *corev1.Node, machine *v1alpha1.KwokMachine, version string) *corev1.Node {
	wanted := node.DeepCopy()
	if wanted.Labels == nil {
		wanted.Labels = map[string]string{}
	}
	maps.Copy(wanted.Labels, machine.Spec.Node.Labels)
	delete(wanted.Annotations, beganAnnotation)
	info := &wanted.Status.NodeInfo
	info.KubeletVersion = cmp.Or(machine.Spec.Node.KubeletVersion, version, info.KubeletVersion)
	info.OSImage = cmp.Or(machine.Spec.Node.OSImage, info.OSImage)
	return wanted
}

// isShown says whether a Node is as wanted.
func isShown(node, wanted *corev1.Node) bool {
	return equality.Semantic.DeepEqual(node.Labels, wanted.Labels) && node.Status.NodeInfo == wanted.Status.NodeInfo
}

// beganAnnotation is on the Node of a machine that is being updated: when that began, so that a restart does not start over.
const beganAnnotation = "infrastructure.runlevel.dev/update-began"

// wait returns how long an update is still to take.
func (e *extension) wait(ctx context.Context, node, wanted *corev1.Node, delay string) (time.Duration, error) {
	if delay == "" || isShown(node, wanted) {
		return 0, nil
	}
	takes, err := time.ParseDuration(delay)
	if err != nil || takes < 0 {
		return 0, fmt.Errorf("settings.%s of the ExtensionConfig is %q: write a duration, such as 5s", delaySetting, delay)
	}
	if began, err := time.Parse(time.RFC3339, node.Annotations[beganAnnotation]); err == nil {
		return max(0, began.Add(takes).Sub(e.now())), nil
	}
	began := map[string]any{"metadata": map[string]any{"annotations": map[string]any{beganAnnotation: e.now().UTC().Format(time.RFC3339)}}}
	return takes, e.patch(ctx, node.Name, began)
}

// show has the Node be as wanted: the status first, so that the annotation goes when all is done.
func (e *extension) show(ctx context.Context, node, wanted *corev1.Node) error {
	info := map[string]any{"kubeletVersion": wanted.Status.NodeInfo.KubeletVersion, "osImage": wanted.Status.NodeInfo.OSImage}
	if node.Status.NodeInfo != wanted.Status.NodeInfo {
		if err := e.patch(ctx, node.Name, map[string]any{"status": map[string]any{"nodeInfo": info}}, "status"); err != nil {
			return err
		}
	}
	if _, hasBegun := node.Annotations[beganAnnotation]; !hasBegun && isShown(node, wanted) {
		return nil
	}
	return e.patch(ctx, node.Name, map[string]any{"metadata": map[string]any{
		"labels": wanted.Labels, "annotations": map[string]any{beganAnnotation: nil},
	}})
}

func (e *extension) patch(ctx context.Context, node string, change map[string]any, subresource ...string) error {
	text, err := json.Marshal(change)
	if err == nil {
		_, err = e.nodes.Patch(ctx, node, types.MergePatchType, text, metav1.PatchOptions{}, subresource...)
	}
	if err != nil {
		return fmt.Errorf("change the Node %s: %w", node, err)
	}
	return nil
}
