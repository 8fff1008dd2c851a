package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
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
			err = errors.New("it is no URL: write it as https://HOST/PATH, or slack+https://HOST/PATH")
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
