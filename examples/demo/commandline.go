package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	namespace = "hello"
	release   = "examples/hello/" // and the version
)

// playCommandLine installs a release and updates it, which deletes a Deployment that an administrator holds by a
// finalizer. The next minor update is refused until the Deployment is deleted. Then the release is kept in place.
func (d *demo) playCommandLine(ctx context.Context) error {
	install := func(ctx context.Context) error { return d.runlevel(ctx, "apply", release+"1.0.0") }
	update := func(ctx context.Context) error { return d.runlevel(ctx, "apply", release+"1.1.0") }
	next := func(ctx context.Context) error { return d.runlevel(ctx, "apply", release+"1.2.0") }
	history := func(ctx context.Context) error { return d.runlevel(ctx, "history") }
	return play(ctx, install, d.hold, update, d.isRefused, d.letGo, next, history, d.keepInPlace)
}

// hold sets a finalizer on the Deployment that the next version deletes, as a controller might.
func (d *demo) hold(ctx context.Context) error {
	title("an administrator holds Deployment hello/hello-cache by a finalizer")
	return d.setFinalizers(ctx, `["hello.example.com/hold"]`)
}

func (d *demo) setFinalizers(ctx context.Context, finalizers string) error {
	patch := `{"metadata": {"finalizers": ` + finalizers + `}}`
	_, err := d.client.AppsV1().Deployments(namespace).Patch(ctx, "hello-cache", types.MergePatchType, []byte(patch),
		metav1.PatchOptions{})
	return err
}

// isRefused tries the next minor version while the delete is pending.
func (d *demo) isRefused(ctx context.Context) error {
	if err := d.runlevel(ctx, "apply", release+"1.2.0"); err == nil {
		return errors.New("the update to 1.2.0 was not refused")
	}
	return context.Cause(ctx)
}

// letGo removes the finalizer, and waits until the Deployment no longer exists.
func (d *demo) letGo(ctx context.Context) error {
	title("the finalizer is removed")
	if err := d.setFinalizers(ctx, "null"); err != nil {
		return err
	}
	return d.runlevel(ctx, "deletes", "--watch")
}

// A drift is a change that an administrator makes to an object of the release.
type drift struct {
	title string
	make  func(context.Context) error
}

func (d *demo) drifts() []drift {
	scale := func(ctx context.Context) error {
		patch := []byte(`{"spec": {"replicas": 0}}`)
		_, err := d.client.AppsV1().Deployments(namespace).Patch(ctx, "hello-web", types.MergePatchType, patch,
			metav1.PatchOptions{FieldManager: "kubectl-scale"})
		return err
	}
	return []drift{{"an administrator scales Deployment hello/hello-web to 0", scale},
		{"an administrator deletes Service hello/hello-web", d.deleteService}}
}

func (d *demo) deleteService(ctx context.Context) error {
	return d.client.CoreV1().Services(namespace).Delete(ctx, "hello-web", metav1.DeleteOptions{})
}

// keepInPlace keeps the release in place while an administrator changes it: each change is made once the one before is
// repaired.
func (d *demo) keepInPlace(ctx context.Context) error {
	drifts := d.drifts()
	log := &lineLog{waiting: "keeping"}
	watch := d.command(ctx, log, "apply", release+"1.2.0", "--watch")
	log.reached = func() {
		if len(drifts) == 0 {
			_ = watch.Process.Signal(os.Interrupt)
			return
		}
		next := drifts[0]
		drifts = drifts[1:]
		title(next.title)
		log.waiting = "repaired"
		if err := next.make(ctx); err != nil {
			log.failure = err
			_ = watch.Process.Signal(os.Interrupt)
		}
	}
	err := watch.Run()
	switch {
	case log.failure != nil || ctx.Err() != nil:
		return errors.Join(log.failure, context.Cause(ctx))
	case len(drifts) > 0:
		return errors.Join(errors.New("runlevel apply --watch has ended before all was repaired"), err)
	default: // the signal has ended it
		return nil
	}
}

// A lineLog prints the log of a command, and calls a function after each line that begins with a word.
type lineLog struct {
	waiting string
	reached func()
	failure error
	mu      sync.Mutex
	rest    []byte
}

// Write implements io.Writer.
func (l *lineLog) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, text...)
	for {
		line, rest, isWhole := bytes.Cut(l.rest, []byte("\n"))
		if !isWhole {
			return len(text), nil
		}
		l.rest = rest
		fmt.Fprintf(os.Stderr, "%s\n", line)
		if bytes.HasPrefix(line, []byte(l.waiting)) {
			l.reached()
		}
	}
}
