package runtimehook

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/api/runtime/catalog"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	"github.com/runlevel/runlevel/internal/text/printable"
)

const (
	longestTimeout = 30  // seconds, of a handler
	maxHandlers    = 512 // handlers of an extension, as many as a status can have
)

// Discover calls the hook Discovery of an extension, and returns its handlers for the status of its ExtensionConfig. An
// answer with an invalid handler is refused as a whole; the error lists all problems.
func (c *Client) Discover(ctx context.Context,
	config *runtimev1.ExtensionConfig) ([]runtimev1.ExtensionHandler, error) {
	if problems := validation.IsDNS1123Label(config.Name); len(problems) > 0 {
		return nil, &CallError{
			Extension: config.Name,
			Problem:   "has a name that is not a DNS label",
			Advice:    "create an ExtensionConfig whose name has only letters, digits and hyphens",
		}
	}
	target, err := newCall(config, config.Name, Discovery, "", defaultTimeout)
	if err != nil {
		return nil, err
	}
	request := &hooksv1.DiscoveryRequest{TypeMeta: typeMeta("DiscoveryRequest")}
	var response hooksv1.DiscoveryResponse
	if err := c.post(ctx, target, request, &response); err != nil {
		return nil, err
	}
	if err := checkStatus(config.Name, response.Status, response.Message); err != nil {
		return nil, err
	}
	if problems := problemsOf(response.Handlers); len(problems) > 0 {
		const shownProblems = 5
		return nil, wrongAnswer(config.Name, "sent invalid handlers for Discovery (%s)",
			printable.Few(problems, shownProblems))
	}
	handlers := make([]runtimev1.ExtensionHandler, 0, len(response.Handlers))
	for _, h := range response.Handlers {
		handlers = append(handlers, runtimev1.ExtensionHandler{
			Name:           h.Name + "." + config.Name,
			RequestHook:    runtimev1.GroupVersionHook{APIVersion: h.RequestHook.APIVersion, Hook: h.RequestHook.Hook},
			TimeoutSeconds: ptr.Deref(h.TimeoutSeconds, hooksv1.DefaultHandlersTimeoutSeconds),
			FailurePolicy:  runtimev1.FailurePolicy(ptr.Deref(h.FailurePolicy, hooksv1.FailurePolicyFail)),
		})
	}
	return handlers, nil
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: hooksv1.GroupVersion.String(), Kind: kind}
}

// checkStatus returns an error unless an extension answered Success.
func checkStatus(extension string, status hooksv1.ResponseStatus, message string) error {
	switch status {
	case hooksv1.ResponseStatusSuccess:
		return nil
	case hooksv1.ResponseStatusFailure:
		return wrongAnswer(extension, "answered Failure (%s)", shorten(message))
	default:
		return wrongAnswer(extension, "answered a status %q, not Success or Failure",
			shorten(string(status)))
	}
}

// problemsOf returns the problems of the handlers of a Discovery.
func problemsOf(handlers []hooksv1.ExtensionHandler) []string {
	if len(handlers) > maxHandlers {
		return []string{fmt.Sprintf("there are %d of them, and %d is the most", len(handlers), maxHandlers)}
	}
	known := catalog.New()
	_ = hooksv1.AddToCatalog(known)
	var problems, names []string
	for _, h := range handlers {
		if slices.Contains(names, h.Name) {
			problems = append(problems, fmt.Sprintf("two handlers are called %q", shorten(h.Name)))
		}
		names = append(names, h.Name)
		for _, problem := range problemsOfHandler(h, known) {
			problems = append(problems, fmt.Sprintf("handler %q: %s", shorten(h.Name), problem))
		}
	}
	return problems
}

func problemsOfHandler(h hooksv1.ExtensionHandler, known *catalog.Catalog) []string {
	var problems []string
	if len(validation.IsDNS1123Label(h.Name)) > 0 {
		problems = append(problems, "its name is not a DNS label")
	}
	if seconds := ptr.Deref(h.TimeoutSeconds, 0); seconds < 0 || seconds > longestTimeout {
		problems = append(problems,
			fmt.Sprintf("timeoutSeconds is %d, and must be between 0 and %d", seconds, longestTimeout))
	}
	policy := ptr.Deref(h.FailurePolicy, hooksv1.FailurePolicyFail)
	if policy != hooksv1.FailurePolicyFail && policy != hooksv1.FailurePolicyIgnore {
		problems = append(problems,
			fmt.Sprintf("failurePolicy is %q, and must be Fail or Ignore", shorten(string(policy))))
	}
	if policy == hooksv1.FailurePolicyIgnore && h.RequestHook.Hook == UpdateMachine {
		problems = append(problems,
			"failurePolicy Ignore of UpdateMachine is refused, since an extension that is down would count as one "+
				"that has updated the machine: use Fail")
	}
	version, err := schema.ParseGroupVersion(h.RequestHook.APIVersion)
	hook := catalog.GroupVersionHook{Group: version.Group, Version: version.Version, Hook: h.RequestHook.Hook}
	if err != nil || !known.IsHookRegistered(hook) || strings.EqualFold(hook.Hook, Discovery) {
		problems = append(problems,
			fmt.Sprintf("unknown hook %s of %q", shorten(h.RequestHook.Hook), shorten(h.RequestHook.APIVersion)))
	}
	return problems
}
