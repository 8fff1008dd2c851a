package diagnosis

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// The messages of the API server when a server that it calls does not answer, or denies a request.
var (
	deniedRequest    = regexp.MustCompile(`admission webhook "([^"]+)" denied the request`)
	failedWebhook    = regexp.MustCompile(`failed calling webhook "([^"]+)"`)
	failedConversion = regexp.MustCompile(`conversion webhook for ([^/ ]+)/[^ ,]+, Kind=(\w+) failed`)
	failedAPIServer  = regexp.MustCompile(`currently unable to handle the request|discovery of kind \S+ failed`)
)

// IsCallFailure reports whether a request failed because the API server called a webhook or an aggregated
// API, and got no answer.
func IsCallFailure(message string) bool {
	return failedWebhook.MatchString(message) || failedConversion.MatchString(message) ||
		failedAPIServer.MatchString(message)
}

// A callExplanation is the result of ExplainCall for a cause.
type callExplanation struct {
	lines []string
	err   error
}

// ExplainCall explains the message of a request for a kind that failed because the API server got no answer
// from a webhook or an aggregated API: the object that configures the call, the called Service, and why
// this Service has no endpoints. If a webhook has denied the request, it is the object that configures the webhook. A
// Diagnoser examines each cause once.
func (d *Diagnoser) ExplainCall(ctx context.Context, kind schema.GroupKind, message string) ([]string, error) {
	cause, explain := causeOf(kind, message)
	if explain == nil {
		return nil, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	explanation, isKnown := d.explanations[cause]
	if !isKnown {
		e := d.explainer("")
		explanation.lines = explain(e, ctx)
		explanation.err = errors.Join(*e.failures...)
		if d.explanations == nil {
			d.explanations = map[string]callExplanation{}
		}
		d.explanations[cause] = explanation
	}
	return explanation.lines, explanation.err
}

// causeOf returns the cause in a message, and the function that explains it; nil for another message.
func causeOf(kind schema.GroupKind, message string) (string, func(*explainer, context.Context) []string) {
	if found := deniedRequest.FindStringSubmatch(message); found != nil {
		return found[0], func(e *explainer, ctx context.Context) []string { return e.ofWebhook(ctx, found[1], true) }
	}
	if found := failedWebhook.FindStringSubmatch(message); found != nil {
		return found[0], func(e *explainer, ctx context.Context) []string { return e.ofWebhook(ctx, found[1], false) }
	}
	if found := failedConversion.FindStringSubmatch(message); found != nil {
		converted := schema.GroupKind{Group: found[1], Kind: found[2]}
		return found[0], func(e *explainer, ctx context.Context) []string { return e.ofConversion(ctx, converted) }
	}
	if failedAPIServer.MatchString(message) {
		return kind.Group, func(e *explainer, ctx context.Context) []string { return e.ofAPI(ctx, kind.Group) }
	}
	return "", nil
}

// ofWebhook explains an admission webhook that has denied a request, or given no answer.
func (e *explainer) ofWebhook(ctx context.Context, name string, isDenied bool) []string {
	var lines []string
	for _, resource := range []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"} {
		kindResource := schema.GroupVersionResource{
			Group:    "admissionregistration.k8s.io",
			Version:  "v1",
			Resource: resource,
		}
		configurations, err := e.Objects.Resource(kindResource).List(ctx, metav1.ListOptions{Limit: maxOfAKind})
		if err != nil {
			e.fail("list "+resource, err)
			continue
		}
		for _, configuration := range configurations.Items {
			webhooks, _, _ := unstructured.NestedSlice(configuration.Object, "webhooks")
			for _, webhook := range webhooks {
				fields, _ := webhook.(map[string]any)
				if fields["name"] != name {
					continue
				}
				called := fmt.Sprintf("%s %s: its webhook %s", configuration.GetKind(), configuration.GetName(), name)
				if isDenied {
					lines = append(lines, called+" has denied the request")
				} else {
					client, _, _ := unstructured.NestedMap(fields, "clientConfig")
					lines = append(lines, e.ofClient(ctx, called, client)...)
				}
				lines = append(lines, fmt.Sprintf("see \"kubectl get %s %s -o yaml\"", resource,
					configuration.GetName()))
			}
		}
	}
	return lines
}

// ofConversion explains the webhook that converts the objects of a kind.
func (e *explainer) ofConversion(ctx context.Context, kind schema.GroupKind) []string {
	definition, err := e.Definition(ctx, kind)
	if err != nil || definition == nil {
		if err != nil {
			e.fail("list customresourcedefinitions", err)
		}
		return nil
	}
	client, _, _ := unstructured.NestedMap(definition.Object, "spec", "conversion", "webhook", "clientConfig")
	return e.ofClient(ctx, "CustomResourceDefinition "+definition.GetName()+": its conversion webhook", client)
}

// ofAPI explains the aggregated APIs of a group.
func (e *explainer) ofAPI(ctx context.Context, group string) []string {
	resource := schema.GroupVersionResource{Group: kinds.APIService.Group, Version: "v1", Resource: "apiservices"}
	services, err := e.Objects.Resource(resource).List(ctx, metav1.ListOptions{Limit: maxOfAKind})
	if err != nil {
		e.fail("list apiservices", err)
		return nil
	}
	var lines []string
	for i := range services.Items {
		service := &services.Items[i]
		if served, _, _ := unstructured.NestedString(service.Object, "spec", "group"); served != group {
			continue
		}
		if verdict := ready.Check(service, ready.Full, ready.Related{}); verdict.State != ready.Ready {
			lines = append(lines, "APIService "+service.GetName()+": "+verdict.Message)
			lines = append(lines, e.ofServices(ctx, service)...)
		}
	}
	return lines
}

// ofClient explains the server of a webhook's client configuration.
func (e *explainer) ofClient(ctx context.Context, webhook string, client map[string]any) []string {
	if url, _ := client["url"].(string); url != "" {
		return []string{webhook + " is at " + printable.Line(url) + ", which the cluster knows nothing of"}
	}
	fields, _ := client["service"].(map[string]any)
	namespace, _ := fields["namespace"].(string)
	name, _ := fields["name"].(string)
	port, isSet := fields["port"].(int64)
	if !isSet {
		port = 443
	}
	lines := e.ofService(ctx, types.NamespacedName{Namespace: namespace, Name: name}, port)
	return append([]string{fmt.Sprintf("%s is at port %d of Service %s/%s", webhook, port, namespace, name)}, lines...)
}

// ofServices explains the Services that the API server calls for an object, if they have no endpoints.
func (e *explainer) ofServices(ctx context.Context, object *unstructured.Unstructured) []string {
	var lines []string
	for _, service := range kinds.CalledServices(object) {
		lines = append(lines, e.ofService(ctx, service, 0)...)
	}
	return lines
}

// ofService explains why a Service does not answer, on a port if it is known.
func (e *explainer) ofService(ctx context.Context, name types.NamespacedName, port int64) []string {
	e = e.in(name.Namespace)
	serviceLine := func(format string, args ...any) []string {
		return []string{"Service " + name.String() + ": " + fmt.Sprintf(format, args...)}
	}
	service, err := e.Client.CoreV1().Services(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return serviceLine("it does not exist")
	case err != nil:
		e.note(e.readError("get services", err))
		return nil
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		return serviceLine("it is an alias of %s, outside of the cluster", printable.Line(service.Spec.ExternalName))
	case port != 0 && !slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool {
		return int64(p.Port) == port
	}):
		return serviceLine("it has no port %d", port)
	}
	endpoints, err := ReadyEndpoints(ctx, e.Client, name)
	switch {
	case err != nil:
		e.note(e.readError("list endpointslices", err))
		return nil
	case endpoints > 0:
		return serviceLine("it has %s that are ready, so look for why they don't answer",
			printable.Count(endpoints, "endpoint"))
	case len(service.Spec.Selector) == 0:
		return serviceLine("it has no endpoints, and no selector that would find some")
	}
	return e.ofSelected(ctx, serviceLine, labels.Set(service.Spec.Selector))
}

// ReadyEndpoints returns how many endpoints of a Service are ready.
func ReadyEndpoints(ctx context.Context, client kubernetes.Interface, service types.NamespacedName) (int, error) {
	found, err := client.DiscoveryV1().EndpointSlices(service.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: labels.Set{discoveryv1.LabelServiceName: service.Name}.String(),
	})
	if err != nil {
		return 0, err
	}
	ready := 0
	for i := range found.Items {
		ready += kinds.ReadyEndpoints(&found.Items[i])
	}
	return ready, nil
}

// ofSelected explains why none of the pods that a Service selects is ready.
func (e *explainer) ofSelected(ctx context.Context, serviceLine func(string, ...any) []string,
	selector labels.Set) []string {
	pods, err := e.Client.CoreV1().Pods(e.namespace).List(ctx,
		metav1.ListOptions{LabelSelector: selector.String(), Limit: maxOfAKind})
	if err != nil {
		e.note(e.readError("list pods", err))
		return serviceLine("it has no ready endpoint")
	}
	makers := e.makers(ctx, selector)
	if len(pods.Items) == 0 {
		lines := serviceLine("it has no endpoints: no pod has the labels that it selects, %s",
			printable.Line(selector.String()))
		for i := range makers {
			lines = append(lines, fmt.Sprintf("Deployment %s/%s: it creates such pods, and has 0 of %d", e.namespace,
				makers[i].GetName(), replicas(&makers[i])))
			lines = append(lines, e.ofPods(ctx, &makers[i], nil)...)
		}
		return lines
	}
	lines := serviceLine("it has no ready endpoint, of %s", printable.Count(len(pods.Items), "pod"))
	if len(makers) == 0 {
		return append(lines, e.ofPods(ctx, &unstructured.Unstructured{}, pods.Items)...)
	}
	return append(lines, e.ofPods(ctx, &makers[0], pods.Items)...)
}

// makers returns the Deployments whose pod templates match a selector.
func (e *explainer) makers(ctx context.Context, selector labels.Set) []unstructured.Unstructured {
	resource := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	deployments, err := e.Objects.Resource(resource).Namespace(e.namespace).List(ctx,
		metav1.ListOptions{Limit: maxListed})
	if err != nil {
		e.note(e.readError("list deployments", err))
		return nil
	}
	var makers []unstructured.Unstructured
	for _, deployment := range deployments.Items {
		templateLabels, _, _ := unstructured.NestedStringMap(deployment.Object, "spec", "template", "metadata",
			"labels")
		if selector.AsSelector().Matches(labels.Set(templateLabels)) {
			makers = append(makers, deployment)
		}
	}
	return makers
}

func replicas(deployment *unstructured.Unstructured) int64 {
	wanted, _, _ := unstructured.NestedInt64(deployment.Object, "spec", "replicas")
	return wanted
}
