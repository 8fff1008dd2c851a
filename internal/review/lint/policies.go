package lint

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiserver "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/objects/validation"
	"github.com/runlevel/runlevel/internal/review/admission"
)

// This rule evaluates the admission policies of the payload for its own objects, by the API server's code.

// A policyCheck is a validation of a policy, which a binding enforces.
type policyCheck struct {
	*subject
	policy    *manifest
	spec      admissionv1.ValidatingAdmissionPolicySpec
	matchers  []admission.Matcher
	index     int
	evaluator cel.ConditionEvaluator
}

func checkPolicyRefuses(s *subject, r *reporter) {
	each(s, kinds.ValidatingAdmissionPolicyBinding, func(m *manifest, b *admissionv1.ValidatingAdmissionPolicyBinding) {
		policy := s.present(kinds.NewID(kinds.ValidatingAdmissionPolicy, "", b.Spec.PolicyName), m)
		if policy == nil || !slices.Contains(b.Spec.ValidationActions, admissionv1.Deny) {
			return
		}
		typed := convert[admissionv1.ValidatingAdmissionPolicy](policy.Object().Object)
		if typed == nil || typed.Spec.MatchConstraints == nil {
			return
		}
		s.checkParameters(r, m, policy, b.Spec.ParamRef, typed.Spec.ParamKind)
		if matchers := matchersOf(typed.Spec, b.Spec.MatchResources); matchers != nil {
			for i, item := range typed.Spec.Validations {
				c := policyCheck{subject: s, policy: policy, spec: typed.Spec, matchers: matchers, index: i}
				if c.compile(item.Expression) {
					c.report(r)
				}
			}
		}
	})
}

// checkParameters looks for a binding whose parameters do not exist, and that denies requests for that reason.
func (s *subject) checkParameters(r *reporter, m, policy *manifest, ref *admissionv1.ParamRef,
	kind *admissionv1.ParamKind) {
	if kind == nil || ref == nil || ref.Name == "" || ref.ParameterNotFoundAction == nil ||
		*ref.ParameterNotFoundAction != admissionv1.DenyAction {
		return
	}
	id := kinds.NewID(schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind).GroupKind(), ref.Namespace, ref.Name)
	if s.present(id, m) == nil && s.creators().creatorOf(id) == "" && !s.isKnownObject(id) {
		r.field(m, []string{"spec", "paramRef", "name"}, "nothing in the payload creates %s, and with "+
			"parameterNotFoundAction Deny, %s refuses all that it selects without it: correct the name, or add the "+
			"object", id, policy.named())
	}
}

// matchersOf returns the matchers of a policy and a binding, which both select requests; nil if one is invalid, or
// conditions, variables or parameters make a difference.
func matchersOf(spec admissionv1.ValidatingAdmissionPolicySpec,
	binding *admissionv1.MatchResources) (matchers []admission.Matcher) {
	if len(spec.MatchConditions)+len(spec.Variables) > 0 || spec.ParamKind != nil {
		return nil
	}
	for _, match := range []*admissionv1.MatchResources{spec.MatchConstraints, binding} {
		if match == nil {
			continue
		}
		if len(match.ResourceRules) == 0 { // a binding without rules leaves them to the policy
			match.ResourceRules = spec.MatchConstraints.ResourceRules
		}
		matcher, err := admission.NewMatcher(match)
		if err != nil {
			return nil
		}
		matchers = append(matchers, matcher)
	}
	return matchers
}

// An expression is a CEL expression of a policy.
type expression string

func (e expression) GetExpression() string      { return string(e) }
func (e expression) ReturnTypes() []*celgo.Type { return []*celgo.Type{celgo.BoolType} }

// policyCompiler compiles expressions with the API server's functions.
var policyCompiler = sync.OnceValue(func() cel.ConditionCompiler {
	return cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
})

// compile compiles the expression. It returns false if it is invalid, or depends on the user or the object before.
func (c *policyCheck) compile(text string) bool {
	c.evaluator = policyCompiler().CompileCondition([]cel.ExpressionAccessor{expression(text)},
		cel.OptionalVariableDeclarations{}, environment.StoredExpressions)
	return len(c.evaluator.CompilationErrors()) == 0 && !strings.Contains(text, "request.") &&
		!strings.Contains(text, "oldObject")
}

// report reports the first object, or workload whose pods the validation refuses. Mutating webhooks may change pods
// before that.
func (c *policyCheck) report(r *reporter) {
	check := func(m *manifest, object *unstructured.Unstructured, pods string) (isRefused bool) {
		why, isRefused := c.refuses(object)
		if isRefused = isRefused && c.shareCluster(m, c.policy); isRefused {
			r.field(c.policy, []string{"spec", "validations", strconv.Itoa(c.index), "expression"},
				"%s refuses %s%s%s: correct the expression, or the objects that the policy selects",
				c.spec.Validations[c.index].Expression, pods, m.named(), why)
		}
		return isRefused
	}
	if slices.ContainsFunc(c.normal, func(m *manifest) bool { return check(m, m.Object(), "") }) ||
		len(c.byKind[kinds.MutatingWebhookConfiguration]) > 0 {
		return
	}
	for _, namespace := range sortedKeys(c.pods()) {
		if slices.ContainsFunc(c.pods()[namespace], func(p podSet) bool { return check(p.by, p.pod(), "pods of ") }) {
			return
		}
	}
}

// pod returns a pod of a workload.
func (p podSet) pod() *unstructured.Unstructured {
	pod := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": p.spec}}
	pod.SetName(p.by.id.Name)
	pod.SetNamespace(p.by.id.Namespace)
	pod.SetLabels(p.labels)
	return pod
}

// refuses reports whether the validation refuses an object, and its error as the end of a sentence.
func (c *policyCheck) refuses(object *unstructured.Unstructured) (why string, isRefused bool) {
	request := admission.RequestFor(object, apiserver.Create, nil)
	for _, matcher := range c.matchers {
		set, isKnown := c.labelsOf(object.GetNamespace(), matcher.Namespaces)
		if request.Namespace = set; !isKnown || !matcher.Matches(request) {
			return "", false
		}
	}
	kind, typed := object.GroupVersionKind(), validation.WithDefaults(object)
	attributes := apiserver.NewAttributesRecord(typed, nil, kind, object.GetNamespace(), object.GetName(),
		request.Resource, "", apiserver.Create, &metav1.CreateOptions{}, false, nil)
	versioned := &apiserver.VersionedAttributes{Attributes: attributes, VersionedKind: kind}
	versioned.VersionedObject.Set(typed)
	namespace := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: object.GetNamespace(), Labels: request.Namespace},
	}
	results, _, err := c.evaluator.ForInput(c.ctx, versioned, cel.CreateAdmissionRequest(attributes,
		metav1.GroupVersionResource(request.Resource), metav1.GroupVersionKind(kind)), cel.OptionalVariableBindings{},
		namespace, celconfig.RuntimeCELCostBudget)
	switch {
	case err != nil:
		return "", false
	case results[0].Error != nil:
		isIgnored := c.spec.FailurePolicy != nil && *c.spec.FailurePolicy == admissionv1.Ignore
		_, cause, _ := strings.Cut(results[0].Error.Error(), "resulted in error: ")
		return ", as it fails: " + cause, !isIgnored
	default:
		return "", results[0].EvalResult != types.True
	}
}
