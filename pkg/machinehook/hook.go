// Package machinehook is for controllers that hold the deletion of machines until they have done something: moved an
// application, shipped logs, waited for volumes. A controller provides the work for a machine; this package
// adds the lifecycle hook while the machine is not being deleted, calls the controller when it is the hook's turn, and
// removes the hook when the work is done. It supports Machines of machine.openshift.io and of cluster.x-k8s.io.
//
// It has no state of its own: a controller killed at any moment continues from the state in the API server. So
// a hook may act twice, and has to be idempotent. The package does not order hooks, and gives up none.
//
// docs/hooks-machines.md explains when to have a hook, and what to avoid. Start with Hook.
package machinehook

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/runlevel/runlevel/internal/machines/deletion"
)

// A HookStage is the part of a machine's deletion that a hook holds.
type HookStage = deletion.Stage

// The stages of hooks.
const (
	BeforeDrain     = deletion.BeforeDrain
	BeforeTerminate = deletion.BeforeTerminate
)

// A Hook is a lifecycle hook and the controller behind it. All fields except Selector are required.
type Hook struct {
	Name  string    // one to three words for the purpose of the hook, as in MigrateApp
	Owner string    // the controller that removes it, as in app-operator
	Stage HookStage // BeforeDrain or BeforeTerminate
	// Machine is an empty Machine of the watched API: of github.com/openshift/api/machine/v1beta1, or of
	// sigs.k8s.io/cluster-api/api/core/v1beta2.
	Machine client.Object
	// Selector selects the machines that get the hook; nil selects all. The hook of this name and owner is also served
	// on machines that have it from another source, such as the template of a MachineSet.
	Selector labels.Selector
	// Act does the hook's work for a machine held by the hook, or the part that can be done now. It is
	// called again after each change of the machine, after the time that it returns, and after a failure, so it has to
	// be idempotent. After an error or a panic the machine stays held, and Act is called again after growing pauses.
	Act func(context.Context, HeldMachine) (HookAnswer, error)
}

// A HeldMachine is a machine being deleted that the hook holds.
type HeldMachine struct {
	Namespace  string
	Name       string
	NodeName   string // empty if the machine has no node
	ProviderID string // empty if the machine was not started
	// Object is the Machine as it was read just now. Changes of the object are not written.
	Object client.Object
}

// A HookAnswer is the progress of the hook's work.
type HookAnswer struct {
	IsDone bool // the hook is removed, and the deletion continues
	// Message is the reason why the hook waits. An event reports it each time that it changes, so it
	// should not contain times.
	Message string
	After   time.Duration // the time until the next call of Act, at the latest; 10 seconds if it is 0
}

// A failed reconciliation is retried after retrySoon, and then after twice as long each time, up to retrySeldom.
const retrySoon, retrySeldom = time.Second, time.Minute

// concurrency is the number of machines that are reconciled at once.
const concurrency = 10

// SetupWithManager adds the controller to a manager, whose scheme has to know the kind of machine.
func (h Hook) SetupWithManager(mgr ctrl.Manager) error {
	if err := h.validate(); err != nil {
		return fmt.Errorf("hook %q: %w", h.Name, err)
	}
	api, _ := machineAPIOf(h.Machine)
	if h.Selector == nil {
		h.Selector = labels.Everything()
	}
	r := &hookReconciler{
		hook: h, api: api, client: mgr.GetClient(), server: mgr.GetAPIReader(), events: mgr.GetEventRecorder(h.Name),
		now: time.Now,
	}
	name := fmt.Sprintf("hook-%s-%s-%s", api.name, strings.ToLower(string(h.Stage)), h.Name)
	return ctrl.NewControllerManagedBy(mgr).Named(name).
		For(h.Machine, builder.WithPredicates(machineChanges)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: concurrency,
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](retrySoon,
				retrySeldom),
		}).
		Complete(r)
}

// validate returns the errors of all fields that one of the APIs would not accept.
func (h Hook) validate() error {
	var wrong []error
	if len(h.Name) < 3 || strings.Contains(h.Name, "/") || len(validation.IsQualifiedName(h.Name)) > 0 {
		wrong = append(wrong,
			errors.New("its Name must have 3 to 63 letters, digits, '-', '_' or '.', as in MigrateApp"))
	}
	if len(h.Owner) < 3 || len(h.Owner) > 512 {
		wrong = append(wrong, fmt.Errorf("its Owner %q must have 3 to 512 characters, as in app-operator", h.Owner))
	}
	if h.Stage != BeforeDrain && h.Stage != BeforeTerminate {
		wrong = append(wrong, fmt.Errorf("its Stage is %q: set machinehook.BeforeDrain or machinehook.BeforeTerminate",
			h.Stage))
	}
	if _, ok := machineAPIOf(h.Machine); !ok {
		wrong = append(wrong, fmt.Errorf("its Machine is %T: set an empty Machine of machine.openshift.io/v1beta1 or "+
			"cluster.x-k8s.io/v1beta2", h.Machine))
	}
	if h.Act == nil {
		wrong = append(wrong, errors.New("its Act is nil: set the function that does the hook's part"))
	}
	return errors.Join(wrong...)
}
