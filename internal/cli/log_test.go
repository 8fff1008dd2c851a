package cli

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"k8s.io/klog/v2"
)

// No logger logs errors of requests that Ctrl-C has interrupted.
func TestNoErrorIsLoggedAfterAnInterrupt(t *testing.T) {
	var response []string
	log := funcr.New(func(_, line string) { response = append(response, line) }, funcr.Options{})
	ctx, interrupt := context.WithCancel(t.Context())
	ctx = withLogger(ctx, log)
	logAll := func(when string) {
		klog.FromContext(ctx).Error(errors.New("cut off"), when)
		klog.FromContext(ctx).WithValues("a", "b").WithName("c").Error(errors.New("cut off"), when)
		klog.FromContext(ctx).Info("info " + when)
	}
	logAll("before")
	interrupt()
	logAll("after")
	if got := strings.Join(response, "\n"); strings.Count(got, `"msg"="before"`) != 2 ||
		strings.Contains(got, `"msg"="after"`) || !strings.Contains(got, "info after") {
		t.Errorf("got log\n%s\nwant no error after the interrupt", got)
	}
}
