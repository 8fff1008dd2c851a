package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/program/startup"
	"github.com/runlevel/runlevel/pkg/extensionserver"
)

// coveredOfMachine and coveredOfNode are the fields that change in place: of a Machine's spec, and of a KwokMachine's.
// The removal of a label or a version is not covered: the value of the Node without it is not known.
var (
	coveredOfMachine = []string{"version"}
	coveredOfNode    = []string{"node.kubeletVersion", "node.osImage", "node.labels"}
)

func canUpdateMachineSet(_ context.Context, request *hooksv1.CanUpdateMachineSetRequest,
	response *hooksv1.CanUpdateMachineSetResponse) error {
	machines, err := covers(request.Desired.MachineSet, "spec.template.spec.", coveredOfMachine)
	response.MachineSetPatch = machines
	if err == nil {
		response.InfrastructureMachineTemplatePatch, err = covers(request.Desired.InfrastructureMachineTemplate,
			"spec.template.spec.", coveredOfNode)
	}
	return err
}

func canUpdateMachine(_ context.Context, request *hooksv1.CanUpdateMachineRequest,
	response *hooksv1.CanUpdateMachineResponse) error {
	machine, err := covers(request.Desired.Machine, "spec.", coveredOfMachine)
	response.MachinePatch = machine
	if err == nil {
		response.InfrastructureMachinePatch, err = covers(request.Desired.InfrastructureMachine, "spec.", coveredOfNode)
	}
	return err
}

// covers returns the patch that sets fields to the values of the desired object.
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
			_ = unstructured.SetNestedField(patch, runtime.DeepCopyJSONValue(value), path...) // patch has maps only
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
func (e *extension) updateMachine(ctx context.Context, request *hooksv1.UpdateMachineRequest,
	response *hooksv1.UpdateMachineResponse) error {
	var machine v1alpha1.KwokMachine
	if err := json.Unmarshal(request.Desired.InfrastructureMachine.Raw, &machine); err != nil {
		return fmt.Errorf("the infrastructure is not a KwokMachine: %w", err)
	}
	node, err := e.nodes.Get(ctx, machine.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("the Node %s does not exist: delete the Machine, so that it is replaced", machine.Name)
	case err != nil:
		return err
	case node.Spec.ProviderID != machine.Spec.ProviderID:
		return fmt.Errorf("the Node %s is of another machine: its providerID is %q", node.Name, node.Spec.ProviderID)
	}
	wanted := wantedNode(node, &machine, request.Desired.Machine.Spec.Version)
	if message := request.Settings[failSetting]; message != "" && !isUpToDate(node, wanted) {
		return errors.New(message)
	}
	left, err := e.wait(ctx, node, wanted, request.Settings[delaySetting])
	if err != nil || left > 0 {
		response.RetryAfterSeconds = int32(left.Seconds()) + 1 // full seconds; 0 means done
		response.Message = fmt.Sprintf("takes %s", request.Settings[delaySetting])
		return err
	}
	return e.update(ctx, node, wanted)
}

// wantedNode returns the desired Node of a machine. As when a machine starts, the fields of the KwokMachine take
// precedence over the Machine's version.
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

// isUpToDate reports whether a Node has the wanted labels and versions.
func isUpToDate(node, wanted *corev1.Node) bool {
	return equality.Semantic.DeepEqual(node.Labels, wanted.Labels) && node.Status.NodeInfo == wanted.Status.NodeInfo
}

// beganAnnotation on a Node is when the update of its machine began, so that a restart of the extension does not start
// over.
const beganAnnotation = "infrastructure.runlevel.dev/update-began"

// wait returns how long an update still takes.
func (e *extension) wait(ctx context.Context, node, wanted *corev1.Node, delay string) (time.Duration, error) {
	if delay == "" || isUpToDate(node, wanted) {
		return 0, nil
	}
	takes, err := time.ParseDuration(delay)
	if err != nil || takes < 0 {
		return 0, fmt.Errorf("settings.%s of the ExtensionConfig is %q: write a duration, such as 5s", delaySetting,
			delay)
	}
	if began, err := time.Parse(time.RFC3339, node.Annotations[beganAnnotation]); err == nil {
		return max(0, began.Add(takes).Sub(e.now())), nil
	}
	began := map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{beganAnnotation: e.now().UTC().Format(time.RFC3339)},
	}}
	return takes, e.patch(ctx, node.Name, began)
}

// update patches the Node: the status first, so that the annotation is removed when all is done.
func (e *extension) update(ctx context.Context, node, wanted *corev1.Node) error {
	info := map[string]any{
		"kubeletVersion": wanted.Status.NodeInfo.KubeletVersion,
		"osImage":        wanted.Status.NodeInfo.OSImage,
	}
	if node.Status.NodeInfo != wanted.Status.NodeInfo {
		if err := e.patch(ctx, node.Name, map[string]any{"status": map[string]any{"nodeInfo": info}},
			"status"); err != nil {
			return err
		}
	}
	if _, hasBegun := node.Annotations[beganAnnotation]; !hasBegun && isUpToDate(node, wanted) {
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

// newKwokExtension returns the command that runs a runtime extension which updates simulated machines in place. It is
// for tests, demonstrations and rehearsals of rollouts, so it can be slow and can fail.
func newKwokExtension() *cobra.Command {
	var serving extensionserver.ServingFlags
	command := &cobra.Command{
		Use:   "kwok-extension --cert-file FILE --key-file FILE",
		Short: "update simulated machines in place, as a runtime extension of Cluster API",
		Long: `Run a runtime extension of Cluster API that updates simulated machines (KwokMachines) in
place: the version, labels and operating system image of their Nodes. Register it with an ExtensionConfig, whose
settings "delay" and "fail" define how long an update takes, and with which message it fails.`,
		RunE: func(c *cobra.Command, _ []string) error {
			config, err := startup.ConfigOf("kwok-extension")
			if err != nil {
				return err
			}
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				return err
			}
			e := &extension{nodes: client.CoreV1().Nodes(), now: time.Now}
			server := &extensionserver.Server{
				CanUpdateMachineSet: canUpdateMachineSet, CanUpdateMachine: canUpdateMachine,
				UpdateMachine: e.updateMachine,
			}
			return server.Serve(c.Context(), serving)
		},
	}
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	serving.AddFlags(flags)
	command.Flags().AddGoFlagSet(flags)
	return command
}
