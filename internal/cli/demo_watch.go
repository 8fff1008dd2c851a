package cli

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/examples"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/session/keep"
)

// A drift is what a user does to an object of the release.
type drift struct {
	title string
	do    func(context.Context) error
}

// drifts are those that are told of.
func (d *demo) drifts() []drift {
	kube := d.cluster.Client
	return []drift{
		{"an administrator scales Deployment hello/hello-web to nothing", func(ctx context.Context) error {
			patch := []byte(`{"spec": {"replicas": 0}}`)
			_, err := kube.AppsV1().Deployments(demoNamespace).Patch(ctx, "hello-web", types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "kubectl-scale"})
			return err
		}},
		{"an administrator deletes Service hello/hello-web", func(ctx context.Context) error {
			return kube.CoreV1().Services(demoNamespace).Delete(ctx, "hello-web", metav1.DeleteOptions{})
		}},
	}
}

// keepInPlace keeps the release in place, as runlevel apply --watch does, while a user changes
// it. It ends when all is repaired.
func (d *demo) keepInPlace(ctx context.Context) error {
	const source = "examples/hello/1.2.0"
	d.title("runlevel apply " + source + " --watch")
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	told := make(chan keep.Event)
	go func() { cancel(d.disturb(ctx, told)) }()
	err := d.applyPayload(ctx, examples.Hello("1.2.0"), source, "", func(report *reporter, options *session.Options) {
		options.OnOutcome = func(applied *session.Outcome) { _ = report.end(applied) }
		options.Keep = &keep.Options{OnEvent: func(event keep.Event) {
			report.kept(event)
			select {
			case told <- event:
			case <-ctx.Done():
			}
		}}
	})
	if errors.Is(err, errAllRepaired) {
		return nil
	}
	return err
}

// errAllRepaired ends the scene.
var errAllRepaired = errors.New("all is repaired")

// disturb does one thing after the other to the release, each as soon as the one before is
// repaired.
func (d *demo) disturb(ctx context.Context, told <-chan keep.Event) error {
	for _, drift := range d.drifts() {
		select {
		case <-told: // that it is kept in place, or was repaired
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		d.title(drift.title)
		if err := drift.do(ctx); err != nil {
			return err
		}
	}
	select {
	case <-told:
		return errAllRepaired
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
