// Package drainrules finds the rule by which the drain of a Machine of Cluster API treats a pod: by the pod's label,
// then by the first MachineDrainRule that selects the Machine and the pod.
//
// The package neither lists MachineDrainRules nor drains: the controller does, through package drain. An overview shows
// the effect of a drain by the same rules.
//
// Start with PodRules.
package drainrules

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/drain"
)

// PodRules returns the drain rules for the pods of a Machine, from the rules of its namespace: the label of a pod, then
// the first MachineDrainRule, by name, that matches the Machine and the pod. The client reads the namespaces of pods.
func PodRules(client kubernetes.Interface, m *clusterv1.Machine, cluster *clusterv1.Cluster,
	all []clusterv1.MachineDrainRule) (drain.PodRules, error) {
	var rules []clusterv1.MachineDrainRule
	for _, rule := range slices.SortedFunc(slices.Values(all), func(a, b clusterv1.MachineDrainRule) int {
		return strings.Compare(a.Name, b.Name)
	}) {
		isFor, err := isForMachine(rule, m, cluster)
		if err == nil {
			err = checkPodSelectors(rule)
		}
		if err != nil {
			return nil, fmt.Errorf("read MachineDrainRule %s: %w", rule.Name, err)
		}
		if isFor {
			rules = append(rules, rule)
		}
	}
	namespaces := namespaceLabels{client: client, known: map[string]labels.Set{}}
	return func(ctx context.Context, pod *corev1.Pod) (drain.PodRule, error) {
		return ruleOf(ctx, pod, rules, namespaces)
	}, nil
}

// ruleOf returns the rule of a pod.
func ruleOf(ctx context.Context, pod *corev1.Pod, rules []clusterv1.MachineDrainRule,
	namespaces namespaceLabels) (drain.PodRule, error) {
	switch value := pod.Labels[clusterv1.PodDrainLabel]; {
	case strings.EqualFold(value, "skip"):
		return drain.PodRule{Behavior: drain.SkipPod}, nil
	case strings.EqualFold(value, "wait-completed"), strings.EqualFold(value, "waitcompleted"):
		return drain.PodRule{Behavior: drain.WaitCompleted}, nil
	}
	for _, rule := range rules {
		isFor, err := isForPod(ctx, rule, pod, namespaces)
		if err != nil {
			return drain.PodRule{}, err
		}
		if isFor {
			return drain.PodRule{
				Behavior: drain.PodBehavior(rule.Spec.Drain.Behavior),
				Order:    ptr.Deref(rule.Spec.Drain.Order, 0),
			}, nil
		}
	}
	return drain.PodRule{Behavior: drain.EvictPod}, nil
}

// isForMachine reports whether a rule matches a Machine: one of its entries does, or it has none.
func isForMachine(rule clusterv1.MachineDrainRule, m *clusterv1.Machine, cluster *clusterv1.Cluster) (bool, error) {
	isFor := len(rule.Spec.Machines) == 0
	var problems []error
	for _, entry := range rule.Spec.Machines {
		ofMachine, err := selects(entry.Selector, m.Labels)
		ofCluster, clusterErr := selects(entry.ClusterSelector, cluster.Labels)
		problems = append(problems, err, clusterErr)
		isFor = isFor || ofMachine && ofCluster
	}
	return isFor, errors.Join(problems...)
}

// isForPod reports whether a rule matches a pod: one of its entries does, or it has none.
func isForPod(ctx context.Context, rule clusterv1.MachineDrainRule, pod *corev1.Pod,
	namespaces namespaceLabels) (bool, error) {
	for _, entry := range rule.Spec.Pods {
		ofPod, err := selects(entry.Selector, pod.Labels)
		if err != nil || !ofPod {
			continue
		}
		if entry.NamespaceSelector == nil {
			return true, nil
		}
		labels, err := namespaces.of(ctx, pod.Namespace)
		if err != nil {
			return false, err
		}
		if ofNamespace, _ := selects(entry.NamespaceSelector, labels); ofNamespace {
			return true, nil
		}
	}
	return len(rule.Spec.Pods) == 0, nil
}

// checkPodSelectors returns an error if a selector for pods can't be read.
func checkPodSelectors(rule clusterv1.MachineDrainRule) error {
	var problems []error
	for _, entry := range rule.Spec.Pods {
		_, err := selects(entry.Selector, nil)
		_, namespaceErr := selects(entry.NamespaceSelector, nil)
		problems = append(problems, err, namespaceErr)
	}
	return errors.Join(problems...)
}

// selects reports whether a selector selects labels. Without a selector all labels are selected.
func selects(selector *metav1.LabelSelector, set labels.Set) (bool, error) {
	if selector == nil {
		return true, nil
	}
	read, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && read.Matches(set), err
}

// namespaceLabels reads the labels of namespaces, each once, and only where a rule needs them.
type namespaceLabels struct {
	client kubernetes.Interface
	known  map[string]labels.Set
}

func (n namespaceLabels) of(ctx context.Context, name string) (labels.Set, error) {
	if set, ok := n.known[name]; ok {
		return set, nil
	}
	namespace, err := n.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get Namespace %s: %w", name, err)
	}
	n.known[name] = namespace.Labels
	return namespace.Labels, nil
}
