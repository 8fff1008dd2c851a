// Package hook runs the lifecycle hooks of Deployments against a cluster. What to do next is decided by package
// lifecycle, of what this package has looked at; it does that, and looks again.
//
// A Runner is where to start: Run goes on with the hook of a stage until it has to wait, and Before and After stand
// around the apply of the Deployment itself. look.go and workload.go gather what there is, do.go has the actions, wait.go what wakes
// a hook that waits, and logs.go the logs of pods.
package hook

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/lifecycle"
	"github.com/runlevel/runlevel/pkg/reason"
)

// FailedCondition is the condition of a Deployment whose hook has failed. It is False again when the hook has succeeded.
const FailedCondition = "LifecycleHookFailed"

// Objects applies the Deployment of a Runner.
type Objects interface {
	// CreatePaused makes the Deployment, paused, if it is not there.
	CreatePaused() error
	// ChangesTemplate reports whether an apply changes the pod template of the Deployment.
	ChangesTemplate() (bool, error)
	// IsRetryable reports whether a request that was refused may succeed later.
	IsRetryable(error) bool
}

// States keeps the state of the Deployment's hooks in the record.
type States interface {
	State() (lifecycle.State, bool)
	SaveState(lifecycle.State) error
}

// A Handler is told what a Runner does. Its functions may be nil.
type Handler struct {
	Failed func(AttemptFailure)
	Logged func(stage lifecycle.Stage, pod, line string) // a line of a running pod; if it is nil, logs are not followed
	Warned func(message string)
}

// An AttemptFailure is an attempt that has failed.
type AttemptFailure struct {
	Stage   lifecycle.Stage
	Attempt int
	Reason  string
	Message string
	Log     []string // the last lines of the pod
}

// A Runner runs the hooks of one Deployment, for one apply.
type Runner struct {
	id      kinds.ID
	cluster *cluster.Cluster
	rollout lifecycle.Rollout
	objects Objects
	states  States
	handler Handler

	masker      *strings.Replacer // of values of environment variables
	workload    workload
	scaled      *appsv1.Deployment
	running     sync.Mutex
	isOverruled atomic.Bool // it is asked while another call runs
	isChanged   *bool
	refused     *lifecycle.Refusal
	lastState   string // of the pod that is waited for
	ran         map[lifecycle.Stage]lifecycle.HookResult
	log         []string // the last lines of the pod that has failed last
	logs        *podLogs
}

// A PodWait is what a hook waits for.
type PodWait struct {
	Message string
	Since   time.Time
	Until   time.Time // when to look again at the latest
	watched watched
}

// A StageResult is what came of one call of a Runner.
type StageResult struct {
	Wait    *PodWait // not nil: what it waits for, until another call
	Ran     lifecycle.HookResult
	Message string
}

// Options are what a Runner works with.
type Options struct {
	Objects Objects
	States  States
	Handler Handler
}

// New returns a Runner for the Deployment of a rollout.
func New(id kinds.ID, c *cluster.Cluster, rollout lifecycle.Rollout, options Options) *Runner {
	return &Runner{
		masker: rollout.Masker(), workload: workload{c.Client, id.Namespace}, id: id, cluster: c, rollout: rollout, objects: options.Objects, states: options.States, handler: options.Handler,
		ran:  map[lifecycle.Stage]lifecycle.HookResult{},
		logs: &podLogs{client: c.Client, hooks: rollout.Hooks, logged: options.Handler.Logged, streams: map[types.UID]*stream{}},
	}
}

// IsDue reports whether the template is not known to be rolled out with its hooks. It sends no request.
func (r *Runner) IsDue() bool {
	state, _ := r.states.State()
	return !state.IsRolledOut(r.rollout.Template) || !r.rollout.Override.IsEmpty() && !r.isOverruled.Load()
}

// Run goes on with the hook of a stage, until it has come to its end or has to wait. Its error is a *GivenUp if the
// rollout is to stop; another call may mend any other.
func (r *Runner) Run(ctx context.Context, stage lifecycle.Stage) (StageResult, error) {
	return r.run(ctx, stage, func(seen lifecycle.RolloutFacts) lifecycle.HookAction { return r.rollout.Next(stage, seen) })
}

// Before prepares the apply of the Deployment itself.
func (r *Runner) Before(ctx context.Context) (StageResult, error) {
	return r.run(ctx, "", r.rollout.NextApply)
}

// After ends what Before and earlier stages have begun, once the Deployment was applied.
func (r *Runner) After(ctx context.Context) (StageResult, error) {
	return r.run(ctx, "", r.rollout.AfterApply)
}

// mostConflicts is how often a Deployment is looked at again because another client has just written it.
const mostConflicts = 10

// run does one action after the other.
func (r *Runner) run(ctx context.Context, stage lifecycle.Stage, next func(lifecycle.RolloutFacts) lifecycle.HookAction) (StageResult, error) {
	r.running.Lock() // the Deployment may be applied again while its post hook runs
	defer r.running.Unlock()
	if !r.IsDue() {
		return StageResult{Message: "the pod template is not new"}, nil
	}
	for conflicts := 0; ; {
		seen, err := r.look(ctx, stage)
		if err != nil {
			return StageResult{}, err
		}
		action := next(seen)
		switch action.Do {
		case lifecycle.Proceed:
			return StageResult{Ran: r.ran[stage], Message: inWords(r.ran[stage], action)}, nil
		case lifecycle.Wait:
			return StageResult{Wait: r.waitFor(ctx, stage, seen, action)}, nil
		case lifecycle.GiveUp:
			err = r.giveUp(ctx, seen, action)
		default:
			err = r.do(ctx, stage, seen, action)
		}
		if apierrors.IsConflict(err) && conflicts < mostConflicts { // the deployment controller writes at the same time
			conflicts++
			continue
		}
		if err != nil {
			return StageResult{}, err
		}
		if action.Do == lifecycle.Scale && stage == lifecycle.Mid { // its pods take a moment, and another client may scale it up again
			return StageResult{Wait: r.waitFor(ctx, stage, seen, lifecycle.HookAction{Message: "the Deployment is scaled to 0"})}, nil
		}
	}
}

// ScaleBack scales the Deployment back that was scaled to 0 for its mid hook.
func (r *Runner) ScaleBack(ctx context.Context) error {
	r.running.Lock()
	defer r.running.Unlock()
	seen, err := r.look(ctx, "")
	if err != nil || seen.Live == nil {
		return err
	}
	replicas, state := seen.State.Restore(seen.Live)
	if replicas == nil {
		return nil
	}
	return r.write(ctx, seen.Live, lifecycle.HookAction{State: state, Replicas: replicas})
}

// TakeScaled returns the Deployment as it was when it was scaled back last, once; nil if it was not.
func (r *Runner) TakeScaled() *unstructured.Unstructured {
	r.running.Lock()
	defer r.running.Unlock()
	live := r.scaled
	r.scaled = nil
	if live == nil {
		return nil
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err != nil {
		return nil // its watch shows it as well
	}
	return &unstructured.Unstructured{Object: object}
}

// inWords says why a hook has not run, or what else there is to say of it.
func inWords(result lifecycle.HookResult, proceed lifecycle.HookAction) string {
	switch result {
	case lifecycle.Succeeded:
		return ""
	case lifecycle.Ignored:
		return "it has failed, and its failure policy is Ignore"
	case lifecycle.Skipped:
		return "it was skipped"
	case lifecycle.NotNeeded:
		return "none of the Deployment's pods runs yet"
	default: // nothing in this apply
		return proceed.Message
	}
}

// A GivenUp is why a rollout stops.
type GivenUp struct {
	Err *reason.Error
	Log []string // the last lines of the pod that has failed
}

func (g *GivenUp) Error() string { return g.Err.Error() }
func (g *GivenUp) Unwrap() error { return g.Err }
