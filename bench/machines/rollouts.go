package main

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/pkg/extensionserver"
)

// rolledOut is the phase of both rollouts, so that the one in place stands beside the other.
const rolledOut = "rolled out"

// What does a rollout.
const (
	inPlace       = "Runlevel, in place"
	byReplacement = "Runlevel, by replacement"
)

// unavailable is how many machines of a rollout may be: a tenth. None are made beyond those wanted, whether they are replaced or not.
var unavailable = intstr.FromString("10%")

// A deployment is a MachineDeployment of Cluster API.
type deployment struct {
	*stand
	object *clusterv1.MachineDeployment
}

func newDeployment(s *stand, machines int) *deployment {
	d := &clusterv1.MachineDeployment{ObjectMeta: inBench("rollout")}
	labels := map[string]string{"deployment": d.Name}
	d.Spec.ClusterName, d.Spec.Replicas = clusterName, ptr.To(int32(machines))
	d.Spec.Selector.MatchLabels, d.Spec.Template.Labels = labels, labels
	d.Spec.Rollout.Strategy.Type = clusterv1.RollingUpdateMachineDeploymentStrategyType
	d.Spec.Rollout.Strategy.RollingUpdate.MaxSurge = ptr.To(intstr.FromInt32(0))
	d.Spec.Rollout.Strategy.RollingUpdate.MaxUnavailable = &unavailable
	d.Spec.Template.Spec.ClusterName, d.Spec.Template.Spec.Bootstrap.DataSecretName = clusterName, ptr.To("none")
	d.Spec.Template.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: v1alpha1.GroupVersion.Group, Kind: "KwokMachineTemplate",
	}
	return &deployment{stand: s, object: d}
}

// measureRollouts measures the rollouts of a MachineDeployment.
func measureRollouts(ctx context.Context, o options, all *results) error {
	if o.rollout == 0 {
		return nil
	}
	extension := httptest.NewTLSServer(newExtension())
	defer extension.Close()
	config := &runtimev1.ExtensionConfig{ObjectMeta: metav1.ObjectMeta{Name: "bench"}}
	config.Spec.ClientConfig.URL = extension.URL
	config.Spec.ClientConfig.CABundle = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: extension.Certificate().Raw})
	return withController(ctx, o, 1, clusterAPI{}, func(s *stand) error {
		return newDeployment(s, o.rollout).measure(ctx, config, all)
	})
}

// measure measures how the machines are made, and then two rollouts: one with an extension, and one without.
func (d *deployment) measure(ctx context.Context, extension *runtimev1.ExtensionConfig, all *results) error {
	if err := d.reach(ctx, span{Phase: making}, "first", 0, all); err != nil {
		return err
	}
	if err := d.register(ctx, extension); err != nil {
		return err
	}
	if err := d.reach(ctx, span{Of: inPlace, Phase: rolledOut}, "second", int(*d.object.Spec.Replicas), all); err != nil {
		return err
	}
	if err := d.client.Delete(ctx, extension); err != nil {
		return err
	}
	if err := pause(ctx, restless); err != nil { // the controller hears of it by a watch
		return err
	}
	return d.reach(ctx, span{Of: byReplacement, Phase: rolledOut}, "third", 0, all)
}

// newExtension returns a runtime extension that covers images of operating systems, and whose updates are done at once.
func newExtension() http.Handler {
	return &extensionserver.ExtensionServer{
		CanUpdateMachineSet: func(_ context.Context, asked *hooksv1.CanUpdateMachineSetRequest, told *hooksv1.CanUpdateMachineSetResponse) error {
			image := asked.Desired.MachineSet.Spec.Template.Spec.InfrastructureRef.Name // as the template is named
			told.InfrastructureMachineTemplatePatch = hooksv1.Patch{
				PatchType: hooksv1.JSONMergePatchType, Patch: fmt.Appendf(nil, `{"spec":{"template":{"spec":{"node":{"osImage":%q}}}}}`, image),
			}
			return nil
		},
		UpdateMachine: func(context.Context, *hooksv1.UpdateMachineRequest, *hooksv1.UpdateMachineResponse) error { return nil },
	}
}

// register makes an ExtensionConfig, and waits until the controller knows what the extension answers.
func (s *stand) register(ctx context.Context, config *runtimev1.ExtensionConfig) error {
	if err := s.client.Create(ctx, config); err != nil {
		return err
	}
	err := s.until(ctx, func(ctx context.Context) (bool, error) {
		err := s.client.Get(ctx, client.ObjectKeyFromObject(config), config)
		return meta.IsStatusConditionTrue(config.Status.Conditions, runtimev1.ExtensionConfigDiscoveredCondition), err
	})
	if err != nil {
		return fmt.Errorf("ExtensionConfig %s is not discovered: %w", config.Name, err)
	}
	return nil
}

// until waits until something is as wanted, while the controller runs.
func (s *stand) until(ctx context.Context, isWanted wait.ConditionWithContextFunc) error {
	return wait.PollUntilContextTimeout(ctx, look, patience, true, func(ctx context.Context) (bool, error) {
		if err := s.hasEnded(); err != nil {
			return false, err
		}
		return isWanted(ctx)
	})
}

// reach measures until all machines have an image. So many of those before are to be there still: else, it was another rollout.
func (d *deployment) reach(ctx context.Context, s span, image string, staying int, all *results) error {
	before, err := d.machines(ctx)
	if err != nil {
		return err
	}
	s.Machines = int(*d.object.Spec.Replicas)
	s.Fleet = fmt.Sprintf("%d KwokMachines of a MachineDeployment", s.Machines)
	s, err = d.meter.during(ctx, s, func() error {
		if err := d.demand(ctx, image); err != nil {
			return err
		}
		return d.await(ctx, image)
	})
	if err != nil {
		return fmt.Errorf("%s, image %s: %w", s.Fleet, image, err)
	}
	after, err := d.machines(ctx)
	if err != nil {
		return err
	}
	if stayed := before.Intersection(after).Len(); stayed != staying || after.Len() != s.Machines {
		return fmt.Errorf("%s, image %s: %d machines of %d stayed, not %d", s.Fleet, image, stayed, before.Len(), staying)
	}
	all.add(s)
	return nil
}

// demand has the deployment want machines of an image. It is made with the first one.
func (d *deployment) demand(ctx context.Context, image string) error {
	template := &v1alpha1.KwokMachineTemplate{ObjectMeta: inBench(image)}
	template.Spec.Template.Spec.Node.OSImage = image
	if err := d.client.Create(ctx, template); err != nil {
		return err
	}
	if d.object.UID != "" {
		return d.client.Patch(ctx, d.object, merge(fmt.Sprintf(`{"spec":{"template":{"spec":{"infrastructureRef":{"name":%q}}}}}`, image)))
	}
	d.object.Spec.Template.Spec.InfrastructureRef.Name = image
	return d.client.Create(ctx, d.object)
}

// await waits until all machines have an image and are available, and the MachineSets of others are gone.
func (d *deployment) await(ctx context.Context, image string) error {
	return d.until(ctx, func(ctx context.Context) (bool, error) {
		if err := d.client.Get(ctx, client.ObjectKeyFromObject(d.object), d.object); err != nil || !areUpToDate(d.object) {
			return false, err
		}
		var all clusterv1.MachineSetList
		err := d.client.List(ctx, &all, client.InNamespace(namespace))
		return len(all.Items) == 1 && all.Items[0].Spec.Template.Spec.InfrastructureRef.Name == image, err
	})
}

// areUpToDate says whether a deployment counts all its machines as up to date and available.
func areUpToDate(d *clusterv1.MachineDeployment) bool {
	wanted, s := *d.Spec.Replicas, d.Status
	return s.ObservedGeneration == d.Generation && ptr.Deref(s.Replicas, 0) == wanted &&
		ptr.Deref(s.UpToDateReplicas, 0) == wanted && ptr.Deref(s.AvailableReplicas, 0) == wanted
}

// machines returns the UIDs of the deployment's machines.
func (d *deployment) machines(ctx context.Context) (sets.Set[types.UID], error) {
	var all clusterv1.MachineList
	err := d.client.List(ctx, &all, client.InNamespace(namespace), client.MatchingLabels(d.object.Spec.Selector.MatchLabels))
	uids := sets.New[types.UID]()
	for _, machine := range all.Items {
		uids.Insert(machine.UID)
	}
	return uids, err
}
