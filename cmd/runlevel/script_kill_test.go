package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

func isConflict(err error) bool { return apierrors.IsConflict(err) }

// killApply runs "runlevel apply" and kills it, as kill -9 does, at its Nth delete: the server has executed the delete,
// and the answer never arrives. kill-apply N [ARGUMENT...]
func killApply(ts *testscript.TestScript, _ bool, args []string) {
	index, err := strconv.Atoi(args[0])
	ts.Check(err)
	g := guestOf(ts)
	deletes, deadly := make(chan int, 1), make(chan struct{})
	deletes <- 0
	target, err := url.Parse(g.sandbox.Config.Host)
	ts.Check(err)
	transport, err := rest.TransportFor(g.sandbox.Config)
	ts.Check(err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = transport
	proxy.ModifyResponse = func(answer *http.Response) error {
		if answer.Request.Method != http.MethodDelete {
			return nil
		}
		count := <-deletes + 1
		deletes <- count
		if count < index {
			return nil
		}
		if count == index {
			close(deadly)
		}
		<-answer.Request.Context().Done() // the answer never arrives
		return answer.Request.Context().Err()
	}
	proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) {} // the caller of these requests is dead
	server := httptest.NewServer(proxy)
	defer server.Close()

	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	command := exec.CommandContext(ctx, "runlevel",
		append([]string{"apply", "--kubeconfig", g.kubeconfig(ts, "kubeconfig-mortal", server.URL)}, args[1:]...)...)
	command.Dir, command.Stdout, command.Stderr = ts.Getenv("WORK"), ts.Stdout(), ts.Stderr()
	command.Env = append(os.Environ(), "HOME="+ts.Getenv("HOME"))
	command.WaitDelay = time.Second
	ts.Check(command.Start())
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	select {
	case <-deadly:
		ts.Check(command.Process.Signal(syscall.SIGKILL))
		<-ended
	case err := <-ended:
		ts.Fatalf("apply has ended before its delete number %d: %v", index, err)
	}
}
