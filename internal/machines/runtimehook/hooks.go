package runtimehook

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// InPlaceHooks calls the hooks of updates in place, each at the extension that has a handler for it.
type InPlaceHooks struct {
	Registry Registry // used for decisions, which can't be undone
	Client   Client

	callees Registry        // used for calls of UpdateMachine, which are frequent
	known   *cache.Expiring // decisions of extensions, by questions
}

// answerLifetime limits how long an answer is cached: an extension repaired without a change of its ExtensionConfig
// is called again after that.
const answerLifetime = 10 * time.Minute

// NewInPlaceHooks returns the hooks of the extensions that a cluster has. Whether an extension can update machines, or
// they are replaced, is decided by the ExtensionConfigs of the live reader; the cached one is for calls of
// UpdateMachine, which are repeated. Namespaces are read live, one by one, and only their labels.
func NewInPlaceHooks(cached, live client.Reader) *InPlaceHooks {
	return &InPlaceHooks{
		Registry: Registry{Configs: live, Namespaces: live},
		callees:  Registry{Configs: cached, Namespaces: live},
		known:    cache.NewExpiring(),
	}
}

// A Decision records whether machines can be updated in place; if not, they are replaced.
type Decision struct {
	CanUpdate bool
	Extension string   // the handler that was called; empty if there is none
	Reasons   []string // the reasons for a replacement
}

// String returns a decision in one line.
func (d Decision) String() string {
	if d.CanUpdate {
		return "extension " + d.Extension + " can update in place"
	}
	return "replaced, since " + strings.Join(d.Reasons, "; ")
}

// Progress is the progress of the update of a machine.
type Progress struct {
	Done       bool
	RetryAfter time.Duration // the pause before the next call of the extension, while the update is not done
	Message    string        // message of the extension, in one line
}

// CanUpdateMachineSet returns whether the machines of a set can be updated to those of another one, which requires an
// extension with a handler for UpdateMachine as well. The answer is cached for ten minutes, or until the
// ExtensionConfig changes. After an error, call it again later.
func (h *InPlaceHooks) CanUpdateMachineSet(ctx context.Context,
	request *hooksv1.CanUpdateMachineSetRequest) (Decision, error) {
	namespace := request.Current.MachineSet.Namespace
	handler, reason, err := h.decider(ctx, CanUpdateMachineSet, namespace)
	if handler == nil || err != nil {
		return reason, err
	}
	q, err := questionOf(handler, request)
	if err != nil {
		return Decision{}, err
	}
	if known, isKnown := h.known.Get(q); isKnown {
		return known.(Decision), nil
	}
	sent := request.DeepCopy()
	sent.TypeMeta = typeMeta("CanUpdateMachineSetRequest")
	var response hooksv1.CanUpdateMachineSetResponse
	if err := h.Client.ask(ctx, handler, sent, &response); err != nil {
		return applyFailurePolicy(handler, err)
	}
	decision, err := decide(handler, changesOfSet(sent, &response))
	if err == nil {
		h.known.Set(q, decision, answerLifetime)
	}
	return decision, err
}

// decider returns the handler of a hook that decides about updates in place. Without it, or without one that updates
// machines, the decision is not to update any.
func (h *InPlaceHooks) decider(ctx context.Context, hook, namespace string) (*Handler, Decision, error) {
	serving, err := h.Registry.serving(ctx, namespace)
	if err != nil {
		return nil, Decision{}, err
	}
	handler, err := serving.handler(hook)
	if err != nil || handler == nil {
		return nil, withoutHandler(hook), err
	}
	updater, err := serving.handler(UpdateMachine)
	if err != nil || updater == nil {
		return nil, withoutHandler(UpdateMachine), err
	}
	return handler, Decision{}, nil
}

// CanUpdateMachine returns whether one machine can be updated in place, which requires an extension with a handler for
// UpdateMachine as well. The answer is not cached.
func (h *InPlaceHooks) CanUpdateMachine(ctx context.Context,
	request *hooksv1.CanUpdateMachineRequest) (Decision, error) {
	handler, reason, err := h.decider(ctx, CanUpdateMachine, request.Current.Machine.Namespace)
	if handler == nil || err != nil {
		return reason, err
	}
	sent := request.DeepCopy()
	sent.TypeMeta = typeMeta("CanUpdateMachineRequest")
	var response hooksv1.CanUpdateMachineResponse
	if err := h.Client.ask(ctx, handler, sent, &response); err != nil {
		return applyFailurePolicy(handler, err)
	}
	return decide(handler, changesOfMachine(sent, &response))
}

// requireHandler returns an error if no handler updates machines.
func requireHandler(updater *Handler, err error) (*Handler, error) {
	if err == nil && updater == nil {
		err = errors.New("no extension serves the hook " + UpdateMachine +
			": create an ExtensionConfig for one, or delete the machine")
	}
	return updater, err
}

// UpdateMachine calls an extension to begin or continue the update of a machine. Every failed call is an error,
// whatever the failurePolicy: a machine is not updated until the extension reports that it is done. An ExtensionConfig
// without a discovery does not stop an update, unless it is the extension's own.
func (h *InPlaceHooks) UpdateMachine(ctx context.Context,
	request *hooksv1.UpdateMachineRequest) (Progress, error) {
	serving, err := h.callees.serving(ctx, request.Desired.Machine.Namespace)
	if err != nil {
		return Progress{}, err
	}
	handler, err := requireHandler(serving.updater())
	if err != nil {
		return Progress{}, err
	}
	sent := request.DeepCopy()
	sent.TypeMeta = typeMeta("UpdateMachineRequest")
	var response updateAnswer
	if err := h.Client.ask(ctx, handler, sent, &response); err != nil {
		return Progress{}, err
	}
	return response.progress(handler)
}

// DrainSetting is the setting of an ExtensionConfig by which nodes are drained before their machines are updated, if it
// is "true". It is sent to the extension like all settings.
const DrainSetting = "drain"

// DrainsBeforeUpdate reports whether the nodes of a namespace's machines must be drained before UpdateMachine is
// called. It fails if the value is neither "true" nor "false".
func (h *InPlaceHooks) DrainsBeforeUpdate(ctx context.Context, namespace string) (bool, error) {
	handler, err := requireHandler(h.Registry.Find(ctx, UpdateMachine, namespace))
	if err != nil {
		return false, err
	}
	switch value := handler.config.Spec.Settings[DrainSetting]; value {
	case "true":
		return true, nil
	case "", "false":
		return false, nil
	default:
		return false, &CallError{
			Extension: handler.Name, Problem: fmt.Sprintf("is not called, since spec.settings.%s is %q", DrainSetting,
				shorten(value)),
			Advice: fmt.Sprintf("write \"true\" or \"false\" into ExtensionConfig %s", handler.config.Name),
		}
	}
}

// updateAnswer is the response of UpdateMachine. RetryAfterSeconds is a pointer, to detect that it is missing: the
// Status of an API server, to which a wrong URL leads, would be mistaken for a completed update.
type updateAnswer struct {
	hooksv1.CommonResponse
	RetryAfterSeconds *int32 `json:"retryAfterSeconds"`
}

func (a *updateAnswer) progress(handler *Handler) (Progress, error) {
	switch after := a.RetryAfterSeconds; {
	case after == nil:
		return Progress{}, wrongAnswer(handler.Name,
			"sent no retryAfterSeconds: it must be 0 once the update is done")
	case *after < 0:
		return Progress{}, wrongAnswer(handler.Name, "answered retryAfterSeconds %d, which is less than 0",
			*after)
	default:
		return Progress{
			Done:       *after == 0,
			RetryAfter: time.Duration(*after) * time.Second,
			Message:    shorten(a.Message),
		}, nil
	}
}

// hookRequest and hookResponse have the common methods of all hooks but Discovery.
type hookRequest interface {
	GetSettings() map[string]string
	SetSettings(map[string]string)
}

type hookResponse interface {
	GetStatus() hooksv1.ResponseStatus
	GetMessage() string
}

// ask calls a handler with the settings of its ExtensionConfig. The settings of the request take precedence.
func (c *Client) ask(ctx context.Context, handler *Handler, request hookRequest, response hookResponse) error {
	own := strings.TrimSuffix(handler.Name, "."+handler.config.Name)
	target, err := newCall(handler.config, handler.Name, handler.RequestHook.Hook, own, handler.timeout())
	if err != nil {
		return err
	}
	if settings := handler.config.Spec.Settings; len(settings) > 0 {
		merged := maps.Clone(settings)
		maps.Copy(merged, request.GetSettings())
		request.SetSettings(merged)
	}
	if err := c.post(ctx, target, request, response); err != nil {
		return err
	}
	return checkStatus(handler.Name, response.GetStatus(), response.GetMessage())
}

func withoutHandler(hook string) Decision {
	return Decision{Reasons: []string{"no extension serves the hook " + hook + " in this namespace"}}
}

// applyFailurePolicy returns the decision after a failed call: the error, or the replacement of machines if
// failurePolicy is Ignore.
func applyFailurePolicy(handler *Handler, err error) (Decision, error) {
	if handler.FailurePolicy != runtimev1.FailurePolicyIgnore || !IsUnanswered(err) {
		return Decision{}, err
	}
	return Decision{Extension: handler.Name, Reasons: []string{err.Error() + " (its failurePolicy is Ignore)"}}, nil
}

// decide compares the changes that an extension covers with the desired ones.
func decide(handler *Handler, changes []change) (Decision, error) {
	decision := Decision{Extension: handler.Name}
	for _, c := range changes {
		paths, err := c.uncoveredPaths()
		if err != nil {
			return Decision{}, wrongAnswer(handler.Name, "sent an invalid patch (%s)",
				shorten(err.Error()))
		}
		decision.Reasons = append(decision.Reasons, paths...)
	}
	decision.CanUpdate = len(decision.Reasons) == 0
	for i := range decision.Reasons {
		decision.Reasons[i] += " is not covered by extension " + handler.Name
	}
	const shownReasons = 10
	if more := len(decision.Reasons) - shownReasons; more > 0 {
		decision.Reasons = append(decision.Reasons[:shownReasons], fmt.Sprintf("and %d more", more))
	}
	return decision, nil
}
