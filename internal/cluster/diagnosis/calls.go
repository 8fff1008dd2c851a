package diagnosis

import (
	"context"
	"errors"
	"fmt"
	"regexp"

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

// How the API server says that a server it calls has not answered.
var (
	failedWebhook    = regexp.MustCompile(`failed calling webhook "([^"]+)"`)
	failedConversion = regexp.MustCompile(`conversion webhook for ([^/ ]+)/[^ ,]+, Kind=(\w+) failed`)
	failedAPIServer  = regexp.MustCompile(`currently unable to handle the request|the cluster can't say whether it has kind`)
)

// IsCallFailure reports whether a request failed because the API server called a webhook or an aggregated
// API, and got no answer.
func IsCallFailure(message string) bool {
	return failedWebhook.MatchString(message) || failedConversion.MatchString(message) || failedAPIServer.MatchString(message)
}

// A callAnswer is what ExplainCall has found out about a cause.
type callAnswer struct {
	lines []string
	err   error
}

// ExplainCall explains the message of a request for a kind that failed because the API server got no answer
// from a webhook or an aggregated API: the object that makes it call, the Service that it calls, and why
// that has no endpoints. A Diagnoser looks into each cause once.
func (all *Diagnoser) ExplainCall(ctx context.Context, kind schema.GroupKind, message string) ([]string, error) {
	cause, explain := causeOf(kind, message)
	if explain == nil {
		return nil, nil
	}
	all.asking.Lock()
	defer all.asking.Unlock()
	answer, isKnown := all.answers[cause]
	if !isKnown {
		a := all.asker("")
		answer.lines = explain(a, ctx)
		answer.err = errors.Join(*a.failures...)
		if all.answers == nil {
			all.answers = map[string]callAnswer{}
		}
		all.answers[cause] = answer
	}
	return answer.lines, answer.err
}

// causeOf returns what a message blames, and how to explain that; nil for another message.
func causeOf(kind schema.GroupKind, message string) (string, func(*asker, context.Context) []string) {
	if found := failedWebhook.FindStringSubmatch(message); found != nil {
		return found[0], func(a *asker, ctx context.Context) []string { return a.ofWebhook(ctx, found[1]) }
	}
	if found := failedConversion.FindStringSubmatch(message); found != nil {
		converted := schema.GroupKind{Group: found[1], Kind: found[2]}
		return found[0], func(a *asker, ctx context.Context) []string { return a.ofConversion(ctx, converted) }
	}
	if failedAPIServer.MatchString(message) {
		return kind.Group, func(a *asker, ctx context.Context) []string { return a.ofAPI(ctx, kind.Group) }
	}
	return "", nil
}

// ofWebhook explains an admission webhook.
func (a *asker) ofWebhook(ctx context.Context, name string) []string {
	var lines []string
	for _, resource := range []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"} {
		in := schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: resource}
		configurations, err := a.all.Cluster.Objects.Resource(in).List(ctx, metav1.ListOptions{Limit: mostOfAKind})
		if err != nil {
			a.fail("list "+resource, err)
			continue
		}
		for _, configuration := range configurations.Items {
			webhooks, _, _ := unstructured.NestedSlice(configuration.Object, "webhooks")
			for _, webhook := range webhooks {
				if fields, _ := webhook.(map[string]any); fields["name"] == name {
					client, _, _ := unstructured.NestedMap(fields, "clientConfig")
					lines = append(lines, a.ofClient(ctx, fmt.Sprintf("%s %s: its webhook %s", configuration.GetKind(), configuration.GetName(), name), client)...)
				}
			}
		}
	}
	return lines
}

// ofConversion explains the webhook that converts the objects of a kind.
func (a *asker) ofConversion(ctx context.Context, kind schema.GroupKind) []string {
	definition, err := a.all.Cluster.Definition(ctx, kind)
	if err != nil || definition == nil {
		if err != nil {
			a.fail("list customresourcedefinitions", err)
		}
		return nil
	}
	client, _, _ := unstructured.NestedMap(definition.Object, "spec", "conversion", "webhook", "clientConfig")
	return a.ofClient(ctx, "CustomResourceDefinition "+definition.GetName()+": its conversion webhook", client)
}

// ofAPI explains the aggregated APIs of a group.
func (a *asker) ofAPI(ctx context.Context, group string) []string {
	in := schema.GroupVersionResource{Group: kinds.APIService.Group, Version: "v1", Resource: "apiservices"}
	services, err := a.all.Cluster.Objects.Resource(in).List(ctx, metav1.ListOptions{Limit: mostOfAKind})
	if err != nil {
		a.fail("list apiservices", err)
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
			lines = append(lines, a.ofServices(ctx, service)...)
		}
	}
	return lines
}

// ofClient explains what the API server calls by a webhook's client configuration.
func (a *asker) ofClient(ctx context.Context, webhook string, client map[string]any) []string {
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
	lines := a.ofService(ctx, types.NamespacedName{Namespace: namespace, Name: name}, port)
	return append([]string{fmt.Sprintf("%s is at port %d of Service %s/%s", webhook, port, namespace, name)}, lines...)
}

// ofServices explains the Services that the API server calls for an object, where they have no endpoints.
func (a *asker) ofServices(ctx context.Context, object *unstructured.Unstructured) []string {
	var lines []string
	for _, service := range kinds.CalledServices(object) {
		lines = append(lines, a.ofService(ctx, service, 0)...)
	}
	return lines
}

// ofService explains why a Service does not answer, on a port if that is known.
func (a *asker) ofService(ctx context.Context, name types.NamespacedName, port int64) []string {
	a = a.in(name.Namespace)
	says := func(format string, args ...any) []string {
		return []string{"Service " + name.String() + ": " + fmt.Sprintf(format, args...)}
	}
	service, err := a.client.CoreV1().Services(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return says("it does not exist")
	case err != nil:
		a.note(a.unasked("get services", err))
		return nil
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		return says("it stands for %s, outside of the cluster", printable.Line(service.Spec.ExternalName))
	case port != 0 && !hasPort(service, port):
		return says("it has no port %d", port)
	}
	endpoints, err := ReadyEndpoints(ctx, a.client, name)
	switch {
	case err != nil:
		a.note(a.unasked("list endpointslices", err))
		return nil
	case endpoints > 0:
		return says("it has %s that are ready, so look for why they don't answer", printable.Count(endpoints, "endpoint"))
	case len(service.Spec.Selector) == 0:
		return says("it has no endpoints, and no selector that would find some")
	}
	return a.ofSelected(ctx, says, labels.Set(service.Spec.Selector))
}

func hasPort(service *corev1.Service, port int64) bool {
	for _, p := range service.Spec.Ports {
		if int64(p.Port) == port {
			return true
		}
	}
	return false
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
func (a *asker) ofSelected(ctx context.Context, says func(string, ...any) []string, selector labels.Set) []string {
	pods, err := a.client.CoreV1().Pods(a.namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String(), Limit: mostOfAKind})
	if err != nil {
		a.note(a.unasked("list pods", err))
		return says("it has no endpoint that is ready")
	}
	makers := a.makers(ctx, selector)
	if len(pods.Items) == 0 {
		lines := says("it has no endpoints: no pod has the labels that it selects, %s", printable.Line(selector.String()))
		for i := range makers {
			lines = append(lines, fmt.Sprintf("Deployment %s/%s: it makes such pods, and has 0 of %d", a.namespace, makers[i].GetName(), replicas(&makers[i])))
			lines = append(lines, a.ofPods(ctx, &makers[i], nil)...)
		}
		return lines
	}
	lines := says("it has no endpoint that is ready, of %s", printable.Count(len(pods.Items), "pod"))
	if len(makers) == 0 {
		return append(lines, a.ofPods(ctx, &unstructured.Unstructured{}, pods.Items)...)
	}
	return append(lines, a.ofPods(ctx, &makers[0], pods.Items)...)
}

// makers returns the Deployments whose pods have labels.
func (a *asker) makers(ctx context.Context, selector labels.Set) []unstructured.Unstructured {
	in := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	all, err := a.all.Cluster.Objects.Resource(in).Namespace(a.namespace).List(ctx, metav1.ListOptions{Limit: mostListed})
	if err != nil {
		a.note(a.unasked("list deployments", err))
		return nil
	}
	var makers []unstructured.Unstructured
	for _, deployment := range all.Items {
		of, _, _ := unstructured.NestedStringMap(deployment.Object, "spec", "template", "metadata", "labels")
		if selector.AsSelector().Matches(labels.Set(of)) {
			makers = append(makers, deployment)
		}
	}
	return makers
}

func replicas(deployment *unstructured.Unstructured) int64 {
	wanted, _, _ := unstructured.NestedInt64(deployment.Object, "spec", "replicas")
	return wanted
}
