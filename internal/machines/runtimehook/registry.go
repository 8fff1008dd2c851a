package runtimehook

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A Registry finds the extension for a hook. It has no state: the handlers of extensions are in the statuses
// of ExtensionConfigs.
type Registry struct {
	Configs    client.Reader // reads ExtensionConfigs
	Namespaces client.Reader // reads the labels of namespaces, if a namespaceSelector needs them
}

// Find returns the handler of a hook for the objects of a namespace; nil if there is none. Two handlers for one hook
// are an error, since each would cover only a part of the change. Find also fails while an extension that serves the
// namespace is not discovered: whether it has a handler is not known, and replaced machines could not be restored.
func (r *Registry) Find(ctx context.Context, hook, namespace string) (*Handler, error) {
	serving, err := r.serving(ctx, namespace)
	if err != nil {
		return nil, err
	}
	return serving.handler(hook)
}

// servingExtensions are the extensions of a namespace.
type servingExtensions struct {
	discovered []*runtimev1.ExtensionConfig
	unknown    []unknownExtension
}

// An unknownExtension may serve a namespace and have a handler.
type unknownExtension struct {
	config  *runtimev1.ExtensionConfig
	problem error
}

// serving returns the extensions of a namespace, ordered by their names.
func (r *Registry) serving(ctx context.Context, namespace string) (*servingExtensions, error) {
	var configs runtimev1.ExtensionConfigList
	if err := r.Configs.List(ctx, &configs); err != nil {
		return nil, fmt.Errorf("list ExtensionConfigs: %w", err)
	}
	found := &servingExtensions{}
	slices.SortFunc(configs.Items, func(a, b runtimev1.ExtensionConfig) int { return cmp.Compare(a.Name, b.Name) })
	for i := range configs.Items {
		config := &configs.Items[i]
		serves, err := r.serves(ctx, config, namespace)
		if serves && err == nil {
			err = checkDiscovered(config)
		}
		switch {
		case err != nil:
			found.unknown = append(found.unknown, unknownExtension{config, err})
		case serves:
			found.discovered = append(found.discovered, config)
		}
	}
	return found, nil
}

// handler returns the only handler of a hook; nil if there is none.
func (s *servingExtensions) handler(hook string) (*Handler, error) {
	if len(s.unknown) > 0 {
		return nil, s.unknown[0].problem
	}
	return onlyOne(s.handlers(hook), hook)
}

// updater returns the handler that updates machines; nil if there is none. It may have begun an update, which has to
// end: an extension that was never known to have the hook does not matter beside it.
func (s *servingExtensions) updater() (*Handler, error) {
	found := s.handlers(UpdateMachine)
	hadHook := func(e unknownExtension) bool { return len(handlersOf(e.config, UpdateMachine)) > 0 }
	if len(found) == 1 && !slices.ContainsFunc(s.unknown, hadHook) {
		return found[0], nil
	}
	return s.handler(UpdateMachine)
}

func (s *servingExtensions) handlers(hook string) []*Handler {
	var found []*Handler
	for _, config := range s.discovered {
		found = append(found, handlersOf(config, hook)...)
	}
	return found
}

// serves reports whether an extension serves a namespace. An extension being deleted serves none.
func (r *Registry) serves(ctx context.Context, config *runtimev1.ExtensionConfig,
	namespace string) (bool, error) {
	if config.DeletionTimestamp != nil {
		return false, nil
	}
	// Without a selector an extension serves all namespaces, by its API; LabelSelectorAsSelector would select none.
	if config.Spec.NamespaceSelector == nil {
		return true, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(config.Spec.NamespaceSelector)
	if err != nil {
		return false, &CallError{
			Extension: config.Name, Problem: "has a namespaceSelector that can't be read (" + shorten(err.Error()) +
				")",
			Advice: "correct spec.namespaceSelector of ExtensionConfig " + config.Name,
		}
	}
	if selector.Empty() {
		return true, nil
	}
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := r.Namespaces.Get(ctx, client.ObjectKey{Name: namespace}, found); err != nil {
		return false, fmt.Errorf("read the labels of namespace %s for ExtensionConfig %s: %w", namespace, config.Name,
			err)
	}
	return selector.Matches(labels.Set(found.Labels)), nil
}

// checkDiscovered returns an error if the handlers of an extension are not known. The handlers of an earlier successful
// Discovery are used while the extension is down.
func checkDiscovered(config *runtimev1.ExtensionConfig) error {
	discovered := meta.FindStatusCondition(config.Status.Conditions, runtimev1.ExtensionConfigDiscoveredCondition)
	switch {
	case discovered == nil || discovered.ObservedGeneration != config.Generation:
		return &CallError{
			Extension: config.Name, Problem: "is not discovered yet",
			Advice: "wait, or see whether ExtensionConfig " + config.Name + " is paused",
		}
	case discovered.Status != metav1.ConditionTrue && len(config.Status.Handlers) == 0:
		return &CallError{
			Extension: config.Name, Problem: "is not discovered (" + shorten(discovered.Message) + ")",
			Advice: "correct ExtensionConfig " + config.Name +
				", or delete it: nothing is updated or replaced meanwhile",
		}
	}
	return nil
}

func handlersOf(config *runtimev1.ExtensionConfig, hook string) []*Handler {
	var found []*Handler
	for _, h := range config.Status.Handlers {
		if h.RequestHook.Hook == hook && h.RequestHook.APIVersion == hooksv1.GroupVersion.String() {
			found = append(found, &Handler{h, config})
		}
	}
	return found
}

func onlyOne(found []*Handler, hook string) (*Handler, error) {
	switch len(found) {
	case 0:
		return nil, nil
	case 1:
		return found[0], nil
	}
	var names []string
	for _, h := range found {
		names = append(names, h.Name)
	}
	return nil, fmt.Errorf("extensions %s all serve the hook %s, but only one may: delete an ExtensionConfig, or "+
		"narrow its namespaceSelector",
		strings.Join(names, ", "), hook)
}
