package main

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/sandbox"
)

// patchStatus merges fields into the status of an object, as its controller would: patch-status KIND KEY JSON
func patchStatus(ts *testscript.TestScript, _ bool, args []string) {
	var fields map[string]any
	ts.Check(json.Unmarshal([]byte(args[2]), &fields))
	modify(ts, args, "status", func(o *unstructured.Unstructured) {
		status, _, _ := unstructured.NestedMap(o.Object, "status")
		if status == nil {
			status = map[string]any{}
		}
		maps.Copy(status, fields)
		o.Object["status"] = status
	})
}

// stopServer stops the API server of the script's own control plane: stop-server
func stopServer(ts *testscript.TestScript, _ bool, _ []string) {
	ts.Check(guestOf(ts).sandbox.Kill("kube-apiserver"))
}

// startServer starts the stopped API server: start-server
func startServer(ts *testscript.TestScript, _ bool, _ []string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ts.Check(guestOf(ts).sandbox.Resume(ctx, "kube-apiserver"))
}

// freezeServer stops the API server, without closing its connections, until thaw-server: freeze-server
func freezeServer(ts *testscript.TestScript, _ bool, _ []string) { signalServer(ts, syscall.SIGSTOP) }

func thawServer(ts *testscript.TestScript, _ bool, _ []string) { signalServer(ts, syscall.SIGCONT) }

func signalServer(ts *testscript.TestScript, signal syscall.Signal) {
	found, err := sandbox.Find(guestOf(ts).sandbox.Name)
	ts.Check(err)
	for _, component := range found.Components {
		if component.Name == sandbox.APIServer {
			ts.Check(syscall.Kill(component.PID, signal))
		}
	}
}

// awaitText waits until a file has a text: await-text FILE REGEXP
func awaitText(ts *testscript.TestScript, _ bool, args []string) {
	wanted, deadline := regexp.MustCompile(args[1]), time.After(patience)
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		text, _ := os.ReadFile(ts.MkAbs(args[0]))
		if wanted.Match(text) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			ts.Fatalf("%s has no %q:\n%s", args[0], args[1], text)
		}
	}
}
