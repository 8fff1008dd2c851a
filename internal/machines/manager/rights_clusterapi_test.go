package manager_test

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

// addCluster creates a Cluster, with a Machine of its control plane: without any, no node is drained.
func (s *rightsScene) addCluster() {
	s.Helper()
	infrastructure := referTo("ExternalMachine", "plane")
	cluster := &clusterv1.Cluster{
		ObjectMeta: s.named("c"),
		Spec:       clusterv1.ClusterSpec{InfrastructureRef: infrastructure},
	}
	plane := &clusterv1.Machine{ObjectMeta: s.named("plane"), Spec: clusterv1.MachineSpec{
		ClusterName: "c", InfrastructureRef: infrastructure,
		Bootstrap: clusterv1.Bootstrap{DataSecretName: ptr.To("data")},
	}}
	plane.Labels = map[string]string{clusterv1.MachineControlPlaneLabel: "", clusterv1.ClusterNameLabel: "c"}
	s.MustCreate(cluster)
	s.MustCreate(plane)
}

func (s *rightsScene) named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: s.Namespace, Name: name}
}

// referTo returns a reference to a kind of the payload.
func referTo(kind, name string) clusterv1.ContractVersionedObjectReference {
	return clusterv1.ContractVersionedObjectReference{APIGroup: v1alpha1.GroupVersion.Group, Kind: kind, Name: name}
}

// addSet creates a MachineSet of one machine, and its templates when it asks for them, and returns the set and the
// machine.
func (s *rightsScene) addSet(name, template string, bootstrap clusterv1.Bootstrap, templates ...client.Object,
) (*clusterv1.MachineSet, *clusterv1.Machine) {
	s.Helper()
	labels := map[string]string{"set": name}
	set := &clusterv1.MachineSet{ObjectMeta: s.named(name)}
	set.Spec = clusterv1.MachineSetSpec{
		ClusterName: "c",
		Replicas:    ptr.To[int32](1),
		Selector:    metav1.LabelSelector{MatchLabels: labels},
	}
	set.Spec.Template.Labels = labels
	set.Spec.Template.Spec = clusterv1.MachineSpec{
		ClusterName:       "c",
		InfrastructureRef: referTo(template, name),
		Bootstrap:         bootstrap,
	}
	s.MustCreate(set)
	for _, missing := range templates {
		machinetest.Await(s, s, set, client.ObjectKeyFromObject(set), func(set *clusterv1.MachineSet) bool {
			up := meta.FindStatusCondition(set.Status.Conditions, clusterv1.ScalingUpCondition)
			return up != nil && strings.Contains(up.Message, s.Namespace+"/"+missing.GetName()+": ")
		})
		s.MustCreate(missing)
	}
	var machines clusterv1.MachineList
	machinetest.Await(s, s, set, client.ObjectKeyFromObject(set), func(*clusterv1.MachineSet) bool {
		s.Must(s.List(s.Context(), &machines, client.InNamespace(s.Namespace), client.MatchingLabels(labels)))
		return len(machines.Items) == 1
	})
	return set, &machines.Items[0]
}

// drainACluster makes a set of simulated machines give up its machine, whose node has a pod that a rule is for, and a
// volume.
func (s *rightsScene) drainACluster() {
	s.Helper()
	rule := &clusterv1.MachineDrainRule{ObjectMeta: s.named("all"), Spec: clusterv1.MachineDrainRuleSpec{
		Drain: clusterv1.MachineDrainRuleDrainConfig{Behavior: clusterv1.MachineDrainRuleDrainBehaviorDrain},
		Pods: []clusterv1.MachineDrainRulePodSelector{{NamespaceSelector: &metav1.LabelSelector{
			MatchLabels: map[string]string{"kubernetes.io/metadata.name": s.Namespace},
		}}},
	}}
	s.MustCreate(rule)
	set, m := s.addSet("simulated", "KwokMachineTemplate",
		clusterv1.Bootstrap{ConfigRef: referTo("KwokConfigTemplate", "plain")},
		&v1alpha1.KwokConfigTemplate{ObjectMeta: s.named("plain")},
		&v1alpha1.KwokMachineTemplate{ObjectMeta: s.named("simulated")})
	machinetest.Await(s, s, set, client.ObjectKeyFromObject(set), func(set *clusterv1.MachineSet) bool {
		return ptr.Deref(set.Status.ReadyReplicas, 0) == 1
	})
	pod := &corev1.Pod{ObjectMeta: s.named("drained-by-rule")}
	pod.Spec = corev1.PodSpec{NodeName: m.Name, Containers: []corev1.Container{{Name: "main", Image: "example"}}}
	s.MustCreate(pod)
	attachment := s.attachAVolume(m.Name)
	s.patch(set, `{"spec":{"replicas":0}}`)
	machinetest.Await(s, s, m, client.ObjectKeyFromObject(m), func(m *clusterv1.Machine) bool {
		return slices.ContainsFunc(m.Status.Conditions, func(c metav1.Condition) bool {
			return c.Type == clusterv1.MachineDeletingCondition &&
				strings.HasSuffix(c.Message, "\n* PersistentVolumeClaims: "+s.Namespace+"/data")
		})
	})
	s.MustDelete(attachment)
	s.AwaitGone(m)
}

// attachAVolume attaches a volume of a claim to a node.
func (s *rightsScene) attachAVolume(node string) *storagev1.VolumeAttachment {
	s.Helper()
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			ClaimRef: &corev1.ObjectReference{
				Kind:      "PersistentVolumeClaim",
				Namespace: s.Namespace,
				Name:      "data",
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver:       "csi.example.com",
				VolumeHandle: "v",
			}},
		}}
	attachment := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "csi.example.com", NodeName: node,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume.Name},
		}}
	s.MustCreate(volume)
	s.MustCreate(attachment)
	attachment.Status.Attached = true
	s.Must(s.Status().Update(s.Context(), attachment))
	return attachment
}

// terminateOfClusterByHand lets a set create a machine whose infrastructure a person provides and terminates.
func (s *rightsScene) terminateOfClusterByHand() {
	s.Helper()
	set, m := s.addSet("racked", "ExternalMachineTemplate", clusterv1.Bootstrap{DataSecretName: ptr.To("data")},
		&v1alpha1.ExternalMachineTemplate{ObjectMeta: s.named("racked")})
	instance := &v1alpha1.ExternalMachine{ObjectMeta: s.named(m.Name)}
	s.patch(instance, `{"spec":{"providerID":"hand://2"}}`)
	machinetest.Await(s, s, m, client.ObjectKeyFromObject(m), func(m *clusterv1.Machine) bool {
		return m.Spec.ProviderID == "hand://2"
	})
	s.patch(set, `{"spec":{"replicas":0}}`)
	machinetest.Await(s, s, instance, client.ObjectKeyFromObject(instance),
		func(i *v1alpha1.ExternalMachine) bool {
			return i.DeletionTimestamp != nil
		})
	s.patch(instance, `{"spec":{"terminated":true}}`)
	s.AwaitGone(m)
}

// deployMachines creates a deployment with the existing templates, updates its machine in place to another template,
// and deletes the deployment.
func (s *rightsScene) deployMachines() {
	s.Helper()
	labels := map[string]string{"deployment": "rolled"}
	deployment := &clusterv1.MachineDeployment{ObjectMeta: s.named("rolled")}
	deployment.Spec = clusterv1.MachineDeploymentSpec{
		ClusterName: "c",
		Replicas:    ptr.To[int32](1),
		Selector:    metav1.LabelSelector{MatchLabels: labels},
	}
	// with one more machine, the only one would be replaced
	deployment.Spec.Rollout.Strategy = clusterv1.MachineDeploymentRolloutStrategy{
		Type: clusterv1.RollingUpdateMachineDeploymentStrategyType,
		RollingUpdate: clusterv1.MachineDeploymentRolloutStrategyRollingUpdate{
			MaxSurge: ptr.To(intstr.FromInt32(0)), MaxUnavailable: ptr.To(intstr.FromInt32(1)),
		},
	}
	deployment.Spec.Template.Labels = labels
	deployment.Spec.Template.Spec = clusterv1.MachineSpec{
		ClusterName: "c", InfrastructureRef: referTo("KwokMachineTemplate", "simulated"),
		Bootstrap: clusterv1.Bootstrap{ConfigRef: referTo("KwokConfigTemplate", "plain")},
	}
	s.MustCreate(deployment)
	machinetest.Await(s, s, deployment, client.ObjectKeyFromObject(deployment),
		func(d *clusterv1.MachineDeployment) bool {
			return ptr.Deref(d.Status.ReadyReplicas, 0) == 1
		})
	before := s.machineOf(labels)
	later := &v1alpha1.KwokMachineTemplate{ObjectMeta: s.named("later")}
	later.Spec.Template.Spec.StartAfter = metav1.Duration{Duration: time.Second}
	s.MustCreate(later)
	s.patch(deployment, `{"spec":{"template":{"spec":{"infrastructureRef":{"name":"later"}}}}}`)
	machinetest.Await(s, s, deployment, client.ObjectKeyFromObject(deployment),
		func(d *clusterv1.MachineDeployment) bool {
			return d.Status.ObservedGeneration == d.Generation && ptr.Deref(d.Status.UpToDateReplicas, 0) == 1 &&
				ptr.Deref(d.Status.Replicas, 0) == 1
		})
	if after := s.machineOf(labels); after != before {
		s.Errorf("machine %s was replaced by %s", before, after)
	}
	s.expectUpdated(before)
	s.replaceUnhealthy(labels, before)
	s.MustDelete(deployment)
	s.AwaitGone(deployment)
}

// replaceUnhealthy lets a health check mark an annotated machine, and its set replace it.
func (s *rightsScene) replaceUnhealthy(labels map[string]string, name string) {
	s.Helper()
	check := &clusterv1.MachineHealthCheck{ObjectMeta: s.named("rolled")}
	check.Spec = clusterv1.MachineHealthCheckSpec{ClusterName: "c", Selector: metav1.LabelSelector{MatchLabels: labels}}
	s.MustCreate(check)
	m := &clusterv1.Machine{ObjectMeta: s.named(name)}
	s.patch(m, `{"metadata":{"annotations":{"`+clusterv1.RemediateMachineAnnotation+`":""}}}`)
	s.AwaitGone(m)
}

// expectUpdated checks that a machine has been updated in place: a count of the deployment alone may be that of before.
func (s *rightsScene) expectUpdated(name string) {
	s.Helper()
	infrastructure, m := &v1alpha1.KwokMachine{}, &clusterv1.Machine{}
	s.Must(s.Get(s.Context(), client.ObjectKey{Namespace: s.Namespace, Name: name}, infrastructure))
	s.Must(s.Get(s.Context(), client.ObjectKey{Namespace: s.Namespace, Name: name}, m))
	if infrastructure.Spec.StartAfter.Duration != time.Second ||
		!meta.IsStatusConditionTrue(m.Status.Conditions, clusterv1.MachineUpToDateCondition) {
		s.Errorf("machine %s was not updated in place: %+v, %+v", name, infrastructure.Spec, m.Status.Conditions)
	}
}

// machineOf returns the name of the one machine with the labels.
func (s *rightsScene) machineOf(labels map[string]string) string {
	s.Helper()
	var machines clusterv1.MachineList
	s.Must(s.List(s.Context(), &machines, client.InNamespace(s.Namespace), client.MatchingLabels(labels)))
	if len(machines.Items) != 1 {
		s.Fatalf("%d machines", len(machines.Items))
	}
	return machines.Items[0].Name
}
