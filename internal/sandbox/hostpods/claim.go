package hostpods

import (
	"context"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/runlevel/runlevel/internal/sandbox/credentials"
)

// The annotation that keeps kwok from simulating a pod; docs/sandbox.md describes it.
const (
	podAnnotation = "sandbox.runlevel.dev/pod"
	podOfHost     = "host"
)

const (
	// claimTimeout bounds the time until the API server enforces an admission policy.
	claimTimeout = time.Minute
	// cleanupTimeout bounds the requests after the end of all processes.
	cleanupTimeout = 10 * time.Second
)

// claimPods makes the API server annotate new pods, so that kwok does not set a pod ready before its processes are
// ready. It returns the name of the admission policy once the API server enforces the policy.
func (h *HostPods) claimPods(ctx context.Context) (policy string, err error) {
	policy = "hostpods-" + rand.String(10)
	admission := h.client.AdmissionregistrationV1()
	defer func() {
		if err != nil {
			_ = h.deletePolicy(context.WithoutCancel(ctx), policy) // the first error is more helpful
		}
	}()
	if _, err = admission.MutatingAdmissionPolicies().Create(ctx, h.newPolicy(policy),
		metav1.CreateOptions{}); err != nil {
		return "", fmt.Errorf("create an admission policy: %w", err)
	}
	binding := &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy},
		Spec:       admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: policy},
	}
	if _, err = admission.MutatingAdmissionPolicyBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return "", fmt.Errorf("create an admission policy: %w", err)
	}
	return policy, h.awaitPolicy(ctx, policy)
}

// newPolicy returns the policy. The policy also matches a pod with the name of the policy, which awaitPolicy creates.
// An error in the policy does not refuse a pod.
func (h *HostPods) newPolicy(name string) *admissionv1.MutatingAdmissionPolicy {
	ignore := admissionv1.Ignore
	return &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{
				ObjectSelector: &metav1.LabelSelector{MatchLabels: h.selector},
				NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
					Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn,
					Values: []string{h.options.Namespace, metav1.NamespaceDefault},
				}}},
				ResourceRules: []admissionv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionv1.RuleWithOperations{
						Operations: []admissionv1.OperationType{admissionv1.Create},
						Rule: admissionv1.Rule{
							APIGroups:   []string{""},
							APIVersions: []string{"v1"},
							Resources:   []string{"pods"},
						},
					},
				}},
			},
			MatchConditions: []admissionv1.MatchCondition{{
				Name: "namespace-or-dry-run",
				Expression: fmt.Sprintf("request.namespace == %q || has(request.name) && request.name == %q",
					h.options.Namespace, name),
			}, {
				Name: "not-annotated",
				Expression: fmt.Sprintf("!has(object.metadata.annotations) || !(%q in object.metadata.annotations)",
					podAnnotation),
			}},
			Mutations: []admissionv1.Mutation{{
				PatchType: admissionv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionv1.ApplyConfiguration{Expression: fmt.Sprintf(
					"Object{metadata: Object.metadata{annotations: {%q: %q}}}", podAnnotation, podOfHost)},
			}},
			FailurePolicy:      &ignore,
			ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
		},
	}
}

// awaitPolicy creates a pod in dry runs, until the API server annotates it.
func (h *HostPods) awaitPolicy(ctx context.Context, policy string) error {
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: policy, Labels: h.selector},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "none", Image: "example.com/none"}}},
	}
	var last error
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		dryRun, err := h.client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, pod,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if last = err; err != nil {
			return false, nil // the namespace may not have its service account yet
		}
		return dryRun.Annotations[podAnnotation] == podOfHost, nil
	})
	if err != nil && last != nil {
		err = last
	}
	if err != nil {
		return fmt.Errorf("wait for the admission policy %s: %w", policy, err)
	}
	return nil
}

func (h *HostPods) deletePolicy(ctx context.Context, policy string) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	admission := h.client.AdmissionregistrationV1()
	err := admission.MutatingAdmissionPolicyBindings().Delete(ctx, policy, metav1.DeleteOptions{})
	if err == nil || apierrors.IsNotFound(err) {
		err = admission.MutatingAdmissionPolicies().Delete(ctx, policy, metav1.DeleteOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete the admission policy %s: %w", policy, err)
	}
	return nil
}

// tokenLifetime is as long as that of the sandbox's certificates, so that no token is renewed.
const tokenLifetime = 30 * 24 * time.Hour

// token returns a token of the pod's service account for an audience, which is valid as long as the pod exists. Each
// token is requested once.
func (p *hostPod) token(ctx context.Context, audience string) ([]byte, error) {
	if token, isKnown := p.tokens[audience]; isKnown {
		return token, nil
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{
			Kind: "Pod", APIVersion: "v1", Name: p.first.Name, UID: p.first.UID,
		},
		ExpirationSeconds: ptr.To(int64(tokenLifetime / time.Second)),
	}}
	if audience != "" {
		request.Spec.Audiences = []string{audience}
	}
	account := p.first.Spec.ServiceAccountName
	accounts := p.host.client.CoreV1().ServiceAccounts(p.first.Namespace)
	granted, err := accounts.CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("request a token of service account %s: %w", account, err)
	}
	p.tokens[audience] = []byte(granted.Status.Token)
	return p.tokens[audience], nil
}

// writeKubeconfig writes a kubeconfig of a user with a token in a file.
func (c *container) writeKubeconfig(file, tokenFile string) error {
	config := rest.CopyConfig(c.pod.host.options.Config)
	if err := rest.LoadTLSFiles(config); err != nil {
		return fmt.Errorf("read the certificate of the API server's authority: %w", err)
	}
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return err
	}
	user := credentials.NewPodUser(tokenFile, c.pod.first.Namespace)
	return credentials.Server{URL: server.String(), CA: config.CAData}.WriteKubeconfig(file, user)
}
