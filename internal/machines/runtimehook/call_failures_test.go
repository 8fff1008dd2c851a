package runtimehook_test

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/runtimehook"
	"github.com/runlevel/runlevel/internal/sandbox/runtimehooktest"
)

// faults has the faults of extensions, with the reported reasons. Failure policy Ignore ignores some faults.
var faults = map[string]struct {
	answer    http.HandlerFunc
	want      string
	isIgnored bool
}{
	"a Failure": {answerText(`{"status":"Failure","message":"the host\nis on fire"}`),
		`answered Failure (the host\nis on fire)`, false},
	"no status": {answerText(`{"retryAfterSeconds":0}`), `answered a status ""`, false},
	"another status": {answerText(`{"status":"Maybe","retryAfterSeconds":0}`),
		`answered a status "Maybe", not Success or Failure`, false},
	"an error": {func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no such\nhandler", http.StatusNotFound)
	},
		`answered 404 Not Found (no such\nhandler)`, true},
	"garbage": {answerText("\x00\x1b[2J<html>"), "sent a response that is not valid JSON for the hook", true},
	"two answers": {answerText(`{"status":"Success"}{"status":"Success"}`),
		"sent a response that is not valid JSON for the hook", true},
	"another type": {answerText(`{"status":"Success","retryAfterSeconds":"soon","machineSetPatch":5}`),
		"sent a response that is not valid JSON for the hook", true},
	"nothing": {answerText(""), "sent a response that is not valid JSON for the hook", true},
	"30 MB": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, io.LimitReader(zeros{}, 30<<20)) },
		"answered more than 20 MiB", true},
	"an answer without end": {func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.Copy(w, zeros{})
	}, "answered more than 20 MiB", true},
	"30 MB, packed": {answerPacked, "answered more than 20 MiB", true},
	"30 MB of an error's words": {func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(500)
		_, _ = io.Copy(w, io.LimitReader(zeros{}, 30<<20))
	}, "answered 500 Internal Server Error (000", true},
	"a broken answer": {func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "{")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}, "broke off its answer", true},
	"a connection that ends": {func(http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler)
	}, "can't be reached at 127.0.0.1:", true},
	"headers without end": {func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X", strings.Repeat("x", 1<<20))
	},
		"can't be reached at 127.0.0.1:", true},
}

func answerText(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

func answerPacked(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Encoding", "gzip")
	packed := gzip.NewWriter(w)
	_, _ = io.Copy(packed, io.LimitReader(zeros{}, 30<<20))
	_ = packed.Close()
}

// zeros are digits without end.
type zeros struct{}

func (zeros) Read(into []byte) (int, error) {
	for i := range into {
		into[i] = '0'
	}
	return len(into), nil
}

// TestFailedCalls checks that an error names the extension, the fault, and the remedy, in one line.
func TestFailedCalls(t *testing.T) {
	for name, test := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			s.Serve("UpdateMachine", test.answer)
			s.Serve("CanUpdateMachineSet", test.answer)
			_, err := s.hooks.UpdateMachine(t.Context(), newUpdateRequest(t))
			checkError(t, err, "extension update-machine.ext "+test.want)
			_, err = s.hooks.CanUpdateMachineSet(t.Context(), newSetRequest(t))
			checkError(t, err, "extension can-update-machineset.ext "+test.want)
			s.checkIgnored(test.isIgnored, test.want)
		})
	}
}

// checkIgnored checks the effect of failure policy Ignore if an extension does not answer: machines are replaced, and
// no machine counts as updated.
func (s *scene) checkIgnored(isIgnored bool, want string) {
	s.Helper()
	s.setPolicy(runtimev1.FailurePolicyIgnore)
	decision, err := s.hooks.CanUpdateMachineSet(s.Context(), newSetRequest(s.T))
	reasons := strings.Join(decision.Reasons, "; ")
	if isIgnored != (err == nil) || decision.CanUpdate || isIgnored && !strings.Contains(reasons, want) {
		s.Errorf("got %+v, error %v; want a failure ignored: %t", decision, err, isIgnored)
	}
	if progress, err := s.hooks.UpdateMachine(s.Context(), newUpdateRequest(s.T)); err == nil || progress.Done {
		s.Errorf("got progress %+v, error %v; want an error, and a machine that is not updated", progress, err)
	}
}

func checkError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("the error is %v, want %s", err, want)
		return
	}
	if text := err.Error(); len(text) > 1000 || strings.ContainsAny(text, "\n\x1b\x00") ||
		!strings.Contains(text, ": ") {
		t.Errorf("got error %q, want one readable line with a remedy", text)
	}
}

// An extension that answers byte by byte, or not at all, holds a worker for its time-out only.
func TestSlowExtensions(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"no answer": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"a slow drip": func(w http.ResponseWriter, r *http.Request) {
			drop := time.NewTicker(10 * time.Millisecond)
			defer drop.Stop()
			for r.Context().Err() == nil {
				<-drop.C
				_, _ = io.WriteString(w, " ")
				_ = http.NewResponseController(w).Flush()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			s.setTimeout(1)
			s.Serve("UpdateMachine", answer)
			s.Serve("CanUpdateMachineSet", answer)
			_, err := s.hooks.UpdateMachine(t.Context(), newUpdateRequest(t))
			checkError(t, err, "extension update-machine.ext did not answer within 1s: ")
			if got := s.Calls()[0].URL; !strings.HasSuffix(got, "?timeout=1s") {
				t.Errorf("the URL of the call lacks the timeout: %s", got)
			}
			s.checkIgnored(true, "did not answer within 1s")
		})
	}
}

// If a controller stops, the extension is not at fault: machines must not be replaced because of this.
func TestACallThatIsCancelledIsNotIgnored(t *testing.T) {
	s := newScene(t)
	s.setPolicy(runtimev1.FailurePolicyIgnore)
	ctx, cancel := context.WithCancel(t.Context())
	s.Serve("CanUpdateMachineSet", func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	decision, err := s.hooks.CanUpdateMachineSet(ctx, newSetRequest(t))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%+v %v", decision, err)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	other := runtimehooktest.New(t)
	other.Answer("UpdateMachine", `{"status":"Success","retryAfterSeconds":0}`)
	s := newScene(t)
	s.Serve("UpdateMachine", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.ClientConfig().URL+r.URL.Path, http.StatusTemporaryRedirect)
	})
	_, err := s.hooks.UpdateMachine(t.Context(), newUpdateRequest(t))
	checkError(t, err, "extension update-machine.ext redirects to "+other.ClientConfig().URL)
	if calls := other.Calls(); len(calls) > 0 {
		t.Errorf("calls of the other server: got %v, want none", calls)
	}
}

func TestUnreachableExtensions(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	foreign, byName, expired := runtimehooktest.New(t), runtimehooktest.New(t, "ext.other.svc"),
		runtimehooktest.New(t, runtimehooktest.Expired)
	ok := runtimehooktest.New(t)
	for name, test := range map[string]struct {
		where runtimev1.ClientConfig
		want  string
	}{
		"nothing listens": {runtimev1.ClientConfig{URL: "https://" + runtimehooktest.FreeAddress(t)},
			"can't be reached at 127.0.0.1:"},
		"another authority": {runtimev1.ClientConfig{URL: foreign.ClientConfig().URL, CABundle: ok.CA()},
			"has a certificate from an unknown authority: set spec.clientConfig.caBundle"},
		"no authority": {runtimev1.ClientConfig{URL: foreign.ClientConfig().URL},
			"has a certificate from an unknown authority: set spec.clientConfig.caBundle"},
		"another name": {byName.ClientConfig(), "has a certificate for other hosts than 127.0.0.1: issue one"},
		"expired":      {expired.ClientConfig(), "has an invalid certificate"},
		"no TLS": {runtimev1.ClientConfig{URL: "https" + strings.TrimPrefix(plain.URL, "http")},
			"does not speak TLS at 127.0.0.1:"},
	} {
		t.Run(name, func(t *testing.T) {
			config := newConfig("ext", test.where)
			hooks := newHooks(config)
			_, err := hooks.UpdateMachine(t.Context(), newUpdateRequest(t))
			checkError(t, err, "extension update-machine.ext "+test.want)
		})
	}
}

// TestServiceNames calls the Service of an extension by its name, which its certificate has to have.
func TestServiceNames(t *testing.T) {
	port := int32(9443)
	for name, test := range map[string]struct {
		service    runtimev1.ServiceReference
		dial, path string
	}{
		"by default": {runtimev1.ServiceReference{Namespace: "demo", Name: "ext"}, "ext.demo.svc:443",
			"/hooks"},
		"with port and path": {runtimev1.ServiceReference{Namespace: "demo", Name: "ext", Port: &port, Path: "/a/b/"},
			"ext.demo.svc:9443", "/a/b/hooks"},
		"a path without root": {runtimev1.ServiceReference{Namespace: "demo", Name: "ext", Path: "a"},
			"ext.demo.svc:443", "/a/hooks"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, "ext.demo.svc")
			s.config.Spec.ClientConfig = runtimev1.ClientConfig{Service: test.service, CABundle: s.CA()}
			s.Answer("UpdateMachine", `{"status":"Success","retryAfterSeconds":5,"message":"half"}`)
			var dialled string
			s.hooks.Client.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
				dialled = address
				return (&net.Dialer{}).DialContext(ctx, network, s.Address())
			}
			progress, err := s.hooks.UpdateMachine(t.Context(), newUpdateRequest(t))
			if want := (runtimehook.Progress{RetryAfter: 5 * time.Second, Message: "half"}); err != nil ||
				progress != want {
				t.Fatal(progress, err)
			}
			if call := s.Calls()[0]; dialled != test.dial || call.ServerName != "ext.demo.svc" ||
				!strings.HasPrefix(call.URL, test.path) {
				t.Errorf("dialled %s, called %+v", dialled, call)
			}
		})
	}
}

// TestClientConfigsThatAreRefused are never called, whatever the failure policy reports.
func TestClientConfigsThatAreRefused(t *testing.T) {
	bad := int32(70000)
	for want, clientConfig := range map[string]runtimev1.ClientConfig{
		`spec.clientConfig.url begins with "http"`:      {URL: "http://example.com"},
		`spec.clientConfig.url begins with ""`:          {URL: "example.com"},
		"spec.clientConfig.url is not a URL":            {URL: "https://%zz"},
		"spec.clientConfig.url has no host":             {URL: "https:///path"},
		"spec.clientConfig.url has a user":              {URL: "https://user:secret@example.com"},
		"spec.clientConfig.url has a user, a query":     {URL: "https://example.com?a=b"},
		"spec.clientConfig has neither url nor service": {},
		"spec.clientConfig has both": {
			URL:     "https://example.com",
			Service: runtimev1.ServiceReference{Namespace: "a", Name: "b"},
		},
		"spec.clientConfig.service lacks its name": {Service: runtimev1.ServiceReference{Namespace: "a"}},
		"spec.clientConfig.service.port is 70000": {Service: runtimev1.ServiceReference{
			Namespace: "a",
			Name:      "b",
			Port:      &bad,
		}},
		"spec.clientConfig.caBundle has no certificate in PEM form": {
			URL:      "https://example.com",
			CABundle: []byte("none"),
		},
	} {
		s := newScene(t)
		s.config.Spec.ClientConfig = clientConfig
		_, err := s.hooks.UpdateMachine(t.Context(), newUpdateRequest(t))
		checkError(t, err, "extension update-machine.ext can't be called: ExtensionConfig ext: "+want)
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the error contains a password: %v", err)
		}
		s.checkIgnored(false, "")
	}
}
