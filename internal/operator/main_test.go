package operator_test

import (
	"flag"
	"os"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Operators of several tests run side by side, and their logs do not name the test: they would hide why a test fails.
var logs = flag.Bool("logs", false, "print what operators log")

func TestMain(m *testing.M) {
	flag.Parse()
	if !*logs {
		klog.SetLogger(logr.Discard())
	}
	ctrl.SetLogger(klog.Background())
	os.Exit(m.Run())
}
