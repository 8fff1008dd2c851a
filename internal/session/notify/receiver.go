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

// slackPrefix is the prefix of the URL of an incoming webhook that receives messages of Slack, not CloudEvents.
const slackPrefix = "slack+"

// A Receiver receives events: a URL, or a command.
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
		return Receiver{}, errors.New("the receiver is empty: name a URL or a command")
	}
	return Receiver{command: text}, nil
}

// String returns the receiver without parts that may be secret: the host of a URL, or the program of a command.
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

// ReadFolder reads the receivers in a folder, such as a mounted Secret. Each file has a URL. A command is refused: a
// user who may write a Secret must not run programs by it. A missing folder has no receivers.
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
			err = errors.New("not a URL: write the receiver as https://HOST/PATH, or slack+https://HOST/PATH")
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("receiver %s: %w", file.Name(), err))
			continue
		}
		all = append(all, receiver)
	}
	return all, errors.Join(problems...)
}

// deliverTimeout limits the delivery of an event to one receiver, with all tries.
const deliverTimeout = 10 * time.Second

// deliver sends an event to the receiver.
func (r Receiver) deliver(ctx context.Context, client *http.Client, event CloudEvent) error {
	ctx, cancel := context.WithTimeoutCause(ctx, deliverTimeout,
		fmt.Errorf("the delivery took longer than %s", deliverTimeout))
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

// pipesTimeout limits how long the output of a command is read after the command has ended or was killed: a child
// process may still have it open.
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

// tries is the backoff of a failing request: three tries within deliverTimeout.
var tries = wait.Backoff{Duration: time.Second, Factor: 3, Steps: 3}

// requestTimeout limits one of the tries.
const requestTimeout = 5 * time.Second

// maxRead limits how many bytes of a response are read. The connection can then be used again.
const maxRead = 64 << 10

// newClient returns the client of all requests. The client uses the proxy of the environment, and follows no redirects:
// the target may be another host, and a redirected POST may become a GET.
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

// post sends a message. It retries if the receiver does not answer, is overloaded, or has failed. Errors contain no
// part of the URL, and no part of the response, which may quote the URL.
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

// postOnce sends a message once, and reports whether the result is final: a retry would not help.
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
	_, _ = io.CopyN(io.Discard, response.Body, maxRead)
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
