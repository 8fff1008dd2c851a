package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// slackPrefix is that of the URL of an incoming webhook which takes Slack's message, and no CloudEvent.
const slackPrefix = "slack+"

// A Receiver is where events are sent: a URL, or a command.
type Receiver struct {
	url     string // "" for a command
	isSlack bool
	command string
}

// ParseReceiver returns the receiver that a user names: an http or https URL, the same after "slack+", or else a
// command line for the shell. The error has no part of the text, which may have a token in it.
func ParseReceiver(text string) (Receiver, error) {
	if target, isSlack := strings.CutPrefix(text, slackPrefix); isSlack || strings.HasPrefix(text, "http://") ||
		strings.HasPrefix(text, "https://") {
		parsed, err := url.Parse(target)
		if err != nil || parsed.Host == "" || parsed.Scheme != "http" && parsed.Scheme != "https" {
			return Receiver{},
				errors.New("the URL is invalid: write it as https://HOST/PATH, or slack+https://HOST/PATH")
		}
		return Receiver{url: target, isSlack: isSlack}, nil
	}
	if strings.TrimSpace(text) == "" {
		return Receiver{}, errors.New("it is empty: name a URL or a command")
	}
	return Receiver{command: text}, nil
}

// String returns the receiver without what may be secret: the host of a URL, and the program of a command.
func (r Receiver) String() string {
	if r.url == "" {
		program, _, _ := strings.Cut(strings.TrimSpace(r.command), " ")
		if strings.Contains(program, "=") { // a variable of the shell, such as a token
			program = ""
		}
		return "command " + program + "…"
	}
	parsed, err := url.Parse(r.url)
	if err != nil { // ParseReceiver has parsed it
		return "URL"
	}
	return parsed.Scheme + "://" + parsed.Host + "/…"
}

// ReadFolder reads the receivers in the files of a folder, as a mounted Secret has them: a URL in each. A command is
// refused: a user who may write a Secret must not run programs by it. A missing folder has no receivers.
func ReadFolder(folder string) ([]Receiver, error) {
	files, err := os.ReadDir(folder)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var all []Receiver
	problems := []error{err}
	for _, file := range files {
		if strings.HasPrefix(file.Name(), ".") { // a Secret is mounted by hidden folders
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, file.Name()))
		if err != nil {
			problems = append(problems, err)
			continue
		}
		receiver, err := ParseReceiver(strings.TrimSpace(string(text)))
		if err == nil && receiver.url == "" {
			err = errors.New("it is not a URL: write it as https://HOST/PATH, or slack+https://HOST/PATH")
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("receiver %s: %w", file.Name(), err))
			continue
		}
		all = append(all, receiver)
	}
	return all, errors.Join(problems...)
}

// deliverTimeout bounds the delivery of an event to one receiver, with all tries.
const deliverTimeout = 10 * time.Second

// deliver sends an event to the receiver.
func (r Receiver) deliver(ctx context.Context, client *http.Client, event CloudEvent) error {
	ctx, cancel := context.WithTimeoutCause(ctx, deliverTimeout, fmt.Errorf("it took longer than %s", deliverTimeout))
	defer cancel()
	body, err := json.Marshal(event)
	contentType := "application/cloudevents+json"
	if r.isSlack {
		body, err = event.slackBody()
		contentType = "application/json"
	}
	switch {
	case err != nil:
		return err
	case r.url == "":
		return runCommand(ctx, r.command, body)
	default:
		return post(ctx, client, message{url: r.url, contentType: contentType, body: body})
	}
}

// pipesTimeout is how long output is read after a command has ended, or was killed: a program that it has started may
// still have it open.
const pipesTimeout = time.Second

// runCommand runs a command line in the shell, with a document on its standard input. Its output goes to standard
// error: standard output has the result of the apply.
func runCommand(ctx context.Context, line string, document []byte) error {
	command := exec.CommandContext(ctx, "sh", "-c", line)
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(append(document, '\n')), os.Stderr, os.Stderr
	command.WaitDelay = pipesTimeout
	withGroup(command)
	err := command.Run()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// tries are those of a request that fails for a while: three, within deliverTimeout.
var tries = wait.Backoff{Duration: time.Second, Factor: 3, Steps: 3}

// requestTimeout bounds one of the tries.
const requestTimeout = 5 * time.Second

// mostRead is how much of a response is read, so that the connection can be used again.
const mostRead = 64 << 10

// newClient returns the client of all requests. Its proxy is that of the environment. It follows no redirects: the
// target may be another host, and a POST that was redirected may become a GET.
func newClient() *http.Client {
	return &http.Client{
		Timeout:       requestTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// A message is the content of a POST request.
type message struct {
	url, contentType string
	body             []byte
}

// post sends a message, again if the receiver does not answer, is overloaded, or has failed. Errors have no part of the
// URL, and nothing of the response, which may quote it.
func post(ctx context.Context, client *http.Client, m message) error {
	var last error
	_ = wait.ExponentialBackoffWithContext(ctx, tries, func(ctx context.Context) (bool, error) {
		var isFinal bool
		isFinal, last = postOnce(ctx, client, m)
		return isFinal, nil
	})
	if last == nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return last
}

// postOnce sends a message, and reports whether it is not to be sent again.
func postOnce(ctx context.Context, client *http.Client, m message) (isFinal bool, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, m.url, bytes.NewReader(m.body))
	if err != nil {
		return true, printable.RequestError(err)
	}
	request.Header.Set("Content-Type", m.contentType)
	request.Header.Set("User-Agent", "runlevel")
	response, err := client.Do(request)
	if err != nil {
		return false, printable.Error(printable.RequestError(err))
	}
	defer response.Body.Close()
	_, _ = io.CopyN(io.Discard, response.Body, mostRead)
	status := fmt.Sprintf("%d %s", response.StatusCode, http.StatusText(response.StatusCode))
	switch {
	case response.StatusCode < 300:
		return true, nil
	case response.StatusCode < 400:
		return true, fmt.Errorf("%s: redirects are not followed: name the URL that it leads to", status)
	default:
		return response.StatusCode < 500 && response.StatusCode != http.StatusTooManyRequests, fmt.Errorf("%s", status)
	}
}
